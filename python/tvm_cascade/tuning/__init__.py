"""Tuning sessions: the designs of a lowering measured in order of their estimates, the best kept in a database."""
