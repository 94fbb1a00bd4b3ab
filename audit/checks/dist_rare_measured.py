"""DIST009: classes that hardly occur in some light, shape, size, format or camera."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.properties import MAX_LEVELS
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
from audit.stats import wilson_share

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


def _lit(*lights: float, n: int = 40, **fixed: Any) -> list[dict[str, Any]]:
    """Return `n` pictures in each light, a little apart."""
    return [{"brightness": x + 0.001 * i, **fixed} for x in lights for i in range(n)]


CATS, DOGS = _lit(0.2, 0.4, 0.6, label="cat"), _lit(0.2, 0.4, 0.6, label="dog")
HENS = [*_lit(0.45, 0.6, n=58, label="hen"), *_lit(0.2, n=4, label="hen")]


class RareInLight(Check):
    """Classes that hardly occur in a third of the light or size, or in a shape, format or camera.

    ## What it does
    Counts the pictures of each class in the darkest, middle and brightest third of the dataset, in
    thirds of size, in wide, high and square pictures, by format and by EXIF camera (2 to 30
    values), in each evaluation split (every split not in `train_splits`; the whole dataset if there
    is none). A class under a value is reported if it has at most `max_share` of the pictures that
    it would have there if class and value had nothing to do with each other, less than chance
    allows, and if the 95 % Wilson interval of a measured recall of `recall` is wider than
    +-`max_half_width` at its size. Copies count once. One finding per attribute lists the rarest.

    ## Why is this bad
    A model that never saw a dark hen takes darkness for evidence against hens, and the score by
    light that would show it cannot be measured: 4 pictures tell 33 % from 97 % and no better.

    ## Example
    Of 300 test pictures 100 are dark, and of 100 hens 2: a third would be dark too.

    ## What to do
    Collect pictures of the class under this value, or report the score there with its interval or
    not at all. DIST004 says how well the attribute tells the class from the others.

    ## Limits
    Values that are rare in all classes alike are no finding: the completeness line names the rarest
    with its interval. Some of it is content: owls are photographed at night. Columns of a manifest
    are DIST008's. Thirds follow the dataset: where all pictures are bright, the darkest third is
    bright too.

    ## References
    Wilson (1927), JASA 22:209. Buolamwini and Gebru, Gender shades, PMLR 81, 2018: scores by
    attribute and by pairs of attributes."""

    code = "DIST009"
    name = "class-rare-under-attribute"
    severity = Severity.INFO
    features = ("brightness", "format", "exif_camera")

    Params = CellParams

    CLEAN: ClassVar[Sequence[Case]] = (
        Case("every class in every light", [*CATS, *DOGS]),
        Case("few dark pictures, of all classes alike",
             [*_lit(0.4, 0.6, label="cat"), *_lit(0.4, 0.6, label="dog"),
              *_lit(0.1, n=2, label="cat"), *_lit(0.1, n=2, label="dog")]),
        Case("too few to tell from chance",
             [*_lit(0.2, 0.4, 0.6, n=4, label="cat"), *_lit(0.4, 0.6, n=6, label="hen")]),
        Case("in the training split alone",
             [*CATS, *HENS, *({**row, "split": "test"} for row in [*CATS, *DOGS])]),
        Case("a camera of its own for each picture",
             [{**row, "exif_camera": f"Camera {i}"} for i, row in enumerate([*CATS, *DOGS])]),
    )  # fmt: skip
    DIRTY: ClassVar[Sequence[Case]] = (
        Case("hardly a dark hen", [*CATS, *DOGS, *HENS], ["dataset/attribute:light"]),
        Case("a class of one camera",
             [*_lit(0.4, n=80, label="cat", exif_camera="A"), *_lit(0.4, n=80, label="cat",
              exif_camera="B"), *_lit(0.4, n=80, label="hen", exif_camera="B")],
             ["dataset/attribute:camera"]),
    )  # fmt: skip

    def find(self, store: Store, params: CellParams) -> Iterator[Finding]:
        """Yield one finding per attribute with classes that are rare under a value."""
        counted = [
            count_cells(known).with_columns(pl.lit(name).alias("attribute"))
            for name, known in _attributes(store, params).items()
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
            if rare:
                yield self._finding(name, sorted(rare, key=lambda c: c["n"]), params)

    def _finding(self, name: str, rare: Sequence[dict[str, Any]], params: CellParams) -> Finding:
        listed = rare[: params.max_listed]
        evidence: dict[str, float | int | str] = {"attribute": name, "rare_cells": len(rare)}
        for c in listed:
            where = f"{c['split']} {c['cell']}"
            evidence |= {where: c["n"], f"{where}, expected": c["expected"]}
        return Finding(
            self.code,
            self.severity,
            (),
            f"{len(rare)} cells of class and {name} are too rare to measure, and rarer than chance "
            f"makes them: {say_cells(listed, params.recall)} (95 % interval).",
            evidence,
            Action.REVIEW,
            f"dataset/attribute:{name}",
        )

    def completeness(self, store: Store, params: CellParams) -> str:
        """Say which attributes were counted, and how well their rarest values can be measured."""
        said = []
        for name, known in _attributes(store, params).items():
            split, value, n = count_values(known).sort("n", "split", "value").row(0)[:3]
            low, high = (float(x) for x in wilson_share(params.recall, n))
            said.append(
                f"{name} (fewest: {n:,} {value} in {split}, where a recall of {params.recall:.0%} "
                f"means {low:.0%} to {high:.0%})"
            )
        return f"Counted by class and value: {'; '.join(said)}." if said else ""


def _attributes(store: Store, params: CellParams) -> dict[str, pl.DataFrame]:
    """Return, by attribute, the evaluated pictures with their value; those of 2 to 30 values."""
    columns = [f'{sql} AS "{name}"' for name, sql in NAMED.items()]
    columns += [
        # ties share their third
        f"list_extract({list(words)}, CAST(1 + floor(3 * least(percent_rank() OVER "
        f'(ORDER BY {sql}), 0.999)) AS INTEGER)) AS "{name}"'
        for name, (sql, words) in THIRDS.items()
    ]
    frame = store.query(f"""
        SELECT nullif(trim(i.label), '') AS label, i.split, p.unit, {", ".join(columns)}
        FROM images i JOIN pictures p USING (id)
        WHERE i.status = 'ok' AND i.pixels > 0 AND NOT p.blank ORDER BY i.id
    """)
    evaluated = evaluation_rows(frame, params.train_splits)
    found = {}
    for name in (*THIRDS, *NAMED):
        known = evaluated.filter(pl.col(name).is_not_null())
        if 2 <= known[name].n_unique() <= MAX_LEVELS:
            value = pl.col(name) if name in THIRDS else pl.format("{} {}", pl.lit(name), name)
            found[name] = known.select("label", "split", "unit", value.alias("value"))
    return found
