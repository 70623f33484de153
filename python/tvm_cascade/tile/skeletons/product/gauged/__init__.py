"""Products whose left operand is lifted in registers, gauged by statistics of its rows."""
