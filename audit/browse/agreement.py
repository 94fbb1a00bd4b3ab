"""Where people who decided about one thing said different things, and how far they agree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from audit.decisions.ledger import Ledger

Z = 1.959964  # of a 95 % interval


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Two people: how many things both decided, in how many they agree, and Cohen's kappa with its
    95 % interval (None where one answer is all that was given).
    """

    first: str
    second: str
    n: int
    alike: int
    kappa: float | None
    low: float
    high: float


def disagreements(run: Path) -> pl.DataFrame:
    """Return what several people decided otherwise: kind, subject, and who said what, in a list."""
    each = pl.format("{} ({}, {})", "said", "by", pl.col("at").str.slice(0, 16))
    return (
        Ledger(run)
        .answers()
        .group_by("kind", "subject", maintain_order=True)
        .agg(each.alias("said"), pl.col("said").n_unique().alias("answers"))
        .filter(pl.col("answers") > 1)
        .drop("answers")
    )


def measure_agreement(run: Path) -> list[PairAgreement]:
    """Return how far each two people agree who decided about the same, the most decided first."""
    answers = Ledger(run).answers()
    if answers.is_empty():
        return []
    table = answers.pivot("by", index=["kind", "subject"], values="said")
    people = table.columns[2:]
    both = [table.select(pair).drop_nulls() for pair in combinations(people, 2)]
    found = [_kappa(pair) for pair in both if pair.height]
    return sorted(found, key=lambda pair: -pair.n)


def _kappa(two: pl.DataFrame) -> PairAgreement:
    """Cohen (1960); the interval is that of the large sample (Fleiss, Cohen and Everitt 1969)."""
    first, second = two.columns
    answers, place = np.unique(two.to_numpy(), return_inverse=True)
    a, b = place.reshape(-1, 2).T
    alike = a == b
    of_a, of_b = (np.bincount(v, minlength=len(answers)) / len(a) for v in (a, b))
    chance, observed = float(of_a @ of_b), float(alike.mean())
    counts = int(alike.sum())
    if chance >= 1:
        return PairAgreement(first, second, len(a), counts, None, -1.0, 1.0)
    kappa = (observed - chance) / (1 - chance)
    # how much each thing moves kappa, through the agreement and through both shares of answers
    moved = alike * (1 - chance) - (1 - observed) * (of_b[a] + of_a[b])
    error = float(np.std(moved)) / (1 - chance) ** 2 / np.sqrt(len(a))
    low, high = max(kappa - Z * error, -1.0), min(kappa + Z * error, 1.0)
    return PairAgreement(first, second, len(a), counts, kappa, low, high)
