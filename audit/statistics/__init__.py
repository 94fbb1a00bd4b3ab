"""Intervals, tests of ranks, rare cells, what lies apart: plain arrays in, plain arrays out."""
