"""What the ledger says, beside findings and samples: one summary for all pages.

The app keeps it by `revision`, so it is read again only when the ledger has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from audit.decisions.decisions import tagged_samples
from audit.decisions.store import Decision, DecisionStore
from audit.decisions.waivers import LookedUp, apply_decisions
from audit.run.generations import Generation

RECENT = 30


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The ledger as pages show it.

    `statuses`: (fingerprint, waived | decided). `by_sample`: what was decided about a sample,
    such as `drop` or `relabel to cat`. `labels`: the class that a review of the label gave,
    "" where the label is right. `tags`: the samples of each tag. `stale`: decisions that do not
    apply, and why. `recent`: the latest entries.
    """

    revision: str
    statuses: tuple[tuple[str, str], ...] = ()
    by_sample: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stale: pl.DataFrame = field(default_factory=pl.DataFrame)
    recent: tuple[Decision, ...] = ()
    n_effective: int = 0

    @property
    def settled(self) -> frozenset[str]:
        """The fingerprints that need nothing any more."""
        return frozenset(fingerprint for fingerprint, _ in self.statuses)

    @property
    def last(self) -> Decision | None:
        """The latest decision that is not undone."""
        return next((d for d in self.recent if not d.undone), None)


def summarise_ledger(
    run: Path, generation: Generation, known: LookedUp | None = None
) -> LedgerSummary:
    """Return what the ledger of a run amounts to for one generation.

    `known`: what was looked up for this ledger and generation before.
    """
    ledger = DecisionStore(run)
    # Before the decisions: one that arrives in between is read now and once more at the next call,
    # and none is ever missed.
    now = ledger.revision()
    applied = apply_decisions(run, generation, known)
    tagged = tagged_samples(run, generation, known).group_by("tag").agg("id").sort("tag")
    return LedgerSummary(
        revision=now,
        statuses=tuple(applied.settled.select("fingerprint", "status").iter_rows()),
        by_sample={row["id"]: _words(row) for row in applied.effective.iter_rows(named=True)},
        labels={
            row["id"]: "" if row["label_right"] else row["label"]
            for row in applied.effective.iter_rows(named=True)
            if row["label_right"] or row["label"]
        },
        tags={tag: tuple(ids) for tag, ids in tagged.iter_rows()},
        stale=applied.stale,
        recent=tuple(ledger.log(RECENT)),
        n_effective=applied.effective.height,
    )


def _words(row: Mapping[str, object]) -> str:
    joined = {"relabel": "relabel to", "move": "move to"}.get(str(row["verb"]), str(row["verb"]))
    return f"{joined} {row['value']}" if row["value"] else joined
