"""Fuzzing: a grammar of random cascades, trials of the algebra and of the pass, and campaigns of trials."""
