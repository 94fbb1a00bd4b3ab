"""Session -> verdict and causes: pure functions, so that old sessions can be judged again."""
