"""The base class of a check, and the runner of all checks."""
