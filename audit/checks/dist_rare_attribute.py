"""DIST008: values of a manifest's column, and classes under them, too rare to measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.properties import MAX_LEVELS, metadata_columns, names_class
from audit.records import Action, Finding, Severity
from audit.run.store import Store
from audit.stats import rarity, wilson_share

ALL = "the dataset"


def _weather(**counts: int) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return images of class and weather (`cat_rain=3`), and the manifest's column of these."""
    pairs = [key.split("_") for key, n in counts.items() for _ in range(n)]
    images = [{"id": f"{i:04d}.jpg", "label": label} for i, (label, _) in enumerate(pairs)]
    column = [{"sample_id": f"{i:04d}.jpg", "weather": w} for i, (_, w) in enumerate(pairs)]
    return images, {"metadata": column}


EVEN, EVEN_TABLE = _weather(cat_sun=30, cat_rain=25, dog_sun=30, dog_rain=35)
NIGHT, NIGHT_TABLE = _weather(
    cat_sun=60, cat_rain=60, cat_night=3, dog_sun=60, dog_rain=60, dog_night=4
)
CELL, CELL_TABLE = _weather(cat_sun=60, cat_rain=60, dog_sun=60, dog_rain=3)


class RareAttribute(Check):
    """Columns of the manifest with values, or classes under a value, that are too rare to measure.

    ## What it does
    Takes each column of the manifest with 2 to 30 different values that does not name the class
    (weather, hospital, camera), in each evaluation split (every split not in `train_splits`; the
    whole dataset if there is none). A value, or a class under a value, is reported if it has at
    most `max_share_of_median` of the pictures that the median value (the median class under any
    value) has, and if the 95 % Wilson interval of a measured recall of `recall` is wider than
    +-`max_half_width` at its size. Copies count once. One finding per column lists the rarest.

    ## Why is this bad
    A score by weather or hospital is asked for as soon as the column exists. With 4 pictures at
    night, a recall of 80 % means anything from 33 % to 97 %, and a failure at night stays unseen.

    ## Example
    Of 1,000 test pictures 12 are from `night`, none of them of class `bus`.

    ## What to do
    Collect pictures of these values, or draw the evaluation set by value (`audit subset`). Report
    the score of such a value with its interval, or not at all.

    ## Limits
    Columns with numbers of more than 30 values are not read. Cells that are empty because class and
    value exclude each other are counted as rare. DIST002 reports classes that are rare as a whole.

    ## References
    Wilson (1927), JASA 22:209. Buolamwini and Gebru, Gender shades, PMLR 81, 2018: scores by
    attribute and by pairs of attributes."""

    code = "DIST008"
    name = "rare-attribute"
    severity = Severity.INFO

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_share_of_median: rare if at most this share of the median cell's pictures, 0..1
        max_half_width: and only if the 95 % interval of the recall is wider than +- this, 0..1
        recall: the measured recall whose interval is computed, 0..1
        rate: and only if chance makes a cell so rare in at most this share of columns, 0..1
        max_listed: cells that a finding names, at most
        train_splits: splits that are not used for evaluation
        """

        max_share_of_median: float = 0.2
        max_half_width: float = 0.1
        recall: float = 0.8
        rate: float = 0.01
        max_listed: int = 5
        train_splits: tuple[str, ...] = ("train", "training")

    CLEAN: ClassVar[Sequence[Case]] = (
        Case("no manifest", [{"label": x} for x in "ab" for _ in range(30)]),
        Case("even values", EVEN, tables=EVEN_TABLE),
        Case("a column that names the class", [{"id": f"{i:04d}.jpg", "label": x}
             for i, x in enumerate("a" * 60 + "b" * 3)], tables={"metadata": [
                 {"sample_id": f"{i:04d}.jpg", "code": int(i >= 60)} for i in range(63)]}),
    )  # fmt: skip
    DIRTY: ClassVar[Sequence[Case]] = (
        Case("a value that is rare in all classes", NIGHT, ["dataset/column:weather"],
             tables=NIGHT_TABLE),
        Case("a class that is rare under one value", CELL, ["dataset/column:weather"],
             tables=CELL_TABLE),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per column with rare values."""
        for column, cells in _cells(store, params).items():
            rare = [c for c in cells if c["rare"] and c["half"] > params.max_half_width]
            if rare:
                yield self._finding(column, sorted(rare, key=lambda c: c["n"]), params)

    def _finding(self, column: str, rare: Sequence[dict[str, Any]], params: Params) -> Finding:
        named = "; ".join(
            f"{c['cell']} has {c['n']:,} pictures in {c['split']} (median {c['median']:,.0f}), "
            f"where a recall of {params.recall:.0%} means {c['low']:.0%} to {c['high']:.0%}"
            for c in rare[: params.max_listed]
        )
        evidence: dict[str, float | int | str] = {"column": column, "rare_cells": len(rare)}
        evidence |= {f"{c['split']} {c['cell']}": c["n"] for c in rare[: params.max_listed]}
        return Finding(
            self.code,
            self.severity,
            (),
            f"{len(rare)} cells of column {column} are too rare to measure: {named} (95 % "
            "interval).",
            evidence,
            Action.REVIEW,
            f"dataset/column:{column}",
        )

    def completeness(self, store: Store, params: Params) -> str:
        """Say which columns were counted."""
        columns = list(_cells(store, params))
        if not columns:
            return ""
        return f"{len(columns)} columns were counted by value and class: {', '.join(columns)}."


def _cells(store: Store, params: RareAttribute.Params) -> dict[str, list[dict[str, Any]]]:
    """Return, by column, a row per split and value, and per split, value and class."""
    names = metadata_columns(store)
    if not names:
        return {}
    frame = store.query("""
        SELECT m.*, i.label AS "label of i", i.split AS "split of i", p.unit AS "unit of p"
        FROM images i JOIN pictures p USING (id) JOIN metadata m ON m.sample_id = i.id
        ORDER BY i.id
    """)
    split = pl.col("split of i")
    evaluated = frame.filter(split.is_null() | ~split.is_in(list(params.train_splits)))
    evaluated = evaluated if len(evaluated) else frame.with_columns(pl.lit(ALL).alias("split of i"))
    evaluated = evaluated.with_columns(split.fill_null(ALL))
    found = {}
    for name in names:
        known = evaluated.filter(pl.col(name).is_not_null())
        if not 2 <= known[name].n_unique() <= MAX_LEVELS:
            continue
        if names_class(name, frame[name], frame["label of i"]):
            continue
        found[name] = _rows(known, name, params)
    return found


def _rows(known: pl.DataFrame, name: str, params: RareAttribute.Params) -> list[dict[str, Any]]:
    size = pl.col("unit of p").n_unique().alias("n")
    keys = known.rename({"split of i": "split"}).with_columns(
        pl.format("{} = {}", pl.lit(name), pl.col(name).cast(pl.String)).alias("value")
    )
    values = keys.group_by("split", "value").agg(size).with_columns(pl.col("value").alias("cell"))
    classes = keys.filter(pl.col("label of i").is_not_null()).rename({"label of i": "label"})
    # Every class under every value of its split, those without a picture too.
    grid = (
        classes.select("split", "value")
        .unique()
        .join(classes.select("split", "label").unique(), on="split")
    )
    counted = classes.group_by("split", "value", "label").agg(size)
    cells = grid.join(counted, on=["split", "value", "label"], how="left")
    cells = cells.with_columns(
        pl.col("n").fill_null(0),
        pl.format("class {} under {}", "label", "value").alias("cell"),
    )
    # A value that is rare itself makes all of its cells rare: said once.
    rows = [*_judged(values, params)]
    told = {(r["split"], r["value"]) for r in rows if r["rare"]}
    rows += [r for r in _judged(cells, params) if (r["split"], r["value"]) not in told]
    return rows


def _judged(cells: pl.DataFrame, params: RareAttribute.Params) -> list[dict[str, Any]]:
    medians = cells.with_columns(pl.col("n").median().over("split").alias("median"))
    rows = medians.sort("split", "cell").to_dicts()
    low, high = wilson_share(params.recall, [r["n"] for r in rows])
    chance = rarity([r["n"] for r in rows], [r["median"] for r in rows])
    return [
        {
            **row, "low": float(a), "high": float(b), "half": float(b - a) / 2,
            "rare": row["n"] <= params.max_share_of_median * row["median"] and p <= params.rate,
        }
        for row, a, b, p in zip(rows, low, high, chance.tolist(), strict=True)
    ]  # fmt: skip
