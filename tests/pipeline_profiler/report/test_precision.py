"""The report of a sweep: table, sentences and chart in every format, from the saved session."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from pipeline_profiler.precision.backend_torch import TorchBackend
from pipeline_profiler.precision.summary import impossible_rate, summarise
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.table import (
    PrecisionTable,
    measurement_from_dict,
    table_as_dict,
)
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report import precision, render
from tests.conftest import ROOT
from tests.pipeline_profiler.precision.fakes import job, quick
from tests.pipeline_profiler.precision.test_rows import amdahl, measurement, probed

pytestmark = pytest.mark.slow

SPACE = "{http://www.w3.org/2000/svg}"
SAVED = ROOT / "sample_data" / "sessions" / "precision-cpu.json"


@pytest.fixture(scope="module")
def session() -> Session:
    return measure_precisions(
        TorchBackend("cpu"), [job()], quick(precisions=("fp32", "bf16", "tf32"))
    )


def bar_widths(chart: ET.Element) -> list[float]:
    """Widths of the bars of rates, px: those whose words end in a rate's unit."""
    return [
        float(r.attrib["width"])
        for r in chart.iter(f"{SPACE}rect")
        if (r.findtext(f"{SPACE}title") or "").endswith("samples/s")
    ]


def read_table(session: Session) -> PrecisionTable:
    return summarise(measurement_from_dict(session.results["precision"]))


def test_the_text_has_table_sentences_and_flags(session: Session) -> None:
    text = render.to_text(session)
    assert "Precision\n---------" in text
    assert "would have to deliver" in text
    assert "tf32 convolution off" in text
    assert "a CPU has no TF32" in text
    assert "4 interleaved" not in text
    assert "3 interleaved repeats on CPU" in text
    assert "| model | batch | precision |" in render.to_markdown(session)
    assert '"verdict": "precision"' in render.to_json(session)
    assert precision.precision_sections(Session()) == []
    unfit = replace(session, environment={"torch": {"architecture_problem": "this torch has none"}})
    assert "Careful: this torch has none" in render.to_text(unfit)


def test_tables_and_chart_stand_before_the_sentences(session: Session) -> None:
    for text in (render.to_text(session), render.to_html(session)):
        places = [text.index(part) for part in ("with loader", "Loss / accuracy", "What the table")]
        assert places == sorted(places)
        assert text.index("would have to deliver", places[0]) > places[2]
    assert render.to_html(session).index("Samples/s by row") < text.index("What the table")


def test_loss_and_accuracy_are_means_of_the_steps_since_the_last_mark() -> None:
    losses, shares = [2.0] * 50 + [1.0] * 30, [0.1] * 50 + [0.5] * 30
    curve = probed("fp32", losses=losses, accuracies=shares)
    plain = probed("bf16", losses=losses[:50])
    table = summarise(measurement([curve, plain], [], 900.0))
    part = next(p for p in precision.curves(table))
    assert part.head[3:] == ("step 50", "step 80")
    assert part.rows[0][3:] == ("2 / 10.00%", "1 / 50.00%")
    assert part.rows[1][3:] == ("2 / -", "n/a")


def test_every_line_of_the_table_has_every_column(session: Session) -> None:
    rows = read_table(session).rows
    assert [row.status for row in rows] == ["ok", "ok", "refused"]
    assert all(len(precision.format_row(row)) == len(precision.HEAD) for row in rows)
    refused = precision.format_row(rows[2])
    assert refused[3] == "refused"
    assert set(refused[4:]) == {"n/a"}
    full = probed("fp32", status="oom", sentence="out of memory at batch 100: less.", losses=[])
    row = summarise(measurement([full], [], 900.0)).rows[0]
    assert precision.format_row(row)[3] == "out of memory"


def test_the_page_holds_one_chart_with_two_bars_a_row(session: Session) -> None:
    page = render.to_html(session)
    assert page.count("Samples/s by row") == 3  # caption, label and title
    widths = bar_widths(ET.fromstring(precision.draw_rates(read_table(session))))
    assert len(widths) == 4
    assert min(widths) > 0


def test_the_longer_bar_is_the_faster_arm_and_the_limit_is_drawn() -> None:
    chart = ET.fromstring(precision.draw_rates(summarise(amdahl())))
    widths = bar_widths(chart)
    assert widths[0] / widths[2] == pytest.approx(0.5, rel=1e-2)
    assert widths[2] / widths[3] == pytest.approx(96 / 50, rel=1e-2)
    titles = [line.findtext(f"{SPACE}title") for line in chart.iter(f"{SPACE}line")]
    assert "loader alone: 900 samples/s" in titles


def test_the_saved_sample_session_renders() -> None:
    saved = Session.load(SAVED)
    assert SAVED.stat().st_size < 200_000
    rows = read_table(saved).rows
    assert {row.cell.model for row in rows} == {"resnet18", "dpn26"}
    assert {"fp32", "bf16", "fp16"} <= {row.cell.precision for row in rows}
    assert all(row.status == "ok" for row in rows)
    assert "would have to deliver" in render.to_html(saved)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "n/a"), (812_300_000, "812 MB"), (13_000_000_000, "13.0 GB")]
)
def test_memory_is_written_with_its_unit(value: int | None, text: str) -> None:
    assert precision.format_bytes(value) == text
    of_gpu = probed("fp32", reserved_bytes=2_000_000_000, occupied_bytes=3_500_000_000)
    row = summarise(measurement([of_gpu], [], 900.0)).rows[0]
    assert precision.format_memory(row) == "0.00 / 2.00 / 3.50 GB"


@pytest.mark.parametrize(
    ("fed", "limits", "names"),
    [
        (
            {0: 10.0, 1: 10.1, 2: 9.9},
            {"step": {0: 14.0, 1: 14.2, 2: 13.9}},
            "1.40 times the rate of step",
        ),
        ({0: 10.0, 1: 10.1}, {"step": {0: 10.0, 1: 10.0}, "loader": {0: 4.0, 1: 4.1}}, ""),
        ({0: 10.0, 1: 10.1}, {"loader": {0: 10.2, 1: 10.3}}, ""),  # within what chance does
        ({0: 10.0, 1: 20.0}, {"loader": {0: 20.0, 1: 22.0}}, ""),  # the interval reaches 1
        ({0: 10.0}, {"loader": {0: 20.0}}, ""),  # one repeat has no interval
    ],
)
def test_no_loop_is_faster_than_its_step_or_its_loader(
    fed: dict[int, float], limits: dict[str, dict[int, float]], names: str
) -> None:
    assert impossible_rate(fed, limits) == names


def test_a_rate_that_no_loop_can_reach_is_an_error_and_gives_no_speed_up() -> None:
    saved = Session.load(ROOT / "pipeline_profiler" / "on_a_gpu.json")
    for said in (render.to_text(saved), render.to_html(saved)):
        assert "resnet18, batch 512, FP16: error of the measurement" in said
        assert said.count("error of the measurement") == 1
        assert "3.96x" not in said
        assert "28,518" not in said
    table = read_table(saved)
    (wrong,) = (row for row in table.rows if row.error)
    assert (wrong.loader_per_s, wrong.stall) == (None, None)
    assert wrong.cell not in [speedup.cell for speedup in table.speedups]
    row = next(r for r in table_as_dict(table)["rows"] if r["error"])
    assert row["error"].endswith("the loader alone")
