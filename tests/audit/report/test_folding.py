"""Folds: many findings of one kind are one line, the same in every report and in the app's list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from audit.browse import findings as browse
from audit.browse.findings import FindingFilter
from audit.cli.main import app
from audit.decisions import decisions
from audit.records import Action, Finding, Severity
from audit.report import Report, ReportedFinding, collect_report, to_json, to_text
from audit.report.documents import TOLD_WHOLE
from audit.report.html_page import to_html
from audit.report.markdown import to_markdown
from audit.report.thumbnails import make_thumbnails
from audit.run import generations
from tests.audit.report.test_report import Page, built_run, finding, sample

FILES = 5000  # of train; test has 400
FOLDED = 60


def of_file(number: int, code: str, severity: Severity = Severity.WARNING) -> Finding:
    return finding(number, code=code, severity=severity, subject=f"{number}")


def made_run(folder: Path) -> Path:
    """ZED001: 60 of train, 4 errors, 21 of test; ZED002: 20; ZED003: 50 of train, its hundredth."""
    samples = [sample(i, split="train" if i < FILES else "test") for i in range(FILES + 400)]
    found = [of_file(i, "ZED001") for i in range(FOLDED)]
    found += [of_file(i, "ZED001", Severity.ERROR) for i in range(100, 104)]
    found += [of_file(FILES + i, "ZED001") for i in range(21)]
    found += [of_file(FILES + i, "ZED002") for i in range(20)]
    found += [of_file(i, "ZED003") for i in range(50)]
    # 30 findings in 15 files: many findings, few files
    found += [finding(i // 2, code="ZED004", subject=f"{i}") for i in range(30)]
    return built_run(folder, samples, found)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("folds"))


@pytest.fixture(scope="module")
def report(run: Path) -> Report:
    return collect_report(run, worst=2)


def test_what_is_folded_and_what_is_not(report: Report) -> None:
    folds = {check.code: check.folds for check in report.checks}
    assert [(f.name, f.n_findings, f.n_files, f.n_of) for f in folds.pop("ZED001")] == [
        ("ZED001 warning train", 60, 60, 5000),
        ("ZED001 warning test", 21, 21, 400),
    ]
    assert folds == {"ZED002": (), "ZED003": (), "ZED004": ()}
    (check,) = [c for c in report.checks if c.code == "ZED001"]
    assert [e.finding.severity for e in check.worst] == [Severity.ERROR] * 2
    assert (check.counts.total, check.n_single) == (85, 4)
    assert [len(f.examples) for f in check.folds] == [2, 2]


def test_every_form_has_one_line_of_a_fold_and_the_way_to_its_members(report: Report) -> None:
    line = "60 findings in 60 of the 5,000 files of train (1.2%)"
    command = f"audit report {report.run} --list ZED001"
    page = to_html(report, make_thumbnails(report))
    for text in (to_text(report, width=300), to_markdown(report), Page(page).text):
        assert text.count(line) == 1
        assert command in text
    folded = page.split('<details class="example fold">')[1].split("</details>\n<details class")[0]
    assert all(f"{number}.jpg" in folded for number in range(FOLDED))
    assert "Message 0." in to_text(report)
    assert "Message 30." not in to_text(report, examples=99)


def test_the_list_of_a_check_has_a_line_a_finding(report: Report) -> None:
    listed = CliRunner().invoke(app, ["report", report.run, "--list", "zed001"])
    assert listed.exit_code == 0
    lines = listed.stdout.splitlines()
    assert len(lines) == 85
    assert any("59.jpg: Message 59." in line for line in lines)


def test_json_names_the_folds_and_keeps_every_finding(report: Report) -> None:
    document = json.loads("".join(to_json(report)))
    assert [fold["fold"] for fold in document["folds"]] == [
        "ZED001 warning train", "ZED001 warning test",
    ]  # fmt: skip
    folded = [f for f in document["findings"] if f.get("fold") == "ZED001 warning train"]
    assert [f["sample_ids"] for f in folded] == [[f"{i}.jpg"] for i in range(FOLDED)]
    assert all(f["message"] for f in document["findings"])
    assert len(document["findings"]) == report.counts.total


def test_a_large_fold_keeps_every_sample_in_a_short_form(report: Report) -> None:
    kind = ("ZED001", "zed", Severity.INFO)
    names = [f"{number}.jpg" for number in range(TOLD_WHOLE + 50)]
    fold = "ZED001 info train"
    found = [ReportedFinding(*kind, (n,), "m", {"x": 1}, "keep", n, 1, fold=fold) for n in names]
    told = json.loads("".join(to_json(report, found)))["findings"]
    assert [f["sample_ids"] for f in told] == [[name] for name in names]
    assert [bool(f["message"] and f["evidence"]) for f in told] == [True] * TOLD_WHOLE + [
        False
    ] * 50
    assert all(set(f) == set(told[0]) for f in told)


def test_a_waived_member_is_counted_no_more_and_the_last_one_stands_alone(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    prints = [of_file(FILES + i, "ZED001").fingerprint for i in range(20)]
    decisions.decide_findings(run, prints[:2], Action.FALSE_POSITIVE, by="tester")
    check = next(c for c in collect_report(run).checks if c.code == "ZED001")
    assert [(f.n_findings, f.n_files) for f in check.folds] == [(60, 60), (19, 19)]
    decisions.decide_findings(run, prints[2:], Action.FALSE_POSITIVE, by="tester")
    check = next(c for c in collect_report(run).checks if c.code == "ZED001")
    assert [f.n_findings for f in check.folds] == [60]
    assert "Message 5020." in [e.finding.message for e in check.worst]


def test_the_list_of_the_app_shows_the_folds_of_the_report(run: Path, report: Report) -> None:
    folds = {fold.name: fold.n_findings for check in report.checks for fold in check.folds}
    with generations.open_run(run) as store:
        browse.index(store)
        asked = FindingFilter(folded=True)
        page = browse.page(store, asked, size=500)
        assert {r.fold: r.n_folded for r in page.rows if r.n_folded > 1} == folds
        assert sum(row.n_folded for row in page.rows) == report.counts.total
        assert len(page.rows) == report.counts.total - sum(folds.values()) + len(folds)
        fold = next(row for row in page.rows if row.n_folded == 60)
        # one press of Next goes from the line to the line after it, and back again
        following = page.rows[page.rows.index(fold) + 1]
        assert browse.neighbour(store, asked, fold.place) == following.fingerprint
        assert browse.neighbour(store, asked, following.place, back=True) == fold.fingerprint
        back = browse.page(store, asked, start=following.place, back=True, size=1)
        assert back.rows == (fold,)
        inside = browse.page(store, FindingFilter(fold=fold.fold or ""), size=500)
        assert len(inside.rows) == 60
        assert {row.fold for row in inside.rows} == {fold.fold}
        opened = browse.open_finding(store, inside.rows[30].fingerprint)
        assert opened is not None
        assert (opened.n_folded, opened.finding.fold) == (60, fold.fold)
