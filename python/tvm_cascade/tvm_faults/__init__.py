"""What exists only because TVM is wrong: a file a fault, which a test reproduces: what TVM mends goes."""
