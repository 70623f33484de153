"""Skeletons: how the data of a kernel move, with what is computed left to the fold.

Each is a folder with a `Skeleton` (`tile.skeleton`), and a row of the table (`table.SKELETONS`). Nothing else names it.
"""
