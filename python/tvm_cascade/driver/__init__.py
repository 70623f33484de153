"""From a program to machine code: targets, backends, compiling, calling and explaining."""
