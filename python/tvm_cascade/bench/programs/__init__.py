"""Unfused programs in TE, one family a file: each stage is written the way a user would, one after the other."""
