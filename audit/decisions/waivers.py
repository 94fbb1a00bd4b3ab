"""Which decisions are in effect for a run as it is now.

A decision names a sample by id *and* content. It follows a file that moved, if exactly one sample
has the content; otherwise it is *stale*: shown, never applied. So is a drop whose keeper is gone.
A waiver about *samples* holds for every finding of its code whose members are all among its own.
One about a *class, split or the dataset* lapses when the finding has more samples, or a number of
its evidence moved by more than `TOLERANCE`. Both lapse when the severity rises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from audit.decisions.store import DecisionStore
from audit.records import Action, Severity
from audit.run import run_version
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
        SELECT s.id, f.content_hash
        FROM (FROM measurements.main.samples WHERE id IN (SELECT subject FROM asked)) s
        LEFT JOIN (FROM measurements.main.features WHERE sample_id IN (SELECT subject FROM asked)) f
        ON f.sample_id = s.id
    ), present AS MATERIALIZED (
        SELECT d.*, h.id AS there, h.content_hash AS now
        FROM asked d LEFT JOIN here h ON h.id = d.subject
    ), carriers AS (
        SELECT content_hash, count(*) AS n, min(sample_id) AS id FROM measurements.main.features
        WHERE content_hash IN (SELECT content_hash FROM present WHERE there IS NULL)
        GROUP BY content_hash
    )
    SELECT
        CASE WHEN there IS NOT NULL AND now IS NOT DISTINCT FROM p.content_hash THEN there
            WHEN there IS NULL AND c.n = 1 THEN c.id END AS sample_id,
        CASE WHEN there IS NOT NULL AND now IS DISTINCT FROM p.content_hash
                THEN 'its content changed since'
            WHEN there IS NULL AND c.n IS NULL THEN 'file deleted; no other file has its content'
            WHEN there IS NULL AND c.n > 1
                THEN format('file deleted; {} samples have its content', c.n) END AS reason
    FROM present p LEFT JOIN carriers c ON c.content_hash = p.content_hash ORDER BY p.row
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
MEMBERSHIPS = """
    SELECT d.id, m.fingerprint, f.n_samples FROM dropped d
    JOIN judged.main.finding_samples m ON m.sample_id = d.id
    JOIN judged.main.findings f USING (fingerprint)
"""


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
    if ids and finding["subject"].startswith(("group:", "pair:", ids[0])):
        snapshot["members"] = list(zip(ids, hashes, strict=True))
    else:
        snapshot["evidence"] = json.loads(finding["evidence"] or "{}")
    return json.dumps(snapshot, ensure_ascii=False)


def resolve(store: Store, subjects: pl.DataFrame) -> pl.DataFrame:
    """Add `sample_id` to rows of (subject, content_hash): who it is now, null and `reason` if none.

    The same id with the same content; else, where the id is gone, the one sample that carries it.
    """
    # no other column goes there and back: of a million decisions they take half a gigabyte
    store.create_from("asked", subjects.select("subject", "content_hash").with_row_index("row"))
    found = store.query(RESOLVE)
    store.execute("DROP TABLE asked")
    return subjects.hstack(found)


class LookedUp:
    """What decisions are about in one version, which never changes: kept, so that each sample
    and each decision is looked up once.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._known: dict[str, tuple[pl.DataFrame, pl.DataFrame]] = {}

    def resolve(self, store: Store, subjects: pl.DataFrame) -> pl.DataFrame:
        """Do as the function `resolve`."""
        key = ["subject", "content_hash"]
        asked = subjects.select(key).unique(maintain_order=True)
        found = self._once(key, asked, partial(resolve, store))
        return subjects.join(found, on=key, how="left", nulls_equal=True, maintain_order="left")

    def findings(self, store: Store, heads: pl.DataFrame) -> pl.DataFrame:
        """Return decision, fingerprint, reason (null where it applies) of decisions on findings."""

        def find(some: pl.DataFrame) -> pl.DataFrame:
            told = some.select("decision", "evidence").iter_rows()
            snapshots = {decision: json.loads(evidence or "{}") for decision, evidence in told}
            some = some.select("decision", "subject", "verb")
            about = _about_samples(store, some, snapshots, self)
            rows = [*about, *_about_the_whole(store, some, snapshots)]
            schema = {"decision": pl.Int64, "fingerprint": pl.String, "reason": pl.String}
            return pl.DataFrame(rows, schema, orient="row")

        return self._once(["decision"], heads, find)

    def memberships(self, store: Store, samples: pl.DataFrame) -> pl.DataFrame:
        """Return id, fingerprint, n_samples of the findings that samples are in."""

        def find(some: pl.DataFrame) -> pl.DataFrame:
            store.create_from("dropped", some)
            return store.query(MEMBERSHIPS)

        return self._once(["id"], samples.select("id"), find)

    def _once(
        self, key: list[str], rows: pl.DataFrame, find: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> pl.DataFrame:
        """Return what `find` says of rows, any number for each: each key is asked once."""
        asked, found = self._known.get(key[0], (None, None))
        new = rows if asked is None else rows.join(asked, on=key, how="anti", nulls_equal=True)
        if asked is None or found is None or new.height:
            now, more = new.select(key), find(new)
            asked = now if asked is None else pl.concat([asked, now])
            found = more if found is None else pl.concat([found, more])
            self._known[key[0]] = asked, found
        return found.join(rows.select(key), on=key, how="semi", nulls_equal=True)


def _still_applying(
    store: Store, decisions: pl.DataFrame, known: LookedUp
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return which decisions on findings (`DecisionStore.current`) still apply, and to what.

    In effect: fingerprint, decision, verb; lapsed: decision, fingerprint, reason.
    """
    heads = decisions.select("subject", "verb", "evidence", decision="id")
    said = known.findings(store, heads)
    effective = said.filter(pl.col("reason").is_null()).drop("reason").sort("decision")
    effective = effective.unique("fingerprint", keep="last", maintain_order=True)
    # A finding that was decided again needs no reminder of the decision that lapsed.
    lapsed = said.drop_nulls("reason").join(effective, on="fingerprint", how="anti")
    return effective.join(heads.select("decision", "verb"), on="decision"), lapsed


def _about_samples(
    store: Store, heads: pl.DataFrame, snapshots: Mapping[int, Mapping[str, Any]], known: LookedUp
) -> Iterator[tuple[int, str, str | None]]:
    """Yield (decision, fingerprint, None if it applies, else why not) by members."""
    members = [
        (decision, snapshot["code"], sample, content)
        for decision, snapshot in snapshots.items()
        for sample, content in snapshot.get("members", ())
    ]
    if not members:
        return
    schema = dict.fromkeys(("decision", "code", "subject", "content_hash"), pl.String)
    rows = pl.DataFrame(members, schema | {"decision": pl.Int64}, orient="row")
    store.create_from("members", known.resolve(store, rows))
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
    if not whole:
        return
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


_LAST = (
    "verb",
    "value",
    "why",
    "dropped",
    "label_right",
    "note",
    "by",
    "at",
    "decision",
    "subject",
)
EFFECTIVE = pl.Schema(
    dict.fromkeys(("id", *_LAST, "label", "split"), pl.String)
    | {"dropped": pl.Boolean, "label_right": pl.Boolean, "decision": pl.Int64}
)
_STALE = ("kind", "subject", "reason", "verb", "value", "note", "by", "at", "decision")
STALE = pl.Schema(dict.fromkeys(_STALE, pl.String) | {"decision": pl.Int64})


@dataclass(frozen=True, slots=True)
class Applied:
    """The decisions as they apply to one version of a run.

    `effective`: one row per sample with a decision (`EFFECTIVE`): its last verb and value,
    whether it is `dropped`, its new `label` and `split` (null: unchanged), whether a review called
    the label right, `why` in words.
    `stale` (`STALE`): what does not apply, and the reason. `settled`: fingerprint, status (waived |
    decided), verb (null where a drop of its samples superseded it), decision.
    """

    effective: pl.DataFrame
    stale: pl.DataFrame
    settled: pl.DataFrame


def open_for_deciding(run: Path, version: run_version.RunVersion | None = None) -> Store:
    """Open a run for reading, with room in memory for tables of decisions beside its own."""
    store = run_version.open_beside(version or run_version.require(run))
    return run_version.with_own_tables(store)


def apply_decisions(
    run: Path, version: run_version.RunVersion | None = None, known: LookedUp | None = None
) -> Applied:
    """Return what the decisions amount to for a version of the run (default: the current).

    `known`: what was looked up for these decisions and this version before.
    """
    decisions, known = DecisionStore(run), known or LookedUp()
    current = decisions.current()
    if current.is_empty():
        texts = dict.fromkeys(("fingerprint", "status", "verb"), pl.String)
        none = pl.DataFrame(schema=texts | {"decision": pl.Int64})
        return Applied(pl.DataFrame(schema=EFFECTIVE), pl.DataFrame(schema=STALE), none)
    with open_for_deciding(run, version) as store:
        effective, stale = _samples(store, current.filter(pl.col("kind") == "sample"), known)
        on_findings = current.filter(pl.col("kind") == "finding")
        with decisions.reading_evidence():
            decided, lapsed = _still_applying(store, on_findings, known)
        superseded = _without_samples(store, effective, known)
    lapsed = (
        lapsed.join(on_findings.rename({"id": "decision"}), on="decision")
        .with_columns(pl.lit("finding").alias("kind"))
        .select(STALE.names())
    )
    status = pl.when(pl.col("verb") == Action.FALSE_POSITIVE.value).then(pl.lit("waived"))
    decided = decided.with_columns(status.otherwise(pl.lit("decided")).alias("status"))
    settled = pl.concat(
        [decided.select("fingerprint", "status", "verb", "decision"),
         superseded.join(decided, on="fingerprint", how="anti")]
    )  # fmt: skip
    return Applied(effective, pl.concat([stale, lapsed]), settled)


def open_findings(run: Path, store: Store, codes: Sequence[str]) -> pl.DataFrame:
    """Return code and fingerprint of the findings of these codes that nothing has settled yet."""
    store.create_from("settled", apply_decisions(run).settled)
    return store.query(
        "SELECT f.code, f.fingerprint FROM judged.main.findings f ANTI JOIN settled USING "
        "(fingerprint) WHERE list_contains(?, f.code) ORDER BY f.rowid",
        [list(codes)],
    )


def _samples(
    store: Store, current: pl.DataFrame, known: LookedUp
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the decisions in effect, one row per sample, and those that are stale."""
    resolved = known.resolve(store, current.rename({"id": "decision"}))
    resolved = _without_keeper(store, resolved, known)
    moved = pl.col("sample_id") != pl.col("subject")
    reason = pl.when(pl.col("note") != "").then(pl.col("note")).otherwise(
        pl.format("{} by {}", "verb", "by")
    )  # fmt: skip
    why = pl.when(moved).then(pl.format("{} (moved from {})", reason, "subject")).otherwise(reason)
    effective = (
        resolved.filter(pl.col("sample_id").is_not_null())
        .with_columns(why.alias("why"))
        .group_by("sample_id")
        .agg(pl.col(*_LAST).last(), pl.col("label", "split").drop_nulls().last())
        .rename({"sample_id": "id"})
        .sort("id")
    )
    # A subject that was decided again with its present content needs no reminder of the old.
    ids, decisions = effective["id"], effective["decision"]
    later = pl.col("subject").replace_strict(ids, decisions, default=0, return_dtype=pl.Int64)
    lost = pl.col("sample_id").is_null() & (later <= pl.col("decision"))
    return effective, resolved.select(*STALE.names(), "sample_id").filter(lost).drop("sample_id")


def _without_keeper(store: Store, resolved: pl.DataFrame, known: LookedUp) -> pl.DataFrame:
    """Make a drop stale where the copy that was to stay is gone: it would lose the picture."""
    keeper = pl.col("evidence").str.json_path_match
    copies = resolved.filter(pl.col("evidence").is_not_null() & pl.col("dropped")).select(
        "decision",
        keeper("$.keeper[0]").alias("subject"),
        keeper("$.keeper[1]").alias("content_hash"),
    )
    if copies.is_empty():
        return resolved
    lost = known.resolve(store, copies).filter(pl.col("sample_id").is_null())
    said = pl.format("the copy to keep, {}: {}", "subject", "reason")
    resolved = resolved.join(lost.select("decision", said.alias("lost")), on="decision", how="left")
    here = pl.when(pl.col("lost").is_null()).then(pl.col("sample_id"))
    return resolved.with_columns(here, pl.coalesce("lost", "reason").alias("reason"))


def _without_samples(store: Store, effective: pl.DataFrame, known: LookedUp) -> pl.DataFrame:
    """Return the findings that drops have superseded: at most one sample left of several."""
    dropped = effective.filter("dropped").select("id", "decision")
    found = known.memberships(store, dropped).join(dropped, on="id")
    counted = found.group_by("fingerprint", "n_samples").agg(pl.col("decision").max(), pl.len())
    left = pl.max_horizontal(pl.lit(1), pl.col("n_samples") - 1)
    return counted.filter(pl.col("len") >= left).select(
        "fingerprint",
        pl.lit("decided").alias("status"),
        pl.lit(None, pl.String).alias("verb"),
        "decision",
    )
