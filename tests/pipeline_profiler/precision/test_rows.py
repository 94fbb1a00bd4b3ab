"""From windows and passages to rows, answers and crossings, on numbers whose answers are known."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipeline_profiler.precision.summary import (
    as_results,
    best_row,
    list_crossings,
    list_launch_bound,
    loss_marks,
    needed_workers,
    samples_per_s,
    stall_share,
    summarise,
)
from pipeline_profiler.precision.table import (
    CellWindow,
    LargestBatch,
    LossMark,
    Measurement,
    Passage,
    ProbedCell,
    ProbeResult,
    SourceRecord,
    as_document,
    measurement_from_dict,
)
from pipeline_profiler.precision.trainer import Cell, PeakMemory, TimedWindow
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.record.session import plain
from tests.conftest import ROOT

ROUNDS = 6


def probed(precision: str, batch_size: int = 100, **changes: Any) -> ProbedCell:
    scale = "dynamic" if precision == "fp16" else ""
    usual: dict[str, Any] = {
        "losses": [2.0, 1.0],
        "peak": PeakMemory(1_000_000, "counted"),
    }
    probe = ProbeResult(**(usual | changes))
    return ProbedCell(Cell("net", batch_size, precision, scale), probe)


def windows(of: ProbedCell, ms: Sequence[float]) -> list[CellWindow]:
    """A window a round, each of three steps and one that AMP skipped."""
    return [
        CellWindow(of.cell, n, float(n), TimedWindow([each, 9e3, each, each], 0.0, 4, [1]))
        for n, each in enumerate(ms)
    ]


def passages(
    of: ProbedCell | None, ms: Sequence[float], batch_size: int = 100, workers: int = 2
) -> list[Passage]:
    """A passage of ten batches a round, at `ms` a batch."""
    cell = of.cell if of else Cell("net", batch_size, "")
    return [Passage(cell, workers, n, float(n), 10, 10 * each, 50.0) for n, each in enumerate(ms)]


def measurement(cells: Sequence[ProbedCell], times: Sequence[CellWindow | Passage]) -> Measurement:
    sizes = dict.fromkeys(probed.cell.batch_size for probed in cells)
    return Measurement(
        "torch",
        "cuda",
        "a card",
        cells=cells,
        sources=[
            SourceRecord("net", size, 4, "", "torch", 2, 2, None, 10, 4, True) for size in sizes
        ],
        windows=[each for each in times if isinstance(each, CellWindow)],
        passages=[each for each in times if isinstance(each, Passage)],
        cores=8,
    )


def around(ms: float, rounds: int = ROUNDS) -> list[float]:
    """Times that alternate by 1% around a value."""
    return [ms * (1.01 if n % 2 else 0.99) for n in range(rounds)]


def amdahl(loader_ms: float = 90.0) -> Measurement:
    """Compute halves from 100 to 50 ms; the loader alone takes 90 ms a batch of 100."""
    full, half = probed("fp32"), probed("fp16")
    drift = [1 + 0.1 * n for n in range(ROUNDS)]  # ratios inside a round do not see it
    return measurement(
        [full, half],
        [
            *windows(full, [100.0 * part for part in drift]),
            *windows(half, [50.0 * part for part in drift]),
            *passages(full, around(130.0)),
            *passages(half, around(max(92.0, loader_ms))),
            *passages(None, around(loader_ms)),
        ],
    )


def test_the_step_is_a_mean_of_medians_and_its_ratio_is_paired_by_round() -> None:
    full, half = summarise(amdahl()).rows
    assert full.step_ms is not None
    assert half.step_ms is not None
    drift = math.prod(1 + 0.1 * n for n in range(ROUNDS)) ** (1 / ROUNDS)
    assert full.step_ms.value == pytest.approx(100 * drift)
    assert (half.skipped, full.skipped) == (ROUNDS, None)
    assert half.speedup is not None
    assert (half.speedup.value, half.speedup.low, half.speedup.high) == pytest.approx((2, 2, 2))


def test_with_the_loader_whole_epochs_count_and_the_rate_stays_below_the_loader() -> None:
    table = summarise(amdahl())
    half = table.rows[1]
    alone = table.loaders[0].alone_per_s
    assert half.with_loader_per_s is not None
    assert half.with_loader_per_s.value == pytest.approx(1e5 / 92, rel=1e-3)
    assert half.with_loader_per_s.value < alone.value
    assert half.epoch_s == pytest.approx(1000 / half.with_loader_per_s.value)
    assert half.speedup_with_loader is not None
    assert half.speedup_with_loader.value == pytest.approx(130 / 92, rel=1e-3)


def test_outside_whole_epochs_a_batch_bears_its_share_of_the_epochs_start() -> None:
    source = SourceRecord("net", 100, epoch_batches=50)
    passage = passages(None, [10.0])[0]
    assert source.batch_ms(passage, 60.0) == pytest.approx(10 + (60 - 10) / 50)
    assert replace(source, whole_epochs=True).batch_ms(passage, 60.0) == 10.0
    assert replace(source, epoch_batches=None).batch_ms(passage, 60.0) == 10.0


def test_precisions_that_the_loader_limits_share_one_rate_unless_they_differ() -> None:
    cells = [probed(name) for name in ("fp32", "bf16", "fp16")]
    times: list[CellWindow | Passage] = []
    for cell, step, fed in zip(cells, (20.0, 10.0, 5.0), (95.0, 96.0, 150.0), strict=True):
        times += [*windows(cell, around(step)), *passages(cell, around(fed))]
    rows = summarise(measurement(cells, times)).rows
    assert all(row.is_input_bound for row in rows)
    assert rows[0].with_loader_per_s == rows[1].with_loader_per_s
    assert rows[0].with_loader_per_s is not None
    assert rows[0].with_loader_per_s.n == 2 * ROUNDS
    assert rows[2].with_loader_per_s is not None
    assert rows[2].with_loader_per_s.value == pytest.approx(1e5 / 150, rel=1e-3)


def test_an_impossible_rate_is_an_error_and_gives_no_speed_up() -> None:
    full, half = probed("fp32"), probed("bf16")
    times = [
        *windows(full, around(100.0)),
        *windows(half, around(50.0)),
        *passages(full, around(101.0)),
        *passages(half, around(30.0)),
        *passages(None, around(20.0)),
    ]
    table = summarise(measurement([full, half], times))
    wrong = table.rows[1]
    assert wrong.error == "1.67 times the rate of the step alone"
    assert (wrong.with_loader_per_s, wrong.stall, wrong.speedup_with_loader) == (None, None, None)
    assert any("error of the measurement" in text for text in table.sentences)


def test_stall_is_the_share_that_preloaded_batches_do_not_need() -> None:
    share = stall_share(around(100.0), around(60.0))
    assert share.value == pytest.approx(0.4)
    assert 0 < share.low < 0.4 < share.high < 1
    assert stall_share([100.0], [60.0]).low == -math.inf
    rate = samples_per_s([10.0] * 6, 8)
    assert rate == Interval(*[pytest.approx(800.0)] * 3, 6)


@pytest.mark.parametrize(
    ("loader_ms", "texts"),
    [
        (90.0, ["Use FP16 at batch 100: 2.00x", "1.41x (95% CI", "is input-bound (data stall"]),
        (40.0, ["Use FP16 at batch 100: 2.00x", "with the loader"]),
    ],
)
def test_the_answer_names_the_precision_its_gain_and_the_loader(
    loader_ms: float, texts: list[str]
) -> None:
    whole = " ".join(summarise(amdahl(loader_ms)).sentences)
    for text in texts:
        assert text in whole


def answer(steps: dict[str, Sequence[float]], fed: float | None = None) -> list[str]:
    """The sentences of precisions with these windows and, with `fed`, passages of that time."""
    cells = [probed(name) for name in steps]
    times: list[CellWindow | Passage] = []
    for cell in cells:
        times += windows(cell, steps[cell.cell.precision])
        times += passages(cell, around(fed)) if fed else []
    times += passages(None, around(fed * 0.98)) if fed else []
    return list(summarise(measurement(cells, times)).sentences)


def test_the_answer_where_no_precision_helps() -> None:
    assert "Use FP32" in answer({"fp32": around(50.0), "bf16": around(90.0)})[0]
    assert (
        "no other precision is faster (BF16 0.56x"
        in answer({"fp32": around(50.0), "bf16": around(90.0)})[0]
    )
    noise = [50.0, 52.0, 48.0, 49.0, 53.0, 47.0]
    even = {"fp32": noise, "bf16": noise[::-1]}
    assert (
        "not faster than FP32 beyond the noise" in answer(even)[0] or "Use FP32" in answer(even)[0]
    )
    first, *others = answer({"fp32": around(50.0), "bf16": around(20.0)}, fed=80.0)
    assert first.startswith("Fix the loader first: BF16 at batch 100 would have 2.50x")
    assert "num_workers=8 would feed it (predicted, not tried)" in others[0]
    slow = answer({"fp32": around(50.0), "bf16": around(2.0)}, fed=80.0)[1]
    assert "needs about 79 workers (predicted); this machine has 8 cores" in slow
    wide = answer({"fp32": [10.0, 30.0, 90.0], "bf16": [50.0, 15.0, 5.0]})[0]
    assert wide.startswith("Inconclusive: the windows of")
    assert "s more would settle it" in wide
    few = answer({"fp32": [50.0, 50.0]})[0]
    assert "are 2, and an interval needs 3" in few


def test_a_crossing_lies_where_the_need_passes_the_supply() -> None:
    cells = [probed("fp32", size) for size in (100, 200, 400)]
    times: list[CellWindow | Passage] = []
    for cell, step in zip(cells, (100.0, 100.0, 100.0), strict=True):
        size = cell.cell.batch_size  # needs 1,000, 2,000 and 4,000 samples/s
        times += [*windows(cell, around(step)), *passages(None, around(size / 2.8), size)]
    table = summarise(measurement(cells, times))
    (crossing,) = table.crossings
    assert crossing.batch_size == pytest.approx(280, rel=0.01)
    assert crossing.per_s == pytest.approx(2800, rel=0.01)
    assert list(list_crossings(table, "net")) == [
        "crossing: net needs more than the loader delivers: FP32 from batch 280 (3 workers would "
        "feed it, predicted)"
    ]
    assert needed_workers(table.rows[2], table.loader_of(cells[2].cell)) == 3
    assert needed_workers(table.rows[0], table.loader_of(cells[0].cell)) is None
    # twice the batch takes no longer
    assert [row.is_launch_bound for row in table.rows] == [True, True, False]
    (bound,) = list_launch_bound(table.rows)
    assert "FP32 at batch 100, FP32 at batch 200; use a larger batch" in bound


def test_a_fixed_loss_scale_is_not_recommended_where_another_row_was_measured() -> None:
    dynamic = probed("fp16")
    fixed = replace(dynamic, cell=replace(dynamic.cell, loss_scale="128"))
    times = [*windows(dynamic, around(50.0)), *windows(fixed, around(49.0))]
    best = best_row(summarise(measurement([dynamic, fixed], times)).rows)
    assert best is not None
    assert best.cell == dynamic.cell


def test_losses_are_means_since_the_last_mark() -> None:
    losses, shares = [2.0] * 50 + [1.0] * 30, [0.1] * 50 + [0.5] * 30
    marks = loss_marks(ProbeResult(losses=losses, accuracies=shares))
    assert marks == [LossMark(50, 2.0, pytest.approx(0.1)), LossMark(80, 1.0, 0.5)]
    assert loss_marks(ProbeResult(losses=[2.0])) == [LossMark(1, 2.0, None)]


# ---- the saved form of a table ----

SAVED = ROOT / "sample_data" / "sessions" / "precision-cpu.json"


@pytest.fixture
def saved() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SAVED.read_text())["precision"]
    return document


def rounded(value: Any) -> Any:
    """Numbers to ten digits: the last ones differ between processors."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.10g}"))


def test_a_saved_measurement_gives_its_table_again(saved: Any) -> None:
    again = plain(as_document(summarise(measurement_from_dict(saved))))
    for key in ("rows", "loaders", "crossings", "sentences"):
        assert rounded(again[key]) == rounded(saved[key]), key
    assert plain(as_document(measurement_from_dict(saved)))["windows"] == saved["windows"]


def test_keys_of_a_later_version_are_ignored(saved: Any) -> None:
    saved["cells"][0]["colour"] = saved["windows"][-1]["mood"] = "later"
    assert measurement_from_dict(saved).cells[0].cell.model == "resnet18"


def test_what_was_not_measured_survives_as_null() -> None:
    failed = probed("fp32", status="oom", sentence="out of memory.", losses=[], peak=PeakMemory())
    data = replace(amdahl(), largest=[LargestBatch("net", "fp16", 7, False, [1, 2, 7])])
    table = summarise(replace(data, cells=[failed], windows=[], passages=[]))
    document = json.loads(json.dumps(plain(as_results(table)["precision"])))
    assert document["rows"][0]["step_ms"] is None
    assert document["largest"][0]["trials"] == [1, 2, 7]
    assert plain(as_document(summarise(measurement_from_dict(document)))) == document


def test_too_few_windows_have_an_unknown_interval_that_json_calls_null() -> None:
    data = amdahl()
    first = replace(data, windows=[each for each in data.windows if each.round == 0])
    document = json.loads(json.dumps(plain(as_document(summarise(first)))))
    assert document["rows"][1]["speedup"]["high"] is None
    again = summarise(measurement_from_dict(document)).rows[1].speedup
    assert again is not None
    assert again.high == math.inf


def test_a_loss_that_was_not_a_number_can_be_read_again() -> None:
    broken = probed("bf16", losses=[2.0, math.nan])
    document = plain(as_document(summarise(replace(amdahl(), cells=[broken]))))
    losses = measurement_from_dict(document).cells[0].probe.losses
    assert losses[0] == 2.0
    assert math.isnan(losses[1])
