"""One program in several forms on the same data: built, and checked against float64 before anything is timed."""
