"""What a run and its decisions become: tables, annotations, tasks for label tools, new datasets."""
