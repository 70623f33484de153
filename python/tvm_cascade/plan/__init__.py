"""A function as a plan: kernels in order, with what passes between them in temporaries."""
