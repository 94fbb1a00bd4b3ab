"""Plans, curves and wrong answers as tables for the subset designer, shares in percentage points.

Wrong answers are sorted by confidence, or by weight without one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import polars as pl

from audit.subset import Curve, Plan, Subset, score_subset
from audit.subset.metrics import MetricEstimate
from audit.subset.predictions import match, standard_columns

MEANING = {"full-set": "this set", "generalisation": "new data"}
EXPLAINED = (
    "In percentage points. This set: compared with the result on the whole set. New data: compared "
    "with the result on more data of the same kind."
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


def plan_json(plan: Plan) -> bytes:
    """Return the plan's document (`subset-plan/1`)."""
    return (json.dumps(plan.document(), indent=1, ensure_ascii=False) + "\n").encode()


def subset_parquet(subset: Subset) -> bytes:
    """Return the drawn rows as Parquet."""
    from io import BytesIO

    buffer = BytesIO()
    subset.rows.write_parquet(buffer)
    return buffer.getvalue()


COLUMNS = ("sample_id", "truth", "prediction", "confidence", "weight", "suspected_mislabel")


@dataclass(frozen=True)
class Disagreements:
    """The wrong answers with `COLUMNS`, the number of right ones, and notes on the file.

    `accuracy`: weighted. `answered`: sample_id, wrong, weight of all rows with an answer.
    """

    table: pl.DataFrame
    right: int
    n: int
    accuracy: MetricEstimate
    notes: list[str]
    answered: pl.DataFrame


def find_disagreements(rows: pl.DataFrame, predictions: pl.DataFrame, name: str) -> Disagreements:
    """Compare answers with labels, rows without an answer excluded; UsageError for a bad table."""
    given = standard_columns(predictions, name)
    matched = match(rows, given, name, "drop", "wrong")
    scored = score_subset(rows, [given], missing="drop", unknown="wrong", names=[name]).models[0]
    confidence = "confidence" if "confidence" in matched.table.columns else pl.lit(None, pl.Float64)
    answered = rows.select(
        "sample_id", "weight", "suspected_mislabel", truth=pl.col("label").cast(pl.String)
    ).with_columns(matched.table.select("prediction", confidence=confidence))
    answered = answered.drop_nulls("prediction")
    wrong = answered.filter(pl.col("prediction") != pl.col("truth")).select(COLUMNS)
    worst_first = wrong.sort(
        "confidence", "weight", "sample_id", descending=[True, True, False], nulls_last=True
    )
    return Disagreements(
        worst_first, len(answered) - len(wrong), len(answered),
        scored.metrics[0].estimands["full-set"], scored.notes,
        answered.select(
            "sample_id", "weight", wrong=(pl.col("prediction") != pl.col("truth")).fill_null(True)
        ),
    )  # fmt: skip
