"""One merge, at every level at which a machine can split a row: lanes of a warp, warps of a block, blocks of a grid."""
