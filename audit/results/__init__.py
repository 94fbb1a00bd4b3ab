"""Queries of the app: pages, facets, histograms, groups, images and the decision log.

Queries take an open `Store` and a filter as data, and return frozen rows and frames. A page is
found by the last row of the page before it (`WHERE (value, id) > ...`), never by an offset.
"""
