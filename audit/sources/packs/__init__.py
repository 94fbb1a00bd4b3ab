"""Files that hold many pictures: archives, shards and arrays, read where they lie, never unpacked.

Each module with `list_members` is one format (`formats.PackFormat`).
"""
