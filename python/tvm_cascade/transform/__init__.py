"""Folds back to S-TIR: one loop over tiles of the cascade axis, with its compensation terms."""
