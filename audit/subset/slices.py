"""Where a model errs: right answers by the values of any column of the run or the list.

Every value asked for has a design-based interval, at a confidence that lets all of them hold
together (Bonferroni). What is worse than elsewhere is found by `audit.statistics.slices`, which
takes the files of a group for independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from audit.errors import UsageError
from audit.statistics.slices import LEVEL, find_slices
from audit.subset.goal import Estimand
from audit.subset.metrics import MetricEstimate, Outcome, estimate_share
from audit.subset.source import rows_in_set
from audit.subset.strata import Strata, cut_points, stratum_names

MOST_VALUES = 50


@dataclass(frozen=True)
class SliceScore:
    """One value of a column in the subset: `right` of `n` files, and the share of right answers."""

    column: str
    value: str
    n: int
    right: int
    estimands: dict[Estimand, MetricEstimate]


@dataclass(frozen=True)
class Slices:
    """The values of columns, each interval at `level`; `worse`: rows of `find_slices`.

    `left_out`: values beyond the `MOST_VALUES` most frequent of a column.
    """

    values: list[SliceScore]
    worse: list[dict[str, Any]]
    level: float
    left_out: dict[str, int] = field(default_factory=dict)


def slice_columns(
    rows: pl.DataFrame, frame: pl.DataFrame | None, names: Sequence[str]
) -> pl.DataFrame:
    """Return columns of the subset's rows: of the set (`frame`) if it is given, or of their own."""
    table = rows if frame is None else frame
    absent = [name for name in names if name not in table.columns]
    if absent:
        there = ", ".join(c for c in table.columns if c not in ("sample_id", "path"))
        raise UsageError(
            f"There is no column {absent[0]!r} to slice by: there are {there}."
            + (" Columns of the set are read with --from." if frame is None else "")
        )
    if frame is None:
        return rows.select(names)
    return frame[rows_in_set(rows["sample_id"], frame["sample_id"])].select(names)


def score_slices(outcome: Outcome, columns: pl.DataFrame, confidence: float) -> Slices:
    """Return right answers by each value of `columns`, one row of it for each row of the subset."""
    masks: list[tuple[str, str, Any]] = []
    left_out = {}
    for name in columns.columns:
        # numbers of many values are cut into quarters, as strata are
        strata = Strata((name,), cut_points(columns, [name]), label=False)
        texts = stratum_names(columns, strata).cast(pl.String)
        texts = texts.str.strip_prefix(f"{name}=")
        found = texts.value_counts().sort("count", texts.name, descending=[True, False])
        if len(found) > MOST_VALUES:
            left_out[name] = len(found) - MOST_VALUES
        kept = sorted(found[texts.name].head(MOST_VALUES).to_list())
        masks += [(name, value, (texts == value).to_numpy()) for value in kept]
    level = 1 - (1 - confidence) / max(len(masks), 1)
    values = []
    for name, value, mask in masks:
        own = mask * outcome.counts
        share = estimate_share(outcome.design, outcome.hit, own, level)
        values.append(
            SliceScore(name, value, int(own.sum()), int((own * outcome.hit).sum()), share)
        )
    used = outcome.counts > 0
    wrong, weight = (outcome.hit == 0)[used], outcome.design.weight[used]
    worse = find_slices(wrong, columns.filter(pl.Series(used)), weight)
    return Slices(values, worse.to_dicts(), level, left_out)


def slices_lines(found: Slices) -> Iterator[str]:
    """Yield slices for a reader."""
    yield (
        f"  Right answers by value, in % for new data; the {len(found.values)} intervals hold "
        "together:"
    )
    width = max((len(f"{s.column}={s.value}") for s in found.values), default=0)
    for one in found.values:
        new = one.estimands["generalisation"]
        told = "no example"
        if one.n:
            told = (
                f"{one.right} of {one.n} right, {100 * new.value:.2f} ({100 * new.low:.2f} to "
                f"{100 * new.high:.2f}), {100 * (1 - new.value):.2f} wrong"
            )
        yield f"    {f'{one.column}={one.value}'.ljust(width)}  {told}"
    for name, count in found.left_out.items():
        yield f"    and {count} rarer values of {name}"
    for row in found.worse:
        yield (
            f"  Worse than elsewhere: {row['column']} {row['value']}, {100 * row['share']:.2f}% "
            f"wrong ({100 * row['low']:.2f} to {100 * row['high']:.2f}), elsewhere "
            f"{100 * row['elsewhere']:.2f} (q = {row['q']:.2g})"
        )
    if not found.worse:
        yield f"  No value is worse than elsewhere (false discovery rate {LEVEL:g})."
