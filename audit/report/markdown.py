"""The report as Markdown (CommonMark with tables): for a pull request, an issue or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from audit.annotations.box_statistics import BoxStatistics
from audit.report.boxes import box_sentences
from audit.results.formatting import (
    ICONS,
    OBJECT_HEAD,
    alarm,
    bytes_text,
    class_rows,
    fold_line,
    headline,
    list_command,
    named_ids,
    next_commands,
    object_rows,
    severity_counts,
    size_rows,
    source_notes,
)
from audit.results.report_data import SCHEMA, CheckSummary, Dataset, Report
from dataset_preflight.foundation.terminal import visible

SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")
MARK = f"<!-- {SCHEMA} -->"
CLASSES = 50


def to_markdown(report: Report) -> str:
    """Return the report as one Markdown document; names from the dataset are escaped."""
    above = f"**{escaped(alarm(report))}**" if alarm(report) else ""
    blocks = [
        MARK, above, f"# Audit of {escaped(report.dataset.name)}", escaped(headline(report))
    ]  # fmt: skip
    if report.first:
        first = (
            f"{ICONS[thing.severity]} **{escaped(thing.message)}** "
            f"{code_span(list_command(report, ','.join(thing.codes)))}"
            for thing in report.first
        )
        blocks += ["## Fix first", bullet_list(first)]
    blocks += [_about(report), *_codes(report), *_dataset(report)]
    if report.boxes is not None:
        blocks += ["## Boxes", bullet_list(escaped(s) for s in box_sentences(report.boxes))]
    if report.costs:
        blocks += [
            "## Impact on the evaluation",
            bullet_list(escaped(cost.message) for cost in report.costs),
        ]
    blocks += ["## Coverage", bullet_list(escaped(s) for s in report.completeness)]
    commands = (f"{code_span(command)} {gives}" for command, gives in next_commands(report))
    blocks += ["## Next", bullet_list(commands)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escaped(text: str) -> str:
    """Return the text so that Markdown shows it as it is, on one line."""
    return SPECIAL.sub(r"\\\1", visible(text))


def code_span(text: str) -> str:
    """Return the text as a code span: fenced longer than any run of backticks within."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{visible(text)}{pad}{fence}"


def bullet_list(lines: Iterable[str]) -> str:
    """Return lines, escaped already, as a list."""
    return "\n".join(f"- {line}" for line in lines)


# The caller escapes cells.
def pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """Return a table; the last `numbers` columns are aligned right."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def _about(report: Report) -> str:
    data = report.dataset
    size = f"{data.n_samples:,} files, {bytes_text(data.n_bytes)}"
    layout = f"Layout {code_span(data.layout.name)}: {escaped(data.layout.reason)}."
    made = f"Scanned {report.created} by {escaped(report.tool)}, run {code_span(report.run)}."
    return f"{size}. {layout} {made}"


def _codes(report: Report) -> Iterator[str]:
    checks = [check for check in report.checks if check.counts.total]
    if not checks:
        return
    yield "## Findings"
    yield check_table(checks)
    for check in checks:
        yield f"### {check.code} {check.name}"
        yield _examples(report, check)


def check_table(checks: Sequence[CheckSummary]) -> str:
    """Return what each of these checks found, and in how many files."""
    rows = [(c.code, c.name, severity_counts(c.counts), f"{c.n_files:,}") for c in checks]
    return pipe_table(("Code", "Check", "Findings", "Files"), rows, numbers=1)


def _examples(report: Report, check: CheckSummary) -> str:
    command = code_span(list_command(report, check.code))
    lines = [
        f"- {ICONS[fold.severity]} **{escaped(fold_line(fold))}**: full list: {command}"
        for fold in check.folds
    ]
    for example in check.worst:
        found = example.finding
        who = escaped(named_ids(found.sample_ids, found.n_samples))
        lines.append(f"- {ICONS[found.severity]} **{who}**: {escaped(found.message)}")
    if more := check.n_single - len(check.worst):
        lines.append(f"- and {more:,} more")
    return "\n".join(lines)


def _dataset(report: Report) -> Iterator[str]:
    data = report.dataset
    yield "## Dataset"
    yield class_count_table(data)
    if report.boxes is not None and report.boxes.boxes:
        yield object_count_table(report.boxes)
    counts = ", ".join(f"{escaped(name)} {n:,}" for name, n in data.formats.items())
    yield f"Formats: {counts}." if counts else ""
    head = ("Measure", "Least", "Median", "Greatest")
    yield pipe_table(head, size_rows(data), numbers=3) if data.sizes else ""
    yield bullet_list(escaped(note) for note in source_notes(data))


def object_count_table(stats: BoxStatistics) -> str:
    """Return objects, pictures and sizes by class and split, the most frequent classes first."""
    rows = [tuple(map(escaped, row)) for row in object_rows(stats, CLASSES)]
    head = [name.capitalize() for name in OBJECT_HEAD]
    return pipe_table(head, rows, numbers=len(head) - 2)


def class_count_table(data: Dataset) -> str:
    """Return files by class and split, the largest classes first; empty without classes."""
    rows = [[escaped(name), *counts] for name, *counts in class_rows(data, CLASSES)]
    head = ["Class", *(escaped(split or "files") for split in data.by_split())]
    return pipe_table(head, rows, numbers=len(head) - 1) if rows else ""
