"""From windows to table and sentences, on numbers whose answers are known."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipeline_profiler.precision.summary import (
    as_results,
    compare_loss_scales,
    compare_sizes,
    format_ratio,
    paired_ratio,
    positive_mean,
    samples_per_second,
    summarise,
)
from pipeline_profiler.precision.table import (
    LargestBatch,
    LoaderPass,
    Measurement,
    ProbedCell,
    ProbeResult,
    Rate,
    Row,
    SourceRecord,
    StepTimes,
    Visit,
    measurement_as_dict,
    measurement_from_dict,
    table_as_dict,
)
from pipeline_profiler.precision.trainer import RESIDENT, WARM, Cell, TimedWindow
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.record.session import plain
from tests.conftest import ROOT

ARMS = (RESIDENT, WARM)


def probed(precision: str, batch_size: int = 100, **changes: Any) -> ProbedCell:
    scale = "dynamic" if precision == "fp16" else ""
    plain: dict[str, Any] = {
        "losses": [2.0, 1.0],
        "peak_bytes": 1_000_000,
        "peak_how": "counted",
        "seconds": 1.0,
    }
    probe = ProbeResult(**(plain | changes))
    return ProbedCell(Cell("net", batch_size, precision, scale), probe)


def visit(
    of: ProbedCell, arm: str, block: int, ms: Sequence[float], skipped: Sequence[int] = ()
) -> Visit:
    window = TimedWindow(ms, [0.0] * len(ms), sum(ms), len(ms), skipped, warmup_s=0.5)
    return Visit(arm, block, of.cell, window)


def measurement(
    cells: Sequence[ProbedCell], visits: Sequence[Visit], loader_only: float
) -> Measurement:
    """`loader_only`: samples/s of the loader with no step running."""
    passes = [LoaderPass(b, "net", 100, 10, 1e6 / loader_only) for b in range(3)]
    source = SourceRecord("net", 100, 4, "", "torch", workers=2, prefetch=2)
    return Measurement(
        "torch", "cuda", "a card", cells=cells, feeds=[source], visits=[*passes, *visits]
    )


def amdahl(loader_only: float = 900.0) -> Measurement:
    """Compute halves from 100 to 50 ms, the loader holds the run at 96 ms: 1,042 samples/s."""
    full, half = probed("fp32"), probed("fp16")
    visits = []
    for block in range(5):
        drift = 1 + 0.1 * block  # the machine slows down: ratios inside a block do not
        visits += [
            visit(full, RESIDENT, block, [100.0 * drift] * 4),
            visit(full, WARM, block, [104.64 * drift] * 4),
            visit(half, RESIDENT, block, [50.0 * drift, 9000.0, 50.0 * drift], skipped=(1,)),
            visit(half, WARM, block, [96.0 * drift] * 4),
        ]
    return measurement([full, half], visits, loader_only)


def test_means_leave_skipped_steps_out_and_pair_ratios_by_block() -> None:
    table = summarise(amdahl())
    full, half = table.rows
    assert [row.step.mean_ms for row in table.rows if row.step] == pytest.approx([120.0, 60.0])
    assert half.step is not None
    assert half.step.steps == 10
    assert (full.skipped, half.skipped) == (None, 5)
    compute = table.speedups[0].compute
    assert (compute.value, compute.low, compute.high) == pytest.approx((2.0, 2.0, 2.0))
    assert table.speedups[0].run.value == pytest.approx(1.09)


def test_the_sentence_says_what_half_precision_buys_and_what_it_asks_for() -> None:
    table = summarise(amdahl())
    stall, text = table.rows[1].stall, table.sentences[0]
    # the difference of the arms over the fed one
    assert stall is not None
    assert stall.value == pytest.approx((96 - 50) / 96)
    assert "FP16 makes the compute 2.00x faster (2.00 to 2.00)" in text
    assert "and the run 1.09x faster" in text
    assert "because the loader is at 96% of its limit" in text
    assert "the loader would have to deliver 1,667 samples/s and delivers at most 900." in text


def test_without_a_loader_at_its_limit_the_stall_is_the_reason() -> None:
    text = summarise(amdahl(loader_only=9000.0)).sentences[0]
    assert "because 48% of the step is data stall (the loader is at 10% of what" in text
    assert "and delivers, with the cores to itself, 9,000." in text


def test_a_gain_that_reaches_the_run_needs_no_reason() -> None:
    full, half = probed("fp32"), probed("fp16")
    visits = []
    for block in range(3):
        visits += [visit(full, arm, block, [100.0]) for arm in ARMS]
        visits += [visit(half, arm, block, [50.0]) for arm in ARMS]
    text = summarise(measurement([full, half], visits, 1e5)).sentences[0]
    assert "2.00x faster" in text
    assert "because" not in text


def test_windows_without_single_steps_count_by_their_length() -> None:
    full = probed("fp32")
    window = TimedWindow([], [], 30.0, 3)
    visits = [Visit(arm, block, full.cell, window) for block in range(3) for arm in ARMS]
    row = summarise(measurement([full], visits, 1e4)).rows[0]
    assert row.step is not None
    assert (row.step.mean_ms, row.step.p50_ms) == (10.0, None)
    assert row.synthetic_per_s is not None
    assert row.synthetic_per_s.value == pytest.approx(10_000)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Interval(2.1, 2.0, 2.2), "2.10x faster (2.00 to 2.20)"),
        (Interval(0.1, 0.08, 0.125), "10.00x slower (8.00 to 12.50)"),
        (Interval(1.0, 0.9, 1.1), "no faster or slower beyond the noise (1.00x, 0.90 to 1.10)"),
        (Interval(1.4, -math.inf, math.inf), "1.40x as fast (one repeat: no interval)"),
    ],
)
def test_a_gain_is_one_only_beyond_its_interval(ratio: Interval, text: str) -> None:
    assert format_ratio(ratio) == text


def test_rates_turn_intervals_round() -> None:
    assert samples_per_second({}, 10) is None
    assert samples_per_second({0: 10.0, 1: 10.0, 2: 10.0}, 10) == Rate(1000.0, 1000.0, 1000.0, 3)
    spread = samples_per_second({0: 8.0, 1: 10.0, 2: 12.0}, 10)
    assert spread is not None
    assert (spread.low or 0.0) < spread.value < (spread.high or 0.0)
    assert samples_per_second({0: 10.0}, 10) == Rate(1000.0, None, None, 1)


def row(scale: str, ms: float, skipped: int = 2) -> Row:
    """A measured FP16 row whose interval is 1 ms to both sides."""
    step = StepTimes(ms, None, None, ms - 1, ms + 1, 5, 10)
    base = summarise(amdahl()).rows[1]
    cell = replace(base.cell, loss_scale=scale)
    return replace(base, cell=cell, step=step, skipped=skipped)


def test_loss_scales_are_compared_in_time_and_skips() -> None:
    dynamic = row("dynamic", 10.0)
    text = next(compare_loss_scales([dynamic, row("128", 10.4, skipped=0)]))
    assert "loss scales dynamic, 128 make no difference to the step beyond the noise" in text
    assert "skipped steps 2, 0" in text
    slower = row("64", 15.0)
    assert "make a difference (10.0 to 15.0 ms)" in next(compare_loss_scales([dynamic, slower]))


def test_bigger_batches_are_compared_in_compute_and_run() -> None:
    data, bigger = amdahl(), probed("fp32", batch_size=200)
    visits = list(data.visits)
    for block in range(5):
        drift = 1 + 0.1 * block
        visits.append(visit(bigger, RESIDENT, block, [150.0 * drift]))
        visits.append(visit(bigger, WARM, block, [209.28 * drift]))
    table = summarise(replace(data, cells=[*data.cells, bigger], visits=visits))
    growth = table.growths[0]
    found = (growth.smallest, growth.largest, growth.compute.value, growth.run.value)
    assert found == pytest.approx((100, 200, 4 / 3, 1.0))
    text = next(compare_sizes(table.growths))
    assert "from batch 100 to 200 the compute is 1.33x faster (1.33 to 1.33) in samples/s" in text
    assert "and the run no faster or slower beyond the noise" in text


def test_ratios_go_through_logarithms_and_are_never_negative() -> None:
    even = paired_ratio({0: 2.0, 1: 1.0}, {0: 1.0, 1: 2.0})
    assert even is not None
    assert even.low > 0
    assert (even.value, even.low * even.high) == pytest.approx((1.0, 1.0))
    assert paired_ratio({0: 1.0}, {1: 1.0}) is None
    assert paired_ratio({0: 3.0}, {0: 2.0}) == Interval(1.5, -math.inf, math.inf, 1)
    two = positive_mean([10.0, 30.0])
    assert two.value == 20.0
    assert 0 < two.low < 20.0 < two.high


# ---- the saved form of a table: the keys of version 0.1, and reading undoes writing ----


SAVED = ROOT / "sample_data" / "sessions" / "precision-cpu.json"
UNUSED = ("loss_apart", "loss_apart_most", "loss_floor", "reference", "floor")
"""Keys that stored documents may have and that are ignored."""


@pytest.fixture
def saved() -> dict[str, Any]:
    """The document of a sweep on a CPU, as version 0.1 wrote it."""
    document: dict[str, Any] = json.loads(SAVED.read_text())["precision"]
    return document


def as_saved(now: Any, then: Any) -> Any:
    """What was written now, cut to the keys that the document of then has, in their order."""
    if isinstance(then, dict):
        return {key: as_saved(now[key], p) for key, p in then.items() if key not in UNUSED}
    if isinstance(then, list):
        return [as_saved(a, b) for a, b in zip(now, then, strict=True)]
    return now


def test_a_measurement_of_version_01_is_read_and_written_letter_by_letter(saved: Any) -> None:
    again = measurement_as_dict(measurement_from_dict(saved))
    written = {key: saved[key] for key in again}
    assert json.dumps(as_saved(again, written)) == json.dumps(as_saved(written, written))


def without_ends(value: Any) -> Any:
    """The same without the ends of intervals, whose method is that of the version that wrote it."""
    if isinstance(value, dict):
        ends = ("low", "high", "low_ms", "high_ms")
        return {key: without_ends(part) for key, part in value.items() if key not in ends}
    return [without_ends(part) for part in value] if isinstance(value, list) else value


def test_a_saved_measurement_gives_its_rows_and_comparisons_again(saved: Any) -> None:
    again = table_as_dict(summarise(measurement_from_dict(saved)))
    for key in ("rows", "loaders", "speedups", "growths"):
        assert without_ends(as_saved(again[key], saved[key])) == without_ends(
            as_saved(saved[key], saved[key])
        ), key
    for now, then in zip(again["rows"], saved["rows"], strict=True):
        step, old = now["step"], then["step"]
        assert (step is None) == (old is None)
        if step is not None and step["repeats"] >= 5:
            assert step["low_ms"] < old["mean_ms"] < step["high_ms"]
            assert step["low_ms"] < old["high_ms"]


def test_keys_of_a_later_version_are_ignored(saved: Any) -> None:
    saved["cells"][0]["colour"] = saved["visits"][-1]["mood"] = "later"
    assert measurement_from_dict(saved).cells[0].cell.model == "resnet18"


def test_what_was_not_measured_survives_as_null() -> None:
    failed = probed("fp32", status="oom", sentence="out of memory.", losses=[], peak_bytes=None)
    data = replace(amdahl(), largest=[LargestBatch("net", "fp16", 7, False, [1, 2, 7])])
    table = summarise(replace(data, cells=[failed], visits=[]))
    document = json.loads(json.dumps(plain(as_results(table)["precision"])))
    assert document["rows"][0]["step"] is None
    assert document["largest"][0]["trials"] == [1, 2, 7]
    assert plain(table_as_dict(summarise(measurement_from_dict(document)))) == document


def test_one_repeat_has_an_infinite_interval_that_json_calls_null() -> None:
    data = amdahl()
    first = [v for v in data.visits if not isinstance(v, Visit) or v.block == 0]
    table = summarise(replace(data, visits=first))
    document = json.loads(json.dumps(plain(table_as_dict(table))))
    assert document["speedups"][0]["run"]["high"] is None
    assert summarise(measurement_from_dict(document)).speedups[0].run.high == math.inf


def test_a_loss_that_was_not_a_number_can_be_read_again() -> None:
    broken = probed("bf16", losses=[2.0, math.nan])
    document = plain(table_as_dict(summarise(replace(amdahl(), cells=[broken]))))
    losses = measurement_from_dict(document).cells[0].probe.losses
    assert losses[0] == 2.0
    assert math.isnan(losses[1])
