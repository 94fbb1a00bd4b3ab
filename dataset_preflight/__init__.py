"""The one page over an audit and a profile: `dataset-preflight DATA -- python train.py`.

Imports nothing, because the recorder in a user's training imports `foundation`.
"""
