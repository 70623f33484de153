"""GPU kernels generated from folds: tile and row programs as data, and skeletons for the data movement."""
