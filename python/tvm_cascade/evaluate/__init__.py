"""Evaluation of programs: the float64 oracle, named inputs, and calibrated tolerances."""
