"""Evaluating programs: the float64 oracle, named inputs, and tolerances that are shown to reject wrong answers."""
