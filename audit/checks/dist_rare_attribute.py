"""DIST008: values of a manifest's column, and classes under them, too rare to measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.properties import MAX_LEVELS, metadata_columns, names_class
from audit.rare_cells import (
    CellParams,
    count_cells,
    count_values,
    evaluation_rows,
    judge_cells,
    say_cells,
)
from audit.records import Action, Finding, Severity
from audit.run.store import Store


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
SMALL, SMALL_TABLE = _weather(
    cat_sun=60, cat_rain=60, cat_fog=60, dog_sun=60, dog_rain=60, dog_fog=60, hen_sun=8,
    hen_rain=7, hen_fog=1,
)  # fmt: skip
CELL, CELL_TABLE = _weather(cat_sun=60, cat_rain=60, dog_sun=60, dog_rain=3)


class RareAttribute(Check):
    """Columns of the manifest with values, or classes under a value, that are too rare to measure.

    ## What it does
    Takes each column of the manifest with 2 to 30 different values that does not name the class
    (weather, hospital, camera), in each evaluation split (every split not in `train_splits`; the
    whole dataset if there is none). A value is reported if it has at most `max_share` of the
    pictures that the median value has, and a class under a value if it has at most so much of what
    it would have there if class and value had nothing to do with each other; and if that is less
    than chance allows, and the 95 % Wilson interval of a measured recall of `recall` is wider than
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

    Params = CellParams

    CLEAN: ClassVar[Sequence[Case]] = (
        Case("no manifest", [{"label": x} for x in "ab" for _ in range(30)]),
        Case("even values", EVEN, tables=EVEN_TABLE),
        Case("a small class has small cells", SMALL, tables=SMALL_TABLE),
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

    def find(self, store: Store, params: CellParams) -> Iterator[Finding]:
        """Yield one finding per column with rare values."""
        for column, cells in _cells(store, params).items():
            rare = [c for c in cells if c["rare"] and c["half"] > params.max_half_width]
            if rare:
                yield self._finding(column, sorted(rare, key=lambda c: c["n"]), params)

    def _finding(self, column: str, rare: Sequence[dict[str, Any]], params: CellParams) -> Finding:
        named = say_cells(rare[: params.max_listed], params.recall)
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

    def completeness(self, store: Store, params: CellParams) -> str:
        """Say which columns were counted."""
        columns = list(_cells(store, params))
        if not columns:
            return ""
        return f"{len(columns)} columns were counted by value and class: {', '.join(columns)}."


def _cells(store: Store, params: CellParams) -> dict[str, list[dict[str, Any]]]:
    """Return, by column, a row per split and value, and per split, value and class."""
    names = metadata_columns(store)
    if not names:
        return {}
    frame = store.query("""
        SELECT m.*, i.label AS "label of i", i.split AS "split of i", p.unit AS "unit of p"
        FROM images i JOIN pictures p USING (id) JOIN metadata m ON m.sample_id = i.id
        ORDER BY i.id
    """)
    # a manifest may have columns of the same names
    own = frame.select(
        pl.int_range(pl.len()).alias("row"),
        *(pl.col(old).alias(old.split()[0]) for old in ("label of i", "split of i", "unit of p")),
    )
    evaluated = evaluation_rows(own, params.train_splits)
    found = {}
    for name in names:
        values = frame[name].gather(evaluated["row"])
        known = evaluated.with_columns(values.cast(pl.String).alias("value"))
        known = known.filter(pl.col("value").is_not_null())
        if not 2 <= known["value"].n_unique() <= MAX_LEVELS:
            continue
        if names_class(name, frame[name], frame["label of i"]):
            continue
        value = pl.format("{} = {}", pl.lit(name), "value").alias("value")
        found[name] = known.with_columns(value)
    # half of the rate is for values, half for cells; the columns share both
    rate = params.rate / 2 / max(len(found), 1)
    return {name: _rows(known, rate, params) for name, known in found.items()}


def _rows(known: pl.DataFrame, rate: float, params: CellParams) -> list[dict[str, Any]]:
    median = pl.col("n").median().over("split").alias("expected")
    limits = params.recall, params.max_share, rate
    rows = judge_cells(count_values(known).with_columns(median), *limits)
    # A value that is rare itself makes all of its cells rare: said once.
    told = {(r["split"], r["value"]) for r in rows if r["rare"]}
    cells = judge_cells(count_cells(known), *limits)
    return rows + [r for r in cells if (r["split"], r["value"]) not in told]
