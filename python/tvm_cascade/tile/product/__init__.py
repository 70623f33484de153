"""Sums of products of two tensors, as index maps."""
