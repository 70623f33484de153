"""Few rows: their left operand in registers, and the cascade axis in equal-work pieces over the grid."""
