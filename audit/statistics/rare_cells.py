"""Rare cells: how many pictures a class has under each value of an attribute, and their limits.

Every cell gets the interval that a measured recall would have there. A cell of class and value is
compared with what it would have if both were independent: small classes have small cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audit.statistics.intervals import rarity, wilson_share

if TYPE_CHECKING:
    import polars as pl

ALL = "the dataset"


@dataclass(frozen=True)
class CellParams:
    """Thresholds of the checks of rare cells.

    max_share: rare if at most this share of what independence gives the cell, 0..1
    max_half_width: and only if the 95% CI of the recall is wider than +- this, 0..1
    recall: the measured recall whose interval is computed, 0..1
    rate: share of datasets in which chance makes any cell so rare, at most, 0..1
    max_listed: cells that a finding names, at most
    train_splits: splits that are not used for evaluation
    """

    max_share: float = 0.2
    max_half_width: float = 0.1
    recall: float = 0.8
    rate: float = 0.01
    max_listed: int = 5
    train_splits: tuple[str, ...] = ("train", "training")


def evaluation_rows(frame: pl.DataFrame, train_splits: Collection[str]) -> pl.DataFrame:
    """Return the rows of every `split` that is not for training; all as one if there is none."""
    import polars as pl

    split = pl.col("split")
    evaluated = frame.filter(split.is_null() | ~split.is_in(list(train_splits)))
    evaluated = evaluated if len(evaluated) else frame.with_columns(pl.lit(ALL).alias("split"))
    return evaluated.with_columns(split.fill_null(ALL))


def count_values(known: pl.DataFrame) -> pl.DataFrame:
    """Return (split, value, cell, n): copies, of one `unit`, count once; `cell` is for people."""
    import polars as pl

    counted = known.group_by("split", "value").agg(n=pl.col("unit").n_unique())
    return counted.with_columns(pl.col("value").alias("cell"))


def count_cells(known: pl.DataFrame) -> pl.DataFrame:
    """Return (split, value, label, cell, n, expected) of every class under every value of a split.

    Cells without a picture are there too, with n = 0; `expected`: if class and value are
    independent.
    """
    import polars as pl

    classes = known.filter(pl.col("label").is_not_null())
    grid = (
        classes.select("split", "value")
        .unique()
        .join(classes.select("split", "label").unique(), on="split")
    )
    counted = classes.group_by("split", "value", "label").agg(n=pl.col("unit").n_unique())
    cells = grid.join(counted, on=["split", "value", "label"], how="left")
    size = pl.col("n").fill_null(0).sum()
    expected = size.over("split", "value") * size.over("split", "label") / size.over("split")
    return cells.with_columns(
        pl.col("n").fill_null(0),
        pl.format("class {} under {}", "label", "value").alias("cell"),
        expected.alias("expected"),
    )


def judge_cells(
    cells: pl.DataFrame, recall: float, max_share: float, rate: float
) -> list[dict[str, Any]]:
    """Return the cells, in order, with the 95 % Wilson limits of a measured `recall` and `rare`.

    Rare is what has at most `max_share` of its `expected` pictures, if chance makes any of the
    cells so rare with a probability of at most `rate`.
    """
    rows = cells.sort("split", "cell").to_dicts()
    low, high = wilson_share(recall, [r["n"] for r in rows])
    chance = rarity([r["n"] for r in rows], [r["expected"] for r in rows])
    return [
        {
            **row, "low": float(a), "high": float(b), "half": float(b - a) / 2,
            "rare": row["n"] <= max_share * row["expected"] and p <= rate,
        }
        for row, a, b, p in zip(rows, low, high, chance.tolist(), strict=True)
    ]  # fmt: skip


def say_cells(cells: Sequence[Mapping[str, Any]], recall: float) -> str:
    """Return the cells in words: their pictures, what was expected, and their limits."""
    return "; ".join(
        f"{c['cell']} has {c['n']:,} images in {c['split']} (expected {c['expected']:,.0f}); a "
        f"recall of {recall:.0%} then has an interval of {c['low']:.0%} to {c['high']:.0%}"
        for c in cells
    )
