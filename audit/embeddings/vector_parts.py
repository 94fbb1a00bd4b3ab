"""Vectors on disk: what a model said of a picture, without asking it again.

Parquet files under `RUN/vectors/<model>/` of rows (content hash, vector), each named by the hash of
its content and never changed; the folder is named by what decides a vector. A scan that was killed
goes on from the last part, and folders of other models may be deleted by hand. The codes of the
built-in vectors lie there too, a folder a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.run.parts import PARTS, is_whole, read_named_part, write_named_part

Vectors = npt.NDArray[Any]
VECTORS = "vectors"


class VectorParts:
    """The vectors of one model under a run; `identity` names the model, 16 hex digits."""

    def __init__(self, run: Path, identity: str, kind: npt.DTypeLike = np.float32) -> None:
        """Remember where they are, and of what `kind` of number; nothing is read or made yet."""
        self.folder, self.kind = run / VECTORS / identity, np.dtype(kind)
        self._damaged: list[Path] = []

    def write(self, content_hashes: Sequence[str], vectors: Vectors) -> None:
        """Store vectors (n, d) as one part, durably; removes damaged parts that `load` met."""
        import polars as pl

        if not len(content_hashes):
            return
        packed = [row.tobytes() for row in np.ascontiguousarray(vectors, self.kind)]
        frame = pl.DataFrame(
            {"content_hash": list(content_hashes), "vector": pl.Series(packed, dtype=pl.Binary)}
        )
        for path in self._damaged:
            path.unlink(missing_ok=True)
        self._damaged.clear()
        write_named_part(self.folder, frame, "uncompressed")  # numbers of a network do not compress

    def load(self, content_hashes: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.bool_]]:
        """Return the vectors (n, d) of these content hashes, and which of them are stored.

        Rows that are not stored are zero; d is 0 where nothing is. Damaged parts count as absent.
        """
        import polars as pl

        wanted = pl.DataFrame({"content_hash": pl.Series(content_hashes, dtype=pl.String)})
        wanted = wanted.with_row_index("place")
        found = np.zeros(len(content_hashes), np.bool_)
        vectors = np.zeros((len(content_hashes), 0), self.kind)
        for path in sorted(self.folder.glob(PARTS)):
            part = read_named_part(path)
            if part is None:
                self._damaged.append(path)
                continue
            held = part.join(wanted, on="content_hash")
            if held.is_empty():
                continue
            rows = np.frombuffer(b"".join(held["vector"].to_list()), self.kind)
            rows = rows.reshape(len(held), -1)
            if not vectors.shape[1]:
                vectors = np.zeros((len(content_hashes), rows.shape[1]), self.kind)
            if rows.shape[1] != vectors.shape[1]:
                continue
            place = held["place"].to_numpy()
            vectors[place] = rows
            found[place] = True
        return vectors, found


def list_vector_parts(run: Path) -> list[tuple[Path, bool]]:
    """Return the parts of all models, and whether each holds what its name says."""
    paths = sorted(p for p in (run / VECTORS).glob(f"*/{PARTS}") if len(p.stem) == 32)
    return [(path, is_whole(path)) for path in paths]
