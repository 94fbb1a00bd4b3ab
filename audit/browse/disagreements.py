"""Predictions beside truth: the examples that a model got wrong, the worst first.

Worst is what the model was surest of: there the label, the picture or the model is wrong in a way
that is worth a look. Without a confidence, what counts for most files comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from audit.subset import score_subset
from audit.subset.design import MetricEstimate
from audit.subset.predictions import match, standard_columns

COLUMNS = ("sample_id", "truth", "prediction", "confidence", "weight", "suspected_mislabel")


@dataclass(frozen=True)
class Disagreements:
    """The wrong answers on some rows, with `COLUMNS`; how many are right, and notes on the file.

    `accuracy`: of all files, by the weights of the rows.
    """

    table: pl.DataFrame
    right: int
    n: int
    accuracy: MetricEstimate
    notes: list[str]


def find_disagreements(rows: pl.DataFrame, predictions: pl.DataFrame, name: str) -> Disagreements:
    """Compare a model's answers with the labels of drawn rows; rows without an answer are left out.

    Raises UsageError for a table that is no predictions of these rows.
    """
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
    )  # fmt: skip
