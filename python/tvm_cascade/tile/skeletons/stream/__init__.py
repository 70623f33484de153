"""The stream skeleton: right operands flow through a ring of stages while warp groups fold their products."""
