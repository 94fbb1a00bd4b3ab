"""What a report says of boxes: the tables of statistics of a run as plain frozen data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeVar

from audit.run.store import Store

T = TypeVar("T")
BY_SPLIT = (
    "CASE lower(split) WHEN 'train' THEN 0 WHEN 'val' THEN 1 WHEN 'valid' THEN 1 "
    "WHEN 'validation' THEN 1 WHEN 'test' THEN 2 ELSE 3 END, split"
)
PAIRS = 200  # pairs of classes kept, the most frequent


@dataclass(frozen=True, slots=True)
class BoxClass:
    """Boxes of one class in one split; the columns are those of the table `box_classes`."""

    split: str | None
    label: str | None
    boxes: int
    pictures: int
    effective_pictures: int
    effective_boxes: int
    small: int
    medium: int
    large: int
    side_low: float
    side_median: float
    side_high: float
    aspect_low: float
    aspect_median: float
    aspect_high: float
    overlapping: int
    crowds: int


@dataclass(frozen=True, slots=True)
class BoxBin:
    """Boxes (or pictures) of one split from `low` on: a bin of a histogram."""

    split: str | None
    low: float
    n: int


@dataclass(frozen=True, slots=True)
class BoxPlace:
    """Boxes of one split with their centre in one cell, sixteenths of the picture."""

    split: str | None
    cell_x: int
    cell_y: int
    n: int


@dataclass(frozen=True, slots=True)
class BoxPair:
    """Pictures with boxes of both classes."""

    label: str
    other: str
    pictures: int


@dataclass(frozen=True, slots=True)
class BoxStatistics:
    """Statistics of the boxes of a run.

    `counts`: pictures by number of boxes; `ratios`: boxes by log2 of width / height; `overlaps`:
    boxes by greatest IoU with another, from -1 those that touch none; `places`: by centre; `pairs`:
    the most frequent of `n_pairs`. `annotated` counts pictures that an annotation file lists.
    """

    annotated: int
    classes: tuple[BoxClass, ...]
    counts: tuple[BoxBin, ...]
    ratios: tuple[BoxBin, ...]
    overlaps: tuple[BoxBin, ...]
    places: tuple[BoxPlace, ...]
    pairs: tuple[BoxPair, ...]
    n_pairs: int

    @property
    def boxes(self) -> int:
        """Boxes in all."""
        return sum(c.boxes for c in self.classes)

    def by_split(self) -> dict[str | None, int]:
        """Return boxes by split, train first."""
        return _summed((c.split, c.boxes) for c in self.classes)

    def by_class(self) -> dict[str | None, int]:
        """Return boxes by class, the most frequent first."""
        totals = _summed((c.label, c.boxes) for c in self.classes)
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0] or "")))

    def sizes(self) -> dict[str | None, tuple[int, int, int]]:
        """Return small, medium and large boxes by split."""
        return {
            split: (
                sum(c.small for c in self.classes if c.split == split),
                sum(c.medium for c in self.classes if c.split == split),
                sum(c.large for c in self.classes if c.split == split),
            )
            for split in self.by_split()
        }


def load_box_statistics(store: Store) -> BoxStatistics | None:
    """Return the statistics of a run; None where it has no annotated pictures."""
    if not store.columns("box_images"):  # a run of a version that made none
        return None
    annotated = int(store.scalar("SELECT count(*) FROM box_images"))
    if not annotated:
        return None
    columns = ", ".join(field.name for field in fields(BoxClass))
    return BoxStatistics(
        annotated,
        _rows(store, BoxClass, f"SELECT {columns} FROM box_classes ORDER BY {BY_SPLIT}, label"),
        _bins(store, "box_counts", "boxes", "pictures"),
        _bins(store, "box_ratios", "low", "boxes"),
        _bins(store, "box_overlaps", "low", "boxes"),
        _rows(
            store,
            BoxPlace,
            "FROM (SELECT split, cell_x, cell_y, sum(boxes)::BIGINT AS n FROM box_positions "
            f"GROUP BY ALL) ORDER BY {BY_SPLIT}, cell_y, cell_x",
        ),
        _rows(
            store,
            BoxPair,
            f"FROM box_pairs ORDER BY pictures DESC, label, other LIMIT {PAIRS}",
        ),
        int(store.scalar("SELECT count(*) FROM box_pairs")),
    )


def _rows(store: Store, kind: type[T], sql: str) -> tuple[T, ...]:
    return tuple(kind(**row) for row in store.rows(sql))


def _bins(store: Store, table: str, low: str, n: str) -> tuple[BoxBin, ...]:
    sql = f"SELECT split, {low}::DOUBLE AS low, {n} AS n FROM {table} ORDER BY {BY_SPLIT}, low"
    return _rows(store, BoxBin, sql)


def _summed(pairs: Iterable[tuple[str | None, int]]) -> dict[str | None, int]:
    totals: dict[str | None, int] = {}
    for key, count in pairs:
        totals[key] = totals.get(key, 0) + count
    return totals
