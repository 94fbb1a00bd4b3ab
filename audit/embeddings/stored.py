"""The vectors of a run as its last scan used them, without asking a model again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from audit.embeddings.settings import VectorOptions, file_identity
from audit.embeddings.vector_parts import VectorParts
from audit.embeddings.vectors import PictureVectors, directions, load_vectors
from audit.errors import UsageError
from audit.run.store import Store


def stored_vectors(store: Store, run: Path, pictures: pl.DataFrame) -> PictureVectors:
    """Return the vectors of those `pictures` (pixel_hash, id, content_hash) that have one.

    Raises UsageError, with the command that makes them, where none is left.
    """
    used = _used(store)
    if "embedder" in used:
        found = _of_model(run, pictures, str(used["embedder"]))
    else:
        options = VectorOptions()
        if "embeddings" in used:
            options = VectorOptions(embeddings=_unchanged(str(used["embeddings"])))
        found = load_vectors(store, run, pictures, options, lambda share: None)
    if len(pictures) and not len(found.rows):
        again = " --embedder MODEL" if "embedder" in used else ""
        raise UsageError(
            f"{run} holds no vectors of these pictures: `audit scan SOURCE --out {run}{again}` "
            "makes them."
        )
    return found


def _used(store: Store) -> dict[str, Any]:
    related = json.loads(store.meta().get("related_as") or "{}")
    return dict(related.get("labels") or {})


def _of_model(run: Path, pictures: pl.DataFrame, identity: str) -> PictureVectors:
    vectors, there = VectorParts(run, identity).load(pictures["content_hash"].to_list())
    kept = pictures.filter(pl.Series(there, dtype=pl.Boolean))
    source = f"the stored vectors of model {identity} ({vectors.shape[1]:,} numbers)"
    return PictureVectors(kept, directions(vectors[np.asarray(there)])[None], source)


def _unchanged(identity: str) -> Path:
    """Return the user's file of vectors; raises UsageError where it is not that of the scan."""
    path = Path(identity.rsplit(" ", 2)[0])
    if not path.is_file() or file_identity(path) != identity:
        raise UsageError(
            f"{path}, the vectors of the last scan, is gone or was changed: scan again with "
            "--embeddings FILE, or without it for the built-in vectors."
        )
    return path
