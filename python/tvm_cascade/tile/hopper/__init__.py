"""Hopper instructions for tiles: TMA copies, mbarriers and WGMMA."""
