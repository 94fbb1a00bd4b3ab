"""The report as text: the coloured summary on a terminal, and the plain `.txt` file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from audit.annotations.box_statistics import BoxStatistics
from audit.records import Severity
from audit.report.boxes import box_sentences
from audit.results.formatting import (
    ICONS,
    OBJECT_HEAD,
    TITLE,
    alarm,
    bytes_text,
    class_rows,
    counted,
    finding_line,
    fold_line,
    headline,
    list_command,
    named_ids,
    next_commands,
    object_rows,
    size_rows,
    source_notes,
)
from audit.results.report_data import CheckSummary, Counts, Example, Fold, Report
from audit.results.run_report import stream_findings
from dataset_preflight.foundation.terminal import visible

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
CLASSES = 12  # class rows of the counts table; the rest is counted


def to_text(
    report: Report, width: int = 100, color: bool = False, examples: int = 2, full: bool = True
) -> str:
    """Return the report for a terminal of `width` columns, with ANSI colours if `color`.

    `examples`: most of each code; without `full` the dataset's tables are left out.
    """
    parts: list[RenderableType] = [*alarm_line(report), _title(report), _verdict(report)]
    if report.counts.total:
        parts += [_code_table(report), *_worst(report, examples)]
    if full:
        parts += list(_dataset(report))
    if report.costs:
        parts.append(_bullets("Impact on the evaluation", [cost.message for cost in report.costs]))
    parts += [_bullets("Examined", report.completeness), _next(report)]
    return rendered(Group(*parts), width, color)


def rendered(what: RenderableType, width: int, color: bool) -> str:
    """Return a rich renderable as text, whatever the environment says of the terminal."""
    console = Console(
        file=io.StringIO(), width=width, color_system="standard" if color else None,
        force_terminal=color, no_color=not color, highlight=False, markup=False, emoji=False,
        legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def heading(words: str) -> Text:
    """Return a section's title after an empty line."""
    return Text(f"\n{words}", style="bold")


def fact_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and values, one under the other."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in rows:
        table.add_row(Text(f"  {name}", style="dim"), Text(visible(value)))
    return table


def severity_text(counts: Counts) -> Text:
    """Return the counts by severity, zeros left out, each in its colour."""
    counts_text = Text()
    for severity, n in counts.items():
        if n:
            gap = " " if counts_text else ""
            counts_text.append(gap).append(f"{ICONS[severity]} {n:,}", STYLES[severity])
    return counts_text or Text("-", style="dim")


def alarm_line(report: Report) -> list[Text]:
    """Return the line above all others, or none."""
    said = alarm(report)
    return [Text(said, style=STYLES[Severity.ERROR])] if said else []


def _title(report: Report) -> RenderableType:
    data = report.dataset
    splits, classes = data.by_split(), data.by_class()
    facts = [counted(data.n_samples, "file"), bytes_text(data.n_bytes)]
    if set(classes) - {None}:
        facts.append(counted(len(set(classes) - {None}), "class"))
    if set(splits) - {None}:
        facts.append(", ".join(f"{visible(s or '(no split)')} {n:,}" for s, n in splits.items()))
    title = Text(TITLE).append(visible(data.name), style="bold").append(": " + " · ".join(facts))
    layout = f"layout {data.layout.name}: {visible(data.layout.reason)}"
    made = (
        f"scanned {report.created} by {report.tool} ({report.machine}), run {visible(report.run)}"
    )
    return Group(title, Text(layout, style="dim"), Text(made, style="dim"))


def _verdict(report: Report) -> Text:
    worst = Severity.ERROR if report.failed else report.counts.worst
    style = "bold green" if worst is None else STYLES[worst]
    return Text("\n").append(visible(headline(report)), style=style)


def _code_table(report: Report) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("code", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("findings", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    for check in report.checks:
        worst = check.counts.worst
        if worst is not None:
            row = (Text(check.code, STYLES[worst]), Text(check.name), severity_text(check.counts))
            table.add_row(*row, f"{check.n_files:,}" if check.n_files else "all")
    return Padding(table, (1, 0, 0, 2))


def _worst(report: Report, examples: int) -> Iterator[RenderableType]:
    yield heading("Worst findings")
    for check in report.checks:
        # Errors get the room: a terminal holds some forty lines.
        grave = check.counts.worst is Severity.ERROR
        for fold in check.folds:
            yield Padding(_fold(report, check, fold), (0, 0, 0, 2))
        shown = check.worst[: examples if grave else (examples + 1) // 2]
        for example in shown:
            yield Padding(_example(check, example), (0, 0, 0, 2))
        more = check.n_single - len(shown)
        if shown and more:
            yield Padding(Text(f"{more:,} more of {check.code}", style="dim"), (0, 0, 0, 4))


def _fold(report: Report, check: CheckSummary, fold: Fold) -> RenderableType:
    head = Text(f"{ICONS[fold.severity]} {check.code} ", style=STYLES[fold.severity])
    head.append(fold_line(fold), style="bold")
    lines: list[RenderableType] = [head]
    if fold.examples:
        found = fold.examples[0].finding
        who = named_ids(found.sample_ids, found.n_samples)
        lines.append(Padding(Text(f"such as {who}: {visible(found.message)}"), (0, 0, 0, 2)))
    command = visible(list_command(report, check.code))
    lines.append(Padding(Text(f"full list: {command}", style="dim"), (0, 0, 0, 2)))
    return Group(*lines)


def _example(check: CheckSummary, example: Example) -> RenderableType:
    found = example.finding
    head = Text(f"{ICONS[found.severity]} {check.code} ", style=STYLES[found.severity])
    head.append(named_ids(found.sample_ids, found.n_samples), style="bold")
    return Group(head, Padding(Text(visible(found.message)), (0, 0, 0, 2)))


def finding_lines(report: Report, code: str) -> Iterator[str]:
    """Yield every finding of a check as one line, `path CODE message [fingerprint]`."""
    for found in stream_findings(report, code):
        yield f"{finding_line(found)} [{found.fingerprint}]\n"


def _dataset(report: Report) -> Iterator[RenderableType]:
    data = report.dataset
    yield heading("Dataset")
    if set(data.by_class()) - {None}:
        yield Padding(_class_table(report), (0, 0, 1, 2))
    if report.boxes is not None and report.boxes.boxes:
        yield Padding(_object_table(report.boxes), (0, 0, 1, 2))
    formats = ", ".join(f"{visible(name)} {n:,}" for name, n in data.formats.items())
    yield Text(f"  formats: {formats}")
    for name, low, middle, high in size_rows(data):
        yield Text(f"  {name}: {low} to {high}, median {middle}")
    for sentence in box_sentences(report.boxes) if report.boxes else ():
        yield Text(f"  {visible(sentence)}")
    for note in source_notes(data):
        yield Text(f"  {visible(note)}")


def _class_table(report: Report) -> Table:
    data = report.dataset
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("class", overflow="ellipsis", no_wrap=True)
    for split in data.by_split():
        table.add_column(visible(split or "files"), justify="right")
    for name, *counts in class_rows(data, CLASSES):
        table.add_row(Text(name), *counts)
    return table


def _object_table(stats: BoxStatistics) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in OBJECT_HEAD:
        words = name in OBJECT_HEAD[:2]
        table.add_column(name, overflow="ellipsis", justify="left" if words else "right")
    for row in object_rows(stats, CLASSES):
        table.add_row(*map(Text, row))
    return table


def _bullets(title: str, sentences: Sequence[str]) -> RenderableType:
    rows = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        rows.add_row(Text("  -"), Text(visible(sentence)))
    return Group(heading(title), rows)


def _next(report: Report) -> RenderableType:
    rows = Table.grid(padding=(0, 2, 0, 0))
    for command, gives in next_commands(report):
        rows.add_row(Text("  " + visible(command), style="bold"), Text(gives, style="dim"))
    return Group(heading("Next"), rows)
