"""Comparison of a run with another run and with expectations; the input study."""
