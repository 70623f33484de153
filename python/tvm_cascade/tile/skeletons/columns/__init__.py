"""The column skeleton: lanes have neighbouring rows, groups of threads split the reduction axis."""
