"""What Hopper has for tiles: bulk tensor copies, barriers in shared memory, and products by warp groups."""
