"""Findings, images, duplicate groups and boxes of a run as polars frames, decisions applied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from audit.results.finding_index import INDEX, STATUS, index_findings
from audit.results.reader import RunReader, reads
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


def image_frame(results: RunReader) -> pl.DataFrame:
    """Return the samples in order of id, columns of a manifest and the `decision` included."""
    with results.connection() as store:
        frame = store.query("SELECT * EXCLUDE (subject) FROM images ORDER BY id")
        extra = None
        if [c for c in store.columns("metadata") if c != "sample_id"]:
            extra = store.query("SELECT * FROM metadata")
    frame = frame.rename({"uri": "path", "group_key": "group"})
    if extra is not None:
        taken = {c: f"{c}_of_manifest" for c in extra.columns if c in frame.columns}
        extra = extra.rename({"sample_id": "id"} | taken)
        frame = frame.join(extra, on="id", how="left", maintain_order="left")
    decided = results.decisions.applied.effective.select("id", pl.col("verb").alias("decision"))
    return frame.join(decided, on="id", how="left", maintain_order="left")


@reads()
def group_frame(store: Store) -> pl.DataFrame:
    """Return the members of every duplicate group: group, id, path, split, label."""
    return store.query(GROUPS)


@reads()
def list_groups(store: Store, after: str, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` duplicate groups after a name, each with the ids of its members."""
    return store.rows(
        f'SELECT "group", list(id ORDER BY id) AS ids FROM ({GROUPS}) WHERE "group" > ? '
        "GROUP BY 1 ORDER BY 1 LIMIT ?",
        [after, limit],
    )


@reads()
def box_frame(store: Store) -> pl.DataFrame:
    """Return bounding boxes in px of the displayed image, by sample and annotation file."""
    if not store.columns("boxes"):
        return pl.DataFrame()
    return store.query("SELECT * FROM boxes ORDER BY sample_id, file, entry")


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
