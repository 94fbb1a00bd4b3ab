"""One reader of a run: nobody else opens what is published, and no face has a count of its own."""

import ast
import inspect
import json
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from audit.compare.expectations import propose_expectations
from audit.decisions.decisions import decide_findings
from audit.records import Action, Finding, Severity
from audit.report import collect_report, render
from audit.report.screen import to_screen
from audit.results.findings import FindingFilter, FindingTally, count_progress, facet
from audit.results.results import Results, open_results
from audit.run import run_version
from audit.run.store import Store, findings_table
from audit.service.datasets import ServedDataset, _line
from tests.audit.conftest import Command
from tests.audit.ui.pages import Show, text
from tests.conftest import ROOT

OPENERS = {"open_run", "open_version", "open_beside", "open_for_deciding", "apply_decisions"}
READERS = {"run", "results", "decisions"}
ALLOWED = {
    "audit/neighbors/pairs/signature_store.py": "`audit verify` counts images without a signature",
    "audit/exports/annotation_export.py": "annotation tables, with the decided samples",
}


def names_called(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    called = {n.func for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called}


def test_only_results_and_decisions_open_a_published_run() -> None:
    for path in sorted((ROOT / "audit").rglob("*.py")):
        package = path.relative_to(ROOT / "audit").parts[0]
        name = path.relative_to(ROOT).as_posix()
        if package not in READERS and name not in ALLOWED:
            assert not names_called(path) & OPENERS, name
        if package != "results":
            assert "connection" not in names_called(path), f"{name} takes a connection of a run"


def test_results_take_no_sql_no_table_and_no_expression() -> None:
    for name, method in inspect.getmembers(Results, inspect.isfunction):
        if not name.startswith("_") and name != "connection":
            kinds = [p.annotation for p in inspect.signature(method).parameters.values()][1:]
            assert set(kinds) <= {
                "FindingFilter | None", "Sequence[Condition]", "str", "int"
            }, name  # fmt: skip
            names = set(inspect.signature(method).parameters)
            assert not names & {"sql", "query", "table", "column", "expression"}, name


# ---- the same number everywhere ----


def add_findings(run: Path, codes: list[str]) -> None:
    """Add an error of each code to the published findings."""
    findings = [
        Finding(code, Severity.ERROR, ("train/cat/3.jpg",), f"{code}.", {}, Action.REVIEW, code)
        for code in codes
    ]
    heads, members = findings_table(findings, dict.fromkeys(codes, "custom"))
    with Store.create(run_version.require(run).findings) as store:
        store.append("findings", heads)
        store.append("finding_samples", members)
        store.append(
            "check_runs", [{"code": code, "name": "custom", "seconds": 0.1} for code in codes]
        )
        store.checkpoint()


def severities(text: str) -> tuple[int, int, int]:
    """Read `3 errors, 12 warnings, 7 info`."""
    found = [re.search(rf"([0-9,]+) {word}", text) for word in ("error", "warning", "info")]
    errors, warnings, notes = (int(m[1].replace(",", "")) if m else 0 for m in found)
    return errors, warnings, notes


def of_levels(levels: list[str], names: tuple[str, str, str]) -> tuple[int, int, int]:
    errors, warnings, notes = (levels.count(name) for name in names)
    return errors, warnings, notes


def counts_by_face(run: Path, command: Command, show: Show) -> dict[str, tuple[int, int, int]]:
    report = collect_report(run)
    results = open_results(run)
    texts = {form: "".join(render(report, form)) for form in ("txt", "md", "html", "sarif", "xml")}
    faces = {form: severities(texts[form]) for form in ("txt", "md")}
    faces["html"] = severities(re.sub(r"<[^>]+>", " ", texts["html"].split("</head>")[1]))
    faces["screen"] = severities(to_screen(report))
    summary = json.loads("".join(render(report, "json")))["summary"]
    faces["json"] = (summary["error"], summary["warning"], summary["info"])
    sarif = json.loads(texts["sarif"])["runs"][0]["results"]
    faces["sarif"] = of_levels([one["level"] for one in sarif], ("error", "warning", "note"))
    root = ElementTree.fromstring(texts["xml"])
    faces["junit"] = tuple(
        int(root.find(f".//property[@name='findings.{s.value}']").get("value")) for s in Severity
    )
    history = json.loads(command("report", run, "--section", "history", "--json")[1])
    last = history["moments"][-1]["severities"]
    faces["history"] = tuple(last.get(s.value, 0) for s in Severity)
    proposed = tomllib.loads(propose_expectations(run))["expect"]
    proposed_counts = (int(proposed[name].split()[-1]) for name in ("errors", "warnings"))
    faces["expectations"] = (*proposed_counts, faces["json"][2])
    opened = json.loads(command("diff", run, run, "--json")[1])["open"][1]
    faces["diff"] = tuple(opened[s.value] for s in Severity)
    by_severity = count_progress(results, "severity")
    faces["progress"] = tuple(by_severity.get(s.value, FindingTally()).open for s in Severity)
    overview = {m.label: int(m.value) for m in show("overview", run).metric if m.value.isdigit()}
    faces["overview"] = (overview["Open errors"], overview["Open warnings"], faces["json"][2])
    listed = facet(results, FindingFilter(status="open", distinct=True), "severity")
    faces["app findings"] = tuple(listed.get(s.value, 0) for s in Severity)
    page = text(show("findings", run))
    assert f"{sum(faces['app findings']):,} finding" in page
    line = _line(ServedDataset("pets", run))
    faces["api"] = (line.errors, line.warnings, faces["json"][2])
    return faces


@pytest.mark.slow
def test_every_face_has_the_same_number_before_and_after_a_decision(
    run: Path, command: Command, show: Show
) -> None:
    add_findings(run, ["ACME001", "ACME002", "BOX030"])
    frame = open_results(run).findings()
    waived = frame.filter(frame["code"] == "ACME001")["fingerprint"][0]
    decide_findings(run, [waived], Action.FALSE_POSITIVE, by="tester")
    before = counts_by_face(run, command, show)
    assert len(set(before.values())) == 1, before
    raw = frame.group_by("severity").len().sum()["len"][0]
    assert sum(before["json"]) < raw - 2, "waived, retired and repeated findings do not count"
    settled = collect_report(run).settled
    assert settled == {"retired": {"BOX030": 1}, "waived": {"ACME001": 1}}
    decided = frame.filter(frame["code"] == "ACME002")["fingerprint"][0]
    decide_findings(run, [decided], Action.KEEP, by="tester")
    after = counts_by_face(run, command, show)
    assert set(after.values()) == {(before["json"][0] - 1, *before["json"][1:])}, after
