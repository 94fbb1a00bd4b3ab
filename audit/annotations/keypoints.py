"""Names of keypoints: which of them are left and right, in the names or in an order of flips."""

from __future__ import annotations

from collections.abc import Sequence


def flip_names(flip: Sequence[int]) -> list[str]:
    """Return names that tell which keypoints are a pair, where none are given."""
    return [
        f"point {i}" if i == j else f"left {i}" if i < j else f"right {j}"
        for i, j in enumerate(flip)
    ]


def pairs_of(names: Sequence[object]) -> list[tuple[int, int]]:
    """Return (left, right) positions of the names that differ in that word alone."""
    texts = [str(name).lower() for name in names]
    return [
        (i, texts.index(text.replace("left", "right")))
        for i, text in enumerate(texts)
        if "left" in text and text.replace("left", "right") in texts
    ]
