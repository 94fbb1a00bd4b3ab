"""Decisions carried out: a plan of every file, and a new folder made from it; no source changes."""
