"""The report of a sweep: table, sentences and chart in every format, from the saved session."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from pipeline_profiler.precision.backend_torch import TorchBackend
from pipeline_profiler.precision.summary import as_results, summarise
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.table import Measurement, PrecisionTable, ProbeResult
from pipeline_profiler.precision.trainer import PeakMemory
from pipeline_profiler.profiling.record.session import Session, plain
from pipeline_profiler.report import precision, render
from tests.conftest import ROOT
from tests.pipeline_profiler.precision.fakes import job, quick
from tests.pipeline_profiler.precision.test_rows import (
    amdahl,
    around,
    measurement,
    passages,
    probed,
    windows,
)

pytestmark = pytest.mark.slow

SPACE = "{http://www.w3.org/2000/svg}"
SAVED = ROOT / "sample_data" / "sessions" / "precision-cpu.json"


@pytest.fixture(scope="module")
def session() -> Session:
    return measure_precisions(
        TorchBackend("cpu"), [job()], quick(precisions=("fp32", "bf16", "tf32"))
    )


def test_the_text_has_table_sentences_and_flags(session: Session) -> None:
    text = render.to_text(session)
    assert "Precision\n---------" in text
    assert "tf32 convolution off" in text
    assert "a CPU has no TF32" in text
    assert "over up to 3 rounds on CPU" in text
    assert "| model | batch | precision |" in render.to_markdown(session)
    assert '"verdict": "precision"' in render.to_json(session)
    assert precision.precision_sections(Session()) == []
    unfit = replace(session, environment={"torch": {"architecture_problem": "this torch has none"}})
    assert "Careful: this torch has none" in render.to_text(unfit)


def test_loss_and_accuracy_have_a_column_for_each_mark() -> None:
    losses, shares = [2.0] * 50 + [1.0] * 30, [0.1] * 50 + [0.5] * 30
    curve = probed("fp32", losses=losses, accuracies=shares)
    part = next(
        iter(
            precision.curves(
                summarise(measurement([curve, probed("bf16", losses=losses[:50])], []))
            )
        )
    )
    assert part.head[3:] == ("step 50", "step 80")
    assert part.rows[0][3:] == ("2 10%", "1 50%")
    assert part.rows[1][3:] == ("2", "n/a")


def test_every_line_of_the_table_has_every_column(session: Session) -> None:
    table = precision.read_table(session)
    assert table is not None
    assert [row.status for row in table.rows] == ["ok", "ok", "refused"]
    assert all(len(precision.format_row(row)) == len(precision.HEAD) for row in table.rows)
    refused = precision.format_row(table.rows[2])
    assert refused[3] == "refused"
    assert set(refused[4:]) == {"n/a"}
    full = probed("fp32", status="oom", sentence="out of memory at batch 100: less.", losses=[])
    row = summarise(measurement([full], [])).rows[0]
    assert precision.format_row(row)[3] == "out of memory"


def screen(data: Measurement) -> list[str]:
    saved = Session(results=plain(as_results(summarise(data))))
    return precision.precision_screen(saved).splitlines()


def test_the_screen_answers_first_and_has_a_row_for_each_precision() -> None:
    lines = screen(amdahl())
    assert lines[0].startswith("Use FP16 at batch 100: 2.00x (95% CI 2.00 to 2.00)")
    assert any("1,000 samples an epoch, batch 100, a card" in line for line in lines)
    (half,) = (line for line in lines if line.startswith("FP16 "))
    assert half.split()[3:5] == ["2.00x", "1,615"]
    assert any(line.startswith("loader alone (num_workers=2, batch 100): 1,111") for line in lines)
    assert any("with --batch-sizes 100 --precisions fp32,fp16 --workers" in line for line in lines)


def test_the_screen_holds_twenty_lines_of_a_hundred_columns_whatever_was_measured() -> None:
    data = amdahl()
    failed = [
        probed(name, size, status="oom", sentence=f"out of memory at batch {size}: take less.")
        for size in range(200, 1200, 100)
        for name in ("fp32", "bf16", "fp16")
    ]
    lines = screen(replace(data, cells=[*data.cells, *failed]))
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert screen(replace(data, cells=failed, windows=[]))[0] == "net: no row could be measured."
    assert screen(replace(data, cells=[], windows=[])) == ["No row could be measured."]


def test_the_screen_explains_a_rate_that_no_loop_can_reach() -> None:
    half = probed("bf16")
    times = [*windows(half, around(50.0)), *passages(half, around(30.0))]
    lines = screen(measurement([half], times))
    assert any("error of the measurement" in line for line in lines)


def titles(table: PrecisionTable) -> list[str]:
    """What a pointer on the shapes of the chart shows."""
    (chart,) = ET.fromstring(precision.draw_rates(table)).iter(f"{SPACE}svg")
    return [element.text or "" for element in chart.iter(f"{SPACE}title")]


def test_the_chart_has_lines_hollow_marks_the_band_and_a_cross() -> None:
    data = amdahl()
    larger = [probed("fp32", 400), probed("fp16", 400)]
    times = [*windows(larger[0], around(400.0)), *passages(None, around(360.0), 400)]
    failed = replace(larger[1], probe=ProbeResult("oom", "out of memory."))
    both = measurement([*data.cells, larger[0], failed], [*data.windows, *data.passages, *times])
    found = titles(summarise(both))
    assert any("FP32 at batch 400, preloaded: 1,000" in text for text in found)
    assert any("FP16 at batch 100, with the loader: 1,087" in text for text in found)
    assert "FP16 at batch 400: out of memory" in found
    assert "loader alone, num_workers=2: 1,111 samples/s" in found
    assert any(text.startswith("FP16 is input-bound from batch 100") for text in found)
    assert precision.draw_rates(summarise(measurement([failed], []))) == ""


def test_the_saved_sample_session_renders() -> None:
    saved = Session.load(SAVED)
    assert SAVED.stat().st_size < 200_000
    table = precision.read_table(saved)
    assert table is not None
    assert {row.cell.model for row in table.rows} == {"resnet18"}
    assert {row.cell.precision for row in table.rows} == {"fp32", "bf16"}
    assert all(row.status == "ok" for row in table.rows)
    assert "Throughput by batch size" in render.to_html(saved)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "n/a"), (812_300_000, "812 MB"), (13_000_000_000, "13.0 GB")]
)
def test_memory_is_written_with_its_unit(value: int | None, text: str) -> None:
    assert precision.format_bytes(value) == text
    of_gpu = probed("fp32", peak=PeakMemory(1_000_000, "", 2_000_000_000, 3_500_000_000))
    row = summarise(measurement([of_gpu], [])).rows[0]
    assert precision.format_memory(row) == "0.00 / 2.00 / 3.50 GB"


def test_the_session_of_a_gpu_has_no_figures_with_the_loader() -> None:
    saved = Session.load(ROOT / "pipeline_profiler" / "on_a_gpu.json")
    text = render.to_text(saved)
    assert "28,518" not in text
    table = precision.read_table(saved)
    assert table is not None
    assert all(row.with_loader_per_s is None for row in table.rows)
    (row,) = (
        row
        for row in table.rows
        if (row.cell.model, row.cell.batch_size, row.cell.precision) == ("resnet18", 128, "tf32")
    )
    assert row.speedup is not None
    assert row.speedup.value == pytest.approx(2.23, abs=0.01)
    assert row.speedup.n == 2  # too few for an interval
