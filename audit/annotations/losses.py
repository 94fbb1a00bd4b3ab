"""What a format cannot hold of the annotations that are written in it, counted by kind."""

from __future__ import annotations

from collections import Counter


class Losses:
    """Counts by sentence; in each sentence `{n}` stands for the number."""

    def __init__(self) -> None:
        """Start with nothing lost."""
        self._counts: Counter[str] = Counter()

    def add(self, sentence: str, n: int = 1) -> None:
        """Count `n` more of what the sentence is about."""
        if n:
            self._counts[sentence] += n

    def merge(self, other: Losses) -> None:
        """Count what another has counted."""
        self._counts.update(other._counts)

    def sentences(self) -> list[str]:
        """Return a sentence per kind, the most frequent first."""
        return [text.format(n=f"{n:,}") for text, n in self._counts.most_common()]


NO_NUMBERS = "{n} annotations have a box whose numbers are none (BOX007), and are left out."
NO_BOX = "{n} annotations without a box (points, lines) are left out: {form} holds boxes."
CROWDS = "{n} crowd regions are left out: {form} has no mark for them."
NO_CLASS = "{n} annotations of a class that has no name (BOX003) are left out."
NO_SIZE = "{n} pictures of unknown size are left out: their shares cannot be computed."
POLYGONS = "{n} outlines are not written: {form} holds the boxes."
MASKS = "{n} masks are not written: {form} holds the boxes."
KEYPOINTS = "The keypoints of {n} objects are not written: {form} holds the boxes."
ANGLES = "{n} turned boxes are written upright: {form} holds no angle."
TRACKS = "The tracks of {n} annotations are not written: {form} has no place for them."
ATTRIBUTES = "Attributes of {n} annotations are not written: {form} has no place for them."
PICTURE_ATTRIBUTES = "Attributes of {n} pictures are not written: {form} has no place for them."
MOVED = "{n} pictures that were moved to another split stay in the file of their annotations."
ANEW = "{n} files are written anew for what was decided: parts of them that are not read are gone."
UNITS = "{n} boxes that were in another unit than their file are written in its unit (BOX009)."


def of_format(sentence: str, form: str) -> str:
    """Return a sentence about one format."""
    return sentence.replace("{form}", form)
