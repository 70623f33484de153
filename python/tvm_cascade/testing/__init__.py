"""Test machinery: folds on numbers, random cascades, recorded functions."""
