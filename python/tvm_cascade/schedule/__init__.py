"""S-TIR schedules of fused functions, one file per strategy."""
