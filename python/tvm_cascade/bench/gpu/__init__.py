"""Attention on a GPU beside the kernels that a user would pick instead: checked first, then timed in turns."""
