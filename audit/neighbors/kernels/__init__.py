"""Inner loops of the search: registration and popcounts, compiled (`audit.kernels`) or in numpy.

In come whole batches (pairs, codes), out go arrays that the caller allocated; nothing here decides
anything. Compiled, a pair is registered in about 0.1 ms and thousands of millions of codes are
compared a second; in numpy that takes ten times as long.
"""
