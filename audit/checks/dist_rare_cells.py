"""DIST008, DIST009: classes that hardly occur under a value of an attribute.

The attribute is a column of the manifest or a measured property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from audit.checking.check import Check
from audit.checking.objects import PICTURES, Things, object_table, things_of
from audit.checking.properties import MAX_LEVELS, metadata_columns, names_class
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.intervals import wilson_share
from audit.statistics.rare_cells import (
    ALL,
    CellParams,
    count_cells,
    count_values,
    evaluation_rows,
    judge_cells,
    say_cells,
)


class RareAttribute(Check):
    """Manifest columns with values, or class/value combinations, that are too rare to measure.

    ## What it does
    Examines each manifest column with 2 to 30 values that does not name the class (weather,
    hospital, camera), in each evaluation split (every split not in `train_splits`; the whole
    dataset if there is none). A value is reported if it has at most `max_share` of the images of
    the median value. A class/value combination is reported if it has at most `max_share` of the
    images expected if class and value were independent. Both must be rarer than chance explains,
    and the 95% Wilson interval of a recall of `recall` must be wider than +-`max_half_width`.
    Copies count once. One finding per column lists the rarest.

    ## Why is this bad
    Scores are compared by weather or hospital if the column exists. With 4 images at night, a
    recall of 80% has a 95% CI of 33% to 97%, and a failure at night stays unnoticed.

    ## Example
    12 of 1,000 test images have the value `night`, and none of these shows a `bus`.

    ## What to do
    Collect images with these values, or stratify the evaluation set by value (`audit subset`).
    Report the score of a rare value with its interval, or not at all.

    ## Limits
    Columns with more than 30 values are ignored. Combinations that cannot occur count as rare.
    DIST002 reports classes that are rare as a whole.

    ## References
    Wilson (1927), JASA 22:209. Buolamwini and Gebru, Gender shades, PMLR 81, 2018: scores by
    attribute and by pairs of attributes."""

    code = "DIST008"
    name = "rare-attribute"
    severity = Severity.INFO

    Params = CellParams

    def find(self, store: Store, params: CellParams) -> Iterator[Finding]:
        for column, cells in _cells(store, params).items():
            rare = [c for c in cells if c["rare"] and c["half"] > params.max_half_width]
            listed = sorted(rare, key=lambda c: c["n"])[: params.max_listed]
            if rare:
                evidence: dict[str, Any] = {"column": column, "rare_cells": len(rare)}
                evidence |= {f"{c['split']} {c['cell']}": c["n"] for c in listed}
                yield self.finding(
                    f"dataset/column:{column}",
                    f"{len(rare)} values or class/value combinations of column {column} have too "
                    f"few images to measure: {say_cells(listed, params.recall)} (95% CI).",
                    evidence,
                )

    def completeness(self, store: Store, params: CellParams) -> str:
        columns = list(_cells(store, params))
        if not columns:
            return ""
        return f"{len(columns)} columns were counted, alone and by class: {', '.join(columns)}."


def _cells(store: Store, params: CellParams) -> dict[str, list[dict[str, Any]]]:
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


# A column of numbers is cut into thirds of the dataset: its own light is the measure of dark.
THIRDS: Mapping[str, tuple[str, tuple[str, str, str]]] = {
    "light": ("brightness", ("the darkest third", "middle light", "the brightest third")),
    "size": ("pixels", ("the smallest third", "middle size", "the largest third")),
}
NAMED: Mapping[str, str] = {
    "shape": "CASE WHEN width > 1.05 * height THEN 'wide' WHEN height > 1.05 * width THEN 'high' "
    "ELSE 'square' END",
    "format": "format",
    "camera": "exif_camera",
}


class RareInLight(Check):
    """Classes that are rare in a range of brightness or size, or in a shape, format or camera.

    ## What it does
    Counts the images of each class by thirds of brightness and size, by shape (wide, high, square),
    by format and by EXIF camera (2 to 30 values). Each evaluation split is counted (every split not
    in `train_splits`; the whole dataset if there is none). A class/value combination is reported if
    it has at most `max_share` of the images expected if class and value were independent. It must
    be rarer than chance explains, and the 95% Wilson interval of a recall of `recall` must be wider
    than +-`max_half_width`. Copies count once. One finding per attribute lists the rarest.

    Object classes are counted by the images that contain the class, over all splits together.

    ## Why is this bad
    A model trained without dark hens learns that a dark image shows no hen. The score on dark
    images cannot be measured: with 4 images, a recall of 80% has a 95% CI of 33% to 97%.

    ## Example
    100 of 300 test images are dark, but only 2 of 100 hens; about 33 are expected.

    ## What to do
    Collect images of the class with this value, or report the score with its interval or not at
    all. DIST004 reports how well the attribute separates the class from all others.

    ## Limits
    Values that are rare in all classes are not reported; the completeness line names the rarest
    with its interval. Some combinations are rare by content: owls are photographed at night.
    DIST008 examines manifest columns. Thirds are relative to the dataset: if all images are bright,
    so is the darkest third.

    ## References
    Wilson (1927), JASA 22:209. Buolamwini and Gebru, Gender shades, PMLR 81, 2018: scores by
    attribute and by pairs of attributes."""

    code = "DIST009"
    name = "class-rare-under-attribute"
    severity = Severity.INFO
    features = ("brightness", "format", "exif_camera")

    Params = CellParams

    def find(self, store: Store, params: CellParams) -> Iterator[Finding]:
        for things in things_of(store):
            attributes = _attributes(store, params, things)
            yield from self._rare(attributes, things, params)

    def _rare(
        self, attributes: Mapping[str, pl.DataFrame], things: Things, params: CellParams
    ) -> Iterator[Finding]:
        counted = [
            count_cells(known).with_columns(pl.lit(name).alias("attribute"))
            for name, known in attributes.items()
        ]
        if not counted:
            return
        cells = pl.concat(counted)
        judged = judge_cells(cells, params.recall, params.max_share, params.rate)
        for name in cells["attribute"].unique(maintain_order=True):
            rare = [
                c for c in judged
                if c["attribute"] == name and c["rare"] and c["half"] > params.max_half_width
            ]  # fmt: skip
            listed = sorted(rare, key=lambda c: c["n"])[: params.max_listed]
            if rare:
                evidence: dict[str, Any] = {"attribute": name, "rare_cells": len(rare)}
                for c in listed:
                    where = f"{c['split']} {c['cell']}"
                    evidence |= {where: c["n"], f"{where}, expected": c["expected"]}
                yield self.finding(
                    f"{things.mark}dataset/attribute:{name}",
                    f"{len(rare)} combinations of class{things.of} and {name} have too few images "
                    f"to measure, fewer than chance explains: {say_cells(listed, params.recall)} "
                    "(95% CI).",
                    evidence,
                )

    def completeness(self, store: Store, params: CellParams) -> str:
        said = []
        for name, known in _attributes(store, params).items():
            split, value, n = count_values(known).sort("n", "split", "value").row(0)[:3]
            low, high = (float(x) for x in wilson_share(params.recall, n))
            said.append(
                f"{name} (fewest: {n:,} {value} in {split}; CI of a recall of {params.recall:.0%}: "
                f"{low:.0%} to {high:.0%})"
            )
        return f"Counted by class and value: {'; '.join(said)}." if said else ""


def _attributes(
    store: Store, params: CellParams, things: Things = PICTURES
) -> dict[str, pl.DataFrame]:
    """Return, by attribute, the evaluated pictures with their value; those of 2 to 30 values."""
    frame = store.share(_with_values)
    rows = evaluation_rows(frame, params.train_splits) if things is PICTURES else frame
    chosen = [
        name for name in (*THIRDS, *NAMED)
        if 2 <= rows[name].drop_nulls().n_unique() <= MAX_LEVELS
    ]  # fmt: skip
    rows = rows.with_columns(
        pl.format("{} {}", pl.lit(name), name).alias(name) for name in chosen if name in NAMED
    )
    if things is not PICTURES:
        table = store.share(object_table)
        assert table is not None  # or there were no such things
        # numbers and categories: the names of 200,000 pictures are slow to compare
        place = table.ids.to_frame("id").with_row_index("picture").cast({"picture": pl.Int64})
        rows = rows.join(place, on="id").select(
            "picture", pl.lit(ALL).cast(pl.Categorical).alias("split"),
            pl.col("unit", *chosen).cast(pl.Categorical),
        ).with_columns(pl.col("unit").to_physical())  # fmt: skip
        names = pl.Series(table.labels, dtype=pl.Enum(table.labels))
        rows = table.seen.with_columns(names.gather(table.seen["label"]).alias("label")).join(
            rows, on="picture"
        )
    return {
        name: rows.select("label", "split", "unit", pl.col(name).alias("value")).drop_nulls("value")
        for name in chosen
    }


def _with_values(store: Store) -> pl.DataFrame:
    columns = [f'{sql} AS "{name}"' for name, sql in NAMED.items()]
    columns += [
        # ties share their third
        f"list_extract({list(words)}, CAST(1 + floor(3 * least(percent_rank() OVER "
        f'(ORDER BY {sql}), 0.999)) AS INTEGER)) AS "{name}"'
        for name, (sql, words) in THIRDS.items()
    ]
    return store.query(f"""
        SELECT i.id, nullif(trim(i.label), '') AS label, i.split, p.unit, {", ".join(columns)}
        FROM images i JOIN pictures p USING (id)
        WHERE i.status = 'ok' AND i.pixels > 0 AND NOT p.blank ORDER BY i.id
    """)
