"""A folder for PYTHONPATH: Python runs the `sitecustomize` it finds there before a script."""
