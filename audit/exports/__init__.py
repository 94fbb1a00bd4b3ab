"""Exports of a run and its decisions: tables, annotations, tasks for label tools, datasets."""
