"""The evidence of this project: folds on numbers, and random cascades."""
