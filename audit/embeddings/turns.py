"""Classes and splits that were turned, or are negatives; into the table `turned_parts`.

The stored signatures are described as they lie and in four other versions (`audit.embeddings.
patches`, the smaller dictionary), and `audit.statistics.turned` compares. One picture of each group
of near-duplicates counts, and of many a sample: .8 ms a picture, 1,000 pictures in all, or 30 of
each class where this is more. No file is opened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from audit.embeddings.patches import LUMA, VIEWS, code_view, load_coder
from audit.neighbors.pairs.signature_store import load_signatures
from audit.picture.signatures import Flag, Signatures
from audit.run.store import Store
from audit.statistics.turned import LEAST, Floats, Ints, Mask, Turned, errors_changed, find_turned

TABLE = "turned_parts"
MOST, OF_EACH, IN_ALL, SHOWN = 1_000, 30, 60_000, 12
FOLDS = 5  # of pictures without classes
LEAST_OF_EACH = 2.0
"""Standard errors by which light, and colours, alone must look better inverted."""
MOST_GREY = 0.9  # share of pictures without colours from which nobody asks for these
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
    classes, described = parts["label"][0][usable], describe(table)
    for name in asked:
        part, names = parts[name][0][usable], parts[name][1]
        group = classes if classes.max() > 1 else np.arange(len(part)) % FOLDS
        for one in find_changed(table, described, part, group):
            store.append(TABLE, _rows(name, names[one.part], one, pictures["id"]))


def describe(table: Signatures) -> Floats:
    """Return signatures (n,) in each version on main axes (versions, n, 128)."""
    return np.stack([_axes(changed(table, version)) for version in VERSIONS])


def find_changed(table: Signatures, described: Floats, part: Ints, group: Ints) -> list[Turned]:
    """Return the parts of signatures (n,) that were changed: see `find_turned`."""
    return [
        one for one in find_turned(described, part, group)
        if VERSIONS[one.version] != "negatives"
        or _is_negative(table, described[0], part == one.part, group)
    ]  # fmt: skip


def _is_negative(table: Signatures, described: Floats, inside: Mask, group: Ints) -> bool:
    """Say whether light and colours are inverted, each by itself, and inverted back are as bright
    as the others: snow is a bright ground with dark things on it.
    """
    bright = table["grey"].mean((1, 2), dtype=np.float64)
    others = bright[~inside]
    if abs(255 - bright[inside].mean() - others.mean()) > others.std():
        return False
    grey = (table["flags"] & Flag.GREYSCALE) != 0
    planes = table["colour"].astype(np.float32)
    light = (planes @ LUMA)[..., None]
    versions = {"light": 255 - 2 * light + planes}
    if grey.mean() < MOST_GREY:
        versions["colours"] = 2 * light - planes
    for what, colour in versions.items():
        made = table.copy()
        made["grey"] = 255 - table["grey"] if what == "light" else table["grey"]
        made["colour"] = np.clip(colour, 0, 255)
        if errors_changed(_axes(made) - described, inside, group) < LEAST_OF_EACH:
            return False
    return True


def _numbers(names: pl.Series) -> tuple[Ints, list[str]]:
    """Return the number of each name among those of enough pictures, else -1, and the names."""
    counts = names.drop_nulls().value_counts()
    known = counts.filter(pl.col("count") >= LEAST)[names.name].sort().to_list()
    at = {name: number for number, name in enumerate(known)}
    return np.array([at.get(name, -1) for name in names.to_list()], np.int64), known


def changed(table: Signatures, version: str) -> Signatures:
    """Return signatures of the pictures turned back, or inverted, from a version."""
    made = table.copy()
    for plane in ("grey", "colour"):
        made[plane] = (
            255 - table[plane] if version == "negatives"
            else np.rot90(table[plane], VERSIONS.index(version), (1, 2))
        )  # fmt: skip
    return made


def _axes(table: Signatures) -> Floats:
    coder = load_coder(many=True)
    return np.asarray(code_view(table, coder, VIEWS[0]).astype(np.float32) @ coder.turn)


def _rows(kind: str, name: str, one: Turned, ids: pl.Series) -> list[dict[str, object]]:
    return [
        {
            "kind": kind, "name": name, "version": VERSIONS[one.version], "pictures": one.n,
            "share": one.share, "others": one.others, "groups": one.groups, "sure": one.sure,
            "sample_id": ids[int(row)],
        }
        for row in one.rows[:SHOWN]
    ]  # fmt: skip
