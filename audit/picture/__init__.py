"""Decoding and measuring of one file: image, hashes and measured columns.

In: a path and the limits on pixels and bytes. Files may be hostile: nothing in them can raise. Out:
one row of columns per file and a signature per picture.
"""
