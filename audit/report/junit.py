"""The report as JUnit XML, which every CI server shows: a test case a check, one an expectation.

A check fails with its errors, whose worst examples it names; warnings and notes are its output. A
check or reader that broke is an error, and one that did not run is skipped. An expectation that is
not met fails, and so does one that cannot be told. The elements and attributes are those that
Jenkins, GitLab and Ant's tasks all read: testsuites, testsuite, testcase, failure, error, skipped
and system-out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from audit.printable import visible
from audit.report.contents import SCHEMA, CheckSummary, ExpectationOutcome, Report
from audit.report.wording import ICONS, counted, fold_line, list_command, named_ids, severity_counts

# Characters that XML 1.0 cannot hold, not even escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> Iterator[str]:
    """Yield the document; expectations are in it where `report.expected` has them."""
    root = ElementTree.Element(
        "testsuites", name=_plain(f"audit of {visible(report.dataset.name)}")
    )
    suites = [_checks_suite(report)]
    if report.expected:
        suites.append(_expectations_suite(report.expected))
    for suite in suites:
        _count(suite)
        root.append(suite)
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in suites)))
    ElementTree.indent(root)
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {SCHEMA} -->\n'
    yield ElementTree.tostring(root, encoding="unicode") + "\n"


def _checks_suite(report: Report) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name="checks", timestamp=report.created)
    for check in sorted(report.checks, key=lambda c: c.code):
        suite.append(_check_case(report, check))
    for part in report.failed:
        case = _case("checks", f"{part.code} {part.name}".strip())
        _say(case, "error", part.error, part.sentence())
        suite.append(case)
    for name in report.not_run:
        case = _case("checks", name)
        _say(case, "skipped", "did not run", "")
        suite.append(case)
    return suite


def _check_case(report: Report, check: CheckSummary) -> ElementTree.Element:
    case = _case("checks", f"{check.code} {check.name}")
    case.set("time", f"{check.seconds:.3f}")
    said = "\n".join([*_findings(report, check), check.completeness])
    if check.counts.error:
        where = f" in {counted(check.n_files, 'file')}" if check.n_files else ""
        _say(case, "failure", f"{severity_counts(check.counts)}{where}", said)
    elif said.strip():
        _say(case, "system-out", None, said)
    return case


def _findings(report: Report, check: CheckSummary) -> Iterator[str]:
    """Yield the worst findings as lines, and how many more there are."""
    for fold in check.folds:
        yield f"{ICONS[fold.severity]} {fold_line(fold)}"
    for example in check.worst:
        found = example.finding
        yield f"{ICONS[found.severity]} {named_ids(found.sample_ids, found.n_samples)}: " + visible(
            found.message
        )
    if check.counts.total and (check.folds or check.n_single > len(check.worst)):
        yield f"all of them: {list_command(report, check.code)}"


def _expectations_suite(outcomes: Sequence[ExpectationOutcome]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name="expectations")
    for one in outcomes:
        case = _case("expectations", one.name)
        if one.met is not True:
            kind = "cannot tell" if one.met is None else "not met"
            _say(case, "failure", f"{kind}: {one.message}", "")
        else:
            _say(case, "system-out", None, one.message)
        suite.append(case)
    return suite


def _count(suite: ElementTree.Element) -> None:
    suite.set("tests", str(len(suite)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))


def _case(suite: str, name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=f"audit.{suite}", name=_plain(name))


def _say(case: ElementTree.Element, tag: str, message: str | None, text: str) -> None:
    part = ElementTree.SubElement(case, tag)
    if message is not None:
        part.set("message", _plain(message))
    part.text = _plain(text)


def _plain(text: str) -> str:
    """Return text with what XML cannot hold as escapes."""
    return _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
