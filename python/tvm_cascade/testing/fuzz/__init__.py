"""Random cascades: a grammar, trials of the algebra and of the pass on what it draws, and campaigns of many trials."""
