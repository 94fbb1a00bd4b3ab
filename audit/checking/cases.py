"""Cases: the tiny datasets, written in a check's own file, that the check must find clean or dirty.

A case gives only the columns that matter; everything else is that of a healthy photograph. Tests
run every case of every check in an in-memory store; a scan never makes one.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from audit.picture.features import FEATURE_ROW
from audit.records import Column, arrow_schema
from audit.run.store import Store
from audit.run.tables import OTHER_TABLES, SAMPLES

if TYPE_CHECKING:
    import pyarrow as pa

HEALTHY: Mapping[str, Any] = {
    "source": "", "split": "train", "label": "cat", "group_key": None, "n_bytes": 60_000,
    "mtime_ns": 1, "ctime_ns": 1, "status": "ok", "detected": "JPEG", "format": "JPEG",
    "extension": "jpg", "width": 640, "height": 480, "mode": "RGB", "bit_depth": 8, "frames": 1,
    "animated": False, "orientation": 1, "has_alpha": False, "jpeg_quality": 90,
    "jpeg_subsampling": "4:2:0", "progressive": False, "trailing_bytes": 0, "missing_end": False,
    "grey_tail": 0.0,
    "brightness": 0.45, "brightness_p1": 0.05, "brightness_p5": 0.10,
    "brightness_p50": 0.45, "brightness_p95": 0.85, "brightness_p99": 0.95, "contrast": 0.22,
    "saturation": 0.35, "channel_spread": 0.45, "red": 0.47, "green": 0.45, "blue": 0.42,
    "sharpness": 0.45, "edge_density": 0.25, "entropy": 7.3, "noise": 0.01, "transparent": 0.0,
    "noise_floor": 0.005,
    "border_red": 0.47, "border_green": 0.45, "border_blue": 0.42, "border_spread": 0.2,
    "channels_equal": False, "frame": 0.0, "cast_red": 0.0, "cast_blue": 0.0,
}  # fmt: skip


# Near-duplicates for the cases that need some: hashes of pictures, and what a scan would store of
# the first two, verified against each other.
PICTURES = tuple(letter * 32 for letter in "abcd")
NEAR_GROUP: Sequence[Mapping[str, Any]] = (
    {"representative": PICTURES[0], "pixel_hash": PICTURES[0], "position": 0, "score": 1.0},
    {"representative": PICTURES[0], "pixel_hash": PICTURES[1], "position": 1, "score": 9.5},
)
NEAR_PAIR: Mapping[str, Any] = {
    "a": PICTURES[0], "b": PICTURES[1], "kind": "near", "score": 9.5, "similarity": 0.98,
    "distance": 4, "overlap": 1.0, "transformation": "mirrored", "verified_full_size": False,
}  # fmt: skip
NEAR: Mapping[str, Sequence[Mapping[str, Any]]] = {"groups": NEAR_GROUP, "pairs": [NEAR_PAIR]}


@dataclass(frozen=True)
class Case:
    """A tiny dataset and what a check must say of it.

    `images` are rows of the `images` view (an `id` is made up where absent; hashes are made up,
    all different, where absent). `expect` lists the subjects of the findings, in any order; a clean
    case expects none. `tables` gives rows of other tables by name. `params` overrides thresholds.
    """

    name: str
    images: Sequence[Mapping[str, Any]]
    expect: Sequence[str] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@contextlib.contextmanager
def case_store(case: Case) -> Iterator[Store]:
    """Open an in-memory store that holds the case until the `with` block ends; one at a time."""
    # one database for all cases, each in a transaction that is undone: making one takes 50 ms
    store = _empty_store()
    with store.rolled_back():
        rows = [_filled(row, number) for number, row in enumerate(case.images)]
        store.append("samples", _table(rows, SAMPLES))
        measured = [{**row, "sample_id": row["id"]} for row in rows]
        store.append("features", _table(measured, FEATURE_ROW))
        for name, extra in case.tables.items():
            if name == "metadata":  # a manifest's columns: whatever the case has
                store.create_from(name, _free_table(extra))
            else:
                store.append(name, _table(extra, OTHER_TABLES[name]))
        yield store


@cache
def _empty_store() -> Store:
    store = Store.memory()
    store.create_measurements(FEATURE_ROW)
    return store


def _filled(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    name = f"{number:04d}.jpg"
    seed = hashlib.blake2b(f"{number}".encode(), digest_size=32)
    made_up = {
        "id": name, "uri": f"/dataset/{row.get('id', name)}", "content_hash": seed.hexdigest(),
        "pixel_hash": seed.hexdigest()[:32], "phash256": seed.hexdigest(),
        "phash": int.from_bytes(seed.digest()[:8], "big"),
        "dhash": int.from_bytes(seed.digest()[8:16], "big"),
    }  # fmt: skip
    return {**HEALTHY, **made_up, **row}


def _free_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist([dict(row) for row in rows])


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(columns)
    return pa.Table.from_pydict({n: [row.get(n) for row in rows] for n in schema.names}, schema)
