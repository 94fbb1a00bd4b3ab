"""Parts: Parquet files of rows by content hash, each named by the hash of its own content.

They are written once, never changed and shared by the versions of a run. Pages of Parquet have
no checksums, so the name shows damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import blake3

from audit.run.synced_files import write_synced
from dataset_preflight.foundation.files import read_regular

if TYPE_CHECKING:
    import polars as pl

PARTS = "*.parquet"


def part_name(content: bytes) -> str:
    """Return the name of a part with this content."""
    return str(blake3.blake3(content).hexdigest()[:32])


def is_whole(path: Path) -> bool:
    """Say whether a part holds what its name says."""
    return path.is_file() and part_name(read_regular(path)) == path.stem


def write_named_part(
    folder: Path,
    frame: pl.DataFrame,
    compression: Literal["zstd", "uncompressed"],
    facts: Mapping[str, str] | None = None,
) -> Path:
    """Store rows, and facts about them, durably as a part; return the file."""
    sink = BytesIO()
    metadata = dict(facts) if facts else None
    frame.write_parquet(sink, compression=compression, statistics=False, metadata=metadata)
    content = sink.getvalue()
    path = folder / f"{part_name(content)}.parquet"
    if not is_whole(path):
        folder.mkdir(parents=True, exist_ok=True)
        write_synced(path, content)
    return path


def read_named_part(
    path: Path, columns: list[str] | None = None, facts: Mapping[str, str] | None = None
) -> pl.DataFrame | None:
    """Return the rows of a part; None where it is damaged or its facts are others."""
    import polars as pl

    try:
        content = read_regular(path)
        if part_name(content) != path.stem:
            return None
        if facts and not facts.items() <= pl.read_parquet_metadata(BytesIO(content)).items():
            return None
        return pl.read_parquet(BytesIO(content), columns=columns)
    except (pl.exceptions.PolarsError, OSError):
        return None
