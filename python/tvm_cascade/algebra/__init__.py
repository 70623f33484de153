"""The algebra of cascaded reductions: pure mathematics, SymPy only. A `Cascade` goes in, a `Fold` or a `Refusal` comes out."""
