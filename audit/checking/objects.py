"""Classes of what: of pictures (labels of their own) or of objects (boxes, masks, keypoints).

A finding about objects has a subject that begins with `object:`. Chance is computed over units,
because objects of one picture, near-duplicates or group are not independent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from audit.checking.check import asked
from audit.run.store import Store

if TYPE_CHECKING:
    import polars as pl

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SHAPES = ("side", "aspect", "x", "y")


@dataclass(frozen=True, slots=True)
class Things:
    """What classes are counted of: words for messages, and SQL of split, label and n."""

    one_class: str
    many: str
    of: str
    mark: str
    sizes: str


PICTURES = Things(
    "Class", "images", "", "",
    "SELECT split, label, count(*) AS n FROM picture_labels "
    "WHERE trim(coalesce(label, '')) <> '' GROUP BY split, label",
)  # fmt: skip
OBJECTS = Things(
    "Object class", "objects", " of objects", "object:",
    "SELECT split, label, objects AS n FROM object_sizes",
)  # fmt: skip


def asked_of(store: Store, things: Things, sql: str, params: Any, **parts: str) -> pl.DataFrame:
    """Return the rows of a query, with `{sizes}` of the classes and `parts` filled in.

    Objects have a table `object_sizes`: split, label, objects, units.
    """
    for name, text in {"sizes": things.sizes, **parts}.items():
        sql = sql.replace(f"{{{name}}}", text)
    counted = store.share(_object_sizes)
    if counted is None:
        return asked(store, sql, params)
    with store.frame_as("object_sizes", counted):
        return asked(store, sql, params)


def _object_sizes(store: Store) -> pl.DataFrame | None:
    import polars as pl

    table = store.share(object_table)
    if table is None:
        return None
    splits = table.units["split"].cast(pl.Categorical).gather(table.held["unit"])
    counted = table.held.select("label", "n", splits).group_by("split", "label").agg(
        pl.sum("n").alias("objects"), pl.len().cast(pl.Int64).alias("units")
    )  # fmt: skip
    names = pl.Series(table.labels).gather(counted["label"])
    return counted.with_columns(names.alias("label"), pl.col("split").cast(pl.String))


def things_of(store: Store) -> Sequence[Things]:
    """Return what a dataset has classes of, pictures first; objects only where there are some."""
    return (PICTURES, OBJECTS) if store.share(object_table) is not None else (PICTURES,)


def references(splits: Collection[str], trained: Collection[str]) -> dict[str, list[str]]:
    """Return what each split is compared with: the training splits, without any all others."""
    train = sorted(split for split in splits if split in trained)
    others = {s: train or sorted(x for x in splits if x != s) for s in splits if s not in train}
    return {split: compared for split, compared in sorted(others.items()) if compared}


@dataclass(frozen=True, slots=True)
class ObjectTable:
    """The objects of a dataset by unit (what counts once), and all units, with objects or without.

    `seen`: picture (index in `ids`), label. `units`: split, pictures, filled (of these), objects.
    `held`: unit (row of `units`), label (index in `labels`), n, pictures, the mean of `SHAPES`.
    """

    units: pl.DataFrame
    held: pl.DataFrame
    labels: Sequence[str]
    ids: pl.Series
    seen: pl.DataFrame

    def in_split(self, splits: Collection[str]) -> NDArray[np.bool_]:
        """Return which units lie in some splits."""
        found = self.units["split"].is_in(list(splits)).fill_null(False)
        return np.asarray(found.to_numpy(), np.bool_)

    @property
    def splits(self) -> list[str]:
        """The splits, by name."""
        return [str(split) for split in self.units["split"].drop_nulls().unique().sort()]

    def sizes(self, splits: Collection[str]) -> Ints:
        """Return in how many units of some splits each class is."""
        unit, label = (self.held[name].to_numpy() for name in ("unit", "label"))
        return np.bincount(label[self.in_split(splits)[unit]], minlength=len(self.labels))


# Every picture that could be read, with what counts once.
_PICTURES = """
    SELECT p.id, p.split, coalesce(nullif(trim(s.group_key), ''), p.unit) AS unit
    FROM pictures p JOIN samples s USING (id) JOIN features f ON f.sample_id = p.id
    WHERE f.status <> 'unreadable' ORDER BY p.id
"""
_HELD = f"""
    SELECT sample_id AS id, label, n, {", ".join(SHAPES)} FROM object_labels
    WHERE trim(coalesce(label, '')) <> ''
"""


def object_table(store: Store) -> ObjectTable | None:
    """Return the objects by unit; None for a dataset without any."""
    import polars as pl

    if not store.scalar("SELECT 1 FROM object_labels WHERE trim(label) <> '' LIMIT 1"):
        return None
    # numbers instead of names: most of the time goes into comparing these
    pictures = store.query(_PICTURES)
    unit = pictures["unit"].cast(pl.Enum(pictures["unit"].unique().sort())).to_physical()
    split = pictures["split"].fill_null("").rank("dense").cast(pl.Int64)
    key = unit.cast(pl.Int64) * (split.max() or 1) + split  # of a unit in several splits, one each
    unit = (key.rank("dense") - 1).cast(pl.Int64).alias("unit")
    rows = pictures.select("id", "split", unit, pl.int_range(pl.len()).alias("picture"))
    held = store.query(_HELD).join(rows.drop("split"), on="id", maintain_order="left").drop("id")
    labels = held["label"].unique().sort()
    held = held.with_columns(pl.col("label").cast(pl.Enum(labels)).to_physical().cast(pl.Int64))
    here = held.group_by("picture").agg(pl.sum("n").alias("objects"))
    units = rows.join(here, on="picture", how="left").group_by("unit").agg(
        pl.first("split"), pl.len().cast(pl.Int64).alias("pictures"),
        pl.col("objects").is_not_null().sum().cast(pl.Int64).alias("filled"),
        pl.sum("objects").alias("objects"),
    ).sort("unit").drop("unit")  # fmt: skip
    seen, first = _ordered(held.select("picture", "label"), len(labels))
    seen = seen.filter(first)
    held, first = _ordered(held.select("unit", "label", "n", "picture", *SHAPES), len(labels))
    if first.all():
        held = held.with_columns(pl.lit(1, pl.Int64).alias("pictures"))
    else:
        weighted = [((pl.col(x) * pl.col("n")).sum() / pl.sum("n")).alias(x) for x in SHAPES]
        held = held.group_by("unit", "label", maintain_order=True).agg(
            pl.sum("n"), pl.col("picture").n_unique().cast(pl.Int64).alias("pictures"), *weighted
        )
    held = held.select("unit", "label", "n", "pictures", *SHAPES)
    return ObjectTable(units, held, labels.to_list(), pictures["id"], seen)


def _ordered(rows: pl.DataFrame, n_labels: int) -> tuple[pl.DataFrame, pl.Series]:
    """Return rows by their first column and label, and which are the first of such a pair."""
    import polars as pl

    key = rows.to_series(0).to_numpy() * n_labels + rows["label"].to_numpy()
    order = np.argsort(key, kind="stable")  # almost in order: a tenth of the time of a hash
    return rows[order], pl.Series(np.diff(key[order], prepend=-1) > 0)
