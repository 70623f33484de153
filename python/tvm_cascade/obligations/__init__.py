"""Checked derivations: a fold against its cascade's definition, in balls that enclose the numbers."""
