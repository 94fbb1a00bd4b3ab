"""LOAD015: a flip or a turn of the picture that its mask does not follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checking.batch_parts import as_array, inputs_and_targets
from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.user_calls import users_code

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
    flipped as well.

    ## Why is this bad
    Half of the masks then belong to another place: the model learns the mean of both.

    ## How it decides
    Fails where in at least three pairs the picture is the mirror image of its other version, the
    mask is not, and the mask is not symmetric. A mirror image is not met by chance: it must
    explain three quarters of the difference.

    ## What to do
    Transform picture and mask in one call (`v2` with tv_tensors, or albumentations).

    ## Limits
    Masks of the size of the picture only; boxes, keypoints and classes such as "left hand" are
    not followed, nor are crops.
    """

    code = "LOAD015"
    name = "flipped-without-target"

    def run(self, subject: LoaderSubject) -> Answer:
        """Make samples again and again."""
        if not subject.has_indices:
            return unclear("Samples without indices cannot be made again.")
        dataset = subject.loader.dataset
        pairs = list(_pairs(subject, dataset))
        if not pairs:
            return unclear("The targets are no masks of the size of the pictures.")
        wrong_pairs = [turn for turn, follows in pairs if turn and not follows]
        turned = [turn for turn, _ in pairs if turn]
        numbers = {"pairs": len(pairs), "turned": len(turned), "mask_left": len(wrong_pairs)}
        if len(wrong_pairs) >= LEAST:
            return wrong(
                f"In {len(wrong_pairs)} of {len(turned)} pairs the picture is "
                f"{wrong_pairs[0]} and its mask is not.",
                [
                    "the random transform is applied to the picture only",
                    "picture and mask draw their own random numbers",
                ],
                "Transform both in one call, or draw the parameters once.",
                **numbers,
            )
        if not turned:
            return unclear(f"No picture came out flipped in {len(pairs)} pairs.", "", **numbers)
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

    PLANTED = (Example("only the picture", lambda: FlippedAlone._masked(False)),)
    HEALTHY = (
        Example("both", lambda: FlippedAlone._masked(True)),
        Example("classes", lambda: toy_loader(ToyImages())),
    )


def _pairs(subject: LoaderSubject, dataset: Any) -> Any:
    """(turn of the picture or "", whether the mask is turned too) for pairs of one sample."""
    count = min(SAMPLES, len(dataset))
    for index in np.linspace(0, len(dataset) - 1, count).astype(int).tolist():
        made = [_arrays(subject, dataset, index) for _ in range(TRIES)]
        first = made[0]
        if first is None:
            return
        for other in made[1:]:
            if other is None or other[0].shape != first[0].shape or _alike(first[1]):
                continue
            turn = _turn_between(first[0], other[0])
            follows = bool(turn) and np.array_equal(TURNS[turn](first[1]), other[1])
            stayed = np.array_equal(first[1], other[1])
            yield turn, follows or not stayed


def _arrays(subject: LoaderSubject, dataset: Any, index: int) -> tuple[Any, Any] | None:
    with users_code(f"dataset[{index}]"):
        inputs, targets = inputs_and_targets(dataset[index], subject.split)
    picture, mask = as_array(inputs), None if targets is None else as_array(targets)
    if picture is None or mask is None or picture.ndim != 3 or mask.ndim < 2:
        return None
    if picture.shape[-2:] != mask.shape[-2:]:
        return None
    return picture.astype(np.float64), mask


def _alike(mask: NDArray[Any]) -> bool:
    """Whether a mask looks the same when it is flipped."""
    return any(np.array_equal(turn(mask), mask) for turn in TURNS.values())


def _turn_between(one: NDArray[Any], two: NDArray[Any]) -> str:
    plain = float(np.abs(one - two).mean())
    if plain == 0:
        return ""
    distances = {name: float(np.abs(turn(one) - two).mean()) for name, turn in TURNS.items()}
    name = min(distances, key=lambda key: distances[key])
    return name if distances[name] < NEARER * plain else ""
