"""Unfused programs in TE, one family a file, each stage written separately as a user would."""
