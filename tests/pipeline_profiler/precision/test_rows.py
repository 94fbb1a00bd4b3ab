"""From windows to table and sentences, on numbers whose answers are known."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_profiler.precision.rows import judge, parity, positive, rate, ratio_interval
from pipeline_profiler.precision.sentences import bigger_batches, loss_scales, percent, times

KEYS = {"model": "net", "batch_size": 100}


def cell(precision: str, **changes: Any) -> dict[str, Any]:
    plain = {
        **KEYS,
        "precision": precision,
        "loss_scale": "dynamic" if precision == "fp16" else "",
        "status": "ok",
        "sentence": "",
        "tiny": False,
        "losses": [2.0, 1.0],
        "reference": [2.0, 1.0],
        "floor": [],
        "skipped": 0,
        "scale": None,
        "peak_bytes": 1_000_000,
        "peak_how": "counted",
        "seconds": 1.0,
        "graphs": 0,
    }
    return plain | changes


def visit(
    of: dict[str, Any], arm: str, block: int, ms: list[float], skipped: tuple[int, ...] = ()
) -> dict[str, Any]:
    keys = ("model", "batch_size", "precision", "loss_scale")
    return {
        "arm": arm,
        "block": block,
        "cell": {key: of[key] for key in keys},
        "period_ms": ms,
        "wait_ms": [0.0] * len(ms),
        "elapsed_ms": sum(ms),
        "steps": len(ms),
        "skipped": list(skipped),
        "warmup_skipped": 0,
        "warmup_s": 0.5,
        "recompiled": 0,
    }


def raw(cells: list[dict[str, Any]], visits: list[dict[str, Any]], alone: float) -> dict[str, Any]:
    feed = {**KEYS, "kept": 4, "problem": "", "workers": 2, "prefetch": 2, "kind": "torch"}
    drained = [
        {**KEYS, "arm": "L", "block": b, "batches": 10, "elapsed_ms": 1e6 / alone} for b in range(3)
    ]
    return {
        "backend": "torch",
        "device": "cuda",
        "device_name": "a card",
        "recipe": {},
        "flags": {},
        "cells": cells,
        "feeds": [feed],
        "largest": [],
        "visits": [*drained, *visits],
    }


def amdahl() -> dict[str, Any]:
    """Compute halves from 100 to 50 ms, the loader holds the run at 96 ms: 1,042 samples/s."""
    full, half = cell("fp32"), cell("fp16")
    visits = []
    for block in range(5):
        drift = 1 + 0.1 * block  # the machine slows down: ratios inside a block do not
        visits += [
            visit(full, "D", block, [100.0 * drift] * 4),
            visit(full, "W", block, [104.64 * drift] * 4),
            visit(half, "D", block, [50.0 * drift, 9000.0, 50.0 * drift], skipped=(1,)),
            visit(half, "W", block, [96.0 * drift] * 4),
        ]
    return raw([full, half], visits, alone=900.0)


def test_means_leave_skipped_steps_out_and_pair_ratios_by_block() -> None:
    found = judge(amdahl())["precision"]
    full, half = found["rows"]
    assert full["step"]["mean_ms"] == pytest.approx(120.0)
    assert half["step"]["mean_ms"] == pytest.approx(60.0)
    assert half["step"]["steps"] == 10
    assert half["skipped"] == 5
    assert full["skipped"] is None
    compute = found["speedups"][0]["compute"]
    assert compute["share"] == pytest.approx(2.0)
    assert compute["low"] == pytest.approx(2.0)
    assert compute["high"] == pytest.approx(2.0)
    assert found["speedups"][0]["run"]["share"] == pytest.approx(1.09)


def test_the_stall_is_the_difference_of_the_arms_over_the_fed_one() -> None:
    half = judge(amdahl())["precision"]["rows"][1]
    assert half["stall"]["share"] == pytest.approx((96 - 50) / 96)


def test_the_sentence_says_what_half_precision_buys_and_what_it_asks_for() -> None:
    text = judge(amdahl())["sentence"]
    assert "FP16 makes the compute 2.00x faster (2.00 to 2.00)" in text
    assert "and the run 1.09x faster" in text
    assert "because the loader is at 96% of its limit" in text
    assert "the loader would have to deliver 1,667 samples/s and delivers at most 900." in text


def test_without_a_loader_at_its_limit_the_stall_is_the_reason() -> None:
    data = amdahl()
    for row in data["visits"]:
        if row["arm"] == "L":
            row["elapsed_ms"] /= 10
    text = judge(data)["sentence"]
    assert "because 48% of the step is data stall (the loader is at 10% of what" in text
    assert "and delivers, with the cores to itself, 9,000." in text


def test_a_gain_that_reaches_the_run_needs_no_reason() -> None:
    full, half = cell("fp32"), cell("fp16")
    visits = []
    for block in range(3):
        visits += [visit(full, arm, block, [100.0]) for arm in "DW"]
        visits += [visit(half, arm, block, [50.0]) for arm in "DW"]
    text = judge(raw([full, half], visits, alone=1e5))["sentence"]
    assert "because" not in text


def test_windows_without_single_steps_count_by_their_length() -> None:
    full = cell("fp32")
    visits = [
        visit(full, arm, b, []) | {"elapsed_ms": 30.0, "steps": 3}
        for b in (0, 1, 2)
        for arm in "DW"
    ]
    row = judge(raw([full], visits, alone=1e4))["precision"]["rows"][0]
    assert row["step"]["mean_ms"] == 10.0
    assert row["step"]["p50_ms"] is None
    assert row["synthetic_per_s"]["value"] == pytest.approx(10_000)


@pytest.mark.parametrize(
    ("share", "low", "high", "said"),
    [
        (2.1, 2.0, 2.2, "2.10x faster (2.00 to 2.20)"),
        (0.1, 0.08, 0.125, "10.00x slower (8.00 to 12.50)"),
        (1.0, 0.9, 1.1, "no faster or slower beyond the noise (1.00x, 0.90 to 1.10)"),
        (1.4, None, None, "1.40x as fast (one repeat: no interval)"),
    ],
)
def test_a_gain_is_one_only_beyond_its_interval(share: Any, low: Any, high: Any, said: str) -> None:
    assert times({"share": share, "low": low, "high": high}) == said


def test_rates_turn_intervals_round() -> None:
    assert rate({}, 10) is None
    found = rate({0: 10.0, 1: 10.0, 2: 10.0}, 10)
    assert found == {"value": 1000.0, "low": 1000.0, "high": 1000.0, "n": 3}
    one = rate({0: 10.0}, 10)
    assert one is not None
    assert one["low"] is None


def test_parity_is_the_distance_as_a_share_of_fp32() -> None:
    found = parity([2.0, 1.1], [2.0, 1.0], "bf16")
    assert found["loss_apart"] == pytest.approx(0.1)
    assert parity([2.0, 1.0, 0.9], [4.0, 1.0], "bf16")["loss_apart_most"] == pytest.approx(0.5)
    assert parity([2.0], [2.0], "fp32")["loss_apart"] is None
    assert parity([2.0], [], "bf16")["loss_apart"] is None


def row(precision: str = "fp16", **changes: Any) -> dict[str, Any]:
    plain = {
        **KEYS,
        "precision": precision,
        "loss_scale": "dynamic",
        "tiny": False,
        "step": {"mean_ms": 10.0, "low_ms": 9.0, "high_ms": 11.0},
        "loss_last": 1.0,
        "skipped": 2,
        "synthetic_per_s": {"value": 1000.0},
        "loader_per_s": {"value": 800.0},
    }
    return plain | changes


def test_loss_scales_are_compared_in_time_loss_and_skips() -> None:
    other = row(loss_scale="128", step={"mean_ms": 10.4, "low_ms": 9.5, "high_ms": 11.2}, skipped=0)
    text = next(loss_scales([row(), other]))
    assert "loss scales dynamic, 128 make no difference to the step beyond the noise" in text
    assert "skipped steps 2, 0" in text
    slower = row(loss_scale="64", step={"mean_ms": 15.0, "low_ms": 14.0, "high_ms": 16.0})
    assert "make a difference (10.0 to 15.0 ms)" in next(loss_scales([row(), slower]))


def test_bigger_batches_are_compared_in_compute_and_run() -> None:
    data = amdahl()
    data["cells"].append(cell("fp32", batch_size=200))
    for block in range(5):
        drift = 1 + 0.1 * block
        data["visits"].append(visit(data["cells"][2], "D", block, [150.0 * drift]))
        data["visits"].append(visit(data["cells"][2], "W", block, [209.28 * drift]))
    found = judge(data)["precision"]
    gain = found["growths"][0]
    assert (gain["from"], gain["to"]) == (100, 200)
    assert gain["compute"]["share"] == pytest.approx(4 / 3)
    assert gain["run"]["share"] == pytest.approx(1.0)
    text = next(bigger_batches(found["growths"]))
    assert "from batch 100 to 200 the compute is 1.33x faster (1.33 to 1.33) in samples/s" in text
    assert "and the run no faster or slower beyond the noise" in text


def test_ratios_are_judged_as_logarithms_and_never_negative() -> None:
    even = ratio_interval({0: 2.0, 1: 1.0}, {0: 1.0, 1: 2.0})
    assert even is not None
    assert even.value == pytest.approx(1.0)
    assert even.low > 0
    assert even.low * even.high == pytest.approx(1.0)
    assert ratio_interval({0: 1.0}, {1: 1.0}) is None
    one = ratio_interval({0: 3.0}, {0: 2.0})
    assert one is not None
    assert one.as_dict() == {"share": 1.5, "low": None, "high": None, "n": 1}
    two = positive([10.0, 30.0])
    assert two.value == 20.0
    assert 0 < two.low < 20.0 < two.high


def test_small_shares_keep_two_figures() -> None:
    assert percent(0.000123) == "0.012 %"
    assert percent(0.0213) == "2.1 %"
    assert percent(1e-7) == "below 0.001 %"
    assert percent(0.0) == "0 %"
