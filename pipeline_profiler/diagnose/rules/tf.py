"""Rule for tf.data: the intervention that, tried and timed, made the user's own dataset faster."""

from __future__ import annotations

from pipeline_profiler.diagnose.evidence import Evidence
from pipeline_profiler.diagnose.finding import Diagnosis
from pipeline_profiler.diagnose.intervals import Interval

MOST_OF_IT = 0.7  # of the best gain; a cache is always best and rarely what is missing
CODES = {
    "prefetch": "PIPE019",
    "parallel map": "PIPE018",
    "parallel interleave": "PIPE026",
    "smaller shuffle buffer": "PIPE020",
    "cache": "PIPE027",
    "drop unused fields": "PIPE022",
    "tf.data service": "PIPE006",
}


def intervention(e: Evidence) -> Diagnosis | None:
    """The simplest tried intervention that gets most of what the best one gets."""
    trials = e.session.probes.interventions or []
    gains = [(row, 1 - row["period_ms"] / row["baseline_ms"]) for row in trials]
    useful = [(row, gain) for row, gain in gains if gain > 0.05]
    if not useful:
        return None
    best = max(gain for _, gain in useful)
    row, gain = next((r, g) for r, g in useful if g >= MOST_OF_IT * best)
    spread = float(row.get("spread", 0.05))
    return Diagnosis(
        CODES.get(row["name"], "PIPE028"),
        f"{row['name']}: {row['why']} (tried: {row['baseline_ms']:.1f} ms a step becomes "
        f"{row['period_ms']:.1f} ms)",
        Interval(gain, gain - spread, gain + spread, int(row.get("repeats", 1))),
        {"baseline_ms": row["baseline_ms"], "period_ms": row["period_ms"], "op": row.get("op", "")},
        row["how"],
    )
