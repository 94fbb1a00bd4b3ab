"""Plans and curves as tables for the subset designer: shares become percentage points here."""

from __future__ import annotations

import json
import math
from collections import Counter

import polars as pl

from audit.subset import Curve, Plan, Subset
from audit.subset.precision import Figures

MEANING = {"full-set": "full set", "generalisation": "new data"}
EXPLAINED = (
    "In percentage points. Full set: how far the subset's number may be from the number on all of "
    "the set. New data: from the number on more data of the same kind."
)
POINTS = 100.0


def in_points(share: float | None) -> float | None:
    """Return a share in percentage points, None where it is unknown."""
    return None if share is None or not math.isfinite(share) else round(POINTS * share, 3)


def curve_table(curve: Curve) -> pl.DataFrame:
    """Return `n, about, half_width, detectable` (points), one row per size and estimand."""
    rows = [
        (
            p.n,
            MEANING[name],
            in_points(p.half_width[name]),
            in_points(p.detectable_difference[name]),
        )
        for p in curve.points
        for name in p.half_width
    ]
    schema = {"n": pl.Int64, "about": pl.String, "half_width": pl.Float64, "detectable": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def figures_by_meaning(plan: Plan) -> dict[str, Figures]:
    """Return what the plan gives, by the meaning of the estimand."""
    return {MEANING[name]: figures for name, figures in plan.estimands.items()}


def class_table(plan: Plan) -> pl.DataFrame:
    """Return what the plan gives for each class's recall, in points; no column without a value."""
    rows = [
        (
            c.label, c.n, c.units, in_points(c.step),
            *(in_points(c.estimands[name].half_width) for name in MEANING if name in c.estimands),
            in_points(c.estimands["generalisation"].detectable_difference),
        )
        for c in plan.classes
    ]  # fmt: skip
    names = ["class", "drawn", "of", "one answer", *(f"± {MEANING[n]}" for n in MEANING)]
    schema: dict[str, pl.DataType] = {name: pl.Float64() for name in names}
    schema |= {"class": pl.String(), "drawn": pl.Int64(), "of": pl.Int64()}
    schema["detects, new data"] = pl.Float64()
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.select(c for c in table.columns if table[c].null_count() < table.height)


def exclusion_counts(plan: Plan) -> list[tuple[str, int]]:
    """Return the reasons why files were left out, the most frequent first."""
    return Counter(e["reason"] for e in plan.excluded).most_common()


def plan_json(plan: Plan) -> bytes:
    """Return the plan's document (`subset-plan/1`)."""
    return (json.dumps(plan.document(), indent=1, ensure_ascii=False) + "\n").encode()


def subset_csv(subset: Subset) -> bytes:
    """Return the drawn rows as CSV, as `audit subset score` reads them."""
    return subset.rows.write_csv().encode()


def subset_parquet(subset: Subset) -> bytes:
    """Return the drawn rows as Parquet."""
    from io import BytesIO

    buffer = BytesIO()
    subset.rows.write_parquet(buffer)
    return buffer.getvalue()
