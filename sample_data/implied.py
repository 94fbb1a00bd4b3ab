"""Implied findings: what the class counts that the plants leave behind mean for the DIST checks.

The plants are made so that no count is near a limit: classes are either full or tiny.
"""

from __future__ import annotations

from collections import Counter

from book import Book

SPLITS = ("train", "val", "test")
TRAIN = "train"
RARE_BELOW = 8  # pictures; full classes have 20 and more
IMBALANCED_FROM = 10.0  # largest class to smallest


def enter_class_counts(book: Book) -> None:
    """Enter imbalanced splits, rare classes, and classes missing from a split."""
    pairs = [tuple(path.split("/")[:2]) for path in _labelled(book)]
    counts, totals = Counter(pairs), Counter(label for _, label in pairs)
    for split in SPLITS:
        _enter_imbalance(book, split, {x: n for (s, x), n in counts.items() if s == split})
    for label, total in totals.items():
        if 1 < total < RARE_BELOW:
            book.plant("DIST002", [label], f"Class {label} has {total} pictures.", "class")
        for split in SPLITS:
            # One or two pictures cannot be in three splits; what is only tested is always wrong.
            matters = total >= len(SPLITS) or (split == TRAIN and total > 0)
            if not counts[split, label] and matters:
                sentence = f"Class {label} has {total} pictures, none of them in {split}."
                book.plant("DIST003", [f"{split}/{label}"], sentence, "class")


def _enter_imbalance(book: Book, split: str, sizes: dict[str, int]) -> None:
    most, least = max(sizes.values()), min(sizes.values())
    if most >= IMBALANCED_FROM * least:
        sentence = f"In {split} the largest class has {most} pictures, the smallest {least}."
        book.plant("DIST001", [split], sentence, "dataset")


def _labelled(book: Book) -> list[str]:
    return [p for p in book.files if p.count("/") == 2 and not p.endswith(".gitkeep")]
