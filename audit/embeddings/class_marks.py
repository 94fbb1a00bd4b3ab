"""Marks that recur at one place in the pictures of a class; into the table `class_marks`.

Stamps and dates are looked for in the stored signatures (`audit.statistics.recurring`), class by
class, and each picture's part is kept as a property for DIST004. Pictures on a plain ground are
left out: what recurs at their rim is the subject itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from audit.neighbors.pairs.signature_store import load_signatures
from audit.picture.signatures import Flag
from audit.run.store import Store
from audit.statistics.recurring import find_recurring, fine_detail

TABLE = "class_marks"
LEAST = 10
"""Pictures of a class from which a mean shows anything."""
MOST = 20_000
"""Pictures that are looked at, as many of each class."""
LEAST_AUC = 0.65
"""DIST004 reports a mark whose lower limit is .6: one of less than this seldom has it."""
_SQL = """
    SELECT p.unit, i.label, min(i.id) AS id, min_by(i.content_hash, i.id) AS content_hash
    FROM images i JOIN pictures p USING (id)
    WHERE i.status = 'ok' AND NOT p.blank AND trim(coalesce(i.label, '')) <> ''
    GROUP BY p.unit, i.label ORDER BY md5(p.unit), i.label
"""


def relate_marks(store: Store, run: Path) -> None:
    """Find the marks of classes."""
    store.execute(f"DELETE FROM {TABLE}")
    pictures = store.query(_SQL)
    each = max(LEAST, MOST // max(pictures["label"].n_unique(), 1))
    pictures = pictures.filter(pl.int_range(pl.len()).over("label") < each)
    hashes, place = np.unique(pictures["content_hash"].to_numpy(), return_inverse=True)
    table, stored = load_signatures(run, hashes.tolist())
    plain = (table["flags"] & (Flag.TRIMMED | Flag.FLAT | Flag.TRANSPARENT)) != 0
    usable = pictures.with_columns(place=place).filter(pl.Series((stored & ~plain)[place]))
    usable = usable.filter(pl.len().over("label") >= LEAST)
    names = usable["label"].unique().sort().to_list()
    if len(names) < 2:
        return
    label = np.searchsorted(names, usable["label"].to_numpy()).astype(np.int64)
    detail = fine_detail(table["grey"])[usable["place"].to_numpy()]
    for mark in find_recurring(detail, label, len(names), LEAST_AUC):
        rows = usable.select(
            label=pl.lit(names[mark.label]), place=pl.lit(mark.part), sample_id="id",
            score=pl.Series(mark.scores),
        )  # fmt: skip
        store.append(TABLE, rows)
