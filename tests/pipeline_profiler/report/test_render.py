"""Reports from an exact session: every format, one screen, units, no 0 without a measurement."""

import copy
import json
import re
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report import render
from pipeline_profiler.report.render import to_screen
from pipeline_profiler.report.section import Section, share_text
from pipeline_profiler.report.sections import split_causes
from preflight import charts
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
    assert "A perfect loader would make it 1.50 times as fast (95%: 1.45 to 1.56)" in text
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
    assert any(sentence in line for line in render.to_text(broken).splitlines()[:5])
    assert any(sentence in line for line in render.to_markdown(broken).splitlines()[:5])
    html = render.to_html(broken)
    assert html.index("The rule slow_sampler failed") < html.index("<h2>Causes")
    assert json.loads(render.to_json(broken))["failed_rules"] == [FAILED]
    assert "failed" not in render.to_text(session).splitlines()[3]


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
    assert screen.startswith(f"{session.results['sentence']} {sentence} A perfect loader")
    assert render.to_text(session).splitlines()[3] == sentence
    assert render.to_markdown(session).splitlines()[3].rstrip() == sentence
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
        "1. A a, 30.0% (20.0% to 40.0%) of the step: loading takes 9 ms (loader.py:61 resize)"
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
