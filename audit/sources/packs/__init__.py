"""Files that hold many pictures: archives, shards and arrays, read where they lie, never unpacked.

Each module with `list_members` is one format, found by itself (`formats.py` says what it offers):
it lists the members of a pack with a key each, and reads the bytes of a member by its key.
"""
