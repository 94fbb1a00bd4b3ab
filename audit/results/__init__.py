"""Queries of the app: pages, facets, histograms, groups, images and the decision log."""
