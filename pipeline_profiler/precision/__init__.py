"""Speed of real training steps in each precision, with the loader of the user attached.

In come models, loaders and `SweepOptions`; out comes a `Session` whose key `precision` holds the
windows that were timed, the table made of them and its sentences. Start reading at sweep.py; the
types are in cell.py and table.py. A sweep costs its time budget (2 to 5 minutes)
and memory for one model at a time; torch or TensorFlow is imported when a backend is made.
"""
