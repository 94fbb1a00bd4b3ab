"""Status: which decisions are in effect for a run as it is now.

A decision names a sample by id *and* content. It applies where both still match; it follows a file
that moved if the old id is gone and exactly one sample carries the content; otherwise it is
*stale*: shown, never applied. So is the drop of a copy whose keeper is gone: it would lose the
picture. A finding is settled by a decision about it (`audit.review.waivers`), or because its
samples were dropped. Everything is derived from the ledger and a generation; 100,000 decisions take
a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from audit.records import Action
from audit.review.ledger import Ledger
from audit.review.waivers import resolve, still_applies
from audit.run import generations
from audit.run.store import Store

EFFECTIVE = pl.Schema(
    {
        "id": pl.String, "verb": pl.String, "value": pl.String, "why": pl.String,
        "dropped": pl.Boolean, "label": pl.String, "split": pl.String, "note": pl.String,
        "by": pl.String, "at": pl.String, "decision": pl.Int64, "subject": pl.String,
    }
)  # fmt: skip
STALE = pl.Schema(
    {
        "kind": pl.String, "subject": pl.String, "reason": pl.String, "verb": pl.String,
        "value": pl.String, "note": pl.String, "by": pl.String, "at": pl.String,
        "decision": pl.Int64,
    }
)  # fmt: skip
NO_SAMPLES = pl.DataFrame(schema=EFFECTIVE)


@dataclass(frozen=True, slots=True)
class Applied:
    """The decisions as they apply to one generation of a run.

    `effective`: one row per sample with a decision (`EFFECTIVE`): its last verb and value,
    whether it is `dropped`, its new `label` and `split` (null: unchanged), `why` in words.
    `stale` (`STALE`): what does not apply, and the reason. `settled`: fingerprint, status (waived |
    decided), verb, decision.
    """

    effective: pl.DataFrame
    stale: pl.DataFrame
    settled: pl.DataFrame

    @property
    def waived(self) -> frozenset[str]:
        """The fingerprints of the findings that are waived as false positives."""
        return frozenset(self.settled.filter(pl.col("status") == "waived")["fingerprint"])


def open_for_deciding(run: Path, generation: generations.Generation | None = None) -> Store:
    """Open a run for reading, with room in memory for tables of decisions beside its own."""
    store = generations.open_generation(generation or generations.require(run))
    store.execute("SET search_path = 'memory.main,measurements.main,judged.main'")
    return store


def apply_decisions(run: Path, generation: generations.Generation | None = None) -> Applied:
    """Return what the decisions amount to for a generation of the run (default: the current)."""
    current = Ledger(run).current()
    if current.is_empty():
        none = pl.DataFrame(
            schema={"fingerprint": pl.String, "status": pl.String, "verb": pl.String,
                    "decision": pl.Int64}
        )  # fmt: skip
        return Applied(NO_SAMPLES, pl.DataFrame(schema=STALE), none)
    with open_for_deciding(run, generation) as store:
        effective, stale = _samples(store, current.filter(pl.col("kind") == "sample"))
        on_findings = current.filter(pl.col("kind") == "finding")
        by_finding = still_applies(store, on_findings)
        superseded = _without_samples(store, effective)
    lapsed = (
        by_finding.lapsed.join(on_findings.rename({"id": "decision"}), on="decision")
        .with_columns(pl.lit("finding").alias("kind"))
        .select(STALE.names())
    )
    status = pl.when(pl.col("verb") == Action.FALSE_POSITIVE.value).then(pl.lit("waived"))
    decided = by_finding.effective.with_columns(status.otherwise(pl.lit("decided")).alias("status"))
    settled = pl.concat(
        [decided.select("fingerprint", "status", "verb", "decision"),
         superseded.join(decided, on="fingerprint", how="anti")]
    )  # fmt: skip
    return Applied(effective, pl.concat([stale, lapsed]), settled)


def waived_fingerprints(
    run: Path, generation: generations.Generation | None = None
) -> frozenset[str]:
    """Return the fingerprints of the findings that are waived as false positives."""
    return apply_decisions(run, generation).waived


def _samples(store: Store, current: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the decisions in effect, one row per sample, and those that are stale."""
    resolved = resolve(store, current.rename({"id": "decision"})).sort("decision")
    resolved = _without_keeper(store, resolved)
    moved = pl.col("sample_id") != pl.col("subject")
    reason = pl.when(pl.col("note") != "").then(pl.col("note")).otherwise(
        pl.format("{} by {}", "verb", "by")
    )  # fmt: skip
    why = pl.when(moved).then(pl.format("{} (moved from {})", reason, "subject")).otherwise(reason)
    last = ("verb", "value", "why", "dropped", "note", "by", "at", "decision", "subject")
    effective = (
        resolved.filter(pl.col("sample_id").is_not_null())
        .with_columns(why.alias("why"))
        .group_by("sample_id")
        .agg(pl.col(*last).last(), pl.col("label", "split").drop_nulls().last())
        .rename({"sample_id": "id"})
        .select(EFFECTIVE.names())
        .sort("id")
    )
    # A subject that was decided again with its present content needs no reminder of the old.
    redecided = effective.select("id", pl.col("decision").alias("later"))
    stale = resolved.filter(pl.col("sample_id").is_null()).join(
        redecided, left_on="subject", right_on="id", how="left"
    )
    stale = stale.filter((pl.col("later") > pl.col("decision")).fill_null(False).not_())
    return effective, stale.select(STALE.names())


def _without_keeper(store: Store, resolved: pl.DataFrame) -> pl.DataFrame:
    """Make a drop stale where the copy that was to stay is gone: it would lose the picture."""
    keeper = pl.col("evidence").str.json_path_match
    copies = resolved.filter(pl.col("evidence").is_not_null() & pl.col("dropped")).select(
        "decision",
        keeper("$.keeper[0]").alias("subject"),
        keeper("$.keeper[1]").alias("content_hash"),
    )
    if copies.is_empty():
        return resolved
    lost = resolve(store, copies).filter(pl.col("sample_id").is_null())
    said = pl.format("its copy {}, which was to stay: {}", "subject", "reason")
    resolved = resolved.join(lost.select("decision", said.alias("lost")), on="decision", how="left")
    here = pl.when(pl.col("lost").is_null()).then(pl.col("sample_id"))
    return resolved.with_columns(here, pl.coalesce("lost", "reason").alias("reason"))


def _without_samples(store: Store, effective: pl.DataFrame) -> pl.DataFrame:
    """Return the findings that drops have superseded: at most one sample left of several."""
    store.create_from("dropped", effective.filter("dropped").select("id", "decision"))
    return store.query(
        "SELECT f.fingerprint, 'decided' AS status, 'drop' AS verb, max(d.decision) AS decision "
        "FROM dropped d JOIN judged.main.finding_samples m ON m.sample_id = d.id "
        "JOIN judged.main.findings f USING (fingerprint) GROUP BY f.fingerprint, f.n_samples "
        "HAVING count(*) >= greatest(1, f.n_samples - 1)"
    )
