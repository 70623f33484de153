"""The column skeleton: lanes hold neighbouring rows, groups of threads split the positions and merge their states."""
