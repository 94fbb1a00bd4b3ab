"""The report as one HTML file, and in brief for a notebook, in the frame of `foundation.pages`.

Templates: `page.html`, `boxes.html`, `notebook.html` beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from audit.report.boxes import SPLITS, render_boxes
from audit.report.screen import the_rest
from audit.report.thumbnails import Thumbnail, thumbnails_of
from audit.results import formatting as wording
from audit.results.file_details import FileCard
from audit.results.report_data import SCHEMA, Card, Dataset, Report
from dataset_preflight.foundation.pages import render_page
from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    from markupsafe import Markup

TINY = 64  # px: below this a thumbnail is enlarged with its pixels kept sharp
STRIP = 4  # pictures of a check in a notebook
ROW, BAR, HEAD = 20, 12, 24  # px of the bars of classes
NAME, COLUMN, COUNT = 190, 190, 58  # px: class names, one split, room for its count
MOST, FEWEST = 30, 10  # classes that are drawn of many
LETTERS = 26  # of a class name


def to_html(report: Report, pictures: tuple[Mapping[str, Thumbnail], int] = ({}, 0)) -> str:
    """Return the whole page; `pictures` come from `make_thumbnails`."""
    data, (thumbnails, wanted) = report.dataset, pictures
    first = [code for thing in report.first for code in thing.codes]
    found = [check for check in report.checks if check.counts.total]
    found.sort(key=lambda c: (-c.counts.error, -c.counts.warning, c.code))
    found.sort(key=lambda c: first.index(c.code) if c.code in first else len(first))
    examined = list(report.completeness)
    if len(thumbnails) < wanted:
        examined.append(f"Thumbnails of {len(thumbnails):,} of {wanted:,} example images.")
    return render_page(
        "audit/report/page.html",
        visible,
        title=f"Audit of {data.name}",
        generator=f"{report.tool}; {SCHEMA}",
        report=report,
        data=data,
        wording=wording,
        facts={
            "Files": f"{data.n_samples:,}",
            "Size": wording.bytes_text(data.n_bytes),
            "Classes": f"{len(set(data.by_class()) - {None}):,}",
            "Layout": data.layout.name,
            "Scanned": report.created,
            "By": report.tool,
        },
        drawn=class_bars(data),
        hidden_splits=len(data.by_split()) - SPLITS,
        boxes=render_boxes(report.boxes),
        found=found,
        rest=[*the_rest(report)],
        pictures=thumbnails,
        tiny=TINY,
        from_markdown=from_markdown,
        silent=sorted(f"{c.code} {c.name}" for c in report.checks if not c.counts.total),
        examined=examined,
        next=[row for row in wording.next_commands(report) if " -o report.html" not in row[0]],
    )


def from_markdown(text: str) -> Markup:
    """Return a check's page as HTML: its title left out, headings lowered; raw HTML stays text."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    # A check may come from another package: its page may neither load images nor bring tags.
    renderer = MarkdownIt("commonmark", {"html": False}).disable("image")
    body = text.split("\n", 1)[1] if text.startswith("# ") else text
    tokens = renderer.parse(body)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "h4"
    return Markup(renderer.renderer.render(tokens, renderer.options, {}))


def class_bars(data: Dataset) -> Markup | str:
    """Return files by class and split; of over 40 classes the extremes; "" without classes."""
    from dataset_preflight.foundation.charts import drawing, text

    totals = data.by_class()
    if not set(totals) - {None}:
        return ""
    splits = list(data.by_split())[:SPLITS]
    ordered: list[str | None] = sorted(totals, key=lambda label: (-totals[label], label or ""))
    hidden = max(len(ordered) - MOST - FEWEST, 0)
    shown = [*ordered[:MOST], *ordered[MOST + hidden :]]
    shapes = [
        text(NAME + i * (COLUMN + COUNT), 12, visible(split or "all files"), kind="quiet")
        for i, split in enumerate(splits)
    ]
    cells = {(c.label, c.split): c.n for c in data.classes}
    for row, label in enumerate(shown):
        y = HEAD + ROW * (row + (hidden > 0 and row >= MOST))
        shapes += _class_row(label, [(s, cells.get((label, s), 0)) for s in splits], cells, y)
    if hidden:
        words = f"{hidden:,} more classes, not drawn"
        shapes.append(text(0, HEAD + ROW * MOST + 12, words, kind="quiet"))
    height = HEAD + ROW * (len(shown) + (hidden > 0))
    width = NAME + len(splits) * (COLUMN + COUNT)
    return drawing(width, height, "files by class and split", shapes)


def _class_row(
    label: str | None,
    counts: list[tuple[str | None, int]],
    cells: Mapping[tuple[str | None, str | None], int],
    y: int,
) -> list[Markup]:
    from dataset_preflight.foundation.charts import bar, text

    name = visible(label or "(no label)")
    cut = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
    shapes = [text(0, y + 12, cut, kind="name")]
    for column, (split, n) in enumerate(counts):
        x = NAME + column * (COLUMN + COUNT)
        if not n:
            shapes.append(text(x, y + 12, "0", kind="count zero"))
            continue
        # A class of one file among thousands must still be seen.
        most = max(count for (_, of), count in cells.items() if of == split)
        length = max(2.0, COLUMN * n / most)
        shapes.append(bar(x, y + 2, length, BAR, column, f"{name}: {n:,}"))
        shapes.append(text(x + length + 5, y + 12, f"{n:,}", kind="count"))
    return shapes


def to_fragment(report: Report, pictures: Mapping[str, Thumbnail]) -> str:
    """Return the report in brief, for a notebook: counts, checks, a strip of the worst pictures."""
    found = [check for check in report.checks if check.counts.total]
    members = [dict.fromkeys(m for e in check.examples for m in e.members) for check in found]
    return render_page(
        "audit/report/notebook.html",
        visible,
        report=report,
        wording=wording,
        classes=len(set(report.dataset.by_class()) - {None}),
        rows=[(check, list(of)[:STRIP]) for check, of in zip(found, members, strict=True)],
        pictures=pictures,
    )


def picture_html(card: FileCard) -> str:
    """Return the picture of a file as an element for a notebook, or why there is none."""
    sample = card.sample
    names = ("status", "error_kind", "error", "content_hash")
    shown = Card(sample.id, sample.uri, **{name: card.value(name) for name in names})
    (picture,) = thumbnails_of([shown])
    template = "audit/report/notebook.html"
    return render_page(template, visible, picture=picture, name=sample.id)
