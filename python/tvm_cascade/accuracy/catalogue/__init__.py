"""Cascades from text books, as text, and the hard data that their folds have to stand."""
