"""The algebra of cascaded reductions, in SymPy alone: `Cascade` in, `Fold` or `Refusal` out."""
