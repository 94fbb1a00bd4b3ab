"""YOLO out: a text file for each kept image, the classes, and a list of images for each split.

Labels lie in `labels/`, by the path of their image, as trainers look for them. A line is a box, an
outline (where each object has exactly one), or a box with keypoints; absent keypoints are 0 0 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from audit.annotations.entries import AnnotationFile, Losses, ObjectEntry
from audit.annotations.keypoints import flip_names, pairs_of

FORM = "YOLO"
_PICTURES = ("images", "Images", "JPEGImages", "imgs")


def label_path(picture: str, folder: str, extension: str) -> str:
    """Return where the annotation of a picture goes: its path, `folder` in place of `images`."""
    path = PurePosixPath(picture)
    parts = list(path.parts[:-1])
    at = next((i for i in reversed(range(len(parts))) if parts[i] in _PICTURES), None)
    if at is None:
        parts.insert(0, folder)
    else:
        parts[at] = folder
    name = path.name.rpartition(".")[0] or path.name
    return "/".join([*parts, f"{name}{extension}"])


class YoloWriter:
    """Turns objects into lines; `classes` is known when all are written.

    `points` keypoints follow each box; 0: lines are boxes and outlines.
    """

    def __init__(self, lost: Losses, points: int = 0) -> None:
        """Start without a class; numbers are given in the order in which classes are declared."""
        self.lost, self.points = lost, points
        self._point_names: dict[str, list[str]] = {}
        self._numbers: dict[str, int] = {}
        self._fixed: dict[int, str] = {}
        self._own: dict[str, list[tuple[str, str]]] = {}

    def add_file(
        self, file: AnnotationFile, classes: Sequence[tuple[str, str, str | None, str | None]]
    ) -> None:
        """Take the classes of a file: the numbers of YOLO stay where they do not contradict."""
        self._own[file.file] = [(key, name) for key, name, *_ in classes if key.isdigit()]
        for key, name, _, points in classes:
            if points and len(json.loads(points)) == self.points:
                self._point_names.setdefault(name, json.loads(points))
            number = int(key) if file.format == FORM and key.isdigit() else len(self._numbers)
            if name in self._numbers:
                continue
            while number in self._fixed:
                number += 1
            self._numbers[name], self._fixed[number] = number, name

    def keeps_numbers(self, file: AnnotationFile) -> bool:
        """Say whether the classes of a YOLO file have the numbers that they have in it."""
        return all(self._numbers.get(name) == int(key) for key, name in self._own[file.file])

    def data_yaml(self, splits: Iterable[str]) -> str:
        """Return `data.yaml`: the list of pictures of each split, and the classes, those without a
        name too.
        """
        plain = re.compile(r"\w(?:[\w./ -]*\w)?")
        lines = [
            f"{split if plain.fullmatch(split) else _escaped(split)}: {_escaped(f'{split}.txt')}"
            for split in splits
        ]
        last = max(self._fixed, default=-1)
        names = [self._fixed.get(number, f"class {number}") for number in range(last + 1)]
        lines += [f"nc: {len(names)}", "names:"]
        lines += [f"  {n}: {_quoted(name)}" for n, name in enumerate(names)]
        return "\n".join([*lines, *self._pose_lines()]) + "\n"

    def _pose_lines(self) -> Iterator[str]:
        """Yield what `data.yaml` says of keypoints; left and right where the classes agree."""
        if not self.points:
            return
        yield f"kpt_shape: [{self.points}, 3]"
        flips = {tuple(_flip(names)) for names in self._point_names.values()}
        if len(flips) == 1:
            yield f"flip_idx: {list(flips.pop())}"
        named = {
            self._numbers[name]: names
            for name, names in self._point_names.items()
            if names != flip_names(_flip(names))
        }
        if named:
            yield "kpt_names:"
        for number, names in sorted(named.items()):
            yield f"  {number}:"
            yield from (f"    - {_quoted(name)}" for name in names)

    def lines(
        self, file: AnnotationFile, objects: Sequence[ObjectEntry], outlined: bool,
        sides: tuple[float, float],
    ) -> Iterator[str]:  # fmt: skip
        """Yield a line per object of one picture; `outlined`: every object is one ring."""
        for thing in objects:
            number = self._number(file, thing)
            if number is None or not self._is_held(thing):
                continue
            whole = [ring for ring in thing.rings if len(ring) >= 6 and None not in ring]
            if not self.points and len(whole) == 1 and (outlined or thing.kind == "outline"):
                values = [v / sides[i % 2] for i, v in enumerate(whole[0])]
            else:
                if thing.rings:
                    self._lose(Losses.POLYGONS)
                assert thing.box is not None
                x, y, w, h = thing.box
                box = ((x + w / 2, 0), (y + h / 2, 1), (w, 0), (h, 1))
                values = [v / sides[side] for v, side in box] + self._keypoints(thing, sides)
            yield " ".join([str(number), *map(share_text, values)])

    def _keypoints(self, thing: ObjectEntry, sides: tuple[float, float]) -> list[float]:
        values = [0.0] * (3 * self.points)
        for at in range(0, len(thing.keypoints) - 2, 3):
            x, y, seen = thing.keypoints[at : at + 3]
            if None not in (x, y, seen) and math.isfinite(x + y + seen):
                values[at : at + 3] = [x / sides[0], y / sides[1], seen]
        return values

    def _is_held(self, thing: ObjectEntry) -> bool:
        """Say whether the object can be written as a line, and count what the line lacks."""
        if thing.box is None:
            self._lose(Losses.NO_BOX if thing.kind == "label" else Losses.NO_NUMBERS)
            return False
        if thing.crowd:
            self._lose(Losses.CROWDS)
            return False
        for lacks, sentence in (
            (thing.mask is not None, Losses.MASKS), (thing.angle is not None, Losses.ANGLES),
            (thing.track is not None, Losses.TRACKS),
            (thing.attributes is not None, Losses.ATTRIBUTES), (thing.other_unit, Losses.UNITS),
        ):  # fmt: skip
            if lacks:
                self._lose(sentence)
        return True

    def _lose(self, sentence: str) -> None:
        self.lost.add(sentence, form=FORM)

    def _number(self, file: AnnotationFile, thing: ObjectEntry) -> int | None:
        if thing.label is not None:
            if thing.label not in self._numbers:
                number = max(self._fixed, default=-1) + 1
                self._numbers[thing.label], self._fixed[number] = number, thing.label
            return self._numbers[thing.label]
        key = thing.category_key or ""
        if file.format == FORM and key.isdigit():
            return int(key)
        self.lost.add(Losses.NO_CLASS)
        return None


def _flip(names: Sequence[str]) -> list[int]:
    """Return what each keypoint becomes in a mirrored picture."""
    flip = list(range(len(names)))
    for left, right in pairs_of(names):
        flip[left], flip[right] = right, left
    return flip


def one_ring_each(objects: Iterable[ObjectEntry]) -> bool:
    """Say whether every object with a box is outlined by exactly one ring that fills its box."""
    some = False
    for thing in objects:
        if thing.box is None or thing.crowd:
            continue
        ring = thing.rings[0] if len(thing.rings) == 1 else []
        if len(ring) < 6 or None in ring:
            return False
        x, y = ring[0::2], ring[1::2]
        left, top, width, height = thing.box
        corners = (left, top, left + width, top + height)
        extent = (min(x), min(y), max(x), max(y))
        if not all(abs(a - b) <= 1.0 for a, b in zip(extent, corners, strict=True)):
            return False
        some = True
    return some


def share_text(value: float) -> str:
    """Return a share exactly, never with an exponent, which some readers refuse."""
    text = f"{value:.17f}".rstrip("0").rstrip(".")
    return text if text not in ("", "-0") else "0"


def _quoted(name: str) -> str:
    name = name.replace("\n", " ")
    return "'" + name.replace("'", "''") + "'" if name.isprintable() else _escaped(name)


def _escaped(text: str) -> str:
    """Return a text in double quotes, where YAML takes every character as an escape."""
    plain = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return '"' + "".join(plain) + '"'
