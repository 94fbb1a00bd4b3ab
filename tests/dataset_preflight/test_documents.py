"""The page as screen, HTML, JSON, SARIF and JUnit, and its exit codes."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from dataset_preflight.page.documents import FORMATS, Preflight, to_html, to_json, to_screen
from dataset_preflight.page.rows import Row, State

LONG = "A sentence that names a file, its line and a number of images is long " * 4


def page(*states: State, failed: str = "") -> Preflight:
    rows = tuple(
        Row(
            f"Row {n}", state, (LONG, "<b>bold</b>\x1b[31m", "Third."), ("audit app x",), {}, failed
        )
        for n, state in enumerate(states)
    )
    return Preflight(rows, "data", "runs/data", "dataset-preflight data", 161.4, "2026-01-01")


@pytest.mark.parametrize(
    ("states", "strict", "failed", "code"),
    [
        ([State.GO], False, "", 0),
        ([State.GO, State.INCONCLUSIVE, State.SKIPPED], False, "", 0),
        ([State.GO, State.INCONCLUSIVE], True, "", 1),
        ([State.GO, State.SKIPPED], True, "", 1),
        ([State.FIX, State.GO], False, "", 1),
        ([State.FIX, State.SKIPPED], False, "it crashed", 3),
    ],
)
def test_exit_codes(states: list[State], strict: bool, failed: str, code: int) -> None:
    assert page(*states, failed=failed).exit_code(strict) == code


@pytest.mark.parametrize("fixed", range(6))
def test_the_screen_has_the_answer_first_and_20_lines_of_100_columns(fixed: int) -> None:
    text = to_screen(page(*[State.FIX] * fixed, *[State.SKIPPED] * (5 - fixed)))
    lines = text.split("\n")
    assert f"{5 - fixed} skipped" in lines[0] or f"fix first: {fixed} of 5 rows" in lines[0]
    assert "2 min 41 s" in lines[0]
    assert len(lines) <= 20
    assert text.count("-> audit app x") == fixed
    assert max(map(len, lines[:-1])) <= 100
    assert "\x1b" not in text


def test_the_html_escapes_texts_and_has_no_script() -> None:
    text = to_html(page(State.FIX, State.GO))
    assert "&lt;b&gt;bold&lt;/b&gt;\\x1b[31m" in text
    assert "<script" not in text


def test_the_document_is_strict_json() -> None:
    made = page(State.FIX, State.GO)
    document = json.loads(to_json(made), parse_constant=pytest.fail)
    assert (document["schema"], document["answer"]) == (
        "dataset-preflight/1", "fix first: 1 of 2 rows",
    )  # fmt: skip
    assert [row["state"] for row in document["rows"]] == ["fix first", "go"]


def test_ci_documents_name_the_rows() -> None:
    made = page(State.FIX, State.GO, State.SKIPPED)
    results = json.loads(FORMATS[".sarif"](made))["runs"][0]["results"]
    assert [(r["ruleId"], r["level"]) for r in results] == [("Row 0", "error"), ("Row 2", "note")]
    suite = ElementTree.fromstring(FORMATS[".xml"](made))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert [case[0].tag for case in suite] == ["failure", "system-out", "skipped"]
