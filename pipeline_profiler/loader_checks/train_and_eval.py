"""LOAD013: training and evaluation that prepare their inputs differently."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.file_transforms import same_files
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

LEAST = 32
FILES, FEWEST_FILES = 40, 12
FAR_T, LEAST_SHIFT = 5.5, 0.05  # deviations of the paired mean; deviations of pixels
APART = 1.0  # deviations of pictures' means
RATIO = 1.5


class TrainAndEval(Check):
    """Evaluation that sees other colours, scales or types than training.

    ## What it does
    Where both datasets have files and a `transform`, puts the same 40 files through both and
    compares them in pairs. Else compares the pictures of both loaders: type, number of channels,
    mean and deviation of each picture by channel.

    ## Why is this bad
    A model evaluated on inputs it was never shown is judged too low, and nothing else tells.

    ## How it decides
    Fails where types or channels differ, where the means of pictures lie a whole deviation of
    pictures apart (99.99 % interval), or where the typical deviation within a picture differs by
    more than 1.5 times. Different crops and flips stay far below. In pairs of one file: where means
    lie 0.05 deviations of pixels apart beyond 5.5 standard errors, or channels agree once they are
    turned round in nine of ten files.

    ## What to do
    Build both transforms from one function, in which only the augmentation is conditional.

    ## Limits
    Where different files are compared, a small difference (a missing division of one channel by
    1.1) is not seen. Strong augmentation of colour may come near the bounds.
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
        ours_of, theirs_of = (
            getattr(loader, "dataset", None) for loader in (subject.loader, subject.eval_loader)
        )
        found = _judge_pairs(same_files(ours_of, theirs_of, FILES))
        if found is not None:
            return found
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

    @staticmethod
    def _files(order: tuple[int, ...], shift: float = 0.0) -> LoaderSubject:
        folder = tempfile.TemporaryDirectory()
        rng = np.random.default_rng(0)
        for number in range(40):
            from PIL import Image

            colour = rng.integers(0, 256, (1, 1, 3)) * 0.7 + rng.integers(0, 76, (12, 12, 3))
            Image.fromarray(colour.astype(np.uint8)).save(f"{folder.name}/{number}.png")

        class Files:
            def __init__(self, transform: Any) -> None:
                self.files = sorted(Path(folder.name).glob("*.png"))
                self.transform = transform

            def __len__(self) -> int:
                return len(self.files)

            def __getitem__(self, index: int) -> Any:
                from PIL import Image

                return self.transform(Image.open(self.files[index])), 0

        def plain(picture: Any) -> Any:
            pixels = np.array(picture, np.float32).transpose(2, 0, 1) / 255
            return pixels[:, :, ::-1].copy() if np.random.random() < 0.5 else pixels

        def other(picture: Any) -> Any:
            return plain(picture)[list(order)] + np.float32(shift)

        return LoaderSubject(
            lambda: toy_loader(Files(plain)), lambda: toy_loader(Files(other), shuffle=False)
        )

    PLANTED = (
        Example("one file, another mean", lambda: TrainAndEval._files((0, 1, 2), 0.1)),
        Example("one file, BGR", lambda: TrainAndEval._files((2, 1, 0))),
        Example("not normalised", lambda: TrainAndEval._pair(lambda p: p * 0.25 + 0.45)),
        Example("another scale", lambda: TrainAndEval._pair(lambda p: p * 2)),
    )
    HEALTHY = (
        Example("one file, flipped at random", lambda: TrainAndEval._files((0, 1, 2))),
        Example("alike", lambda: TrainAndEval._pair(lambda p: p)),
        Example("flipped", lambda: TrainAndEval._pair(lambda p: p[..., ::-1])),
        Example("no evaluation loader", lambda: toy_loader(ToyImages())),
    )


def _judge_pairs(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> Answer | None:
    """The same files through both transforms: paired, so that what the files show cancels."""
    if len(pairs) < FEWEST_FILES:
        return None
    one, two = pairs[0]
    if one.dtype != two.dtype or one.shape[0] != two.shape[0]:
        return _failed(
            f"Training makes {one.dtype} of shape {one.shape} of a file, evaluation {two.dtype} of "
            f"shape {two.shape}.",
            {},
        )
    spread = float(np.mean([a.std() for a, _ in pairs])) + 1e-12
    means = np.array([a.mean(axis=(1, 2)) - b.mean(axis=(1, 2)) for a, b in pairs]) / spread
    shift = float(np.abs(means.mean(axis=0)).max())
    error = float(means.std(axis=0).max() / math.sqrt(len(pairs)))
    typical = float(np.median(np.abs(means)))
    ratio = float(np.median([a.std() for a, _ in pairs]) / max(1e-12, _typical_std(pairs)))
    numbers = {"files": len(pairs), "shift": round(shift, 4), "ratio": round(ratio, 4)}
    said = (
        f"The same {len(pairs)} files have means that lie {shift:.2f} deviations apart by channel "
        f"({typical:.2f} within a file), and deviations of a ratio of {ratio:.2f}"
    )
    swapped = _better_reversed(pairs)
    if swapped or shift - FAR_T * error > LEAST_SHIFT or not 1 / RATIO < ratio < RATIO:
        what = "with the channels in another order" if swapped else "differently"
        return _failed(f"{said}: training and evaluation prepare one file {what}.", numbers)
    return passed(f"{said}.", **numbers)


def _typical_std(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> float:
    return float(np.median([b.std() for _, b in pairs]))


def _better_reversed(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> bool:
    """Whether nearly all pictures agree better once the channels are turned round."""
    if pairs[0][0].shape[0] != 3:
        return False
    ours, theirs = (np.array([p[i].mean(axis=(1, 2)) for p in pairs]) for i in (0, 1))
    plain = np.abs(ours - theirs).sum(axis=1)
    turned = np.abs(ours - theirs[:, ::-1]).sum(axis=1)
    coloured = np.abs(ours[:, 0] - ours[:, 2]) > 1e-3
    return bool(coloured.sum() >= FEWEST_FILES and (turned < 0.25 * plain)[coloured].mean() > 0.9)


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
