"""Refutations: numbers which show that an element has no fold, found by search, behind one question."""
