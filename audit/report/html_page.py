"""The report as one HTML file: no script, no request to anywhere, readable in ten years.

A content security policy in the page forbids every load but inline styles and data URIs, so that
a file name which slipped through escaping could still do nothing. Everything that comes from the
dataset goes through `shown`. The page grows with the checks and their examples, not the findings.
The skeleton is `page.html` and the style sheet `page.css`, light and dark by the reader's system;
both themes keep at least 4.5 to 1 contrast for text (WCAG 2.2, success criterion 1.4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from markdown_it import MarkdownIt

from audit.printable import visible
from audit.records import Severity
from audit.report.box_section import render_boxes
from audit.report.charts import SPLITS, class_bars
from audit.report.contents import (
    SCHEMA,
    CheckSummary,
    Counts,
    Dataset,
    Example,
    Fold,
    Member,
    Report,
)
from audit.report.thumbnails import ReportThumbnails, Thumbnail
from audit.report.wording import (
    ICONS,
    bytes_text,
    counted,
    failures,
    fold_line,
    list_command,
    next_commands,
    number_text,
    place_text,
    reach,
    severity_count,
)

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
TINY = 64  # px: below this a thumbnail is enlarged with its pixels kept sharp
NO_PICTURES = ReportThumbnails({}, 0)


def to_html(report: Report, pictures: ReportThumbnails = NO_PICTURES) -> str:
    """Return the whole page; `pictures` come from `make_thumbnails`."""
    title = shown(f"Audit of {report.dataset.name}")
    body = [_head(report), _codes(report), _costs(report), _dataset(report.dataset)]
    body += [render_boxes(report.boxes), _sections(report, pictures)]
    body += [_silent(report), _completeness(report, pictures), _next(report)]
    return Template(read_resource("page.html")).substitute(
        policy=POLICY,
        generator=f"{shown(report.tool)}; {SCHEMA}",
        title=title,
        css=read_resource("page.css"),
        body="\n".join(part for part in body if part),
    )


def read_resource(name: str) -> str:
    """Return a text file of this folder, such as the style sheet."""
    return files("audit.report").joinpath(name).read_text(encoding="utf-8")


def shown(text: object) -> str:
    """Return text from anywhere, safe inside an element or a quoted attribute."""
    return escape(visible(str(text)), quote=True)


# ---- top ----


def _head(report: Report) -> str:
    data = report.dataset
    chips = _chips(report.counts) or '<span class="chip good">✔ nothing</span>'
    facts = [
        ("Files", f"{data.n_samples:,}"),
        ("Size", bytes_text(data.n_bytes)),
        ("Classes", f"{len(set(data.by_class()) - {None}):,}"),
        ("Layout", data.layout.name),
        ("Scanned", report.created),
        ("By", report.tool),
    ]
    cells = (f'<div><div class="key">{key}</div>{shown(value)}</div>' for key, value in facts)
    roots = ", ".join(f"{name}: {root}" if name else root for name, root in data.roots.items())
    why = f"Why this layout: {data.layout.reason}." if data.layout.reason else ""
    broken = f'<p class="verdict">{shown(failures(report))}</p>\n' if report.failed else ""
    return (
        f'<h1>Audit of {shown(data.name)}</h1>\n<p class="quiet mono">{shown(roots)}</p>\n'
        f'{broken}<p class="verdict">{chips} found {shown(reach(report))}</p>\n'
        f'<div class="facts">{"".join(cells)}</div>\n'
        f'<p class="quiet">{shown(why)}</p>'
    )


def _chips(counts: Counts) -> str:
    return "".join(
        _chip(severity, severity_count(severity, n)) for severity, n in counts.items() if n
    )


def _chip(severity: Severity, words: str) -> str:
    return (
        f'<span class="chip {severity.value}" title="{severity.value}">{ICONS[severity]} '
        f"{words}</span>"
    )


def _codes(report: Report) -> str:
    rows = [
        f'<tr><td><a href="#{shown(c.code)}">{shown(c.code)}</a></td><td>{shown(c.name)}</td>'
        f'<td>{_chips(c.counts)}</td><td class="n">{c.n_files:,}</td></tr>'
        for c in report.checks
        if c.counts.total
    ]
    if not rows:
        return ""
    head = '<tr><th>Code</th><th>Check</th><th>Findings</th><th class="n">Files</th></tr>'
    table = f'<table class="codes">{head}{"".join(rows)}</table>'
    return f'<h2>Findings</h2>\n<div class="card scroll">{table}</div>'


def _costs(report: Report) -> str:
    if not report.costs:
        return ""
    return f"<h2>What it costs</h2>\n{_bullets(cost.message for cost in report.costs)}"


# ---- the dataset ----


def _dataset(data: Dataset) -> str:
    parts = ["<h2>Dataset</h2>", '<div class="card">']
    if bars := class_bars(data):
        caption = "Files by class. Each split has its own scale."
        if (more := len(data.by_split()) - SPLITS) > 0:
            caption += f" {counted(more, 'split')} more not drawn."
        parts.append(f'<p class="quiet">{caption}</p><div class="scroll">{bars}</div>')
    parts.append(_counts_line("Formats", data.formats) + _counts_line("State", data.status))
    parts.append(_sizes(data))
    left = [
        f"{s.count:,} left out ({s.reason}{f', .{s.extension}' if s.extension else ''}), such as "
        f"{s.example}"
        for s in data.skipped
    ]
    notes = [*left, *data.notes]
    if (more := data.n_notes - len(data.notes)) > 0:
        notes.append(f"and {more:,} more notes")
    parts += [_bullets(notes), "</div>"]
    return "\n".join(parts)


def _counts_line(title: str, counts: Mapping[str, int]) -> str:
    values = ", ".join(f"{shown(name)} {n:,}" for name, n in counts.items())
    return f'<p><span class="quiet">{title}:</span> {values}</p>' if values else ""


def _sizes(data: Dataset) -> str:
    if not data.sizes:
        return ""
    rows = "".join(
        f"<tr><td>{shown(s.name)}</td>"
        + "".join(f'<td class="n">{round(v):,}</td>' for v in (s.low, s.median, s.high))
        + "</tr>"
        for s in data.sizes
    )
    head = "".join(f'<th class="n">{word}</th>' for word in ("least", "median", "greatest"))
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _bullets(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{shown(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


# ---- one section a check ----


def _sections(report: Report, pictures: ReportThumbnails) -> str:
    parts = [_section(c, report, pictures.by_id) for c in report.checks if c.counts.total]
    return "<h2>Worst examples</h2>\n" + "\n".join(parts) if parts else ""


def _section(check: CheckSummary, report: Report, pictures: Mapping[str, Thumbnail]) -> str:
    files = f"{counted(check.n_files, 'file')}" if check.n_files else "the whole dataset"
    parts = [
        f'<section class="card check" id="{shown(check.code)}"><header>',
        f"<h3>{shown(check.code)} {shown(check.name)}</h3>{_chips(check.counts)}",
        f'<span class="quiet">{files}</span></header>',
        _page(check),
    ]
    command = f"<code>{shown(list_command(report, check.code))}</code>"
    parts += [_fold(fold, command, pictures) for fold in check.folds]
    parts += [_example(example, pictures) for example in check.worst]
    if (more := check.n_single - len(check.worst)) > 0:
        said = f"{counted(more, 'finding')} more, not shown here: {command}"
        parts.append(f'<p class="example quiet">{said}</p>')
    return "\n".join([*parts, "</section>"])


def _fold(fold: Fold, command: str, pictures: Mapping[str, Thumbnail]) -> str:
    """Return one line that opens: the worst of its findings, the names of its files."""
    chip = _chip(fold.severity, fold.severity.value)
    examples = "\n".join(_example(example, pictures) for example in fold.examples)
    names = "<br>".join(shown(name) for name in fold.sample_ids)
    more = (
        f"the first {len(fold.sample_ids):,} files; " if fold.n_files > len(fold.sample_ids) else ""
    )
    return (
        f'<details class="example fold"><summary>{chip}{shown(fold_line(fold))}</summary>\n'
        f'{examples}\n<p class="quiet">{more}all findings: {command}</p>\n'
        f'<p class="mono">{names}</p></details>'
    )


def _example(example: Example, pictures: Mapping[str, Thumbnail]) -> str:
    found = example.finding
    strip = "".join(_figure(member, pictures.get(member.id)) for member in example.members)
    if (more := found.n_samples - len(example.members)) > 0:
        strip += f'<span class="more">and {counted(more, "file")} more</span>'
    chip = _chip(found.severity, found.severity.value)
    return (
        f'<div class="example"><p>{chip}{shown(found.message)}</p>\n'
        f'{f"""<div class="strip">{strip}</div>""" if strip else ""}\n'
        f"<details><summary>Evidence; suggested: {shown(found.action)}; fingerprint "
        f"<code>{shown(found.fingerprint)}</code></summary>{_evidence(found.evidence)}</details></div>"
    )


def _figure(member: Member, picture: Thumbnail | None) -> str:
    note = ""
    if picture is None:
        frame = '<div class="frame none">no thumbnail: over this page\'s limit</div>'
    elif picture.error:
        frame = f'<div class="frame none">{shown(picture.error[:160])}</div>'
    else:
        tiny = ' class="tiny"' if max(picture.width, picture.height) < TINY else ""
        frame = (
            f'<div class="frame"><img{tiny} src="{picture.data_uri}" width="{picture.width}" '
            f'height="{picture.height}" alt="" loading="lazy"></div>'
        )
        note = f'<div class="note">{shown(picture.note)}</div>' if picture.note else ""
    place = place_text(member.split, member.label)
    return (
        f'<figure>{frame}<figcaption><span class="mono">{shown(member.id)}</span>'
        f'<div class="quiet">{shown(place)}</div>{note}</figcaption></figure>'
    )


def _evidence(evidence: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{shown(key)}</td><td>{escape(number_text(value))}</td></tr>"
        for key, value in evidence.items()
    )
    return f"<table>{rows}</table>"


def _page(check: CheckSummary) -> str:
    if not check.page:
        return ""
    params = ", ".join(f"{key} = {value}" for key, value in check.params.items())
    now = f'<p class="quiet">In force: {shown(params)}</p>' if params else ""
    words = f"What {shown(check.code)} means, and what to do"
    return (
        f'<details class="page"><summary>{words}</summary><div>{from_markdown(check.page)}{now}'
        "</div></details>"
    )


def from_markdown(text: str) -> str:
    """Return a check's page as HTML: its title left out, headings lowered; raw HTML stays text."""
    # A check may come from another package: its page may neither load images nor bring tags.
    renderer = MarkdownIt("commonmark", {"html": False}).disable("image")
    body = text.split("\n", 1)[1] if text.startswith("# ") else text
    tokens = renderer.parse(body)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "h4"
    return str(renderer.renderer.render(tokens, renderer.options, {}))


# ---- bottom ----


def _silent(report: Report) -> str:
    silent = [check for check in report.checks if not check.counts.total]
    if not silent:
        return ""
    names = ", ".join(f"{check.code} {check.name}" for check in sorted(silent, key=_by_code))
    return f"<h2>Checks that found nothing</h2>\n<p>{shown(names)}</p>"


def _by_code(check: CheckSummary) -> str:
    return check.code


def _completeness(report: Report, pictures: ReportThumbnails) -> str:
    sentences: Sequence[str] = report.completeness
    made = len(pictures.by_id)
    if made < pictures.wanted:
        sentences = [*sentences, f"{made:,} of {pictures.wanted:,} pictures of the examples drawn."]
    return f"<h2>What was examined</h2>\n{_bullets(sentences)}"


def _next(report: Report) -> str:
    rows = "".join(
        f'<tr><td><code>{shown(command)}</code></td><td class="quiet">{shown(gives)}</td></tr>'
        for command, gives in next_commands(report)
        if " -o report.html" not in command
    )
    return f'<h2>Next</h2>\n<div class="scroll"><table>{rows}</table></div>' if rows else ""
