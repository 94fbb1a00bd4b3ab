"""The joined ranks of one job as a page."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_profiler.record.session import Session
from pipeline_profiler.report.charts import stacked_rows
from pipeline_profiler.report.page import render_page
from pipeline_profiler.report.section import Section
from pipeline_profiler.watching.ranks import (
    RANK_HEAD,
    RankRow,
    join_ranks,
    rank_cells,
    ranks_sentence,
)


def render_ranks(sessions: Sequence[Session]) -> str:
    """The joined ranks as one HTML page: the sentence, a bar a rank on one scale, the table."""
    joined = join_ranks(sessions)
    parts = [(str(r.rank), _parts(r)) for r in joined.rows]
    chart = stacked_rows("Mean step of each rank", parts, "ms")
    rows = tuple(map(rank_cells, joined.rows))
    return render_page([Section("Verdict", (ranks_sentence(joined),), RANK_HEAD, rows, chart)])


def _parts(row: RankRow) -> dict[str, float]:
    """Milliseconds by part of a rank's mean step; they add up to it."""
    parts = {"loader wait": row.wait_ms, "own work": row.own_ms, "collective": row.collective_ms}
    return parts | {"together": max(0.0, row.period_ms - sum(parts.values()))}
