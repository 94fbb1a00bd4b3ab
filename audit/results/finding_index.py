"""An index of the findings of a version, in the memory of this process: order, statuses, repeats.

A finding's place in each order is an integer, so that pages are ranges over narrow rows. `OPEN` has
the findings that count, and a fault of two checks once (`SAME_FAULTS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from audit.checking.retired import RETIRED
from audit.results.grouping import FOLDS, OPEN, SAME_FAULTS, fold_findings
from audit.results.priorities import rank_codes
from audit.results.report_data import Counts
from audit.run.store import Store

INDEX = "memory.main.finding_index"
STATUS = "memory.main.finding_status"
FOLDED = "memory.main.folded_findings"
REPEATS = "memory.main.repeated_findings"
RETIRED_STATUS = "retired"
SEVERITY_RANK = "CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END"
_VIEWS = (
    f"""
    CREATE TABLE {REPEATS} AS
    WITH reporting AS (
        SELECT f.fingerprint AS repeated_by, f.rowid AS place, m.sample_id
        FROM findings f JOIN finding_samples m USING (fingerprint)
        WHERE f.code IN ('SPLIT001', 'LABEL005')
    ), repeated AS (
        SELECT f.fingerprint, f.n_samples, m.sample_id
        FROM findings f JOIN finding_samples m USING (fingerprint)
        WHERE f.code IN ('DUP001', 'DUP002', 'DUP003')
    )
    SELECT r.fingerprint, s.repeated_by, min(s.place) AS place
    FROM repeated r JOIN reporting s USING (sample_id)
    GROUP BY r.fingerprint, s.repeated_by, r.n_samples HAVING count(*) = r.n_samples
    """,
    f"CREATE TABLE {STATUS} (fingerprint VARCHAR, status VARCHAR)",
    f"""
    CREATE VIEW {OPEN} AS SELECT f.*, f.rowid AS place FROM judged.main.findings f
    ANTI JOIN {STATUS} USING (fingerprint)
    """,
    f"""
    CREATE VIEW {SAME_FAULTS} AS
    SELECT r.fingerprint, arg_min(r.repeated_by, r.place) AS repeated_by FROM {REPEATS} r
    ANTI JOIN {STATUS} a ON a.fingerprint = r.fingerprint
    ANTI JOIN {STATUS} b ON b.fingerprint = r.repeated_by GROUP BY r.fingerprint
    """,
    # A fold of which one finding is open is no fold: that finding stands on its own.
    f"""
    CREATE VIEW {FOLDED} AS
    SELECT d.*, f.code, f.severity, f.place FROM {FOLDS} d JOIN {OPEN} f USING (fingerprint)
    QUALIFY count(*) OVER (PARTITION BY d.fold) > 1
    """,
)
_INDEX = f"""
    CREATE TABLE {INDEX} AS
    WITH members AS (
        SELECT m.fingerprint, list(DISTINCT s.split) AS splits, list(DISTINCT s.label) AS labels,
            arg_min(m.sample_id, m.position) AS first, min(m.rowid) AS begins, max(m.rowid) AS ends
        FROM finding_samples m LEFT JOIN samples s ON s.id = m.sample_id GROUP BY m.fingerprint
    ), copies AS (
        SELECT f.fingerprint, f.code, list(m.sample_id ORDER BY m.sample_id) AS ids
        FROM findings f JOIN finding_samples m USING (fingerprint)
        WHERE starts_with(f.code, 'DUP') OR f.code = 'SPLIT001' GROUP BY ALL
    ), twins AS (
        SELECT d.fingerprint, min(s.fingerprint) AS twin FROM copies d JOIN copies s USING (ids)
        WHERE d.code <> 'SPLIT001' AND s.code = 'SPLIT001' GROUP BY ALL
    ), ranked AS (
        SELECT f.*, f.rowid AS row, d.fold, {SEVERITY_RANK} AS rank,
            CASE f.severity WHEN 'info' THEN 0 ELSE coalesce(p.points, 0) END AS points
        FROM findings f LEFT JOIN {FOLDS} d USING (fingerprint)
            LEFT JOIN code_points p USING (code)
    )
    SELECT row_number() OVER (ORDER BY points DESC, {{tail}}) AS cost,
        row_number() OVER (ORDER BY {{tail}}) AS severity_place,
        row_number() OVER (ORDER BY f.code, {{tail}}) AS code_place,
        f.fingerprint, f.code, f.name, f.severity, f.n_samples, f.action, m.first, f.fold, w.twin,
        f.row, m.begins, m.ends, coalesce(m.splits, []) AS splits, coalesce(m.labels, []) AS labels
    FROM ranked f LEFT JOIN members m USING (fingerprint) LEFT JOIN twins w USING (fingerprint)
    ORDER BY cost
""".format(tail="f.rank, f.code, f.fold, f.n_samples DESC, f.row")


def index_findings(store: Store) -> None:
    """Make the index of the version's findings, with every status open."""
    fold_findings(store)
    for sql in _VIEWS:
        store.execute(sql)
    points = rank_codes(store)
    schema = {"code": pl.String, "points": pl.Float64}
    with store.frame_as("code_points", pl.DataFrame(list(points.items()), schema, orient="row")):
        store.execute(_INDEX)
    store.execute(f"CREATE INDEX finding_of_index ON {INDEX} (fingerprint)")


def mark_statuses(store: Store, statuses: Iterable[tuple[str, str]]) -> None:
    """Set the statuses that differ from open: (fingerprint, status); only changes are written."""
    retired = store.query(
        "SELECT fingerprint FROM findings WHERE list_contains(?, code)", [list(RETIRED)]
    )["fingerprint"]
    now = {**dict(statuses), **dict.fromkeys(retired, RETIRED_STATUS)}.items()
    before = set(store.query(f"FROM {STATUS}").iter_rows())
    gone, come = before - now, now - before
    with store.transaction():
        if gone:
            sql = f"DELETE FROM {STATUS} WHERE fingerprint IN (SELECT unnest(?))"
            store.execute(sql, [[fingerprint for fingerprint, _ in gone]])
        if come:
            fingerprints, names = (list(column) for column in zip(*come, strict=True))
            sql = f"INSERT INTO {STATUS} SELECT unnest(?), unnest(?)"
            store.execute(sql, [fingerprints, names])


def count_open(store: Store, split: str | None = None) -> Counts:
    """Return the open findings by severity, in `split` if given; a fault of two checks once."""
    found = store.query(
        f"SELECT severity, count(*) FROM {OPEN} f ANTI JOIN {SAME_FAULTS} USING (fingerprint) "
        "WHERE ?::VARCHAR IS NULL OR EXISTS (SELECT 1 FROM finding_samples m JOIN samples s "
        "ON s.id = m.sample_id WHERE m.fingerprint = f.fingerprint AND s.split = ?) GROUP BY 1",
        [split, split],
    )
    return Counts(**dict(found.iter_rows()))


def count_settled(store: Store) -> Mapping[str, Mapping[str, int]]:
    """Return the findings that do not count: by status (waived, decided, retired) and code."""
    found: dict[str, dict[str, int]] = {}
    sql = (
        f"SELECT status, code, count(*) FROM {STATUS} JOIN findings USING (fingerprint) "
        "GROUP BY ALL ORDER BY ALL"
    )
    for status, code, n in store.query(sql).iter_rows():
        found.setdefault(status, {})[code] = n
    return found
