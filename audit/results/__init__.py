"""Queries of the app: pages, facets, histograms, groups, images and the decision log.

In: an open `Store`, and a filter as data. Out: frozen rows and frames that know nothing of
Streamlit, so every question is tested without a browser. Cost: a page is found by the last row of
the one before (`WHERE (value, id) > ...`), never by an offset, so page 40,000 costs what page 1
does: 20 to 70 ms on 1,000,000 rows. Pictures are decoded on demand and kept as small JPEGs on disk.
"""
