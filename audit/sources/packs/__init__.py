"""Files that hold many pictures: archives, shards and arrays, read where they lie, never unpacked.

Each module with `list_members` is one format, found by itself (`formats.py` says what it offers).
In: the path of a pack. Out: its members with a key each; and the bytes of one member by its key,
read by whichever process measures it.
"""
