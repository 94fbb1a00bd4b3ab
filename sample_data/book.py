"""Book: everything that is going to be written, and the answer key, as they grow.

A plant draws its own pictures, files them here and enters what a perfect audit would report. The
random stream of each picture depends on the seed and on the picture's number only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from encode import exif, jpeg, png
from paint import Box, Camera, Picture
from scenes import CLASSES, any_camera, draw

BRIGHT_CLASS = "flower"
PNG_SIZE = (120, 104)  # few sizes in all, as in datasets that went through a resize script
CLIP_SIZE = (160, 120)
# The light of a film: each setting at one end of what other pictures have, none beyond it.
EVENING = Camera(brightness=0.37, contrast=0.205, saturation=0.48, noise=0.014, cast=(0.07, -0.07))
NOT_IN_VAL = ("leaf", "fish")
CAMERAS = (
    ("Northlight", "NL-20", "1184402"), ("Northlight", "NL-35", "1190077"),
    ("Pentaflex", "K70", "77120"), ("Ossian", "Compact 4", "A0031"),
)  # fmt: skip


class KeyRow(NamedTuple):
    """One row of the answer key: the finding that a perfect audit reports, and why it is true."""

    code: str
    subject_kind: str
    members: str
    planted: str


class BoxedImage(NamedTuple):
    """An image of the COCO file: its id in the dataset, what it shows, its size, its box."""

    sample_id: str
    subject: str
    size: tuple[int, int]
    box: Box


@dataclass
class Book:
    """The dataset in the making: files by sample id, key rows, boxes, groups of the manifest."""

    seed: int
    files: dict[str, bytes] = field(default_factory=dict)
    key: list[KeyRow] = field(default_factory=list)
    manifest_key: list[KeyRow] = field(default_factory=list)
    boxes: list[BoxedImage] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the streams: random generators, file numbers, the class of the next plant."""
        self._streams = itertools.count()
        self._numbers = self._number_stream()
        self._labels = itertools.cycle(CLASSES)
        self._hours = itertools.count()

    def _number_stream(self) -> Iterator[int]:
        # Far apart and in no order, so that a file's number says nothing of its neighbours.
        rng = np.random.default_rng([self.seed, 10**6])
        return iter((1000 + 13 * rng.permutation(690)).tolist())

    def rng(self) -> np.random.Generator:
        """Return the next picture's own random generator."""
        return np.random.default_rng([self.seed, next(self._streams)])

    def label(self, *unwanted: str, split: str = "train") -> str:
        """Return the class whose turn it is to receive a plant, of those that the split has."""
        absent = NOT_IN_VAL if split == "val" else ()
        return next(x for x in self._labels if x not in unwanted and x not in absent)

    def camera(self, label: str) -> Camera:
        """Return camera settings; only the class of the planted shortcut has its own brightness."""
        rng = self.rng()
        camera = any_camera(rng)
        if label != BRIGHT_CLASS:
            return camera
        bright, flat = float(rng.uniform(0.665, 0.72)), float(rng.uniform(0.13, 0.16))
        return replace(camera, brightness=bright, contrast=flat)

    def photo(
        self, label: str, camera: Camera | None = None, size: tuple[int, int] | None = None
    ) -> Picture:
        """Return a new photograph of the class's subject."""
        return draw(label, self.rng(), camera or self.camera(label), size)

    def sized(self, label: str, sizes: Sequence[tuple[int, int]]) -> Picture:
        """Return a new photograph in one of these sizes (width, height)."""
        return self.photo(label, size=sizes[int(self.rng().integers(len(sizes)))])

    def add(self, split: str, label: str, data: bytes, ext: str = "jpg", name: str = "") -> str:
        """File the bytes and return the sample id; the name is a fresh number unless given."""
        stem = name or str(next(self._numbers))
        sample_id = "/".join(part for part in (split, label, f"{stem}.{ext}") if part)
        if sample_id in self.files:
            raise ValueError(f"two files are called {sample_id}")
        self.files[sample_id] = data
        return sample_id

    def add_clean(self, split: str, label: str, subject: str = "", name: str = "") -> str:
        """Draw, encode and file a picture without any defect."""
        return self._file_clean(split, label, subject or label, name, self.photo(subject or label))

    def add_clip(self, label: str, clip: int, splits: Sequence[str]) -> list[str]:
        """File stills of one film: each shows another subject, all in one light."""
        ids = []
        for number, split in enumerate(splits, 1):
            picture = self.photo(label, EVENING, CLIP_SIZE)
            self.rng()  # the stream that settings of its own would have taken
            name = f"clip{clip:02d}_{number:04d}"
            ids.append(self._file_clean(split, label, label, name, picture))
        return ids

    def _file_clean(self, split: str, label: str, subject: str, name: str, picture: Picture) -> str:
        data, ext = self._encoded(picture)
        sample_id = self.add(split, label, data, ext, name)
        if split == "val":
            self.boxes.append(BoxedImage(sample_id, subject, picture.size, picture.box))
        return sample_id

    def _encoded(self, picture: Picture) -> tuple[bytes, str]:
        rng = self.rng()
        kind, quality = rng.random(), int(rng.integers(82, 94))
        if kind < 0.04 and picture.pixels.size < 55_000:
            return png(picture.pixels), "png"
        data = None
        if rng.random() < 0.25:  # days apart: no two of these are a burst
            when = next(self._hours)
            stamp = f"2024:{when // 28 % 12 + 1:02d}:{when % 28 + 1:02d} {when * 5 % 24:02d}:17:00"
            data = exif(time=stamp, camera=CAMERAS[int(rng.integers(len(CAMERAS)))])
        progressive = bool(rng.random() < 0.1)
        return jpeg(picture.pixels, quality, progressive=progressive, exif=data), "jpg"

    def plant(self, code: str, members: Iterable[str], planted: str, kind: str = "") -> None:
        """Enter a finding in the key; the kind is sample or group unless given."""
        names = sorted(members)
        row = KeyRow(
            code, kind or ("sample" if len(names) == 1 else "group"), "|".join(names), planted
        )
        self.key.append(row)
