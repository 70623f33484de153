"""Attention before its kernels: its shape, the program of a tile, masks, and how tiles are shared out among blocks."""
