"""Signatures on disk: what near-duplicate search needs of a picture, without opening it again.

A scan writes Parquet files of (content hash, 1,233 bytes) under `RUN/signatures/`, each named by
the hash of its content and never changed, so versions share them. They are written before the
feature rows, so a scan that is killed never lacks a signature. A part that does not match its name
is ignored, and the next scan replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from audit.errors import RunError
from audit.picture.signatures import SIGNATURE_DTYPE, SIGNATURE_VERSION, Signatures
from audit.run import run_version
from audit.run.checked_parts import ABSENT, DAMAGED, SCAN, SOUND, CheckedPart
from audit.run.parts import PARTS, is_whole, part_name, read_named_part, write_named_part
from audit.run.reuse import PREVIOUS, UNSIGNED
from audit.run.store import Store

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

FOLDER = "signatures"
VERSION = {"signature_version": str(SIGNATURE_VERSION)}


def write_signatures(run: Path, table: pa.Table) -> Path | None:
    """Store the rows of `table` under `RUN/signatures/`; returns the file, None without rows.

    Rows are sorted and equal content hashes kept once, so equal content gives an equal name.
    """
    import polars as pl

    if not table.num_rows:
        return None
    frame = pl.DataFrame(table).unique("content_hash", keep="first", maintain_order=True)
    return write_named_part(run / FOLDER, frame.sort("content_hash"), "zstd", VERSION)


def list_parts(run: Path) -> list[tuple[Path, bool]]:
    """Return the files of signatures, and whether each holds what its name says."""
    return [(path, is_whole(path)) for path in sorted((run / FOLDER).glob(PARTS))]


def name_parts(run: Path) -> str:
    """Return a name of all parts together: another where one was added or is gone."""
    stems = sorted(path.stem for path in (run / FOLDER).glob(PARTS))
    return part_name(" ".join(stems).encode())


def stored_hashes(run: Path) -> pl.DataFrame:
    """Return the content hashes whose signature can be loaded, as the column `content_hash`."""
    import polars as pl

    names = ["content_hash"]
    parts = [read_named_part(path, names, VERSION) for path in sorted((run / FOLDER).glob(PARTS))]
    found = [part for part in parts if part is not None]
    return pl.concat([pl.DataFrame(schema={"content_hash": pl.String}), *found])


def load_signatures(
    run: Path, content_hashes: Sequence[str] | pl.Series, out: Signatures | None = None
) -> tuple[Signatures, npt.NDArray[np.bool_]]:
    """Return the signatures (n,) of these content hashes, distinct, and which of them were found.

    Rows that were not found are zero. Damaged files and those of another version count as absent.
    `out` (n,), zeros, is filled where it is given: it may lie in a file.
    """
    import polars as pl

    wanted = pl.DataFrame({"content_hash": pl.Series(content_hashes, dtype=pl.String)})
    wanted = wanted.with_row_index("place")
    out = np.zeros(len(content_hashes), SIGNATURE_DTYPE) if out is None else out
    found = np.zeros(len(content_hashes), np.bool_)
    # the latest first: a few new pictures are there
    parts = sorted((run / FOLDER).glob(PARTS), key=lambda path: -path.stat().st_mtime_ns)
    for path in parts:
        place, rows = _hits(path, wanted)
        out[place] = rows
        found[place] = True
        if found.all():
            break
    return out, found


def _hits(path: Path, wanted: pl.DataFrame) -> tuple[npt.NDArray[np.int64], Signatures]:
    """Return places of the `wanted` and their signatures, as far as this file holds them."""
    part = read_named_part(path, facts=VERSION)
    if part is None:
        return np.zeros(0, np.int64), np.zeros(0, SIGNATURE_DTYPE)
    held = part.join(wanted, on="content_hash")
    packed = b"".join(held["signature"].to_list())
    return held["place"].to_numpy().astype(np.int64), np.frombuffer(packed, SIGNATURE_DTYPE)


PUBLISHED_WITH = "signature_parts"
"""The fact of a run that names the parts of signatures its version was published with."""


def signed_pictures(store: Store, run: Path) -> pl.DataFrame | None:
    """Return the pictures whose signature is stored, as the column `content_hash`.

    None where they are all those of the version that is attached as `previous`: the parts are
    those of when it was published, and whole. `store` is that of a scan that has just listed its
    source.
    """
    if PREVIOUS not in store.attached or store.scalar("SELECT count(*) FROM features"):
        return stored_hashes(run)  # an unfinished scan may have signed others
    published = store.scalar("SELECT value FROM previous.meta WHERE key = ?", [PUBLISHED_WITH])
    if published == name_parts(run):
        damaged = [path for path, whole in list_parts(run) if not whole]
        run_version.remove_files(damaged)
        if not damaged:
            return None
    return stored_hashes(run)


def check_signatures(run: Path) -> CheckedPart:
    """Return the state of the signatures, and how many pictures have none."""
    parts = list_parts(run)
    damaged = [path for path, whole in parts if not whole]
    lacking = _count_lacking(run)
    if not damaged and not lacking:
        detail = f"{len(parts):,} part{'s' * (len(parts) != 1)}" if parts else "none"
        return CheckedPart(FOLDER, SOUND if parts else ABSENT, detail)
    said = [f"{len(damaged):,} of {len(parts):,} parts changed since"] * bool(damaged)
    said += [f"{lacking:,} images have none"] * bool(lacking)
    return CheckedPart(FOLDER, DAMAGED, "; ".join(said), "nothing", f"{SCAN} reads them again")


def _count_lacking(run: Path) -> int:
    """Return how many measured pictures of the current version have no signature stored."""
    try:
        with run_version.open_run(run) as store:
            run_version.with_own_tables(store)
            store.create_from("signed", stored_hashes(run))
            return int(store.scalar(f"SELECT count(*) FROM features f WHERE {UNSIGNED}"))
    except RunError:  # a damaged version is a part of its own
        return 0
