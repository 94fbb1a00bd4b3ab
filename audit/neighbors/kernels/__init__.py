"""The compiled inner loops of the search: registration and popcounts, in numba.

In come whole batches (pairs, codes), out go arrays that the caller allocated; nothing here decides
anything. Compiling takes some seconds once and is cached on disk; after that a pair is registered
in about 0.1 ms and thousands of millions of codes are compared a second, on all cores.
"""
