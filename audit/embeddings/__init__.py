"""Embeddings: vectors, label quality, nearest neighbours and the embedding map.

`patches` makes vectors of the stored signatures, without weights; `given` and `embedder` take the
user's own vectors, probabilities or model. `ridge` and `nearest` judge labels out of fold,
`label_noise` says what is wrong and what to look at first; `label_tables` puts what is found into
the tables that the checks read. `similar` answers "more like this".
"""
