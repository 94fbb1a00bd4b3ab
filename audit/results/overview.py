"""What to do first, how much is decided, and which splits show the same pictures.

A sample of one split also occurs in another by the rule of SPLIT001: same bytes, pixels, group of
near-duplicates, or a verified pair. Pictures of one colour are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from audit.results.finding_index import INDEX, STATUS, count_open, index_findings
from audit.results.grouping import OPEN, SAME_FAULTS
from audit.results.priorities import rank_first
from audit.results.reader import reads
from audit.results.report_data import FirstThing
from audit.run.store import Store


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
