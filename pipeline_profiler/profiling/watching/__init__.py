"""Watching a training that somebody else wrote, without a line of it changed.

In: the command line of a script. Out: its own exit code, and a session a process that trained. A
small hook (hook/sitecustomize.py) lies on PYTHONPATH of the script and of every Python it starts,
so launchers and spawned workers need nothing else. In a process that iterates a loader the hook
records at the loader's iterator; the program that started it judges and prints. Cost: some
microseconds a step in the training, nothing before the first batch.
"""
