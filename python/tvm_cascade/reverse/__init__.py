"""Reverse mode: gradients of programs as programs."""
