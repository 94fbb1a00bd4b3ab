"""Near-duplicate search tied to a run: what `audit.neighbors` computes, read from and kept in it.

`relate` works within one dataset, `overlap` compares new images with a run, `signature_store` holds
the signatures on disk.
"""
