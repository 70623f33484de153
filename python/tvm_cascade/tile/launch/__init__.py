"""Kernels beside their neighbours and the CUDA compiler: dependent launch, prefetch, and the passes after them."""
