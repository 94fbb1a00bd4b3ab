"""LOAD013: training and evaluation that prepare their inputs differently."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

LEAST = 32
APART = 1.0  # deviations of pictures' means
RATIO = 1.5


class TrainAndEval(Check):
    """Evaluation that sees other colours, scales or types than training.

    ## What it does
    Compares the pictures of both loaders: type, number of channels, mean and deviation of each
    picture by channel.

    ## Why is this bad
    A model evaluated on inputs it was never shown is judged too low, and nothing else tells.

    ## How it decides
    Fails where types or channels differ, where the means of pictures lie a whole deviation of
    pictures apart (99.99 % interval), or where the typical deviation within a picture differs by
    more than 1.5 times. Different crops and flips stay far below.

    ## What to do
    Build both transforms from one function, in which only the augmentation is conditional.

    ## Limits
    Different files are compared, so a small difference (a missing division of one channel by 1.1)
    is not seen. Strong augmentation of colour may come near the bounds.
    """

    code = "LOAD013"
    name = "train-and-eval-differ"

    def run(self, subject: LoaderSubject) -> Answer:
        """Compare both loaders."""
        if subject.make_eval is None:
            return unclear(
                "There is no loader for evaluation to compare with.",
                "Give it: --eval train.py:make_eval_loader.",
            )
        ours, theirs = _stack(subject.batches), _stack(subject.eval_batches)
        if ours is None or theirs is None:
            return unclear("The inputs of one loader are no pictures of one size.")
        if ours.dtype != theirs.dtype or ours.shape[1] != theirs.shape[1]:
            return _failed(
                f"Training gets {ours.dtype} of shape {ours.shape[1:]}, evaluation "
                f"{theirs.dtype} of shape {theirs.shape[1:]}.",
                {},
            )
        if min(len(ours), len(theirs)) < LEAST:
            return unclear(f"{len(ours)} and {len(theirs)} pictures are too few to compare.")
        return _judge(ours.astype(np.float64), theirs.astype(np.float64))

    @staticmethod
    def _pair(change: Any) -> LoaderSubject:
        def evaluation() -> Any:
            dataset = ToyImages(seed=1)
            dataset.pixels = change(dataset.pixels).astype(np.float32)
            return toy_loader(dataset, shuffle=False)

        return LoaderSubject(lambda: toy_loader(ToyImages()), evaluation)

    PLANTED = (
        Example("not normalised", lambda: TrainAndEval._pair(lambda p: p * 0.25 + 0.45)),
        Example("another scale", lambda: TrainAndEval._pair(lambda p: p * 2)),
    )
    HEALTHY = (
        Example("alike", lambda: TrainAndEval._pair(lambda p: p)),
        Example("flipped", lambda: TrainAndEval._pair(lambda p: p[..., ::-1])),
        Example("no evaluation loader", lambda: toy_loader(ToyImages())),
    )


def _stack(batches: Any) -> NDArray[Any] | None:
    """(pictures, channels, pixels), pixels of any number."""
    parts = [b.inputs for b in batches if b.inputs is not None and b.inputs.ndim == 4]
    if not parts or len({p.shape[1:] for p in parts}) != 1:
        return None
    stacked = np.concatenate(parts)
    return stacked.reshape(*stacked.shape[:2], -1)


def _judge(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Answer:
    means = [a.mean(axis=2) for a in (ours, theirs)]
    inner = [np.median(a.std(axis=2), axis=0) for a in (ours, theirs)]
    pooled = np.sqrt((means[0].var(axis=0) + means[1].var(axis=0)) / 2 + np.square(inner).mean())
    distance = np.abs(means[0].mean(axis=0) - means[1].mean(axis=0)) / np.maximum(pooled, 1e-12)
    error = 3.9 * np.sqrt(1 / len(ours) + 1 / len(theirs))
    ratio = float(np.max(np.maximum(inner[0], inner[1]) / np.maximum(np.minimum(*inner), 1e-12)))
    numbers = {"distance": round(float(distance.max()), 3), "ratio": round(ratio, 3)}
    said = (
        f"Means of pictures lie {distance.max():.2f} deviations apart, and deviations within "
        f"pictures differ by a factor of {ratio:.2f}"
    )
    apart = APART if np.allclose(inner[0], inner[1], rtol=0.3) else APART / 4
    if distance.max() - error > apart or ratio > RATIO:
        return _failed(f"{said}: training and evaluation prepare pictures differently.", numbers)
    return passed(f"{said}.", **numbers)


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [
            "Normalize is missing, or has other numbers, in one of the transforms",
            "one of them reads BGR (OpenCV), the other RGB (Pillow)",
            "one of them does not divide by 255",
        ],
        "Build both transforms from one function; load one file through both and compare.",
        **numbers,
    )
