"""The row shape: folds over what memory holds along rows."""
