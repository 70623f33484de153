"""Instruction families: what multiplies tiles, and how its operands and results are laid out."""
