"""LOAD015: a flip or a turn of the picture that its mask or box does not follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, inputs_and_targets
from pipeline_profiler.checks.check import Answer, Check, passed, unclear
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.toys import ToyImages, toy_loader
from pipeline_profiler.checks.user_code import users_code

TRIES, SAMPLES, LEAST = 8, 8, 3
NEARER = 0.25  # a flip is seen where it explains all but a quarter of the difference
TURNS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "flipped left to right": lambda a: a[..., ::-1],
    "flipped upside down": lambda a: a[..., ::-1, :],
    "turned by 180 degrees": lambda a: a[..., ::-1, ::-1],
}


class FlippedAlone(Check):
    """Pictures flipped while their masks stay as they are.

    ## What it does
    Makes some samples eight times each. Where a picture comes out flipped, its mask must be
    flipped as well, and so must its boxes.

    ## Why is this bad
    Half of the masks then belong to another place: the model learns the mean of both.

    ## How it decides
    Fails where in at least three pairs the picture is the mirror image of its other version, the
    mask is not, and the mask is not symmetric. A mirror image is not met by chance: it must
    explain three quarters of the difference.

    ## What to do
    Transform picture and mask in one call (`v2` with tv_tensors, or albumentations).

    ## Limits
    Masks of the size of the picture, and `boxes` of corners in pixels in a dict; keypoints and
    classes such as "left hand" are not followed, nor are crops.
    """

    code = "LOAD015"
    name = "flipped-without-target"
    causes = (
        "the random transform is applied to the picture only",
        "picture and mask draw their own random numbers",
    )
    next_step = "Transform both in one call, or draw the parameters once."

    def run(self, subject: LoaderSubject) -> Answer:
        if not subject.has_indices:
            return unclear("Samples without indices cannot be made again.")
        dataset = subject.loader.dataset
        pairs = list(_pairs(subject, dataset))
        if not pairs:
            return unclear("The targets are neither masks of the size of the pictures nor boxes.")
        wrong_pairs = [turn for turn, follows in pairs if turn and not follows]
        turned = [turn for turn, _ in pairs if turn]
        numbers = {"pairs": len(pairs), "turned": len(turned), "mask_left": len(wrong_pairs)}
        if len(wrong_pairs) >= LEAST:
            return self.failed(
                f"In {len(wrong_pairs)} of {len(turned)} pairs the picture is "
                f"{wrong_pairs[0]} and its mask is not.",
                **numbers,
            )
        if not turned:
            return unclear(f"No picture came out flipped in {len(pairs)} pairs.", **numbers)
        return passed(
            f"The masks follow in all but {len(wrong_pairs)} of {len(turned)} pairs whose "
            "picture is flipped.",
            **numbers,
        )

    @staticmethod
    def _masked(follow: bool) -> Any:
        class Masked(ToyImages):
            def __getitem__(self, index: int) -> Any:
                pixels, label = super().__getitem__(index)
                mask = np.zeros((8, 8), np.int64)
                mask[label : label + 3, label : label + 2] = 1
                if np.random.random() < 0.5:
                    pixels = pixels[..., ::-1].copy()
                    mask = mask[..., ::-1].copy() if follow else mask
                return pixels, mask

        return toy_loader(Masked())

    @staticmethod
    def _boxed(follow: bool) -> Any:
        class Boxed(ToyImages):
            def __getitem__(self, index: int) -> Any:
                pixels, label = super().__getitem__(index)
                box: Any = np.array([[label % 3, 1, label % 3 + 2, 5]], np.float32)
                if np.random.random() < 0.5:
                    pixels = pixels[..., ::-1].copy()
                    box = box[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [8, 0, 8, 0] if follow else box
                return pixels, {"boxes": box, "labels": np.array([label])}

        return toy_loader(Boxed())

    PLANTED = (
        ("only the picture", lambda: FlippedAlone._masked(False)),
        ("boxes stay", lambda: FlippedAlone._boxed(False)),
    )
    HEALTHY = (
        ("both", lambda: FlippedAlone._masked(True)),
        ("boxes follow", lambda: FlippedAlone._boxed(True)),
    )


def _pairs(subject: LoaderSubject, dataset: Any) -> Iterator[tuple[str, bool]]:
    """(turn of the picture or "", whether the mask is turned too) for pairs of one sample."""
    count = min(SAMPLES, len(dataset))
    for index in np.linspace(0, len(dataset) - 1, count).astype(int).tolist():
        made = [_arrays(subject, dataset, index) for _ in range(TRIES)]
        first = made[0]
        if first is None:
            return
        if any(_same_rows(_turned(first, turn), first[1], first[2]) for turn in TURNS):
            continue  # symmetric: whether it follows cannot be seen
        for other in made[1:]:
            if other is None or other[0].shape != first[0].shape:
                continue
            turn = _turn_between(first[0], other[0])
            follows = bool(turn) and _same_rows(_turned(first, turn), other[1], first[2])
            stayed = np.array_equal(first[1], other[1])
            yield turn, follows or not stayed


def _arrays(subject: LoaderSubject, dataset: Any, index: int) -> tuple[Any, Any, bool] | None:
    """(picture, mask or boxes, whether these are boxes of corners in pixels)."""
    with users_code(f"dataset[{index}]"):
        inputs, targets = inputs_and_targets(dataset[index], subject.split)
    if isinstance(targets, Mapping) and "boxes" in targets:
        picture, boxes = as_array(inputs), as_array(targets["boxes"])
        if picture is None or boxes is None or picture.ndim != 3 or not _corners(boxes):
            return None
        return picture.astype(np.float64), boxes.astype(np.float64), True
    picture, mask = as_array(inputs), None if targets is None else as_array(targets)
    if picture is None or mask is None or picture.ndim != 3 or mask.ndim < 2:
        return None
    if picture.shape[-2:] != mask.shape[-2:]:
        return None
    return picture.astype(np.float64), mask, False


def _corners(boxes: NDArray[Any]) -> bool:
    """Rows of (left, top, right, bottom) in pixels."""
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes) or boxes.max() <= 1:
        return False
    return bool((boxes[:, 2] > boxes[:, 0]).all() and (boxes[:, 3] > boxes[:, 1]).all())


def _same_rows(one: NDArray[Any], two: NDArray[Any], boxes: bool) -> bool:
    """Equal masks; boxes within a pixel and a half, in any order."""
    if one.shape != two.shape:
        return False
    if not boxes:
        return bool(np.array_equal(one, two))
    one, two = (rows[np.lexsort(rows.T)] for rows in (one, two))
    return bool(np.abs(one - two).max() <= 1.5)


def _turned(made: tuple[Any, Any, bool], turn: str) -> NDArray[Any]:
    """The mask or the boxes of a picture that is turned so."""
    picture, target, boxes = made
    if not boxes:
        return TURNS[turn](target)
    left, top, right, bottom = target.T
    height, width = picture.shape[-2:]
    if turn != "flipped upside down":
        left, right = width - right, width - left
    if turn != "flipped left to right":
        top, bottom = height - bottom, height - top
    return np.stack([left, top, right, bottom], axis=1)


def _turn_between(one: NDArray[Any], two: NDArray[Any]) -> str:
    plain = float(np.abs(one - two).mean())
    if plain == 0:
        return ""
    distances = {name: float(np.abs(turn(one) - two).mean()) for name, turn in TURNS.items()}
    name = min(distances, key=lambda key: distances[key])
    return name if distances[name] < NEARER * plain else ""
