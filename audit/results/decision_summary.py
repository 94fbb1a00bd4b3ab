"""Decisions as they apply to findings and samples of a version: one summary for all readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from audit.decisions.decisions import tagged_samples
from audit.decisions.store import Decision, DecisionStore
from audit.decisions.waivers import Applied, LookedUp, apply_decisions
from audit.run.run_version import RunVersion

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
