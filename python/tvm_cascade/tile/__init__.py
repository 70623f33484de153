"""Kernels for tensor cores, generated from folds: a tile program as data, and skeletons that fix the data movement."""
