"""Expressions of programs in SymPy: their functions and masks, a budget of work, and tests of identities."""
