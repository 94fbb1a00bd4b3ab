"""Inner loops of the search: registration and popcounts, compiled (`audit.kernels`) or in numpy.

In come whole batches (pairs, codes), out go arrays that the caller allocated.
"""
