"""The machines that programs are cut for, as values: what a CPU or a GPU has, a row for each card."""
