"""Row programs: folds over contiguous or strided rows in memory, without matrix products."""
