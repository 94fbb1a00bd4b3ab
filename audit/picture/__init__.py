"""Decoding and measuring of one file: image, hashes and measured columns.

In: a path and the limits on pixels and bytes. Files may be hostile: nothing in them can raise.
Out: one row of columns per file (`columns.py`, `features.py`) and a signature per picture.
Cost: about 1.6 ms per photograph of 0.2 megapixels, of which decoding takes 1.1 ms.
"""
