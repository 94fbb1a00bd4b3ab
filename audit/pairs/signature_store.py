"""Signatures on disk: what near-duplicate search needs of a picture, without opening it again.

A scan writes them as Parquet files under `RUN/signatures/`, some thousands to a file, each named
by the hash of its content and never changed. Rows are (content hash, 1,233 bytes), so files belong
to no generation: a picture that two generations share is stored once, and a re-check or a
comparison with new images reads no pixels. They are kept out of DuckDB because a gigabyte of blobs
would be copied with every generation.

Written before the feature rows of the same files: a scan killed in between repeats some work and
never lacks a signature. Reading 100,000 takes about 0.2 s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import blake3
import numpy as np
import numpy.typing as npt

from audit.neighbors.signatures import SIGNATURE_DTYPE, Signatures
from audit.picture.measure import VERSION_KEY, signature_schema

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "signatures"


def write_signatures(run: Path, table: pa.Table) -> Path | None:
    """Store the rows of `table` under `RUN/signatures/`; returns the file, None without rows.

    Rows are sorted and equal content hashes kept once, so equal content gives an equal name.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    order = pc.sort_indices(table["content_hash"])
    ordered = table.take(order)
    names = np.asarray(ordered["content_hash"].to_pylist(), object)
    if not len(names):
        return None
    first = np.concatenate([[True], names[1:] != names[:-1]])
    distinct = ordered.filter(pa.array(first)).combine_chunks()
    sink = pa.BufferOutputStream()
    pq.write_table(
        distinct.cast(signature_schema()), sink, compression="zstd", use_dictionary=False
    )
    content = sink.getvalue()
    path = run / FOLDER / f"{blake3.blake3(content).hexdigest()[:32]}.parquet"
    if not path.exists():
        _write(path, content)
    return path


def _write(path: Path, content: pa.Buffer) -> None:
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def load_signatures(
    run: Path, content_hashes: Sequence[str]
) -> tuple[Signatures, npt.NDArray[np.bool_]]:
    """Return the signatures (n,) of these content hashes, distinct, and which of them were found.

    Rows that were not found are zero. Damaged files and those of another version count as absent.
    """
    import pyarrow as pa

    wanted = pa.array(content_hashes, pa.string())
    out = np.zeros(len(content_hashes), SIGNATURE_DTYPE)
    found = np.zeros(len(content_hashes), np.bool_)
    for path in sorted((run / FOLDER).glob("*.parquet")):
        for place, rows in _hits(path, wanted):
            out[place] = rows
            found[place] = True
        if found.all():
            break
    return out, found


def _hits(path: Path, wanted: pa.Array) -> Iterator[tuple[npt.NDArray[np.int64], Signatures]]:
    """Yield places in `wanted` and their signatures, as far as this file holds them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            stored = file.schema_arrow.metadata or {}
            if stored.get(VERSION_KEY) != signature_schema().metadata[VERSION_KEY]:
                return
            table = file.read()
    except (pa.ArrowInvalid, OSError):
        return
    place = pc.index_in(table["content_hash"].combine_chunks(), value_set=wanted)
    mask = place.is_valid()
    if not pc.any(mask).as_py():
        return
    packed = b"".join(table["signature"].filter(mask).to_pylist())
    yield place.filter(mask).to_numpy().astype(np.int64), np.frombuffer(packed, SIGNATURE_DTYPE)
