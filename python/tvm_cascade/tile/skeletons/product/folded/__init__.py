"""The folded skeleton: products on tensor cores whose rows are folded where their sums are, without going to memory."""
