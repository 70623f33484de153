"""Devices as values: the properties of CPUs and GPUs that programs are cut for, a row for each card."""
