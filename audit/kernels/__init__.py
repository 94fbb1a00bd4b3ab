"""Loops in C, compiled once into one library, and the table of functions that Python calls."""
