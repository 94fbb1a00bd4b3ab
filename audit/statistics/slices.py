"""Slices: the groups of pictures in which a model is wrong more often than elsewhere.

A slice is one value of a column of texts, or one end of a column of numbers. Each is tested against
all other rows by the exact hypergeometric tail, and all tests are one family (Benjamini and
Hochberg 1995). Of slices that say the same the clearest stays; rows count as independent, so copies
of one picture should be one row, or weigh as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.statistics.intervals import benjamini_hochberg, hypergeometric_tails, wilson_share

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
LEVEL = 0.01
LEAST = 10  # rows of a slice
FEW = 12  # numbers that are values, as texts are
ENDS = (0.05, 0.1, 0.2, 1 / 3, 0.5)
NONE = "(none)"
MOST = 300  # slices compared with each other
SCHEMA = pl.Schema(
    {
        "column": pl.String, "value": pl.String, "at_least": pl.Float64, "at_most": pl.Float64,
        "n": pl.Int64, "wrong": pl.Int64, "share": pl.Float64, "low": pl.Float64,
        "high": pl.Float64, "elsewhere": pl.Float64, "p": pl.Float64, "q": pl.Float64,
    }
)  # fmt: skip


def find_slices(
    wrong: Bools, columns: pl.DataFrame, weights: Floats | None = None, level: float = LEVEL
) -> pl.DataFrame:
    """Return the slices in which a model fails significantly more often, the clearest first.

    `wrong` (n,): whether each answer is wrong. `columns`: n rows in the same order; a column of
    numbers with over 12 values is cut at its ends, any other is taken by value (null: "(none)").
    `weights` (n,): what each row stands for; counts then become effective ones (Kish 1965).

    A row of the answer (`SCHEMA`): `column`; `value`, the text, or "at most 41.3", "at least 0.9",
    whose bound is also in `at_most` or `at_least`; `n` rows and `wrong` of them; `share` wrong
    (0..1, weighted) with its 95 % interval `low`, `high` (Wilson); the share `elsewhere`; `p`,
    one-sided; `q`, adjusted, at most `level`.
    """
    weight = np.ones(len(wrong)) if weights is None else np.asarray(weights, float)
    base = pl.DataFrame({"wrong": wrong, "weight": weight}).with_columns(
        lost=pl.col("wrong") * pl.col("weight"), square=pl.col("weight") ** 2
    )
    parts = [
        part for one in columns for part in _tallies(one, base.with_columns(value=one)) if len(part)
    ]
    if not parts:
        return pl.DataFrame(schema=SCHEMA)
    tallies = pl.concat(parts, how="diagonal_relaxed").filter(pl.col("n") >= LEAST)
    whole = base.select(**SUMS).row(0, named=True)
    judged = _judged(tallies, whole)
    judged = judged.with_columns(q=benjamini_hochberg(judged["p"])).filter(pl.col("q") <= level)
    return _distinct(judged.sort("p", -pl.col("excess")).head(MOST), columns, base, level)


def slice_rows(columns: pl.DataFrame, one: Mapping[str, Any]) -> Bools:
    """Return (n,) which rows of `columns` lie in a slice, a row of `find_slices`."""
    values = columns[one["column"]]
    if one["at_most"] is not None:
        inside = values <= one["at_most"]
    elif one["at_least"] is not None:
        inside = (values >= one["at_least"]) & ~_missing(values)
    else:
        inside = _texts(values) == one["value"]
    return np.asarray(inside.fill_null(value=False).to_numpy(), bool)


SUMS = {
    "n": pl.len(),
    "wrong": pl.col("wrong").sum(),
    "weight": pl.col("weight").sum(),
    "lost": pl.col("lost").sum(),
    "square": pl.col("square").sum(),
}


def _missing(values: pl.Series) -> pl.Series:
    return values.is_null() | (values.is_nan() if values.dtype.is_float() else False)


def _texts(values: pl.Series) -> pl.Series:
    if values.dtype.is_float():
        values = values.fill_nan(None)
    return values.cast(pl.String).fill_null(NONE)


def _tallies(one: pl.Series, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the counts of the candidates of a column; `rows` has its values."""
    known = one.filter(~_missing(one))
    if not (one.dtype.is_numeric() and known.n_unique() > FEW):
        found = rows.with_columns(value=_texts(one)).group_by("value").agg(**SUMS)
        yield found.select(pl.lit(one.name).alias("column"), pl.all())
        return
    gone = rows.filter(_missing(one))
    if len(gone):
        yield gone.select(column=pl.lit(one.name), value=pl.lit(NONE), **SUMS)
    inside = rows.filter(~_missing(one))
    for share in ENDS:
        low, high = (float(known.quantile(at, "nearest") or 0) for at in (share, 1 - share))
        for name, words, bound, held in (
            ("at_most", "at most", low, pl.col("value") <= low),
            ("at_least", "at least", high, pl.col("value") >= high),
        ):
            yield inside.filter(held).select(
                column=pl.lit(one.name), value=pl.lit(f"{words} {bound:.4g}"),
                **{name: pl.lit(bound)}, **SUMS,
            )  # fmt: skip


def _judged(tallies: pl.DataFrame, whole: Mapping[str, float]) -> pl.DataFrame:
    """Return the candidates in the columns of `SCHEMA` but q, and the `excess` of wrong answers."""
    absent = [pl.lit(None, pl.Float64).alias(n) for n in ("at_least", "at_most")]
    tallies = tallies.with_columns(e for e in absent if e.meta.output_name() not in tallies.columns)
    # ends that ties make equal are one candidate, and a slice of all rows is none
    tallies = tallies.unique(["column", "value"], maintain_order=True)
    tallies = tallies.filter(pl.col("n") < whole["n"])
    weight, lost, square = (tallies[n].to_numpy() for n in ("weight", "lost", "square"))
    rest = [np.maximum(whole[n] - s, 0) for n, s in zip(("weight", "lost", "square"),
            (weight, lost, square), strict=True)]  # fmt: skip
    share, n = _effective(weight, lost, square)
    elsewhere, others = _effective(*rest)
    low, high = wilson_share(share, n)
    return tallies.with_columns(
        share=share, low=low, high=high, elsewhere=elsewhere, p=_p(share, n, elsewhere, others),
        excess=(share - elsewhere) * n,
    )  # fmt: skip


def _effective(weight: Any, lost: Any, square: Any) -> tuple[Floats, Floats]:
    """Return the share wrong and the effective number of rows."""
    share = np.divide(lost, weight, out=np.zeros(np.shape(weight)), where=weight > 0)
    n = np.divide(weight**2, square, out=np.zeros(np.shape(weight)), where=square > 0)
    return np.asarray(share), np.asarray(n)


def _p(share: Floats, n: Floats, elsewhere: Floats, others: Floats) -> Floats:
    """Return the chance that as many of the wrong answers fall into a slice."""
    wrong, more = np.round(share * n), np.round(elsewhere * others)
    sizes = np.round(n), np.round(others)
    upper = hypergeometric_tails(wrong, sizes[0], wrong + more, sizes[0] + sizes[1])[1]
    # the sum of a tail has an error of its own: below it, p-values are ranked by their excess
    return np.maximum(upper, 0.0)


def _distinct(
    found: pl.DataFrame, columns: pl.DataFrame, base: pl.DataFrame, level: float
) -> pl.DataFrame:
    """Return the slices that are still clear on the rows that none before them holds."""
    sums = [base[name].to_numpy() for name in ("weight", "lost", "square")]
    free = np.ones(len(base), bool)
    kept: list[int] = []
    for place, one in enumerate(found.iter_rows(named=True)):
        rows = slice_rows(columns, one)
        inside, outside = rows & free, ~rows & free
        mine, rest = (
            _effective(*(np.array([s[r].sum()]) for s in sums)) for r in (inside, outside)
        )
        if not kept or (mine[1][0] >= LEAST / 2 and _p(*mine, *rest)[0] <= level / len(found)):
            kept.append(place)
            free &= ~rows
    return found[kept].select(SCHEMA.names()).cast(SCHEMA)
