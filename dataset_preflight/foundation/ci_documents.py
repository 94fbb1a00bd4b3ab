"""Named outcomes for CI: SARIF 2.1.0 (OASIS), and JUnit XML as Jenkins and GitLab read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

from dataset_preflight.foundation.terminal import visible

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
Level = Literal["error", "warning", "skipped", ""]
SARIF_LEVELS = {"error": "error", "warning": "warning", "skipped": "note"}
JUNIT_TAGS = {"error": "failure", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class NamedOutcome:
    """A name, how bad it is (empty: good), and the sentences, a line each."""

    name: str
    level: Level
    text: str


def sarif_log(tool: str, place: str, outcomes: Sequence[NamedOutcome]) -> str:
    """Return a SARIF log with a result for each outcome that is not good, located at a path."""
    rules = [{"id": o.name, "shortDescription": {"text": o.name}} for o in outcomes]
    location = {"physicalLocation": {"artifactLocation": {"uri": place}}}
    results: list[dict[str, Any]] = [
        {
            "ruleId": o.name,
            "level": SARIF_LEVELS[o.level],
            "message": {"text": visible(o.text, "\n")},
            "locations": [location],
        }
        for o in outcomes
        if o.level
    ]
    run = {"tool": {"driver": {"name": tool, "rules": rules}}, "results": results}
    return json.dumps({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def junit_xml(suite_name: str, outcomes: Sequence[NamedOutcome]) -> str:
    """Return JUnit XML with a test case for each outcome."""
    suite = ElementTree.Element("testsuite", name=suite_name, tests=str(len(outcomes)))
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=suite_name, name=outcome.name)
        tag = JUNIT_TAGS.get(outcome.level, "system-out")
        ElementTree.SubElement(case, tag).text = visible(outcome.text, "\n")
    failures = sum(outcome.level == "error" for outcome in outcomes)
    suite.set("failures", str(failures))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, "unicode")}\n'
