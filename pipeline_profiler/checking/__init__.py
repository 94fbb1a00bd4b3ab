"""The contract of a check on a loader or a training, what it is given, and how checks are run.

In: the user's factories. Out: one answer a check: pass, fail or cannot tell, with the numbers, the
likely causes in order and the next step. Cost: seconds a check, bounded by the time budget. The
checks themselves lie in `loader_checks/` and `training_checks/`, one file each.
"""
