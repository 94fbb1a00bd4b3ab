"""Training beside evaluation: how inputs are prepared, and which classes and numbers both have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array
from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear, wrong
from pipeline_profiler.checks.indexed import all_rows, made_samples, random_indices, rows_of
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    dataset_layers,
    decisive,
    same_files,
)

NO_EVALUATION = (
    "There is no loader for evaluation to compare with.",
    "Give it: --eval train.py:make_eval_loader.",
)
MIN_IMAGES = 32
FILES, MIN_FILES = 40, 12
FAR_T, MIN_SHIFT = 5.5, 0.05  # deviations of the paired mean; deviations of pixels
APART = 1.0  # deviations of images' means
RATIO = 1.5


class TrainAndEval(Check):
    """Evaluation inputs with other colours, scales or types than training inputs.

    ## How it decides
    Passes 40 files through both transforms if both datasets have files and a `transform`: means may
    differ by 0.05 deviations of pixels beyond 5.5 standard errors, and reversed channels must not
    agree better in nine of ten coloured files. Else compares the center of images of both loaders.
    Fails if types or channels differ, deviations by a factor above 1.5, or means by one deviation
    of images (99.99% interval).

    ## Limits
    Without files, small differences are not seen. Inconclusive if a script evaluates several
    loaders.
    """

    code = "LOAD013"
    name = "train-and-eval-differ"
    entering = True
    causes = (
        "Normalize is missing, or has other numbers, in one of the transforms",
        "one of them reads BGR (OpenCV), the other RGB (Pillow)",
        "one of them does not divide by 255",
    )
    next_step = "Build both transforms from one function; load one file through both and compare."

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.make_eval is None:
            return skipped(*NO_EVALUATION)
        sets = [getattr(x, "dataset", None) for x in (subject.loader, subject.eval_loader)]
        pairs = same_files(sets[0], sets[1], FILES) if subject.pairs is None else []
        kinds = {(image.dtype, len(image)) for pair in pairs[:1] for image in pair}
        if len(pairs) >= MIN_FILES and len(kinds) == 1:
            return self._judge_pairs(pairs)
        ours, theirs = _stack(subject.batches), _stack(subject.eval_batches)
        if ours is None or theirs is None:
            return unclear("The inputs of one loader are no images of one size.")
        if ours.dtype != theirs.dtype or ours.shape[1] != theirs.shape[1]:
            return self.failed(
                f"Training gets {ours.dtype} of shape {ours.shape[1:]}, evaluation "
                f"{theirs.dtype} of shape {theirs.shape[1:]}."
            )
        if min(len(ours), len(theirs)) < MIN_IMAGES:
            return unclear(f"{len(ours)} and {len(theirs)} images are too few to compare.")
        images = [a.astype(np.float64) for a in (ours, theirs)]
        means = [a.mean(axis=2) for a in images]
        inner = np.array([np.median(a.std(axis=2), axis=0) for a in images]) + 1e-12
        spread = np.sqrt(np.mean([m.var(axis=0) for m in means], axis=0) + np.square(inner).mean())
        distance = float((abs(means[0].mean(axis=0) - means[1].mean(axis=0)) / spread).max())
        error = 3.9 * np.sqrt(1 / len(ours) + 1 / len(theirs))
        ratio = float((inner.max(axis=0) / inner.min(axis=0)).max())
        text = (
            f"Means of images are {distance:.2f} deviations apart, and deviations within "
            f"images differ by a factor of {ratio:.2f}"
        )
        apart = APART if np.allclose(inner[0], inner[1], rtol=0.3) else APART / 4
        if distance - error > apart or ratio > RATIO:
            if subject.evaluations > 1:
                return unclear(f"{text}: your script evaluates several loaders.")
            return self.failed(f"{text}: training and evaluation prepare images differently.")
        return passed(f"{text}.")

    def _judge_pairs(self, pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> Answer:
        """The same files through both transforms: paired, so that what the files show cancels."""
        ours, theirs = (np.array([pair[i].mean(axis=(1, 2)) for pair in pairs]) for i in (0, 1))
        inner = np.array([[image.std() for image in pair] for pair in pairs]) + 1e-12
        apart = (ours - theirs) / inner[:, 0].mean()
        shift = float(np.abs(apart.mean(axis=0)).max())
        error = float(apart.std(axis=0).max() / math.sqrt(len(pairs)))
        ratio = float(np.divide(*np.median(inner, axis=0)))
        text = (
            f"The same {len(pairs)} files have means that lie {shift:.2f} deviations apart by "
            f"channel ({np.median(np.abs(apart)):.2f} within a file), and deviations of a ratio of "
            f"{ratio:.2f}"
        )
        swapped = _better_reversed(ours, theirs)
        if swapped or shift - FAR_T * error > MIN_SHIFT or not 1 / RATIO < ratio < RATIO:
            what = "with the channels in another order" if swapped else "differently"
            return self.failed(f"{text}: training and evaluation prepare one file {what}.")
        return passed(f"{text}.")


def _better_reversed(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Whether nearly all images agree better once the channels are turned round."""
    if ours.shape[1] != 3:
        return False
    plain = np.abs(ours - theirs).sum(axis=1)
    turned = np.abs(ours - theirs[:, ::-1]).sum(axis=1)
    coloured = np.abs(ours[:, 0] - ours[:, 2]) > 1e-3
    return bool(coloured.sum() >= MIN_FILES and (turned < 0.25 * plain)[coloured].mean() > 0.9)


def _stack(batches: Any) -> NDArray[Any] | None:
    """(images, channels, pixels) of the central half by each axis: a crop may pad the border."""
    parts = [b.inputs for b in batches if b.inputs is not None and b.inputs.ndim == 4]
    if not parts or len({p.shape[1:] for p in parts}) != 1:
        return None
    height, width = (size // 4 for size in parts[0].shape[2:])
    stacked = np.concatenate(parts)[:, :, height : -height or None, width : -width or None]
    return stacked.reshape(*stacked.shape[:2], -1)


LISTS = ("classes", "class_names", "label_names")
MAX_SHOWN = 5
MAX_LABELS, MIN_LABELS, IN_COMMON = 240, 64, 0.15


class LabelNumbers(Check):
    """Training and evaluation with other classes, or other numbers of one class.

    ## How it decides
    Fails if a class name of both datasets has different numbers: `class_to_idx`, `label2id`,
    `id2label`, `classes`, `class_names`, `label_names`, `features` of Hugging Face. Exact. Fails if
    the class shares of up to 240 random labels of each dataset overlap by less than 15%, as if data
    stored class by class are cut. Needs 64 labels, and ten samples per class.

    ## Limits
    Inconclusive if a `target_transform` may renumber the classes. If the evaluation has new classes
    on purpose, skip this check.
    """

    code = "LOAD018"
    name = "labels-numbered-apart"
    causes = (
        "a folder of a class is missing in one of them, and the rest moved up",
        "names are sorted differently, or two tables of labels",
    )
    next_step = "Number both by the table of the training set."

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.make_eval is None:
            return skipped(*NO_EVALUATION)
        return decisive([self._judge_names(subject), _judge_shares(subject)])

    def _judge_names(self, subject: LoaderSubject) -> Answer:
        sets = [getattr(x, "dataset", x) for x in (subject.loader, subject.eval_loader)]
        ours, theirs = map(_numbers_of, sets)
        shared = [name for name in ours if name in theirs]
        if not shared:
            return absent("The two datasets have no name of a class in common.")
        apart = [(name, ours[name], theirs[name]) for name in shared if ours[name] != theirs[name]]
        if not apart:
            return passed(
                f"{len(shared)} names of classes have one number in training and evaluation."
            )
        named = ", ".join(f"{name}: {a} and {b}" for name, a, b in apart[:MAX_SHOWN])
        more = f" and {len(apart) - MAX_SHOWN} more" if len(apart) > MAX_SHOWN else ""
        text = (
            f"{len(apart)} of {len(shared)} classes have another number in training than in "
            f"evaluation ({named}{more})"
        )
        layers = [layer for dataset in sets for layer in dataset_layers(dataset)]
        if any(getattr(layer, "target_transform", None) is not None for layer in layers):
            return unclear(f"{text}; a target_transform may number them anew.")
        return self.failed(f"{text}.")


def _judge_shares(subject: LoaderSubject) -> Answer:
    """Whether the evaluation covers the classes that are trained."""
    ours, theirs = (_labels_of(subject, x) for x in (subject.loader, subject.eval_loader))
    if ours is None or theirs is None:
        return absent("There are no labels of training and evaluation to compare.")
    values = np.union1d(ours, theirs)
    one, two = ((part[:, None] == values).mean(0) for part in (ours, theirs))
    fewest = min(len(ours), len(theirs))
    if fewest < max(MIN_LABELS, 10 * len(values)) or (one > 0).sum() < 2:
        return absent(f"{fewest} labels of {len(values)} classes are too few to compare.")
    common, most = float(np.minimum(one, two).sum()), int(two.argmax())
    text = (
        f"The class shares of training and evaluation overlap by {common:.0%}: label "
        f"{values[most]:g} is {two[most]:.0%} of the evaluation and {one[most]:.0%} of training."
    )
    if common >= IN_COMMON:
        return passed(text)
    return wrong(
        text,
        ["data stored class by class, of which the last part is held out", "two tables of labels"],
        "Shuffle once before the split, or split each class.",
    )


def _labels_of(subject: LoaderSubject, loader: Any) -> NDArray[Any] | None:
    """Labels of samples drawn from the whole of a loader's data; None where there are none."""
    dataset = rows_of(loader)
    if dataset is None or not all_rows(dataset):
        return None
    made = made_samples(subject, dataset, random_indices(dataset, MAX_LABELS))
    targets = as_array([target for _, target in made])
    if targets is None or targets.dtype.kind not in "biuf":
        return None
    targets = targets.reshape(len(targets), -1)
    if targets.shape[1] > 1 and (targets.sum(1) == 1).all() and (targets.max(1) == 1).all():
        targets = targets.argmax(1)[:, None]
    whole = targets.shape[1] == 1 and (targets == np.round(targets)).all()
    return targets[:, 0] if whole else None


def _numbers_of(dataset: Any) -> dict[str, int]:
    """Number by name, of the outermost dataset that has names; empty where none has."""
    for layer in dataset_layers(dataset):
        if pairs := _pairs_of(layer):
            often = Counter(name for name, _ in pairs)
            return {name: number for name, number in pairs if often[name] == 1}
    return {}


def _pairs_of(layer: Any) -> list[tuple[str, int]]:
    for key in ("class_to_idx", "label2id", "id2label"):
        if isinstance(table := getattr(layer, key, None), Mapping):
            pairs = [pair[::-1] if key == "id2label" else pair for pair in table.items()]
            try:
                return [(str(name), int(number)) for name, number in pairs]
            except (TypeError, ValueError):
                return []
    features = getattr(layer, "features", None)
    parts = features if isinstance(features, Mapping) else {}
    known = [getattr(parts.get(key), "names", None) for key in ("label", "labels", "fine_label")]
    for names in (*known, *(getattr(layer, key, None) for key in LISTS)):
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            continue
        if not hasattr(layer, "__len__") or len(names) != len(layer):  # a name for each sample
            return [(name, number) for number, name in enumerate(names)]
    return []
