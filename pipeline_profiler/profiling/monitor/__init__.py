"""Watching a training that somebody else wrote, without a line of it changed.

A hook (hook/sitecustomize.py) lies on PYTHONPATH of the script and of every Python it starts, and
records at the loader's iterator. The program that started it judges and prints.
"""
