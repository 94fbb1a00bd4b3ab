"""Reports from an exact session: every format, one screen, units, no 0 without a measurement."""

import copy
import json
import re
from typing import Any

import pytest

from dataset_preflight.foundation import charts
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.record.arm import EXPOSED, Arm
from pipeline_profiler.profiling.record.session import MAIN, Run, Session
from pipeline_profiler.report import render
from pipeline_profiler.report.render import to_screen
from pipeline_profiler.report.section import Section, share_text
from pipeline_profiler.report.sections import report_sections, split_causes, step_parts
from tests.pipeline_profiler.fakes import made_session, schedule


@pytest.fixture(scope="module")
def session() -> Session:
    rows = schedule(80, 2, 2, 20.0, lambda j: 60.0, stages={"decode": 0.8, "getitem": 0.2})
    made: Session = made_session(rows, 20.0, workers=2, prefetch=2)
    made.results = diagnose_session(made).as_results()
    made.notes.append("a <b> & c | d")
    return made


def test_text_says_verdict_cause_and_next(session: Session) -> None:
    text = render.to_text(session)
    assert "input-bound high: data stall 33.3% of the step" in text
    assert "slow-decode" in text
    assert re.search(r"^host batches +not measured +-$", text, re.MULTILINE)
    assert "GPU starvation" not in text
    assert "A perfect loader would make it 1.50 times as fast (95% CI 1.45 to 1.56)" in text
    assert "partial" in render.to_text(Session(partial=True))
    document = json.loads(render.to_json(session))
    assert (document["schema"], document["arms"]["H"]) == ("profile/1", None)
    assert document["causes"][0]["code"] == "PIPE002"


def test_markdown_tables_have_one_width(session: Session) -> None:
    table: list[str] = []
    for line in [*render.to_markdown(session).splitlines(), ""]:
        if line.startswith("|"):
            table.append(line.replace("\\|", ""))
        elif table:
            assert len({row.count("|") for row in table}) == 1
            table = []


def test_html_is_escaped_and_self_contained(session: Session) -> None:
    html = render.to_html(session)
    assert "a &lt;b&gt; &amp; c" in html
    assert html.count("<svg") == html.count("</svg>") >= 3
    assert "<script" not in html
    assert "<link" not in html
    assert "default-src &#39;none&#39;" in html
    page = render._page([Section("Causes", (), ("next",), (("run `a <b>`",),))])
    assert "<td>run <code>a &lt;b&gt;</code></td>" in page  # a command in a cell


def test_charts_carry_their_numbers_as_text() -> None:
    svg = charts.bars("Step period", [("D", 20.0), ("W", 30.0)], "ms")
    assert "D: 20 ms" in svg
    assert "W: 30 ms" in svg
    assert svg.count("<rect") == 2
    assert charts.curve("nothing", [], "step", "ms") == ""


FAILED = {"rule": "slow_sampler", "error": "KeyError", "text": "'x'", "at": "rules/rare.py:12"}


def test_a_failed_rule_stands_in_the_first_lines_of_every_report(session: Session) -> None:
    broken = Session(runs=session.runs, results=session.results | {"failed_rules": [FAILED]})
    sentence = "The rule slow_sampler failed (KeyError: 'x'; rules/rare.py:12)"
    for text in (render.to_text(broken), render.to_markdown(broken)):
        below = text.partition("Verdict")[2].splitlines()
        assert any(sentence in line for line in below[:6])
    html = render.to_html(broken)
    assert html.index("The rule slow_sampler failed") < html.index("<h2>Causes")
    assert json.loads(render.to_json(broken))["failed_rules"] == [FAILED]
    assert "failed" not in render.to_text(session)


def test_words_that_not_everybody_knows_are_explained_where_they_are_used(session: Session) -> None:
    words = render.to_text(session).partition("\nWords\n")[2]
    assert "configuration: a measured setting of loader and step" in words
    assert "HOL:" not in words


# ---- one screen: verdict, causes in order, what is not known ----


def cause(code: str, share: float, low: float | None, high: float | None) -> dict[str, Any]:
    return {"code": code, "name": code.lower(), "share": share, "low": low, "high": high,
            "cause": f"what {code} is", "next": f"mend {code}"}  # fmt: skip


def having(session: Session, **results: Any) -> Session:
    other = copy.copy(session)
    other.results = {**session.results, **results}
    return other


def test_it_ends_with_verdict_cause_and_what_to_do(session: Session) -> None:
    text = to_screen(session)
    assert text.startswith("input-bound high: data stall 33.3% of the step")
    assert "A perfect loader would make it 1.50 times as fast" in text
    assert "slow-decode" in text
    assert "    -> " in text
    assert len(text.splitlines()) <= render.SCREEN_LINES
    assert max(map(len, text.splitlines())) <= 96
    for word in ("AU", "HOL", "arm", "shadow", "serialise"):
        assert word not in text.split()


def test_the_throughput_follows_the_verdict_on_every_screen(session: Session) -> None:
    sentence = session.results["throughput"]["sentence"]
    assert sentence.startswith("Throughput (batches/s, 95% CI): with the step 33")
    screen = " ".join(to_screen(session).split())
    verdict = " ".join(session.results[key] for key in ("sentence", "epoch_sentence"))
    assert screen.startswith(f"{verdict} {sentence} Loading a batch takes ")
    for text in (render.to_text(session), render.to_markdown(session)):
        below = text.partition(session.results["sentence"])[2].splitlines()
        assert below[2].rstrip() == sentence
    assert f"<p>{sentence}</p>" in render.to_html(session)
    assert json.loads(render.to_json(session))["throughput"]["sentence"] == sentence
    assert "Throughput" not in to_screen(having(session, throughput=None))


def test_the_screen_has_the_place_of_a_cause_without_its_source(session: Session) -> None:
    at = "loader.py:61 resize: cv2.resize(image, (224, 224), interpol..."
    seen = cause("A", 0.3, 0.2, 0.4)
    seen |= {"cause": f"loading takes 9 ms ({at} < load)", "evidence": {"at": f"{at} < load"}}
    long = cause("B", 0.2, 0.1, 0.3) | {"cause": "; ".join(["one more clause of it"] * 20)}
    text = to_screen(having(session, causes=[seen, long, cause("C", 0.1, 0.05, 0.2)] * 9))
    assert (
        "1. A a, 30.0% (95% CI 20.0 to 40.0) of the step: loading takes 9 ms (loader.py:61 resize)"
        in text
    )
    assert "cv2" not in text
    assert len(text.splitlines()) <= render.SCREEN_LINES
    assert "2. B b" in text
    assert "-> mend B" in text


def test_causes_keep_the_order_of_the_diagnosis() -> None:
    wide, sure = cause("A", 0.3, 0.05, 0.55), cause("B", 0.2, 0.15, 0.25)
    zero, wild = cause("C", 0.1, -0.02, 0.2), cause("D", 0.2, -3.0, 3.0)
    shown, unsure = split_causes([wide, zero, sure, wild])
    assert ([c["code"] for c in shown], [c["code"] for c in unsure]) == (["A", "B"], ["C", "D"])


def test_what_no_cause_explains_is_told(session: Session) -> None:
    stall = {"share": 0.33, "low": 0.31, "high": 0.36}
    some = having(session, stall=stall, causes=[cause("A", 0.1, 0.08, 0.12)])
    assert "not explained: at least 21.0% of the step" in to_screen(some)
    every = having(session, stall=stall, causes=[cause("A", 0.3, 0.28, 0.32)])
    assert "not explained" not in to_screen(every)
    assert "not explained" in to_screen(having(session, causes=[]))
    healthy = having(session, causes=[], verdict="not input-bound")
    assert "not explained" not in to_screen(healthy)  # it is what every loader costs
    text = to_screen(having(session, causes=[cause("A", 0.1, -0.02, 0.2)]))
    assert "not shown to cost time: a" in text
    assert "mend A" not in text


def test_an_interval_that_says_nothing_is_cannot_tell(session: Session) -> None:
    wild = {"share": -4.684, "low": -1075.7, "high": 0.97}
    assert share_text(wild) == "inconclusive: the repeats differ too much"
    assert share_text({"share": 0.5, "low": None, "high": None}) == "50.0% (interval unknown)"
    assert share_text({"share": None}) == "n/a"
    text = to_screen(having(session, stall=wild, causes=[]))
    assert text.startswith("inconclusive: the repeats differ too much")
    assert "--seconds 240" in " ".join(text.split())
    assert "1075" not in text
    assert "perfect loader" not in text


# ---- what the diagnosis adds to the results ----

AT = "zip_reopen.py:18"
ROW = {"stage": "read", "ms": 30.0, "share": 0.88, "how": "CPU", "at": AT,
       "code": "`zipfile.ZipFile(path)`", "advice": "open the archive once a worker"}  # fmt: skip
OTHER = {"stage": "late hand-over", "ms": None, "share": None, "how": "", "at": "", "code": "",
         "advice": "end other programs"}  # fmt: skip
ADDED: dict[str, Any] = {
    "sentence": "input-bound high: data stall 65.0% of the step (95% CI 50.0 to 76.0).",
    "stall": {"share": 0.65, "low": 0.5, "high": 0.76},
    "epoch_sentence": "Starts of epochs take 3.0% of the step.",
    "contention": {"share": 0.05, "low": 0.02, "high": 0.08, "n": 3},
    "contention_sentence": "Of that, other programs cost about 5 points (2 to 8).",
    "conditions": [
        {"name": "empty loader", "text": "An empty loader costs 0.46 ms of a step."},
        {"name": "to decide", "text": "the same command with `--seconds 49`"},
    ],
    "loading": {"ms": 34.1, "rows": [ROW, OTHER],
                "sentence": f"Loading a batch takes 34 ms: 88% at {AT} `zipfile.ZipFile(path)`."},
    "together": {"share": 0.1, "low": 0.05, "high": 0.15, "before": 0.65, "after": 0.1,
                 "sentence": "Both changes together: 65% -> 10% of the step (replay)."},
}  # fmt: skip


@pytest.fixture
def added(session: Session) -> Session:
    causes = [cause("A", 0.3, 0.2, 0.4), cause("B", 0.6, 0.4, 0.8), cause("C", 0.1, 0.0, 0.2)]
    return having(session, **ADDED, causes=causes)


def test_the_screen_has_its_sentences_in_order_and_no_condition(added: Session) -> None:
    screen = " ".join(to_screen(added).split())
    sentences = [ADDED["sentence"], ADDED["epoch_sentence"], ADDED["contention_sentence"],
                 "Throughput", ADDED["loading"]["sentence"], "1. A a, 30.0%", "-> mend A",
                 "2. B b, 60.0%", "-> mend B", ADDED["together"]["sentence"]]  # fmt: skip
    places = [screen.find(sentence) for sentence in sentences]
    assert -1 not in places
    assert places == sorted(places)
    assert len(to_screen(added).splitlines()) <= render.SCREEN_LINES
    for condition in ADDED["conditions"]:
        assert condition["text"] not in screen or condition["name"] == "to decide"
    assert "To decide: the same command with `--seconds 49`." in screen


@pytest.mark.parametrize("verdict", ["not input-bound", "inconclusive", "input-bound high"])
def test_the_line_of_the_loading_is_on_every_screen(added: Session, verdict: str) -> None:
    added.results |= {"verdict": verdict, "failed_rules": [FAILED] * 9}
    added.results["causes"] = [cause("PIPE025", 0.3, -0.1, 0.5)]
    assert ADDED["loading"]["sentence"] in " ".join(to_screen(added).split())


def test_the_parts_of_a_step_add_up_to_its_period(added: Session) -> None:
    parts = step_parts(added)
    period = added.results["arms"]["W"]["period_ms"]
    assert sum(parts.values()) == pytest.approx(period)
    assert {name: round(ms / period, 3) for name, ms in parts.items()} == {
        "compute": 0.35, "contention by other programs": 0.05, "wait: a": 0.3, "wait: b": 0.2,
        "wait, unexplained": 0.1,
    }  # fmt: skip
    # what the copy takes is no wait, and an empty loader's cost is no compute
    arms = {"D": {"period_ms": 4.0, "repeats": 3}, "H": {"period_ms": 5.0, "repeats": 3},
            "W": {"period_ms": 10.0, "repeats": 3}}  # fmt: skip
    bare = {"stall": {"share": 0.5}, "causes": [], "contention": None, "together": None}
    gpu = having(added, arms=arms, stall_with_null={"share": 0.6}, **bare)
    assert step_parts(gpu) == pytest.approx(
        {"compute": 4.0, "hand-over of an empty loader": 1.0, "copy to the device": 1.0,
         "wait, unexplained": 4.0}
    )  # fmt: skip
    assert step_parts(Session()) == {}
    html = render.to_html(added)
    assert html.index("<h2>Verdict") < html.index("One step of") < html.index("<h2>Causes")
    assert re.search(r"^wait, unexplained +\d", render.to_text(added), re.MULTILINE)


def test_loading_a_batch_and_the_conditions_are_tables(added: Session) -> None:
    text = render.to_text(added)
    assert re.search(rf"^read +30.0 ms  88%    CPU    {AT} `zip", text, re.MULTILINE)
    assert re.search(r"^late hand-over  n/a +n/a", text, re.MULTILINE)
    assert ROW["advice"] in text
    markdown = render.to_markdown(added)
    assert f"| read | 30.0 ms | 88% | CPU | {AT} `zipfile.ZipFile(path)` | open the" in markdown
    head, _, first, *_ = markdown.partition("## Conditions")[2].split("\n| ")[1:]
    assert head.startswith("condition | value |") or first.startswith("empty loader |")
    assert "Loading time a batch by stage" in render.to_html(added)
    assert "Loading a batch" not in render.to_text(having(added, loading=None))


def test_the_title_names_file_step_command_date_and_machine(session: Session) -> None:
    named = copy.copy(session)
    assert render.to_text(named).startswith("Pipeline profile\n---")
    command = {"loader": "train.py:make_loader", "step": "train.py:make_step", "options": "--quick"}
    named.environment = {"command": command, "cpu_model": "Xeon <8>", "cores": 2,
                         "torch": {"device": "H200"}}  # fmt: skip
    named.created = "2026-11-21T17:10:41Z"
    text = render.to_text(named)
    words = "pipeline-profiler run train.py:make_loader --step train.py:make_step --quick"
    assert text.splitlines()[0] == "Pipeline profile of train.py:make_loader"
    assert text.splitlines()[2:6] == [
        "step: train.py:make_step", f"command: `{words}`", "recorded: 2026-11-21 17:10:41 UTC",
        "machine: Xeon <8>, 2 cores, H200",
    ]  # fmt: skip
    assert render.to_markdown(named).startswith("# Pipeline profile of train.py:make_loader\n")
    html = render.to_html(named)
    assert "<h1>Pipeline profile of train.py:make_loader</h1>" in html
    assert "<title>Pipeline profile of train.py:make_loader</title>" in html
    assert f"<code>{words}</code>" in html


def test_a_file_is_named_once_in_a_sentence(added: Session) -> None:
    at = f"{AT} read: zipfile.ZipFile(path) < zip_reopen.py:25 get < zip_reopen.py:18 read"
    seen = cause("A", 0.3, 0.2, 0.4) | {"cause": f"reading takes 9 ms ({at})"}
    seen |= {"next": f"mend {AT}, and {AT}", "evidence": {"at": at}}
    text = render.to_text(having(added, causes=[seen])).partition("\nCauses\n")[2]
    flat = " ".join(text.partition("\nLoading")[0].split())
    assert f"({AT} read: zipfile.ZipFile(path) < line 25 get < line 18 read)" in flat
    assert f"next: mend {AT}, and line 18" in flat
    assert f"-> mend {AT}, and line 18" in to_screen(having(added, causes=[seen]))


def test_no_interval_ends_above_the_whole(added: Session) -> None:
    wide = having(added, causes=[cause("A", 0.9, 0.7, 1.002)])
    for text in (render.to_text(wide), render.to_html(wide), to_screen(wide)):
        assert "100.2" not in text
    assert (
        share_text({"share": 0.123, "low": 0.101, "high": 1.05}) == "12.3% (95% CI 10.1 to 100.0)"
    )


@pytest.mark.parametrize(
    ("stall", "sentence"),
    [
        ((0.7, 0.5, 0.8), "3.33 times as fast (95% CI 2.00 to 5.00)"),
        ((0.7, 0.5238, 1.0), "3.33 times as fast (95% CI: at least 2.10 times)"),
        ((0.7, None, 0.8), "3.33 times as fast (95% CI: at most 5.00 times)"),
        ((1.0, None, None), "many times as fast (interval unknown)"),
    ],
)
def test_a_bound_of_the_gain_is_written_out(
    session: Session, stall: tuple[float | None, ...], sentence: str
) -> None:
    found = dict(zip(("share", "low", "high"), stall, strict=True))
    text = render.to_text(having(session, stall=found))
    assert f"A perfect loader would make it {sentence}." in text


def test_every_number_of_waiting_is_defined_in_one_table(session: Session) -> None:
    def numbers(shown: Session) -> list[str]:
        found = {section.title: section for section in report_sections(shown)}
        return [row[0] for row in found["Waiting"].rows]

    common = ["data stall", "input wait", "accelerator utilisation (AU)", "data readiness",
              "time to first batch", "worker start"]  # fmt: skip
    assert numbers(session) == common
    rows = schedule(40, 2, 2, 20.0, lambda j: 60.0)
    gpu: Session = made_session(rows, 20.0, repeats=1, workers=2, prefetch=2)
    for run in gpu.runs:
        for batch in range(len(rows)):
            run.spans.add(f"step:{EXPOSED}", batch, MAIN, 0, 5_000_000)
    gpu.results = {"sentence": "s", "verdict": "inconclusive"}
    assert numbers(gpu) == [*common[:2], "GPU starvation", "GPU utilisation", *common[2:]]
    assert re.search(r"GPU starvation \d\.\d% \(95% CI .+\) of the time\.", to_screen(gpu))
    assert "GPU" not in to_screen(session)


def test_the_load_before_the_run_is_no_warning(session: Session) -> None:
    busy = copy.copy(session)
    busy.environment = {"load": 9.0, "cores": 2}
    assert "was busy" not in to_screen(busy) + render.to_text(busy)
    assert re.search(r"^load +9.00$", render.to_text(busy), re.MULTILINE)


@pytest.mark.filterwarnings("error")
def test_no_warning_of_numpy_comes_from_a_report(session: Session) -> None:
    kept = {"steps": [1, 2], "values": [[None, None], [None, None]]}
    empty = copy.copy(session)
    empty.runs = [*session.runs, Run(arm=Arm.NULL), Run(arm=Arm.WARM, block=9)]
    empty.results = session.results | {"predictions": kept}
    assert "from nan (light) to nan (dark)" in render.to_text(empty)
    render.to_html(empty)
    to_screen(empty)


def test_the_legend_of_a_bar_stays_inside_the_chart() -> None:
    parts = {f"a part with a long name {i}": 1.0 for i in range(6)}
    svg = str(charts.stacked_bars("Step", [("", parts)], "ms"))
    height = float(re.findall(r'viewBox="0 0 \d+ (\d+)"', svg)[0])
    places = [tuple(map(float, place)) for place in re.findall(r'<text x="(.+?)" y="(.+?)"', svg)]
    assert len(set(places)) == len(places) > len(parts)
    assert max(x for x, _ in places) < charts.WIDTH
    assert max(y for _, y in places) < height


def test_sessions_of_removed_modes_load_and_print() -> None:
    document = Session().to_json()
    point = {"setting": "workers=1", "measured_ms": 2.0, "predicted_ms": 2.1, "error": 0.05,
             "extrapolated": None, "limit": "workers", "batch_scale": 1.0}  # fmt: skip
    old = {"verdict": "sweep", "sentence": "best; median prediction error 5.0%", "sweep": [point]}
    calibration = Run(arm=Arm.SETTING).to_json() | {"arm": "K"}
    text = render.to_text(Session.from_json(document | old | {"runs": [calibration]}))
    assert "best; median prediction error 5.0%" in text
    assert re.search(r"^workers=1 +2\.00 ms", text, re.MULTILINE)
    ceiling = {"verdict": "ceiling", "sentence": "ceiling: 50.0 steps/s for the step alone"}
    assert ceiling["sentence"] in render.to_text(Session.from_json(document | ceiling))
