"""Matrix products on CUDA cores: register tiles, for dtypes that tensor cores do not multiply."""
