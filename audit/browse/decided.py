"""What the ledger says, beside findings and samples: read anew only when the ledger changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from audit.review.decisions import Applied, Decision, applied, log, revision
from audit.run.generations import Generation

RECENT = 30


@dataclass(frozen=True, slots=True)
class Told:
    """The ledger as pages show it.

    `statuses`: (fingerprint, waived | decided). `by_sample`: what was decided of a sample, in words
    such as `drop` or `relabel to cat`. `stale`: decisions that do not apply, and why. `recent`: the
    latest entries.
    """

    revision: str
    statuses: tuple[tuple[str, str], ...] = ()
    by_sample: Mapping[str, str] = field(default_factory=dict)
    stale: pl.DataFrame = field(default_factory=pl.DataFrame)
    recent: tuple[Decision, ...] = ()
    n_live: int = 0

    @property
    def settled(self) -> frozenset[str]:
        """The fingerprints that need nothing any more."""
        return frozenset(fingerprint for fingerprint, _ in self.statuses)

    @property
    def last(self) -> Decision | None:
        """The latest decision that is not undone."""
        return next((d for d in self.recent if not d.undone), None)


def told(run: Path, generation: Generation) -> Told:
    """Return what the ledger of a run comes to for one generation."""
    now = revision(run)
    found: Applied = applied(run, generation)
    return Told(
        revision=now,
        statuses=tuple(found.settled.select("fingerprint", "status").iter_rows()),
        by_sample={row["id"]: _words(row) for row in found.live.iter_rows(named=True)},
        stale=found.stale,
        recent=tuple(log(run, RECENT)),
        n_live=found.live.height,
    )


def _words(row: Mapping[str, object]) -> str:
    joined = {"relabel": "relabel to", "move": "move to"}.get(str(row["verb"]), str(row["verb"]))
    return f"{joined} {row['value']}" if row["value"] else joined
