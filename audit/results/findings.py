"""Findings by cost, severity or code, filtered and paged; one finding; splits that overlap.

An image of one split also occurs in another by the rule of SPLIT001: same bytes, pixels, group of
near-duplicates, or a verified pair. Images of one colour are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from audit.records import Severity
from audit.results.filters import Where, all_of
from audit.results.finding_index import INDEX, STATUS, count_open, index_findings
from audit.results.grouping import OPEN, SAME_FAULTS
from audit.results.images import cards
from audit.results.priorities import rank_first
from audit.results.reader import reads
from audit.results.report_data import Card, FirstThing, ReportedFinding
from audit.run.store import Store

IS_OPEN = "open"
MEMBERS = 60
PLACES: Mapping[str, str] = {
    "cost": "cost", "severity": "severity_place", "code": "code_place",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FindingFilter:
    """Which findings, and in which order: empty means any. `codes` may be beginnings, such as DUP.

    `folded`: a line a fold; `fold`: findings of this fold; `beside`: another split in them;
    `once`: without copies that SPLIT001 names; `distinct`: without faults that another open finding
    reports.
    """

    codes: tuple[str, ...] = ()
    severity: str | None = None
    split: str | None = None
    beside: str | None = None
    label: str | None = None
    status: str | None = None
    text: str = ""
    fold: str = ""
    folded: bool = False
    once: bool = False
    distinct: bool = False
    order: str = "cost"

    @property
    def place(self) -> str:
        """The column of the index with the place in this order."""
        return PLACES[self.order]


@dataclass(frozen=True, slots=True)
class Row:
    """A finding in a list, or the `n_folded` findings of its `fold`; `first`: sample or None."""

    place: int
    fingerprint: str
    code: str
    name: str
    severity: Severity
    n_samples: int
    action: str
    first: str | None
    message: str
    status: str
    fold: str | None = None
    n_folded: int = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """A page of findings, and whether there are more before and after."""

    rows: tuple[Row, ...]
    before: bool
    after: bool


@dataclass(frozen=True, slots=True)
class OpenedFinding:
    """A finding with its first 60 samples; `n_folded`: findings of its fold, or 1."""

    finding: ReportedFinding
    place: int
    status: str
    subject: str
    members: tuple[Card, ...]
    n_folded: int = 1


def _where(filters: FindingFilter) -> Where:
    parts: list[Where] = []
    if filters.codes:
        parts.append(
            (" OR ".join(["starts_with(x.code, ?)"] * len(filters.codes)), list(filters.codes))
        )
    if filters.severity:
        parts.append(("x.severity = ?", [filters.severity]))
    asked = (("splits", filters.split), ("splits", filters.beside), ("labels", filters.label))
    for column, value in asked:
        if value is not None:
            parts.append((f"list_contains(x.{column}, ?)", [value]))
    if filters.fold:
        parts.append(("x.fold = ?", [filters.fold]))
    if filters.once:
        parts.append(("x.twin IS NULL", []))
    if filters.distinct:
        parts.append((f"x.fingerprint NOT IN (SELECT fingerprint FROM {SAME_FAULTS})", []))
    if filters.status:
        parts.append((f"coalesce(t.status, '{IS_OPEN}') = ?", [filters.status]))
    if filters.text:
        hit = "SELECT sample_id FROM finding_samples n WHERE n.fingerprint = x.fingerprint"
        parts.append(
            ("contains(lower(f.message), lower(?)) OR EXISTS "
             f"({hit} AND contains(lower(n.sample_id), lower(?)))", [filters.text, filters.text])
        )  # fmt: skip
    return all_of(parts)


def _source(filters: FindingFilter) -> str:
    text = " JOIN findings f ON f.fingerprint = x.fingerprint" if filters.text else ""
    return f"{INDEX} x LEFT JOIN {STATUS} t ON t.fingerprint = x.fingerprint{text}"


def _lines(filters: FindingFilter) -> Where:
    """Return SQL of the lines of a list: `place` of the first finding, how many `n` it shows."""
    sql, values = _where(filters)
    if not filters.folded:
        found = f"SELECT x.{filters.place} AS place, 1 AS n FROM {_source(filters)} WHERE {sql}"
        return f"({found})", values
    chosen = f"SELECT min(x.{filters.place}) AS place, count(*) AS n FROM {_source(filters)}"
    return f"({chosen} WHERE {sql} GROUP BY coalesce(x.fold, x.fingerprint))", values


@reads(index_findings)
def count_findings(store: Store, filters: FindingFilter) -> int:
    """Return how many findings there are."""
    sql, values = _where(filters)
    return int(store.scalar(f"SELECT count(*) FROM {_source(filters)} WHERE {sql}", values))


@reads(index_findings)
def list_fingerprints(store: Store, filters: FindingFilter) -> pl.DataFrame:
    """Return the fingerprints of the findings, in the order of the filter."""
    sql, values = _where(filters)
    return store.query(
        f"SELECT x.fingerprint FROM {_source(filters)} WHERE {sql} ORDER BY x.{filters.place}",
        values,
    )


@reads(index_findings)
def facet(store: Store, filters: FindingFilter, column: str) -> dict[str, int]:
    """Return findings by `code`, `severity`, `splits`, `labels` or `status` under a filter."""
    sql, values = _where(filters)
    chosen = {
        "status": f"coalesce(t.status, '{IS_OPEN}')",
        "splits": "unnest(x.splits)",
        "labels": "unnest(x.labels)",
    }.get(column, f"x.{column}")
    inner = f"SELECT {chosen} AS value FROM {_source(filters)} WHERE {sql}"
    found = store.query(
        f"SELECT value, count(*) FROM ({inner}) WHERE value IS NOT NULL GROUP BY 1 ORDER BY 1",
        values,
    )
    return dict(found.iter_rows())


@reads(index_findings)
def page(
    store: Store,
    filters: FindingFilter,
    *,
    start: int = 0,
    back: bool = False,
    size: int = 24,
) -> Rows:
    """Return the findings from place `start` on, or (back) those before it."""
    lines, values = _lines(filters)
    beyond, way = ("place < ?", "DESC") if back else ("place >= ?", "ASC")
    found = store.query(
        f"WITH fit AS MATERIALIZED (SELECT * FROM {lines}) "
        f"SELECT place, n, (SELECT min(place) FROM fit) AS first FROM fit "
        f"WHERE {beyond} ORDER BY place {way} LIMIT {size + 1}",
        [*values, start],
    )
    shown = dict(found.head(size).select("place", "n").iter_rows())
    more = found.height > size
    before = more if back else bool(shown) and min(shown) > found["first"][0]
    return Rows(_rows(store, filters.place, shown), before, True if back else more)


def _rows(store: Store, place: str, lines: Mapping[int, int]) -> tuple[Row, ...]:
    """Return the rows at these places of an order, each with the number of findings it shows."""
    sql = f"""
        SELECT x.{place} AS place, x.fingerprint, x.code, x.name, x.severity, x.n_samples,
            x.action, x.first, f.message, coalesce(t.status, '{IS_OPEN}') AS status, x.fold
        FROM (
            SELECT * FROM {INDEX}
            WHERE {place} BETWEEN ? AND ? AND {place} IN (SELECT unnest(?))
        ) x JOIN findings f ON f.rowid = x.row LEFT JOIN {STATUS} t ON t.fingerprint = x.fingerprint
        ORDER BY x.{place}
    """
    found = store.rows(sql, [min(lines), max(lines), list(lines)]) if lines else []
    return tuple(
        Row(**row | {"severity": Severity(row["severity"]), "n_folded": lines[row["place"]]})
        for row in found
    )


@reads(index_findings)
def place_of(store: Store, fingerprint: str, order: str = "cost") -> int | None:
    """Return a finding's place in an order, None where this run has no such finding."""
    sql = f"SELECT {PLACES[order]} FROM {INDEX} WHERE fingerprint = ?"
    found = store.scalar(sql, [fingerprint])
    return None if found is None else int(found)


@reads(index_findings)
def twins_of(store: Store, fingerprint: str) -> list[str]:
    """Return the findings of the same copies that `once` leaves out for this one."""
    found = store.query(f"SELECT fingerprint FROM {INDEX} WHERE twin = ? ORDER BY 1", [fingerprint])
    return found["fingerprint"].to_list()


@reads(index_findings)
def neighbour(
    store: Store, filters: FindingFilter, place: int, *, back: bool = False
) -> str | None:
    """Return the fingerprint of the next (or previous) line's finding, None at the end."""
    lines, values = _lines(filters)
    beyond, way = ("<", "DESC") if back else (">", "ASC")
    found = store.scalar(
        f"SELECT fingerprint FROM {INDEX} WHERE {filters.place} = (SELECT place FROM {lines} "
        f"WHERE place {beyond} ? ORDER BY place {way} LIMIT 1)",
        [*values, place],
    )
    return None if found is None else str(found)


@reads(index_findings)
def open_finding(store: Store, fingerprint: str, order: str = "cost") -> OpenedFinding | None:
    """Return a finding with its samples and its place in an order; None where there is none."""
    sql = f"""
        SELECT x.{PLACES[order]} AS place, x.fold, x.row, x.begins, x.ends,
            coalesce(t.status, '{IS_OPEN}') AS status
        FROM {INDEX} x LEFT JOIN {STATUS} t USING (fingerprint) WHERE x.fingerprint = ?
    """
    rows = store.rows(sql, [fingerprint])
    if not rows:
        return None
    at = rows[0]
    (row,) = store.rows("SELECT * FROM findings WHERE rowid = ?", [at["row"]])
    ids = store.query(
        "SELECT sample_id FROM finding_samples WHERE rowid BETWEEN ? AND ? AND fingerprint = ? "
        "AND position < ? ORDER BY position",
        [at["begins"], at["ends"], fingerprint, MEMBERS],
    )["sample_id"].to_list()
    fold = at["fold"]
    n = store.scalar(f"SELECT count(*) FROM {INDEX} WHERE fold = ?", [fold]) if fold else 1
    finding = ReportedFinding.from_row(row, ids, fold=fold)
    members = tuple(cards(store, ids))
    return OpenedFinding(finding, at["place"], at["status"], row["subject"], members, n)


@reads(index_findings)
def evidence_of(store: Store, fingerprints: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the evidence of findings."""
    found = store.query(
        "SELECT fingerprint, evidence FROM findings WHERE fingerprint IN (SELECT unnest(?))",
        [list(fingerprints)],
    )
    return {fingerprint: json.loads(text or "{}") for fingerprint, text in found.iter_rows()}


@reads(index_findings)
def first_samples(store: Store, fingerprints: Sequence[str], most: int) -> tuple[list[str], int]:
    """Return the first samples of these findings, and how many there are."""
    sql = """
        SELECT sample_id, count(*) OVER () AS n FROM finding_samples
        WHERE fingerprint IN (SELECT unnest(?)) GROUP BY sample_id
        ORDER BY min(position), sample_id LIMIT ?
    """
    found = store.query(sql, [list(fingerprints), most])
    return found["sample_id"].to_list(), int(found["n"][0]) if found.height else 0


@reads(index_findings)
def members_of(store: Store, fingerprints: Sequence[str], most: int = 8) -> dict[str, list[Card]]:
    """Return the first samples of each finding: one pass for all of a list."""
    sql = """
        SELECT fingerprint, sample_id FROM finding_samples
        WHERE fingerprint IN (SELECT unnest(?)) AND position < ? ORDER BY position
    """
    rows = store.rows(sql, [list(fingerprints), most])
    known = {card.id: card for card in cards(store, [row["sample_id"] for row in rows])}
    found: dict[str, list[Card]] = {one: [] for one in fingerprints}
    for row in rows:
        if row["sample_id"] in known:
            found[row["fingerprint"]].append(known[row["sample_id"]])
    return found


@reads(index_findings)
def first_steps(store: Store) -> tuple[FirstThing, ...]:
    """Return what to do first of what is left open, as a report has it of all findings."""
    return rank_first(store)


@dataclass(frozen=True, slots=True)
class FindingTally:
    """How many findings there are, whatever was decided about them, and how many are open."""

    total: int = 0
    open: int = 0

    @property
    def decided(self) -> int:
        """How many were decided or waived."""
        return self.total - self.open


@reads(index_findings)
def count_progress(store: Store, column: str) -> Mapping[str, FindingTally]:
    """Return the progress by `code`, or by `severity` with a fault of two checks once."""
    once = f"ANTI JOIN {SAME_FAULTS} USING (fingerprint)" if column == "severity" else ""
    rows = store.rows(
        f"SELECT x.{column} AS value, count(*) AS total, "
        "count(*) FILTER (WHERE t.status IS NULL) AS open "
        f"FROM {INDEX} x LEFT JOIN {STATUS} t USING (fingerprint) {once} GROUP BY 1 ORDER BY 1"
    )
    return {row["value"]: FindingTally(row["total"], row["open"]) for row in rows}


count_open_findings = reads(index_findings)(count_open)


@reads(index_findings)
def count_files_left(store: Store) -> int:
    """Return how many files an open error or warning names."""
    return int(
        store.scalar(
            "SELECT count(DISTINCT m.sample_id) FROM finding_samples m "
            f"JOIN {OPEN} f USING (fingerprint) WHERE f.severity <> 'info'"
        )
    )


SEEN_IN = """
    WITH placed AS (
        SELECT * FROM pictures WHERE split IS NOT NULL AND pixel_hash IS NOT NULL AND NOT blank
    ), seen AS (SELECT * FROM placed WHERE split = ?),
    near AS (
        SELECT b AS pixel_hash FROM pairs SEMI JOIN seen ON seen.pixel_hash = pairs.a
        UNION SELECT a FROM pairs SEMI JOIN seen ON seen.pixel_hash = pairs.b
    )
    SELECT split AS of, ? AS in, count(*) FILTER (
            WHERE unit IN (SELECT unit FROM seen) OR pixel_hash IN (SELECT pixel_hash FROM near)
        ) AS shared
    FROM placed WHERE split <> ? GROUP BY split ORDER BY split
"""
SIZES = """
    SELECT split AS of, count(*) AS files FROM pictures
    WHERE split IS NOT NULL AND pixel_hash IS NOT NULL GROUP BY split ORDER BY split
"""
MATRIX = pl.Schema(
    {"of": pl.String, "in": pl.String, "shared": pl.Int64, "files": pl.Int64, "share": pl.Float64}
)


@reads()
def overlap_matrix(store: Store) -> pl.DataFrame:
    """Return `of, in, shared, files, share`: of the files of one split, those also in another."""
    sizes = store.query(SIZES)
    names = sizes["of"].to_list()
    if len(names) < 2:
        return pl.DataFrame(schema=MATRIX)
    parts = [store.query(SEEN_IN, [name, name, name]) for name in names]
    joined = pl.concat(parts).join(sizes, on="of")
    share = pl.col("shared") / pl.col("files")
    return joined.with_columns(share=share).sort("of", "in").select(MATRIX.names())
