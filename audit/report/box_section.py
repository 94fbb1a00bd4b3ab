"""Boxes in a report: a few lines of text, and a section of the page with drawings by split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from audit.annotations.box_summary import BoxClass, BoxStatistics
from audit.printable import visible
from audit.report.box_charts import count_bars, overlap_bars, position_map, ratio_bars
from audit.report.charts import SPLITS
from audit.report.wording import counted

CLASSES = 40  # rows of the table of classes
PAIRS = 12
NAMED = 5  # classes named in a line of text


def box_sentences(stats: BoxStatistics) -> list[str]:
    """Return what there is to say of the boxes in a few sentences, numbers first."""
    boxes, empty = stats.boxes, sum(c.n for c in stats.counts if c.low == 0)
    listed = len(stats.by_class().keys() - {None})
    head = f"{_boxes(boxes)} of {counted(listed, 'class')} in "
    head += f"{counted(stats.annotated, 'annotated picture')}"
    if boxes:
        head += f": {boxes / stats.annotated:.1f} a picture, {_most(stats):,.0f} at most"
    said = [f"{head}, {empty:,} without any." if empty else f"{head}."]
    if not boxes:
        return said
    sizes = [sum(column) for column in zip(*stats.sizes().values(), strict=True)]
    small, medium, large = (f"{n / boxes:.0%}" for n in sizes)
    said.append(f"Sizes as COCO counts them: {small} small, {medium} medium, {large} large.")
    touching = sum(b.n for b in stats.overlaps if b.low >= 0)
    close = sum(c.overlapping for c in stats.classes)
    said.append(
        f"{touching / boxes:.0%} of the boxes touch another one, {close / boxes:.1%} overlap one "
        "by half (IoU 0.5)."
    )
    said += list(_split_sentences(stats))
    return said


def _split_sentences(stats: BoxStatistics) -> Iterator[str]:
    """Yield how much a split can measure: boxes and pictures of its rarest class."""
    for split in stats.by_split():
        rows = [c for c in stats.classes if c.split == split and c.label is not None]
        if split is None or split.lower() == "train" or len(rows) < 2:
            continue
        least = min(rows, key=lambda c: (c.effective_boxes, c.label or ""))
        yield (
            f"{split}: the class with the fewest boxes is {least.label}: {_boxes(least.boxes)} in "
            f"{counted(least.pictures, 'picture')}; near-duplicates counted once, "
            f"{_boxes(least.effective_boxes)} in {counted(least.effective_pictures, 'picture')}."
        )


def _boxes(n: int) -> str:
    return f"{n:,} {'box' if n == 1 else 'boxes'}"


def _most(stats: BoxStatistics) -> float:
    return max([c.low for c in stats.counts] or [0.0])


# ---- the page ----


def render_boxes(stats: BoxStatistics | None) -> str:
    """Return the section of the page, "" without annotations."""
    if stats is None:
        return ""
    parts = ["<h2>Boxes</h2>", '<div class="card">']
    parts += [f"<p>{_shown(sentence)}</p>" for sentence in box_sentences(stats)]
    if stats.boxes:
        parts += [*_drawings(stats), _class_table(stats), _pair_table(stats)]
    return "\n".join([*parts, "</div>"])


def _drawings(stats: BoxStatistics) -> Iterator[str]:
    splits = list(stats.by_split())[:SPLITS]
    rows: list[tuple[str, Callable[[Any, int, str], str], Sequence[Any]]] = [
        ("Pictures by number of boxes", count_bars, stats.counts),
        ("Boxes by width : height", ratio_bars, stats.ratios),
        ("Boxes by greatest IoU with another box", overlap_bars, stats.overlaps),
        ("Where the centres of boxes lie", position_map, stats.places),
    ]
    for title, draw, values in rows:
        drawn = [
            draw([v for v in values if v.split == split], column, split or "all pictures")
            for column, split in enumerate(splits)
        ]
        yield f'<p class="quiet">{title}. Each split has its own scale.</p>'
        yield f'<div class="strip scroll">{"".join(drawn)}</div>'


def _class_table(stats: BoxStatistics) -> str:
    order = {label: i for i, label in enumerate(stats.by_class())}
    rows = sorted(
        (c for c in stats.classes if order[c.label] < CLASSES), key=lambda c: order[c.label]
    )
    names = ("boxes", "pictures", "effective boxes", "effective pictures", "small", "medium",
             "large", "side, px", "width : height", "IoU ≥ 0.5")  # fmt: skip
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    body = "".join(_class_row(row) for row in rows)
    more = len(order) - CLASSES
    note = f'<p class="quiet">{more:,} further classes are not listed.</p>' if more > 0 else ""
    return (
        '<p class="quiet">By class and split; effective: near-duplicates counted once; side and '
        "width : height: the middle four fifths.</p>"
        f'<div class="scroll"><table><tr><th>class</th><th>split</th>{head}</tr>{body}</table>'
        f"</div>{note}"
    )


def _class_row(c: BoxClass) -> str:
    numbers = (c.boxes, c.pictures, c.effective_boxes, c.effective_pictures, c.small, c.medium,
               c.large)  # fmt: skip
    cells = [f"{n:,}" for n in numbers]
    cells += [f"{c.side_low:,.0f} to {c.side_high:,.0f}"]
    cells += [f"{c.aspect_low:.2f} to {c.aspect_high:.2f}", f"{c.overlapping:,}"]
    return (
        f"<tr><td>{_shown(c.label or '(not in the list)')}</td><td>{_shown(c.split or 'all')}</td>"
        + "".join(f'<td class="n">{cell}</td>' for cell in cells)
        + "</tr>"
    )


def _pair_table(stats: BoxStatistics) -> str:
    if not stats.pairs:
        return ""
    rows = "".join(
        f"<tr><td>{_shown(p.label)}</td><td>{_shown(p.other)}</td>"
        f'<td class="n">{p.pictures:,}</td></tr>'
        for p in stats.pairs[:PAIRS]
    )
    more = stats.n_pairs - PAIRS
    note = f" The first {PAIRS} of {stats.n_pairs:,} pairs." if more > 0 else ""
    return (
        f'<p class="quiet">Classes in one picture.{note}</p><table><tr><th>class</th>'
        f'<th>and</th><th class="n">pictures</th></tr>{rows}</table>'
    )


def _shown(text: str) -> str:
    return escape(visible(text), quote=True)
