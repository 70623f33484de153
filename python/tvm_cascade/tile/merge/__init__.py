"""One merge at every level that splits a row: lanes of a warp, warps of a block, blocks of a cluster or grid."""
