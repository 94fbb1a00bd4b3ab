"""Tests of vectors and of judged labels."""
