"""Dataset preflight."""
