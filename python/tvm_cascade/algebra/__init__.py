"""The algebra of cascaded reductions: pure mathematics, SymPy only. `Cascade` in, `Fold` or `Refusal` out."""
