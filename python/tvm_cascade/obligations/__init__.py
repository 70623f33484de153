"""Checked derivations: a fold against its cascade's definition, at as many digits as needed."""
