"""Products whose left operand is lifted in registers, with statistics of its rows."""
