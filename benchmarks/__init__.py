"""Benchmarks of the package: suites of the corpus, their peers, and the goals that they are measured against."""
