"""Classes and splits that were turned, or are negatives; into the table `turned_parts`.

The stored signatures are described as they lie and in four other versions (`audit.embeddings.
patches`, the smaller dictionary), and `audit.statistics.turned` compares. One picture of each group
of near-duplicates counts, and of many a sample: .8 ms a picture, 1,000 pictures in all, or 30 of
each class where this is more. No file is opened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from threadpoolctl import threadpool_limits

from audit.embeddings.patches import VIEWS, code_view, load_coder
from audit.neighbors.pairs.signature_store import load_signatures
from audit.picture.signatures import Flag, Signatures
from audit.run.store import Store
from audit.statistics.turned import LEAST, Turned, find_turned

TABLE = "turned_parts"
MOST, OF_EACH, IN_ALL, SHOWN = 1_000, 30, 60_000, 12
FOLDS = 5  # of pictures without classes
VERSIONS = ("as they lie", "turned to the right", "upside down", "turned to the left", "negatives")
"""What pictures are that look right after so many quarters to the left, or inverted."""
_SQL = """
    SELECT p.unit, min_by(nullif(trim(coalesce(i.label, '')), ''), i.id) AS label,
        min_by(i.split, i.id) AS split, min(i.id) AS id,
        min_by(i.content_hash, i.id) AS content_hash
    FROM images i JOIN pictures p USING (id)
    WHERE i.status = 'ok' AND NOT p.blank GROUP BY p.unit ORDER BY md5(p.unit)
"""


def relate_turns(store: Store, run: Path) -> None:
    """Find the classes and splits whose pictures lie otherwise than the others."""
    with threadpool_limits(1, "blas"):
        _relate(store, run)


def _relate(store: Store, run: Path) -> None:
    store.execute(f"DELETE FROM {TABLE}")
    pictures = store.query(_SQL)
    each = max(OF_EACH, MOST // max(pictures["label"].n_unique(), 1))
    pictures = pictures.filter(pl.int_range(pl.len()).over("label") < each).head(IN_ALL)
    parts = {name: _numbers(pictures[name]) for name in ("label", "split")}
    asked = [name for name, part in parts.items() if len(part[1]) > 1 + (name == "label")]
    if not asked:
        return
    table, stored = load_signatures(run, pictures["content_hash"].to_list())
    usable = stored & ((table["flags"] & (Flag.FLAT | Flag.TRANSPARENT)) == 0)
    pictures, table = pictures.filter(pl.Series(usable)), table[usable]
    if len(pictures) < 2 * LEAST:
        return
    described = describe_versions(table)
    for name in asked:
        part, names = parts[name][0][usable], parts[name][1]
        group = parts["label"][0][usable]
        if len(parts["label"][1]) < 3:
            group = np.arange(len(part)) % FOLDS
        for one in find_turned(described, part, part if name == "label" else group):
            store.append(TABLE, _rows(name, names[one.part], one, pictures["id"]))


def _numbers(names: pl.Series) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the number of each name among those of enough pictures, else -1, and the names."""
    counts = names.drop_nulls().value_counts()
    known = counts.filter(pl.col("count") >= LEAST)[names.name].sort().to_list()
    at = {name: number for number, name in enumerate(known)}
    return np.array([at.get(name, -1) for name in names.to_list()], np.int64), known


def describe_versions(table: Signatures) -> npt.NDArray[np.float32]:
    """Return the signatures (n,) in each version on main axes (versions, n, 128)."""
    coder = load_coder(many=True)
    described = np.empty((len(VERSIONS), len(table), coder.turn.shape[1]), np.float32)
    changed = table.copy()
    for version, target in enumerate(described):
        for plane in ("grey", "colour"):
            changed[plane] = (
                255 - table[plane] if VERSIONS[version] == "negatives"
                else np.rot90(table[plane], version, (1, 2))
            )  # fmt: skip
        target[:] = code_view(changed, coder, VIEWS[0]).astype(np.float32) @ coder.turn
    return described


def _rows(kind: str, name: str, one: Turned, ids: pl.Series) -> list[dict[str, object]]:
    return [
        {
            "kind": kind, "name": name, "version": VERSIONS[one.version], "pictures": one.n,
            "share": one.share, "others": one.others, "sure": one.sure, "sample_id": ids[int(row)],
        }
        for row in one.rows[:SHOWN]
    ]  # fmt: skip
