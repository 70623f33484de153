"""GPU benchmarks: attention and row reductions next to the kernels that users pick instead."""
