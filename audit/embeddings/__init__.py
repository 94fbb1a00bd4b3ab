"""Embeddings: vectors, label quality, nearest neighbours and the embedding map.

`patches` makes built-in vectors; `vectors` and `embedder` take the user's own. `ridge` and
`nearest` judge labels out of fold, `label_noise` estimates errors, `label_tables` stores the
results.
"""
