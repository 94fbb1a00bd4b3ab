"""Tuning a tf.data pipeline: try every intervention, keep the best that beats the noise, again."""

from __future__ import annotations

import math
from typing import Any

from pipeline_profiler.adapters import tf_interventions
from pipeline_profiler.diagnose.intervals import Interval, mean_interval
from pipeline_profiler.measure.arms import Bench, Options
from pipeline_profiler.record.plan import TriedIntervention
from pipeline_profiler.record.session import Session

NOISE = 0.02
ROUNDS = 3
REPEATS = 4
# these change what is trained on or need another machine: recommended, never kept unasked
ADVICE_ONLY = ("cache", "smaller shuffle buffer", "tf.data service", "drop unused fields")


def tune_dataset(bench: Bench, options: Options, session: Session) -> Session:
    """Apply interventions one by one; those that change semantics are shown as advice."""
    dataset, kept_names, trials = bench.loader(), [], []
    seconds = options.budget / (ROUNDS * 12 * REPEATS / 2)
    for _ in range(ROUNDS):
        rows, notes = tf_interventions.try_all(dataset, bench.step, seconds, repeats=REPEATS)
        session.notes += [note for note in notes if note not in session.notes]
        ranked = sorted(rows, key=lambda row: float(row["period_ms"]) / float(row["baseline_ms"]))
        gains = [(row, _gain(row)) for row in ranked]
        best = next(
            (r for r, g in gains if g.low > 1 + NOISE and r["name"] not in ADVICE_ONLY), None
        )
        trials += [_trial(row, gain, row is best) for row, gain in gains]
        if best is None:
            break
        kept_names.append(str(best["name"]))
        bench.tell(f"kept: {best['name']}")
        dataset = tf_interventions.apply(dataset, str(best["name"]))
    ended = "nothing else that can be applied is worth more than the noise"
    sentence = (
        f"keep {', '.join(kept_names)}; then {ended}"
        if kept_names
        else f"keep it as it is: {ended}"
    )
    session.results |= {
        "verdict": "tuned",
        "sentence": sentence,
        "kept": {"interventions": kept_names},
        "kept_sentence": sentence,
        "trials": trials,
    }
    return session


def _gain(row: TriedIntervention) -> Interval:
    logs = [-math.log(1 - gain) for gain in row["gains"]]
    mean = mean_interval(logs)
    return Interval(math.exp(mean.value), math.exp(mean.low), math.exp(mean.high), mean.n)


def _trial(row: TriedIntervention, gain: Interval, best: bool) -> dict[str, Any]:
    advice = row["name"] in ADVICE_ONLY and gain.low > 1 + NOISE
    return {
        "change": row["name"],
        "setting": {"intervention": row["name"]},
        "predicted": float(row["baseline_ms"]) / float(row["period_ms"]),
        "measured": f"{gain.value:.2f}x ({gain.low:.2f} to {gain.high:.2f})",
        "speedup": gain.as_dict(),
        "decision": "kept" if best else "advice" if advice else "rejected",
        "why": row["how"] if advice or best else "not faster beyond the noise",
    }
