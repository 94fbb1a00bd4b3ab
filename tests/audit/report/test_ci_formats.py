"""What CI servers and code hosts read: JUnit and SARIF, held against their published forms.

No package carries either schema, so what is written here is the part of each that a report uses,
after the elements that Jenkins' junit plugin and Ant's task read, and after OASIS SARIF 2.1.0,
sections 3.13 to 3.58; an element, an attribute or a property that is in neither is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from audit.records import FailedPart
from audit.report import Report, collect_report, render, stream_findings
from audit.report.documents import to_sarif
from audit.results.report_data import ExpectationOutcome
from tests.audit.conftest import Command
from tests.audit.reviewed import made_hash, made_run

HOSTILE = "train/<cat> & \x1b[31m\ufffe\udcff'\"]]>.jpg"
# Element: its children, the attributes that it must have, those that it may have.
JUNIT: Mapping[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, set(), {"name", "tests", "failures", "errors", "time"}),
    "testsuite": (
        {"properties", "testcase", "system-out", "system-err"},
        {"name", "tests", "failures", "errors"},
        {"skipped", "time", "timestamp", "hostname", "id", "package"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, set()),
    "testcase": (
        {"failure", "error", "skipped", "system-out", "system-err"},
        {"name"},
        {"classname", "time", "group"},
    ),
    "failure": (set(), set(), {"message", "type"}),
    "error": (set(), set(), {"message", "type"}),
    "skipped": (set(), set(), {"message", "type"}),
    "system-out": (set(), set(), set()),
}


def whole(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """A JSON schema of an object with these properties and no others."""
    return {"type": "object", "properties": dict(properties), "required": list(required),
            "additionalProperties": False}  # fmt: skip


def many(items: Mapping[str, Any], *, unique: bool = False) -> dict[str, Any]:
    return {"type": "array", "items": dict(items), "uniqueItems": unique}


TEXT = {"type": "string"}
BAG = {"type": "object", "properties": {"tags": many(TEXT, unique=True)}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = whole({"text": TEXT, "markdown": TEXT}, "text")
ARTIFACT = whole({"uri": TEXT, "uriBaseId": TEXT})
LOCATION = whole({
    "physicalLocation": whole({"artifactLocation": ARTIFACT}, "artifactLocation"),
    "logicalLocations": many(whole({"fullyQualifiedName": TEXT}), unique=True),
})  # fmt: skip
RULE = whole({
    "id": TEXT, "name": TEXT, "shortDescription": MESSAGE, "help": MESSAGE,
    "defaultConfiguration": whole({"level": LEVEL}),
}, "id")  # fmt: skip
RESULT = whole({
    "ruleId": TEXT, "ruleIndex": {"type": "integer", "minimum": -1}, "level": LEVEL,
    "message": MESSAGE, "locations": many(LOCATION),
    "relatedLocations": many(LOCATION, unique=True),
    "partialFingerprints": {"type": "object", "additionalProperties": TEXT}, "properties": BAG,
}, "message")  # fmt: skip
DRIVER = whole({"name": TEXT, "version": TEXT, "rules": many(RULE, unique=True)}, "name")
RUN = whole({
    "tool": whole({"driver": DRIVER}, "driver"),
    "originalUriBaseIds": {"type": "object", "additionalProperties": ARTIFACT},
    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    "invocations": many(whole({
        "executionSuccessful": {"type": "boolean"},
        "toolExecutionNotifications": many(whole({"level": LEVEL, "message": MESSAGE}, "message")),
    }, "executionSuccessful")),
    "results": many(RESULT), "properties": BAG,
}, "tool")  # fmt: skip
SARIF = whole({"$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"},
               "runs": many(RUN)}, "version", "runs")  # fmt: skip


def assert_junit(element: ElementTree.Element) -> None:
    children, must, may = JUNIT[element.tag]
    assert must <= set(element.attrib) <= must | may, element.attrib
    assert {child.tag for child in element} <= children
    for child in element:
        assert_junit(child)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A leak between files with hostile names, an error; and a dark picture, a warning."""
    same = {"pixel_hash": made_hash(7, 32), "content_hash": made_hash(7, 64)}
    images = [
        {"id": HOSTILE.replace("\udcff", ""), "split": "train", **same},
        {"id": "test/b.jpg", "split": "test", **same},
        {"id": "test/c.jpg", "split": "test", "brightness_p99": 0.06, "contrast": 0.01},
        {"id": "test/d.jpg", "split": "test"},
    ]
    return made_run(tmp_path_factory.mktemp("ci") / "run", images, ["DUP001", "SPLIT001", "IMG001"])


@pytest.fixture(scope="module")
def report(run: Path) -> Report:
    broken = FailedPart("check", "IMG002", "too-bright", "ValueError: \x00", "x.py:3", "trace")
    outcomes = (
        ExpectationOutcome("test.per_class", True, "3, expected >= 2"),
        ExpectationOutcome("leaked_share", False, "0.33, expected < 0.001"),
        ExpectationOutcome("min_side", None, "there is nothing to count"),
    )
    return replace(collect_report(run), failed=(broken,), expected=outcomes)


def junit(report: Report) -> ElementTree.Element:
    return ElementTree.fromstring("".join(render(report, "xml")).encode())


def test_junit_has_its_published_form_and_counts_what_it_holds(report: Report) -> None:
    root = junit(report)
    assert_junit(root)
    checks, expectations = root.findall("testsuite")
    assert [expectations.get(n) for n in ("tests", "failures", "errors")] == ["3", "2", "0"]
    assert [checks.get(n) for n in ("failures", "errors")] == ["2", "1"]
    assert int(checks.get("skipped", 0)) == len(report.not_run)
    for name in ("tests", "failures", "errors"):
        assert int(root.get(name, 0)) == sum(int(s.get(name, 0)) for s in root)


def test_an_error_fails_a_case_a_warning_is_its_output(report: Report) -> None:
    cases = {case.get("name", ""): case for case in junit(report).iter("testcase")}
    leak = cases["SPLIT001 split-overlap"].find("failure")
    assert leak is not None
    assert leak.get("message") == "1 error in 2 files"
    assert "<cat> & \\x1b[31m\\ufffe'\"]]>.jpg" in (leak.text or "")
    dark = next(case for name, case in cases.items() if name.startswith("IMG001"))
    assert [part.tag for part in dark] == ["system-out"]
    assert "test/c.jpg" in (dark.findtext("system-out") or "")
    told = cases["min_side"].find("failure")
    assert told is not None
    assert told.get("message") == "inconclusive: there is nothing to count"


def test_a_clean_run_fails_nothing(tmp_path: Path) -> None:
    clean = made_run(tmp_path / "run", [{"split": "train"}, {"split": "test"}], ["DUP001"])
    root = junit(collect_report(clean))
    assert (root.get("failures"), root.get("errors")) == ("0", "0")
    assert [suite.get("name") for suite in root] == ["checks"]


def test_sarif_has_its_published_form(report: Report) -> None:
    found = list(stream_findings(report))
    about_all = replace(found[0], sample_ids=(), uris=(), n_samples=0)
    log = json.loads("".join(to_sarif(report, [*found, about_all])))
    jsonschema.validate(log, SARIF)
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is False
    results = log["runs"][0]["results"]
    once = [finding for finding in found if not finding.same_as]
    assert len(results) == len(once) + 1 < len(found) + 1
    assert results[-1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "./"
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[one["ruleIndex"]]["id"] == one["ruleId"] for one in results)


def test_the_command_writes_both_and_reads_what_is_expected(
    run: Path, tmp_path: Path, command: Command
) -> None:
    settings = tmp_path / "audit.toml"
    settings.write_text('[expect]\nfiles = ">= 4"\nerrors = 0\n')
    junit_file, sarif_file = tmp_path / "found.xml", tmp_path / "x.sarif"
    words = ("report", run, "-o", junit_file, "-o", sarif_file)
    assert command(*words, "--config", settings)[0] == 0
    cases = {c.get("name"): c for c in ElementTree.parse(junit_file).iter("testcase")}
    assert cases["errors"].find("failure") is not None
    assert cases["files"].find("failure") is None
    jsonschema.validate(json.loads(sarif_file.read_text()), SARIF)
    junit_file.write_text("something else")
    assert command(*words)[0]
    assert junit_file.read_text() == "something else"
