"""Random programs with matrix products: their grammar, the programs in TE and in torch, trials and their table."""
