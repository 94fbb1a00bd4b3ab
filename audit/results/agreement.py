"""Where people who decided about one thing said different things, and how far they agree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from audit.statistics.intervals import kappa_parts, z_value


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """How many subjects two people decided, how many alike, and Cohen's kappa (95% CI or None)."""

    first: str
    second: str
    n: int
    alike: int
    kappa: float | None
    low: float
    high: float


def disagreements(answers: pl.DataFrame) -> pl.DataFrame:
    """Return where people disagree: kind, subject, decisions; of `DecisionStore.answers`."""
    each = pl.format("{} ({}, {})", "said", "by", pl.col("at").str.slice(0, 16))
    return (
        answers.group_by("kind", "subject", maintain_order=True)
        .agg(each.alias("said"), pl.col("said").n_unique().alias("answers"))
        .filter(pl.col("answers") > 1)
        .drop("answers")
    )


def measure_agreement(answers: pl.DataFrame) -> list[PairAgreement]:
    """Return how far each two people agree who decided about the same, the most decided first."""
    if answers.is_empty():
        return []
    table = answers.pivot("by", index=["kind", "subject"], values="said")
    people = table.columns[2:]
    both = [table.select(pair).drop_nulls() for pair in combinations(people, 2)]
    found = [_kappa(pair) for pair in both if pair.height]
    return sorted(found, key=lambda pair: -pair.n)


def _kappa(two: pl.DataFrame) -> PairAgreement:
    first, second = two.columns
    _, place = np.unique(two.to_numpy(), return_inverse=True)
    a, b = place.reshape(-1, 2).astype(np.int64).T
    n, alike = len(a), int((a == b).sum())
    observed, chance, influence = kappa_parts(a, b, np.full(n, 1 / n))
    if chance >= 1:
        return PairAgreement(first, second, n, alike, None, -1.0, 1.0)
    kappa = (observed - chance) / (1 - chance)
    reach = z_value(0.95) * float(np.std(influence)) / (1 - chance) / np.sqrt(n)
    low, high = max(kappa - reach, -1.0), min(kappa + reach, 1.0)
    return PairAgreement(first, second, n, alike, kappa, low, high)
