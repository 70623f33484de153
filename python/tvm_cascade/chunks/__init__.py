"""Folds across calls: functions that leave the state of a chunk of the cascade axis, and that merge such states."""
