"""How exact a fused program is: its error and the unfused program's, by input, and where it is lost."""
