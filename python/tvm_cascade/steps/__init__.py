"""The step program: folding positions in, merging states and finishing, as data."""
