"""From folds to S-TIR: one loop over tiles of the cascade axis, with its rescaling."""
