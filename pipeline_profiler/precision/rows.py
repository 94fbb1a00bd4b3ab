"""From measured windows to the table: means with intervals, ratios paired by block, sentences.

Pure functions over the plain data of a sweep, so that a saved session can be judged again. Means,
not medians: stalls are heavy-tailed. Intervals are BCa over the repeats; ratios are taken inside
a block first (drift hits both halves alike). The data stall is (T_W - T_D) / T_W, signed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline_profiler.diagnose.intervals import Interval, mean_interval
from pipeline_profiler.precision import sentences as precision_sentences

Raw = Mapping[str, Any]
KEYS = ("model", "batch_size", "precision", "loss_scale")


def judge(raw: Raw) -> dict[str, Any]:
    """The results of a session: verdict, first sentence, and `precision` with rows and raw data."""
    made = rows(raw)
    loaders = [loader_row(raw, feed) for feed in raw["feeds"] if not feed["problem"]]
    ratios, gains = speedups(raw, made), growths(raw, made)
    sentences = precision_sentences.closing(raw, made, loaders, ratios, gains)
    return {
        "verdict": "precision",
        "sentence": sentences[0] if sentences else "No row could be measured.",
        "precision": {
            **raw,
            "rows": made,
            "loaders": loaders,
            "speedups": ratios,
            "growths": gains,
            "sentences": sentences,
        },
    }


def rows(raw: Raw) -> list[dict[str, Any]]:
    """One row a cell, in the order they were planned."""
    return [_row(raw, cell) for cell in raw["cells"]]


def _row(raw: Raw, cell: Raw) -> dict[str, Any]:
    synthetic, fed = _by_block(raw, cell, "D"), _by_block(raw, cell, "W")
    both = sorted(set(synthetic) & set(fed))
    stall = mean_interval([(fed[b] - synthetic[b]) / fed[b] for b in both])
    windows = [v for v in _visits(raw, cell) if v["arm"] in "DW"]
    skipped = cell["skipped"] + sum(len(v["skipped"]) + v["warmup_skipped"] for v in windows)
    return {
        **{key: cell[key] for key in (*KEYS, "status", "sentence", "tiny")},
        "step": _arm(raw, cell, "D"),
        "fed": _arm(raw, cell, "W"),
        "synthetic_per_s": rate(synthetic, cell["batch_size"]),
        "loader_per_s": rate(fed, cell["batch_size"]),
        "stall": stall.as_dict() if both else None,
        "peak_bytes": cell["peak_bytes"],
        "peak_how": cell["peak_how"],
        "skipped": skipped if cell["loss_scale"] else None,
        "skipped_timed": sum(len(v["skipped"]) for v in windows),
        "loss_scale_end": cell["scale"],
        **parity(cell["losses"], cell["reference"], cell["precision"]),
        "loss_floor": _apart(cell["floor"], cell["reference"]),
        "warmup_s": round(cell["seconds"] + sum(v["warmup_s"] for v in windows), 3),
        "graphs": cell["graphs"],
        "recompiled": sum(v["recompiled"] for v in windows),
    }


def _visits(raw: Raw, cell: Raw) -> list[Any]:
    wanted = {key: cell[key] for key in KEYS}
    return [v for v in raw["visits"] if v["arm"] != "L" and v["cell"] == wanted]


def _mean(visit: Raw) -> float | None:
    """Mean period of the steps taken, ms; skipped steps are left out."""
    dropped = set(visit["skipped"])
    kept = [ms for i, ms in enumerate(visit["period_ms"]) if i not in dropped]
    if visit["period_ms"]:
        return float(np.mean(kept)) if kept else None
    return visit["elapsed_ms"] / visit["steps"] if visit["steps"] else None


def _by_block(raw: Raw, cell: Raw, arm: str) -> dict[int, float]:
    means = {v["block"]: _mean(v) for v in _visits(raw, cell) if v["arm"] == arm}
    return {block: mean for block, mean in means.items() if mean}


def _arm(raw: Raw, cell: Raw, arm: str) -> dict[str, Any] | None:
    """Mean with interval over the repeats, and the quantiles of all single steps, ms."""
    blocks = _by_block(raw, cell, arm)
    if not blocks:
        return None
    mean = positive(list(blocks.values())).as_dict()
    steps = [
        ms
        for v in _visits(raw, cell)
        if v["arm"] == arm
        for i, ms in enumerate(v["period_ms"])
        if i not in set(v["skipped"])
    ]
    tails = np.quantile(steps, [0.5, 0.95]).tolist() if steps else [None, None]
    ends = {"low_ms": mean["low"], "high_ms": mean["high"], "repeats": mean["n"]}
    head = {"mean_ms": mean["share"], "p50_ms": tails[0], "p95_ms": tails[1]}
    return head | ends | {"steps": len(steps)}


def rate(blocks: Mapping[int, float], batch_size: int) -> dict[str, Any] | None:
    """Samples a second with interval, from mean periods in ms."""
    if not blocks:
        return None
    period, n = positive(list(blocks.values())), batch_size * 1e3
    known = period.low > 0 and math.isfinite(period.high)
    return {
        "value": n / period.value,
        "low": n / period.high if known else None,
        "high": n / period.low if known else None,
        "n": period.n,
    }


def parity(losses: Sequence[float], reference: Sequence[float], precision: str) -> dict[str, Any]:
    """Loss after k steps and how far it is from FP32 with the same seed, as a share of FP32's.

    None where there is no FP32 run to compare with; `loss_apart_most` is the largest distance on
    the way.
    """
    known = precision != "fp32"
    return {
        "loss_steps": len(losses),
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "loss_apart": _apart(losses, reference) if known else None,
        "loss_apart_most": _apart(losses, reference, most=True) if known else None,
    }


def _apart(losses: Sequence[float], reference: Sequence[float], most: bool = False) -> float | None:
    """Distance after the last common step as a share of the reference; None without one."""
    count = min(len(losses), len(reference))
    if not count:
        return None
    ours, theirs = np.asarray(losses[:count]), np.asarray(reference[:count])
    apart = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-12)
    return float(apart.max() if most else apart[-1])


def loader_row(raw: Raw, feed: Raw) -> dict[str, Any]:
    """What the loader delivers with nobody else computing: an upper bound."""
    own = [
        v
        for v in raw["visits"]
        if v["arm"] == "L"
        and (v["model"], v["batch_size"]) == (feed["model"], feed["batch_size"])
        and v["batches"]
    ]
    blocks = {v["block"]: v["elapsed_ms"] / v["batches"] for v in own}
    return {**feed, "alone_per_s": rate(blocks, feed["batch_size"])}


def speedups(raw: Raw, made: Sequence[Raw]) -> list[dict[str, Any]]:
    """Each row against the FP32 row of its model and batch size: compute and run."""
    found = []
    for row in made:
        base = next((r for r in made if _is_base(r, row)), None)
        if row["precision"] == "fp32" or base is None:
            continue
        compute, run = _ratio(raw, base, row, "D"), _ratio(raw, base, row, "W")
        if compute is not None and run is not None:
            head = {key: row[key] for key in (*KEYS, "tiny")}
            found.append(head | {"compute": compute.as_dict(), "run": run.as_dict()})
    return found


def _is_base(candidate: Raw, row: Raw) -> bool:
    return candidate["precision"] == "fp32" and all(
        candidate[key] == row[key] for key in ("model", "batch_size")
    )


def _ratio(raw: Raw, base: Raw, row: Raw, arm: str) -> Interval | None:
    """How many times as fast as the base, paired by block."""
    return ratio_interval(_by_block(raw, base, arm), _by_block(raw, row, arm))


def ratio_interval(above: Mapping[int, float], below: Mapping[int, float]) -> Interval | None:
    """Geometric mean of the ratios inside each block: on the log scale 2x and 0.5x are equals."""
    both = sorted(set(above) & set(below))
    if not both:
        return None
    return positive([above[b] / below[b] for b in both], geometric=True)


def positive(values: Sequence[float], geometric: bool = False) -> Interval:
    """Mean with an interval above 0: two values, and geometric means, are judged as logarithms."""
    if not geometric and len(values) != 2:
        return mean_interval(values)
    logs = mean_interval([math.log(v) for v in values])
    value = math.exp(logs.value) if geometric else float(np.mean(values))
    if not math.isfinite(logs.half_width):
        return Interval(value, logs.low, logs.high, logs.n)
    return Interval(value, math.exp(logs.low), math.exp(min(logs.high, 700.0)), logs.n)


def growths(raw: Raw, made: Sequence[Raw]) -> list[dict[str, Any]]:
    """What the largest batch of a model and precision buys over the smallest, in samples/s."""
    whole = [row for row in made if row["step"] and row["fed"] and not row["tiny"]]
    found = []
    for key in dict.fromkeys(_without_size(row) for row in whole):
        own = [row for row in whole if _without_size(row) == key]
        least = min(own, key=lambda row: row["batch_size"])
        most = max(own, key=lambda row: row["batch_size"])
        times = most["batch_size"] / least["batch_size"]
        compute, run = (_ratio(raw, least, most, arm) for arm in "DW")
        if times > 1 and compute is not None and run is not None:
            sizes = {"from": least["batch_size"], "to": most["batch_size"]}
            gains = {"compute": compute.scaled(times), "run": run.scaled(times)}
            head = dict(zip(("model", "precision", "loss_scale"), key, strict=True))
            found.append(head | sizes | {k: v.as_dict() for k, v in gains.items()})
    return found


def _without_size(row: Raw) -> tuple[str, str, str]:
    return row["model"], row["precision"], row["loss_scale"]
