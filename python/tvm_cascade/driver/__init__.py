"""From a program to machine code: what is built for which target, and how."""
