"""Boxes in a report: a few sentences, and a section of the page with drawings and tables by split.

Each drawing has its own scale, because shapes are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from audit.annotations.box_statistics import BoxBin, BoxClass, BoxPlace, BoxStatistics
from audit.results.formatting import counted
from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    from markupsafe import Markup

SPLITS = 5  # drawn of a dataset
CLASSES = 40  # rows of the table of classes
PAIRS = 12
GRID = 16  # cells a side of the map of centres
STEPS = (0, 1, 2, 3, 5, 9, 17, 33, 65, 129)  # where a bar of boxes in a picture begins
RATIOS: dict[float, str] = {-3: "1:8", -2: "1:4", -1: "1:2", 0: "1:1", 1: "2:1", 2: "4:1", 3: "8:1"}
HEAD = ("class", "split", "boxes", "images", "effective boxes", "effective images", "small",
        "medium", "large", "side, px", "width : height", "IoU ≥ 0.5")  # fmt: skip


def box_sentences(stats: BoxStatistics) -> list[str]:
    """Return what there is to say of the boxes in a few sentences, numbers first."""
    boxes, empty = stats.boxes, sum(c.n for c in stats.counts if c.low == 0)
    listed = len(stats.by_class().keys() - {None})
    head = f"{counted(boxes, 'box')} of {counted(listed, 'class')} in "
    head += f"{counted(stats.annotated, 'annotated image')}"
    if boxes:
        most = max([c.low for c in stats.counts] or [0.0])
        head += f": {boxes / stats.annotated:.1f} an image, {most:,.0f} at most"
    said = [f"{head}, {empty:,} without any." if empty else f"{head}."]
    if not boxes:
        return said
    sizes = zip(*((c.small, c.medium, c.large) for c in stats.classes), strict=True)
    small, medium, large = (f"{sum(n) / boxes:.0%}" for n in sizes)
    said.append(f"Sizes as COCO counts them: {small} small, {medium} medium, {large} large.")
    touching = sum(b.n for b in stats.overlaps if b.low >= 0)
    close = sum(c.overlapping for c in stats.classes)
    said.append(
        f"{touching / boxes:.0%} of the boxes touch another box, {close / boxes:.1%} have an IoU "
        "of 0.5 or more with another box."
    )
    return [*said, *_split_sentences(stats)]


def _split_sentences(stats: BoxStatistics) -> Iterator[str]:
    """Yield how much a split can measure: boxes and pictures of its rarest class."""
    for split in stats.by_split():
        rows = [c for c in stats.classes if c.split == split and c.label is not None]
        if split is None or split.lower() == "train" or len(rows) < 2:
            continue
        least = min(rows, key=lambda c: (c.effective_boxes, c.label or ""))
        yield (
            f"{split}: the rarest class is {least.label}: {counted(least.boxes, 'box')} in "
            f"{counted(least.pictures, 'image')} ({counted(least.effective_boxes, 'box')} in "
            f"{counted(least.effective_pictures, 'image')} if near-duplicates count once)."
        )


def render_boxes(stats: BoxStatistics | None) -> Markup:
    """Return the section of the page, empty without annotations."""
    from markupsafe import Markup

    from dataset_preflight.foundation.pages import render_page

    if stats is None:
        return Markup("")
    order = {label: i for i, label in enumerate(stats.by_class())}
    rows = [c for c in stats.classes if order[c.label] < CLASSES] if stats.boxes else []
    pairs = stats.pairs[:PAIRS] if stats.boxes else ()
    section = render_page(
        "audit/report/boxes.html",
        visible,
        sentences=box_sentences(stats),
        drawings=_drawings(stats) if stats.boxes else {},
        head=HEAD,
        classes=[_class_row(c) for c in sorted(rows, key=lambda c: order[c.label])],
        hidden_classes=len(order) - CLASSES,
        pairs=[(label, other, f"{pictures:,}") for label, other, pictures in pairs],
        n_pairs=stats.n_pairs,
    )
    return Markup(section)


def _class_row(c: BoxClass) -> tuple[str, ...]:
    numbers = (c.boxes, c.pictures, c.effective_boxes, c.effective_pictures, c.small, c.medium,
               c.large)  # fmt: skip
    return (
        c.label or "(not in the list)",
        c.split or "all",
        *(f"{n:,}" for n in numbers),
        f"{c.side_low:,.0f} to {c.side_high:,.0f}",
        f"{c.aspect_low:.2f} to {c.aspect_high:.2f}",
        f"{c.overlapping:,}",
    )


def _drawings(stats: BoxStatistics) -> dict[str, list[Markup]]:
    from dataset_preflight.foundation.charts import density, histogram

    def drawn(draw: Callable[[str, Any, int], Markup], values: Sequence[Any]) -> list[Markup]:
        splits = list(stats.by_split())[:SPLITS]
        return [
            draw(visible(split or "all images"), [v for v in values if v.split == split], column)
            for column, split in enumerate(splits)
        ]

    def bars(heights: Callable[[Sequence[BoxBin]], list[tuple[str, int]]]) -> Any:
        return lambda title, bins, column: histogram(title, heights(bins), column)

    def placed(title: str, places: Sequence[BoxPlace], column: int) -> Markup:
        return density(title, [(p.cell_x, p.cell_y, p.n) for p in places], GRID, column)

    return {
        "Images by number of boxes": drawn(bars(_counts), stats.counts),
        "Boxes by width : height": drawn(bars(_ratios), stats.ratios),
        "Boxes by largest IoU with another box": drawn(bars(_overlaps), stats.overlaps),
        "Centres of boxes": drawn(placed, stats.places),
    }


def _counts(bins: Sequence[BoxBin]) -> list[tuple[str, int]]:
    heights = dict.fromkeys(STEPS, 0)
    for one in bins:
        heights[max(low for low in STEPS if low <= one.low)] += one.n
    last = max((i for i, n in enumerate(heights.values()) if n), default=0)
    named = [(f"{low}+" if low == STEPS[-1] else f"{low}", n) for low, n in heights.items()]
    return named[: max(last + 1, 4)]


def _ratios(bins: Sequence[BoxBin]) -> list[tuple[str, int]]:
    """Return boxes by width / height, from 1:16 to 16:1, in quarters of a doubling."""
    found = {one.low: one.n for one in bins}
    return [(RATIOS.get(k / 4, ""), found.get(k / 4, 0)) for k in range(-16, 16)]


def _overlaps(bins: Sequence[BoxBin]) -> list[tuple[str, int]]:
    """Return boxes by their greatest IoU with another box of the picture."""
    found = {one.low: one.n for one in bins}
    shares = [(f"{k / 10:.1f}", found.get(k / 10, 0)) for k in range(10)]
    return [("none", found.get(-1.0, 0)), *shares]
