"""Accuracy of fused programs: error against float64, by input, and which part of the fold loses digits."""
