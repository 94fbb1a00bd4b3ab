"""`Results`: what a run found, with decisions applied, as rows and polars frames.

The modules beside this one hold the questions of pages; methods are those of the Python API.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from audit.results import findings as finding_queries
from audit.results.filters import Condition
from audit.results.finding_index import INDEX, STATUS, index_findings
from audit.results.findings import FindingFilter, OpenedFinding, count_open_findings
from audit.results.history import Moment, read_history
from audit.results.images import list_ids
from audit.results.label_review import LabelReview, review_labels
from audit.results.reader import RunReader, open_reader, reads
from audit.results.report_data import Report
from audit.results.run_report import collect_report
from audit.run.run_version import RunVersion
from audit.run.store import Store

FINDINGS = f"""
    SELECT f.fingerprint, f.code, f.name, f.severity, f.message, f.action, f.evidence,
        coalesce(m.ids, []) AS ids, coalesce(m.paths, []) AS paths,
        coalesce(t.status, 'open') AS status
    FROM findings f JOIN {INDEX} x USING (fingerprint) LEFT JOIN {STATUS} t USING (fingerprint)
    LEFT JOIN (
        SELECT fs.fingerprint, list(fs.sample_id ORDER BY fs.position) AS ids,
            list(s.uri ORDER BY fs.position) AS paths
        FROM finding_samples fs JOIN samples s ON s.id = fs.sample_id GROUP BY fs.fingerprint
    ) m USING (fingerprint) WHERE ? IS NULL OR f.code = ? ORDER BY x.cost
"""
GROUPS = """
    SELECT p.representative AS "group", p.id, s.uri AS path, p.split, p.label
    FROM pictures p JOIN samples s ON s.id = p.id
    WHERE p.representative IS NOT NULL ORDER BY p.representative, p.id
"""


@reads(index_findings)
def finding_frame(store: Store, code: str | None = None) -> pl.DataFrame:
    """Return fingerprint, code, name, severity, message, action, evidence, ids, paths and status.

    The most expensive findings first; `status`: open, waived, decided or retired.
    """
    frame = store.query(FINDINGS, [code, code])
    status = frame["status"]
    return frame.drop("status").with_columns(_evidence(frame["evidence"]), status)


@reads()
def list_groups(store: Store, after: str, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` duplicate groups after a name, each with the ids of its members."""
    return store.rows(
        f'SELECT "group", list(id ORDER BY id) AS ids FROM ({GROUPS}) WHERE "group" > ? '
        "GROUP BY 1 ORDER BY 1 LIMIT ?",
        [after, limit],
    )


@reads()
def find_check(store: Store, name: str) -> str | None:
    """Return the code of a check that ran, by its code or name; None where it did not run."""
    found = store.scalar(
        "SELECT code FROM check_runs WHERE code = upper(?) OR name = ?", [name] * 2
    )
    return None if found is None else str(found)


@reads()
def run_facts(store: Store) -> dict[str, str]:
    """Return the facts that the scan stored about the run."""
    return store.meta()


def _evidence(texts: pl.Series) -> pl.Series:
    """Return evidence as a struct of all the keys that these findings have."""
    rows = [json.loads(text or "{}") for text in texts]
    keys = dict.fromkeys(key for row in rows for key in row)
    if not keys:
        return pl.Series("evidence", [{}] * len(rows), pl.Struct([]))
    kinds = {key: _kind([row[key] for row in rows if key in row]) for key in keys}
    fields = {
        key: pl.Series(key, [_as(kind, row.get(key)) for row in rows], kind)
        for key, kind in kinds.items()
    }
    return pl.DataFrame(fields).to_struct("evidence")


def _kind(values: Sequence[object]) -> type[pl.DataType]:
    if all(isinstance(v, bool) for v in values):
        return pl.Boolean
    if all(isinstance(v, int) and abs(v) < 2**63 for v in values):
        return pl.Int64
    return pl.Float64 if all(isinstance(v, int | float) for v in values) else pl.String


def _as(kind: type[pl.DataType], value: object) -> object:
    if value is None or kind is not pl.String or isinstance(value, str):
        return value
    return json.dumps(value)


@dataclass(frozen=True, slots=True)
class Results(RunReader):
    """One version of a run: typed rows and polars frames, safe for threads."""

    def findings(self, filters: FindingFilter | None = None) -> pl.DataFrame:
        """Return the findings under a filter, in its order (`finding_frame`)."""
        frame = finding_frame(self)
        if filters is None:
            return frame
        chosen = finding_queries.list_fingerprints(self, filters)
        return chosen.join(frame, on="fingerprint", how="left", maintain_order="left")

    def finding(self, fingerprint: str) -> OpenedFinding | None:
        """Return a finding with its first samples, None where this run has no such finding."""
        return finding_queries.open_finding(self, fingerprint)

    def images(self, conditions: Sequence[Condition] = ()) -> pl.DataFrame:
        """Return the samples under a filter, by id, with manifest columns and `decision`."""
        with self.connection() as store:
            frame = store.query("SELECT * EXCLUDE (subject) FROM images ORDER BY id")
            extra = store.query("SELECT * FROM metadata") if store.columns("metadata") else None
        frame = frame.rename({"uri": "path", "group_key": "group"})
        if extra is not None and extra.columns != ["sample_id"]:
            taken = {c: f"{c}_of_manifest" for c in extra.columns if c in frame.columns}
            extra = extra.rename({"sample_id": "id"} | taken)
            frame = frame.join(extra, on="id", how="left", maintain_order="left")
        decided = self.decisions.applied.effective.select("id", pl.col("verb").alias("decision"))
        frame = frame.join(decided, on="id", how="left", maintain_order="left")
        return frame.filter(pl.col("id").is_in(list_ids(self, conditions))) if conditions else frame

    def groups(self) -> pl.DataFrame:
        """Return the members of every duplicate group: group, id, path, split, label."""
        with self.connection() as store:
            return store.query(GROUPS)

    def labels(self, n: int = 100, first: int = 0) -> LabelReview:
        """Return `n` labels in order of doubt, from number `first` on, and what reviews gave."""
        return review_labels(self, n, first)

    def boxes(self) -> pl.DataFrame:
        """Return bounding boxes in px of the displayed image, by sample and annotation file."""
        with self.connection() as store:
            if not store.columns("boxes"):
                return pl.DataFrame()
            return store.query("SELECT * FROM boxes ORDER BY sample_id, file, entry")

    def overview(self, worst: int = 5) -> Report:
        """Return counts, costs, priorities and the `worst` examples of each check."""
        return collect_report(self, worst=worst)

    def history(self) -> list[Moment]:
        """Return what each scan and re-check found, oldest first; this version as decided now."""
        moments = read_history(self.run)
        if moments and moments[-1].generation == self.version.name:
            counts = {severity.value: n for severity, n in count_open_findings(self).items() if n}
            moments[-1] = replace(moments[-1], severities=counts)
        return moments


def open_results(run: Path, version: RunVersion | None = None) -> Results:
    """Return a version of a run (default: the published one) with the decisions of now.

    Raises RunError where there is none, or it is damaged; OSError where it vanishes meanwhile.
    """
    found = open_reader(run, version)
    return Results(found.run, found.version, found.key, found.decisions)
