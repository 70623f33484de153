"""Operands of attention on their way to the tensor cores: rings of tiles, rows in pages, conversions, fragments."""
