"""Checks of loaders, trainings and logs: their contract, their inputs and their runner.

In: the user's factories. Out: one answer a check: pass, fail or cannot tell, with the numbers, the
likely causes in order and the next step. Cost: seconds a check, bounded by the time budget. The
checks themselves lie in `loader/`, `training/` and `log/`: one file a check, or a family of twins.
"""
