"""The report as text: the coloured summary on a terminal, and the plain `.txt` file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

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
from audit.results.report_data import Report
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
    parts: list[RenderableType] = [*alarm_line(report), _title(report), verdict_line(report)]
    if report.counts.total:
        parts += [_code_table(report), *_worst(report, examples)]
    parts += _dataset(report) if full else ()
    if report.costs:
        parts.append(_bullets("Impact on the evaluation", [cost.message for cost in report.costs]))
    parts += [_bullets("Examined", report.completeness), heading("Next")]
    commands = Table.grid(padding=(0, 2, 0, 0))
    for command, gives in next_commands(report):
        commands.add_row(Text("  " + visible(command), style="bold"), Text(gives, style="dim"))
    return rendered(Group(*parts, commands), width, color)


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


def verdict_line(report: Report) -> Text:
    """Return the headline after an empty line, in the colour of the worst severity."""
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
            counts = (Text(f"{ICONS[s]} {n:,}", STYLES[s]) for s, n in check.counts.items() if n)
            row = (Text(check.code, STYLES[worst]), Text(check.name), Text(" ").join(counts))
            table.add_row(*row, f"{check.n_files:,}" if check.n_files else "all")
    return Padding(table, (1, 0, 0, 2))


def _worst(report: Report, examples: int) -> Iterator[RenderableType]:
    yield heading("Worst findings")
    for check in report.checks:
        # Errors get the room: a terminal holds some forty lines.
        grave = check.counts.worst is Severity.ERROR
        for fold in check.folds:
            such = [
                f"such as {named_ids(e.finding.sample_ids, e.finding.n_samples)}: "
                f"{visible(e.finding.message)}"
                for e in fold.examples[:1]
            ]
            command = Text(f"full list: {visible(list_command(report, check.code))}", style="dim")
            yield _item(fold.severity, check.code, fold_line(fold), *map(Text, such), command)
        shown = check.worst[: examples if grave else (examples + 1) // 2]
        for found in (example.finding for example in shown):
            who = named_ids(found.sample_ids, found.n_samples)
            yield _item(found.severity, check.code, who, Text(visible(found.message)))
        more = check.n_single - len(shown)
        if shown and more:
            yield Padding(Text(f"{more:,} more of {check.code}", style="dim"), (0, 0, 0, 4))


def _item(severity: Severity, code: str, title: str, *lines: Text) -> RenderableType:
    head = Text(f"{ICONS[severity]} {code} ", style=STYLES[severity]).append(title, style="bold")
    return Padding(Group(head, *(Padding(line, (0, 0, 0, 2)) for line in lines)), (0, 0, 0, 2))


def finding_lines(report: Report, code: str) -> Iterator[str]:
    """Yield every finding of a check as one line, `path CODE message [fingerprint]`."""
    for found in stream_findings(report, code):
        yield f"{finding_line(found)} [{found.fingerprint}]\n"


def _dataset(report: Report) -> Iterator[RenderableType]:
    data = report.dataset
    yield heading("Dataset")
    if set(data.by_class()) - {None}:
        head = ("class", *(visible(split or "files") for split in data.by_split()))
        yield _count_table(head, class_rows(data, CLASSES), 1)
    if report.boxes is not None and report.boxes.boxes:
        yield _count_table(OBJECT_HEAD, object_rows(report.boxes, CLASSES), 2)
    formats = ", ".join(f"{visible(name)} {n:,}" for name, n in data.formats.items())
    yield Text(f"  formats: {formats}")
    for name, low, middle, high in size_rows(data):
        yield Text(f"  {name}: {low} to {high}, median {middle}")
    for sentence in box_sentences(report.boxes) if report.boxes else ():
        yield Text(f"  {visible(sentence)}")
    for note in source_notes(data):
        yield Text(f"  {visible(note)}")


def _count_table(head: Sequence[str], rows: Iterable[Sequence[str]], n_names: int) -> Padding:
    """Return a table whose first `n_names` columns are names and the others counts."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column, name in enumerate(head):
        table.add_column(
            name, overflow="ellipsis", justify="left" if column < n_names else "right",
            no_wrap=n_names == 1 and column == 0,
        )  # fmt: skip
    for row in rows:
        table.add_row(*map(Text, row))
    return Padding(table, (0, 0, 1, 2))


def _bullets(title: str, sentences: Sequence[str]) -> RenderableType:
    rows = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        rows.add_row(Text("  -"), Text(visible(sentence)))
    return Group(heading(title), rows)
