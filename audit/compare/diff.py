"""What changed between two audits: files, findings, decisions; drift from a reference.

A file is the same by id and content, edited by id, moved by content. A finding persists by its
fingerprint, else by check and files, else by files that groups of one check share. A finding of a
check that did not run in the other audit, or had other vectors there, is neither fixed nor new.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from audit.checking.runner import configure_checks
from audit.picture.features import FEATURE_ROW
from audit.records import Finding, Severity
from audit.results.report_data import Counts
from audit.results.results import open_results
from audit.results.run_findings import RunFindings, read_feature_tables
from audit.run.store import Store

SCHEMA = "audit-diff/1"
NEW, FIXED, PERSISTING, UNCHECKED = "new", "fixed", "persisting", "unchecked"
ADDED, REMOVED, EDITED, MOVED, RENAMED = "added", "removed", "edited", "moved", "reclassified"
SAME_DATASET = 0.5  # least share of samples that two scans of one dataset have in common
BY_VECTORS = ("LABEL006", "LABEL007", "LABEL008")


@dataclass(frozen=True)
class RunDiff:
    """The changes from an audit to a later one.

    `files`: change (added, removed, edited, moved, reclassified: another class or split), before
    and after (ids or null), class_before, class_after, split_before, split_after.
    `findings`: change (new, fixed, persisting, unchecked), why, code, name, severity, message, ids
    (of the later audit; fixed: of the earlier), fingerprint; `before` and `status`: open, waived,
    decided or null in the earlier and the later audit. `objects`: class, before, after.
    `open`: the open findings by severity of the earlier and of the later audit.
    """

    before: Path
    after: Path
    files: pl.DataFrame
    findings: pl.DataFrame
    objects: pl.DataFrame = field(default_factory=pl.DataFrame)
    open: tuple[Counts, Counts] = (Counts(), Counts())

    def counts(self) -> dict[str, int]:
        """Return findings by change, all four of them."""
        found = dict(self.findings.group_by("change").len().iter_rows())
        return {change: found.get(change, 0) for change in (NEW, FIXED, PERSISTING, UNCHECKED)}

    def new(self, least: Severity) -> pl.DataFrame:
        """Return the new findings of at least a severity that no decision settled."""
        wanted = [s.value for s in Severity if s.rank <= least.rank]
        return self.findings.filter(
            (pl.col("change") == NEW)
            & pl.col("severity").is_in(wanted)
            & (pl.col("status") == "open")
        )

    def settled(self) -> pl.DataFrame:
        """Return the findings that decisions settled, or opened again, since the earlier audit."""
        both = self.findings.filter(pl.col("change") == PERSISTING)
        return both.filter(pl.col("before") != pl.col("status"))

    def document(self) -> str:
        """Return it as one JSON document."""
        return json.dumps(
            {
                "schema": SCHEMA, "before": str(self.before), "after": str(self.after),
                "counts": self.counts(), "open": [asdict(counts) for counts in self.open],
                "objects": self.objects.to_dicts(),
                "files": self.files.to_dicts(),
                "findings": self.findings.filter(pl.col("change") != PERSISTING).to_dicts(),
                "settled": self.settled().select("fingerprint", "before", "status").to_dicts(),
            },
            ensure_ascii=False,
            indent=1,
        )  # fmt: skip


def compare_runs(before: Path, after: Path) -> RunDiff:
    """Compare two runs or versions; raises RunError where one is absent or damaged."""
    return compare_snapshots(RunFindings.of(before), RunFindings.of(after))


def shared_share(before: pl.DataFrame, after: pl.DataFrame) -> float:
    """Return the share of the smaller run's samples that are in the other, by id or by content."""
    small, large = (before, after) if before.height <= after.height else (after, before)
    if not small.height:
        return 1.0
    known = pl.col("id").is_in(large["id"].implode()) | (
        pl.col("content_hash").is_in(large["content_hash"].drop_nulls().implode())
    )
    return float(small.select(known.fill_null(False).mean()).item())


def compare_snapshots(before: RunFindings, after: RunFindings) -> RunDiff:
    """Compare what was kept of a run with what is there now."""
    files = _files(before.samples, after.samples)
    return RunDiff(
        before.run, after.run, _named(files, before, after), _findings(before, after, files),
        _objects(before.objects, after.objects), (before.open, after.open),
    )  # fmt: skip


def _objects(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    both = before.join(after, on="class", how="full", coalesce=True, suffix="_after").fill_null(0)
    named = both.rename({"n": "before", "n_after": "after"})
    return named.filter(pl.col("before") != pl.col("after")).sort("class")


def _files(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Return (before, after, change) of every file of either side; change null where none."""
    same = before.join(after, on="id", how="inner", suffix="_after")
    other = {
        name: pl.col(name).ne_missing(pl.col(f"{name}_after"))
        for name in ("content_hash", "label", "split")
    }
    edited = pl.when(other["content_hash"]).then(pl.lit(EDITED))
    change = edited.when(other["label"] | other["split"]).then(pl.lit(RENAMED))
    kept = same.select(before="id", after="id", change=change)
    gone, come = before.join(after, on="id", how="anti"), after.join(before, on="id", how="anti")
    turn = pl.int_range(pl.len()).over("content_hash").alias("turn")
    moved = (
        gone.drop_nulls("content_hash")
        .with_columns(turn)
        .join(come.with_columns(turn), on=["content_hash", "turn"], how="inner", suffix="_after")
        .select(before="id", after="id_after", change=pl.lit(MOVED))
    )
    none = pl.lit(None, pl.String)
    gone = gone.join(moved, left_on="id", right_on="before", how="anti")
    come = come.join(moved, left_on="id", right_on="after", how="anti")
    removed = gone.select(before="id", after=none, change=pl.lit(REMOVED))
    added = come.select(before=none, after="id", change=pl.lit(ADDED))
    return pl.concat([kept, moved, removed, added])


def _named(files: pl.DataFrame, before: RunFindings, after: RunFindings) -> pl.DataFrame:
    changed = files.drop_nulls("change")
    for side, samples in (("before", before.samples), ("after", after.samples)):
        renamed = {"id": side, "label": f"class_{side}", "split": f"split_{side}"}
        places = samples.select(*renamed).rename(renamed)
        changed = changed.join(places, on=side, how="left")
    order = pl.col("change").replace_strict(
        {ADDED: 0, REMOVED: 1, EDITED: 2, MOVED: 3, RENAMED: 4}, return_dtype=pl.Int8
    )
    return changed.sort(order, pl.coalesce("after", "before")).select(
        "change", "before", "after", "class_before", "class_after", "split_before", "split_after"
    )


def _findings(before: RunFindings, after: RunFindings, files: pl.DataFrame) -> pl.DataFrame:
    now_called = files.drop_nulls("before").select("before", "after")
    old = _with_members(before.findings.with_row_index("old"), now_called)
    new = after.findings.with_row_index("new").with_columns(pl.col("ids").alias("members"))
    pairs = _pairs(old, new)
    persisting = pairs.join(new, on="new").join(old.select("old", before="status"), on="old")
    persisting = persisting.with_columns(change=pl.lit(PERSISTING), why=pl.lit(""))
    other = BY_VECTORS if before.vectors != after.vectors else ()
    fixed = _left(old.join(pairs, on="old", how="anti"), files, "before", after.ran, other)
    come = _left(new.join(pairs, on="new", how="anti"), files, "after", before.ran, other)
    none = pl.lit(None, pl.String)
    fixed = fixed.with_columns(change=_change(FIXED), before="status", status=none)
    come = come.with_columns(change=_change(NEW), before=none)
    columns = ["change", "why", "code", "name", "severity", "message", "ids", "fingerprint",
               "before", "status"]  # fmt: skip
    return pl.concat([part.select(columns) for part in (come, fixed, persisting)])


def _with_members(findings: pl.DataFrame, now_called: pl.DataFrame) -> pl.DataFrame:
    """Add `members`: the ids that the files of an earlier finding have now."""
    members = (
        findings.select("old", "ids")
        .explode("ids")
        .join(now_called, left_on="ids", right_on="before", how="inner")
        .drop_nulls("after")
        .group_by("old")
        .agg(pl.col("after").alias("members"))
    )
    empty = pl.lit([], pl.List(pl.String))
    return findings.join(members, on="old", how="left", maintain_order="left").with_columns(
        pl.col("members").fill_null(empty)
    )


def _pairs(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return (old, new) of the findings that are one: by fingerprint, by files, by shared files."""
    found = [old.join(new, on="fingerprint", how="inner").select("old", "new")]
    for match in (_same_files, _sharing):
        old = old.join(found[-1], on="old", how="anti")
        new = new.join(found[-1], on="new", how="anti")
        found.append(match(old, new))
    return pl.concat(found)


def _same_files(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Pair findings of one check about the same files, in their order; not those about none."""
    key = pl.col("members").list.sort().list.join("\0").alias("key")
    whole = (pl.col("members").list.len() == pl.col("n_samples")) & (pl.col("n_samples") > 0)
    turn = pl.int_range(pl.len()).over("code", "key").alias("turn")
    keyed = (side.filter(whole).with_columns(key).with_columns(turn) for side in (old, new))
    return next(keyed).join(next(keyed), on=["code", "key", "turn"]).select("old", "new")


def _sharing(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Pair groups of one check, those that share most files first, each once."""
    several = pl.col("n_samples") > 1
    left, right = (
        side.filter(several).select(name, "code", "members").explode("members").drop_nulls()
        for side, name in ((old, "old"), (new, "new"))
    )
    shared = (
        left.join(right, on=["code", "members"], how="inner")
        .group_by("old", "new")
        .len("shared")
        .sort("shared", "old", "new", descending=[True, False, False])
    )
    kept: dict[int, int] = {}
    used = set[int]()
    for one, other, _ in shared.iter_rows():
        if one not in kept and other not in used:
            kept[one] = other
            used.add(other)
    schema = {"old": old.schema["old"], "new": new.schema["new"]}
    return pl.DataFrame({"old": kept.keys(), "new": kept.values()}, schema)


def _left(
    findings: pl.DataFrame, files: pl.DataFrame, side: str, ran: frozenset[str],
    other: Sequence[str],
) -> pl.DataFrame:  # fmt: skip
    """Add `why` to findings that the other audit lacks, and `checked`: whether it could have them.

    `other`: checks that rest on vectors, where those of the other audit differ.
    """
    number = "old" if side == "before" else "new"
    marks: dict[str, Any] = {
        REMOVED: "its files were removed", ADDED: "new files", EDITED: "files were edited",
        MOVED: "files were moved", RENAMED: "files changed class or split",
    }  # fmt: skip
    reasons = (
        findings.select(number, "ids")
        .explode("ids")
        .join(files.drop_nulls("change"), left_on="ids", right_on=side, how="inner")
        .group_by(number)
        .agg(pl.col("change").mode().sort().first())
        .with_columns(pl.col("change").replace_strict(marks, return_dtype=pl.String).alias("why"))
        .select(number, "why")
    )
    unlike = pl.col("code").is_in(list(other))
    checked = pl.col("code").is_in(list(ran)) & ~unlike
    known = findings.join(reasons, on=number, how="left", maintain_order="left")
    unseen = "the check did not run " + ("in the later run" if number == "old" else "before")
    seen = pl.when(checked).then(pl.col("why").fill_null(""))
    why = seen.when(unlike).then(pl.lit("the other run used other embeddings"))
    return known.with_columns(checked.alias("checked"), why.otherwise(pl.lit(unseen)).alias("why"))


def _change(change: str) -> pl.Expr:
    return pl.when("checked").then(pl.lit(change)).otherwise(pl.lit(UNCHECKED))


# Drift: the two runs become two splits of one dataset in memory, the reference as training, and
# the checks that compare splits run on them.
DRIFT_SCHEMA = "audit-drift/1"
CHECKS = ("DIST003", "DIST006", "DIST007", "DIST011")
HERE, THERE = "run", "reference"


@dataclass(frozen=True, slots=True)
class RunDrift:
    """What differs between a run and its reference, and what was compared, in sentences."""

    run: Path
    reference: Path
    findings: Sequence[Finding]
    completeness: Sequence[str]

    def document(self) -> str:
        """Return it as one JSON document."""
        return json.dumps(
            {
                "schema": DRIFT_SCHEMA,
                "run": str(self.run),
                "reference": str(self.reference),
                "findings": [
                    {
                        "code": f.code, "severity": f.severity.value, "subject": f.subject,
                        "sample_ids": list(f.sample_ids), "message": f.message,
                        "evidence": dict(f.evidence), "fingerprint": f.fingerprint,
                    }
                    for f in self.findings
                ],
                "completeness": list(self.completeness),
            },
            ensure_ascii=False,
            indent=1,
        )  # fmt: skip


def find_drift(run: Path, reference: Path) -> RunDrift:
    """Compare the pictures and classes of a run with those of a reference.

    Raises RunError where there is no run, UsageError where one lacks columns of the other.
    """
    findings: list[Finding] = []
    sentences = []
    thresholds = {code: {"train_splits": (THERE,)} for code in CHECKS}
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        for path, name, prefix in ((reference, THERE, f"{THERE}:"), (run, HERE, "")):
            # an image of both runs is in one group
            known = store.query("SELECT pixel_hash FROM groups")
            for table, rows in read_feature_tables(open_results(path), name, prefix).items():
                of_groups = table == "groups"
                store.append(table, rows.join(known, "pixel_hash", "anti") if of_groups else rows)
        for config in configure_checks(CHECKS, thresholds):
            findings += config.check.find(store, config.params)
            sentences.append(config.check.completeness(store, config.params))
    return RunDrift(run, reference, findings, [s for s in sentences if s])
