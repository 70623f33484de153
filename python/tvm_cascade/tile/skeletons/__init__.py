"""Skeletons: data movement and division of labour of a kernel, one folder each; the fold says what is computed.

Each is a folder with a `Skeleton` (`tile.skeleton`), and a row of the table (`table.SKELETONS`). Nothing else names it.
"""
