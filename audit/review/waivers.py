"""Whether a decision on a finding still applies, now that the finding may have changed.

A waiver, like any decision on a finding, stores what the finding said when it was decided:
- One about *samples* keeps its members (id and content hash) and holds for every finding of the
  same code whose members are all among them: that is pair by pair, so a group that shrinks or gets
  another representative stays settled, and one that gains a picture comes back.
- One about a *class, split or the dataset* is known by its fingerprint and lapses when it worsens:
  a more severe finding, more samples, or a number of its evidence that moved by more than a tenth.
  Either way counts, since a low `images` is bad and so is a high `ratio`.
Both lapse when the severity rises. Cost: proportional to the decisions on findings, not to the
findings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from audit.records import Severity
from audit.run.store import Store

TOLERANCE = 0.1  # share by which a number of the evidence may move before a waiver lapses
FINDINGS = """
    SELECT f.fingerprint, f.code, f.severity, f.subject, f.n_samples, f.evidence, f.action,
        list(m.sample_id ORDER BY m.position) FILTER (WHERE m.sample_id IS NOT NULL) AS ids,
        list(x.content_hash ORDER BY m.position) FILTER (WHERE m.sample_id IS NOT NULL) AS hashes
    FROM judged.main.findings f SEMI JOIN wanted w USING (fingerprint)
    LEFT JOIN judged.main.finding_samples m USING (fingerprint)
    LEFT JOIN measurements.main.features x ON x.sample_id = m.sample_id
    GROUP BY ALL ORDER BY f.code, f.fingerprint
"""
RESOLVE = """
    WITH here AS (
        SELECT s.id, f.content_hash FROM measurements.main.samples s
        LEFT JOIN measurements.main.features f ON f.sample_id = s.id
        WHERE s.id IN (SELECT subject FROM subjects)
    ), present AS (
        SELECT d.*, h.id AS there, h.content_hash AS now
        FROM subjects d LEFT JOIN here h ON h.id = d.subject
    ), carriers AS (
        SELECT content_hash, count(*) AS n, min(sample_id) AS id FROM measurements.main.features
        WHERE content_hash IN (SELECT content_hash FROM present WHERE there IS NULL)
        GROUP BY content_hash
    )
    SELECT p.* EXCLUDE (there, now),
        CASE WHEN there IS NOT NULL AND now IS NOT DISTINCT FROM p.content_hash THEN there
            WHEN there IS NULL AND c.n = 1 THEN c.id END AS sample_id,
        CASE WHEN there IS NOT NULL AND now IS DISTINCT FROM p.content_hash
                THEN 'its content changed since'
            WHEN there IS NULL AND c.n IS NULL THEN 'it is gone, and nothing has its content'
            WHEN there IS NULL AND c.n > 1
                THEN format('it is gone, and {} samples have its content', c.n) END AS reason
    FROM present p LEFT JOIN carriers c ON c.content_hash = p.content_hash
"""
MATCHES = """
    WITH counted AS (
        SELECT m.decision, f.fingerprint, f.severity, f.n_samples,
            count(DISTINCT fs.sample_id) AS known
        FROM members m
        JOIN judged.main.finding_samples fs ON fs.sample_id = m.sample_id
        JOIN judged.main.findings f ON f.fingerprint = fs.fingerprint AND f.code = m.code
        GROUP BY ALL
    )
    SELECT c.decision, c.fingerprint, c.severity, c.n_samples - c.known AS unknown,
        c.fingerprint = d.subject AS same
    FROM counted c JOIN subjects d ON d.decision = c.decision
"""


@dataclass(frozen=True, slots=True)
class FindingDecisions:
    """`effective`: fingerprint, verb, decision; `lapsed`: decision, fingerprint, reason."""

    effective: pl.DataFrame
    lapsed: pl.DataFrame


def load_findings(store: Store, fingerprints: Sequence[str]) -> pl.DataFrame:
    """Return the findings of these fingerprints, with the ids and content hashes of members."""
    store.create_from(
        "wanted", pl.DataFrame({"fingerprint": fingerprints}, {"fingerprint": pl.String})
    )
    return store.query(FINDINGS)


def snapshot_finding(finding: Mapping[str, Any]) -> str:
    """Return what a decision stores of a finding (a row of `load_findings`), as JSON."""
    ids, hashes = finding["ids"] or [], finding["hashes"] or []
    snapshot = {name: finding[name] for name in ("code", "severity", "subject", "n_samples")}
    # Members name a finding about samples exactly; a class or a split has thousands of them, and
    # what a reviewer accepted there are its numbers.
    if about_samples(finding["subject"], ids):
        snapshot["members"] = list(zip(ids, hashes, strict=True))
    else:
        snapshot["evidence"] = json.loads(finding["evidence"] or "{}")
    return json.dumps(snapshot, ensure_ascii=False)


def about_samples(subject: str, ids: Sequence[str]) -> bool:
    """Say whether a finding is about its members, rather than a class, a split, the dataset."""
    if not ids:
        return False
    return subject.startswith(("group:", "pair:", ids[0]))


def resolve(store: Store, subjects: pl.DataFrame) -> pl.DataFrame:
    """Add `sample_id` to rows of (subject, content_hash): who it is now, null and `reason` if none.

    The same id with the same content; else, where the id is gone, the one sample that carries it.
    """
    store.create_from("subjects", subjects)
    return store.query(RESOLVE)


def still_applies(store: Store, decisions: pl.DataFrame) -> FindingDecisions:
    """Return which decisions on findings (rows of `Ledger.current`) still apply, and to what."""
    snapshots = {
        row["id"]: json.loads(row["evidence"] or "{}") for row in decisions.iter_rows(named=True)
    }
    heads = decisions.select(pl.col("id").alias("decision"), "subject", "verb")
    applying, lapsed = [], []
    for decision, fingerprint, reason in (
        *_about_samples(store, heads, snapshots),
        *_about_the_whole(store, heads, snapshots),
    ):
        if reason is None:
            applying.append((fingerprint, decision))
        else:
            lapsed.append((decision, fingerprint, reason))
    effective = pl.DataFrame(
        applying, {"fingerprint": pl.String, "decision": pl.Int64}, orient="row"
    )
    effective = effective.sort("decision").unique("fingerprint", keep="last", maintain_order=True)
    lapsed_frame = pl.DataFrame(
        lapsed, {"decision": pl.Int64, "fingerprint": pl.String, "reason": pl.String}, orient="row"
    )
    return FindingDecisions(
        effective.join(heads.select("decision", "verb"), on="decision"),
        # A finding that was decided again needs no reminder of the decision that lapsed.
        lapsed_frame.join(effective, on="fingerprint", how="anti"),
    )


def _about_samples(
    store: Store, heads: pl.DataFrame, snapshots: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, str, str | None]]:
    """Yield (decision, fingerprint, None if it applies, else why not) by members."""
    members = [
        (decision, snapshot["code"], sample, content)
        for decision, snapshot in snapshots.items()
        for sample, content in snapshot.get("members", ())
    ]
    schema = {
        "decision": pl.Int64, "code": pl.String, "subject": pl.String, "content_hash": pl.String,
    }  # fmt: skip
    store.create_from("members", resolve(store, pl.DataFrame(members, schema, orient="row")))
    store.create_from("subjects", heads)
    for decision, fingerprint, severity, unknown, same in store.query(MATCHES).iter_rows():
        reason = _more_severe(snapshots[decision], severity)
        if unknown:
            reason = f"{unknown:,} of its samples joined or changed since"
        # Another finding that only shares a sample was never decided: that is no lapse.
        if reason is None or same:
            yield decision, fingerprint, reason


def _about_the_whole(
    store: Store, heads: pl.DataFrame, snapshots: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, str, str | None]]:
    """Yield the same for findings about a class, a split or the dataset, by fingerprint."""
    whole = [row for row in heads.iter_rows() if "members" not in snapshots[row[0]]]
    now = load_findings(store, [fingerprint for _, fingerprint, _ in whole])
    by_fingerprint = {row["fingerprint"]: row for row in now.iter_rows(named=True)}
    for decision, fingerprint, _ in whole:
        if fingerprint in by_fingerprint:
            yield decision, fingerprint, _worse(snapshots[decision], by_fingerprint[fingerprint])


def _more_severe(then: Mapping[str, Any], severity: str) -> str | None:
    was = then.get("severity", severity)
    if Severity(severity).rank < Severity(was).rank:
        return f"it was {was} and is {severity} now"
    return None


def _worse(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    if reason := _more_severe(then, now["severity"]):
        return reason
    if now["n_samples"] > then.get("n_samples", 0):
        return f"it concerned {then.get('n_samples', 0):,} samples and now {now['n_samples']:,}"
    numbers = json.loads(now["evidence"] or "{}")
    for name, was in then.get("evidence", {}).items():
        value = numbers.get(name)
        if not (isinstance(was, int | float) and isinstance(value, int | float)):
            continue
        if abs(value - was) > TOLERANCE * abs(was):
            return f"{name} was {was:.6g} and is {value:.6g} now"
    return None
