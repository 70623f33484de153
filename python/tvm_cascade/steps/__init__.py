"""The step program of a fold: what folding positions in, merging states and finishing do, step by step, as data."""
