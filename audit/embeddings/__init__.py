"""What pictures mean: vectors, label quality, nearest neighbours, a map.

`patches` makes vectors of the stored signatures, without weights; `given` and `embedder` take the
user's own vectors, probabilities or model. `ridge`, `nearest` and `label_noise` judge labels out of
fold; `label_tables` puts what they find into the tables that the checks read.
"""
