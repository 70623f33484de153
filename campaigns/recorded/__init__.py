"""Replays functions that another project's tests build: a recorder, and a trial of each function."""
