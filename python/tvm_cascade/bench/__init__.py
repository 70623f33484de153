"""Benchmark workloads as data, their peers, and what they are measured against."""
