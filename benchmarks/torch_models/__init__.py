"""Models of the kinds that users bring, written small in plain torch with random weights; for tests and benchmarks."""
