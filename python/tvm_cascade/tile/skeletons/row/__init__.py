"""The row skeleton: a thread group folds vectors of a contiguous row, and merges its states."""
