"""The product skeleton: matrix products on tensor cores, with maps of their elements as epilogue."""
