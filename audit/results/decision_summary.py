"""Decisions as they apply to a version, for all readers; how far reviewers agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from audit.decisions.decisions import tagged_samples
from audit.decisions.store import Decision, DecisionStore
from audit.decisions.waivers import Applied, LookedUp, apply_decisions
from audit.run.run_version import RunVersion
from audit.statistics.intervals import kappa_parts, z_value

RECENT = 30


@dataclass(frozen=True, slots=True)
class DecisionSummary:
    """The decisions as they apply to one version.

    `statuses`: (fingerprint, waived | decided). `by_sample`: words such as `relabel to cat`.
    `labels`: the reviewed class, "" where the label is right. `tags`: samples by tag.
    `recent`: the latest entries.
    """

    revision: str
    applied: Applied
    statuses: tuple[tuple[str, str], ...] = ()
    by_sample: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    recent: tuple[Decision, ...] = ()

    @property
    def settled(self) -> frozenset[str]:
        """The fingerprints that need nothing any more."""
        return frozenset(fingerprint for fingerprint, _ in self.statuses)

    @property
    def last(self) -> Decision | None:
        """The latest decision that is not undone."""
        return next((d for d in self.recent if not d.undone), None)


def summarise_decisions(
    run: Path, version: RunVersion, known: LookedUp | None = None
) -> DecisionSummary:
    """Return the decisions of a run as they apply to one version; `known`: subjects looked up."""
    store = DecisionStore(run)
    # Read before the decisions, so that a decision made meanwhile is read again and never missed.
    now = store.revision()
    applied = apply_decisions(run, version, known)
    tagged = tagged_samples(run, version, known).group_by("tag").agg("id").sort("tag")
    return DecisionSummary(
        revision=now,
        applied=applied,
        statuses=tuple(applied.settled.select("fingerprint", "status").iter_rows()),
        by_sample={row["id"]: _words(row) for row in applied.effective.iter_rows(named=True)},
        labels={
            row["id"]: "" if row["label_right"] else row["label"]
            for row in applied.effective.iter_rows(named=True)
            if row["label_right"] or row["label"]
        },
        tags={tag: tuple(ids) for tag, ids in tagged.iter_rows()},
        recent=tuple(store.log(RECENT)),
    )


def _words(row: Mapping[str, object]) -> str:
    joined = {"relabel": "relabel to", "move": "move to"}.get(str(row["verb"]), str(row["verb"]))
    return f"{joined} {row['value']}" if row["value"] else joined


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
