"""From a measurement to the results of a session: rows, comparisons, sentences, in this order.

Nothing is measured here and nothing is read from a clock: a session that was saved, or interrupted
half way, gives its results by the same call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline_profiler.precision.comparisons import compare_batch_sizes, compare_with_fp32
from pipeline_profiler.precision.document import table_as_dict
from pipeline_profiler.precision.measurement import Measurement
from pipeline_profiler.precision.rows import make_loader_row, make_rows
from pipeline_profiler.precision.sentences import write_sentences
from pipeline_profiler.precision.table import PrecisionTable


def summarise(measurement: Measurement) -> PrecisionTable:
    """Everything that follows from a measurement."""
    rows = make_rows(measurement)
    table = PrecisionTable(
        measurement,
        rows,
        # a source with a problem delivered nothing: its rows carry the sentence
        [make_loader_row(measurement, s) for s in measurement.sources if not s.problem],
        compare_with_fp32(measurement, rows),
        compare_batch_sizes(measurement, rows),
        sentences=(),
    )
    return replace(table, sentences=write_sentences(table))


def as_results(table: PrecisionTable) -> dict[str, Any]:
    """The results of a session: verdict, the first sentence, and `precision` with everything."""
    first = table.sentences[0] if table.sentences else "No row could be measured."
    return {"verdict": "precision", "sentence": first, "precision": table_as_dict(table)}
