"""Stream kernels of wide states: two warp groups share rows, each with half of the columns of every product."""
