"""Skeletons: how data moves and who computes, one shape of cascade a file. What is computed is the tile program's."""
