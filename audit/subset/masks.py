"""Mean IoU of semantic masks: folders of PNG files, one of the set and one a model.

A pixel's number is its class, 255 is void and left out; a predicted number that the set does not
have is a wrong pixel. The IoU of a class is the pixels that both call it over those that either
does, summed over pictures (Everingham et al. 2010, Pascal VOC, IJCV), so a picture has an influence
(both - IoU either) / sum of either. Masks go together by their path below the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from audit.annotations.predicted_masks import read_png
from audit.errors import UsageError
from audit.statistics.intervals import Floats, Ints
from audit.subset.objects import PICTURE, Places
from audit.subset.precision import ObjectMetric, Part, leverage_of

VOID = 255


@dataclass(frozen=True)
class Overlaps:
    """Pixels of each picture and class, shape (pictures, classes): in `both` masks, in `either`,
    and in the set's own (`truth`)."""

    classes: tuple[str, ...]
    both: Floats
    either: Floats
    truth: Floats

    def among(self, pictures: Ints) -> Overlaps:
        """Return the rows of some pictures; raises UsageError for one without a mask."""
        if np.isnan(self.both[pictures]).any():
            count = int(np.isnan(self.both[pictures]).any(1).sum())
            raise UsageError(f"{count} of {pictures.size} images have no predicted mask.")
        return Overlaps(
            self.classes, self.both[pictures], self.either[pictures], self.truth[pictures]
        )

    @property
    def seen(self) -> Ints:
        """Pictures that the model has masks for."""
        return np.flatnonzero(~np.isnan(self.both).any(1))

    def present(self, size: int) -> Ints:
        """Return the classes that masks of the set have."""
        return np.flatnonzero(np.nansum(self.truth, 0) > 0)


@dataclass(frozen=True)
class MaskEvaluation:
    """The overlaps of some pictures with their weights; `unit`: the unit of each picture."""

    matches: Overlaps
    weight: Floats
    unit: Ints

    def holding(self, metric: ObjectMetric, c: int) -> Ints:
        """Return 1 for a picture with pixels of a class, else 0."""
        return (self.matches.truth[:, c] > 0).astype(np.int64)

    def part(self, metric: ObjectMetric, c: int) -> Part | None:
        """Return the IoU of one class."""
        both, either = self.matches.both[:, c], self.matches.either[:, c]
        total = float((self.weight * either).sum())
        if total == 0 or not self.holding(metric, c).any():
            return None
        share, found = either / total, both / total
        value = float((self.weight * found).sum())
        influence = (found - value * share) / (1 - leverage_of(self.weight * share, self.unit))
        return Part(value, influence, share, found, share**2)


@dataclass(frozen=True)
class MaskSet(Places):
    """The PNG masks of a folder; pictures are their paths below it, without the ending."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> MaskSet:
        """Return the masks of a folder; its classes are those of up to 256 numbers in use."""
        paths = sorted(folder.rglob("*.png"))
        if not paths:
            raise UsageError(f"{folder} has no PNG mask below it.")
        ids = tuple(path.relative_to(folder).with_suffix("").as_posix() for path in paths)
        return cls(str(folder), ids, tuple(map(str, range(VOID))), folder)

    def frame(self, by_class: bool = False) -> pl.DataFrame:
        """Return the frame of the pictures, with the folder of each."""
        if by_class:
            raise UsageError("--by rarest_class is for boxes: masks are not all decoded to plan.")
        ids = pl.Series("sample_id", self.ids)
        made = pl.DataFrame({"sample_id": ids, "path": ids, "label": PICTURE})
        folder = pl.col("path").str.extract(r"^(.*)/[^/]*$", 1).fill_null(".")
        return made.with_columns(folder=folder)

    def match(self, path: Path, notes: list[str]) -> Overlaps:
        """Compare the masks of a model's folder with these."""
        shape = len(self.ids), VOID
        both, either, truth = (np.full(shape, np.nan) for _ in range(3))
        for i, name in enumerate(self.ids):
            predicted = path / f"{name}.png"
            if predicted.is_file():
                own, answer = (
                    read_png(file).astype(np.int64)
                    for file in (self.folder / f"{name}.png", predicted)
                )
                both[i], either[i], truth[i] = shared_pixels(own, answer, predicted)
        if np.isnan(both).all():
            raise UsageError(
                f"{path} has no mask of an image of {self.name}: they go by the same path, such "
                f"as {self.ids[0]}.png."
            )
        return Overlaps(self.classes, both, either, truth)


def shared_pixels(own: Ints, answer: Ints, name: Path) -> tuple[Floats, Floats, Floats]:
    """Return for each class the pixels in both masks, in either, and in the first."""
    if own.shape != answer.shape:
        raise UsageError(
            f"{name} is of {answer.shape[1]} x {answer.shape[0]} px, the set's mask of "
            f"{own.shape[1]} x {own.shape[0]}: scale predictions to the set's masks."
        )
    used = own != VOID
    table = np.bincount(own[used] * 256 + answer[used], minlength=VOID * 256).reshape(VOID, 256)
    both, truth = np.diagonal(table).astype(float), table.sum(1).astype(float)
    return both, truth + table.sum(0)[:VOID] - both, truth
