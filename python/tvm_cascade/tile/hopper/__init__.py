"""Hopper instructions for tiles, as later cards have them too: TMA copies and mbarriers."""
