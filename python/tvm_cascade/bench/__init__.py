"""Benchmarks: workloads as data, their peers, and the goals that they are measured against."""
