"""Checked derivations: a fold against the definition of its cascade, on numbers at as many digits as that takes."""
