"""Skeletons: how the data of a kernel move, with what is computed left to the fold; one module or folder each."""
