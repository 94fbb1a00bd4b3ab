"""Scans on several machines: distribution of chunks and shared storage of their results.

ray_cluster     an executor: chunks go to the nodes of a Ray cluster
shared_place    a folder or an address that every node reads and writes
measured_parts  rows of pictures as Parquet parts there, written by nodes, taken in by the head
stored_rows     signatures and descriptors there, fetched by row
shared_search   the heavy steps of the search for near-duplicates, spread over an executor
"""
