"""The row skeleton: threads that share a contiguous row fold vectors of its positions, and merge their states."""
