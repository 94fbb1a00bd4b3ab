"""Training beside evaluation: how inputs are prepared, and which classes and numbers both have."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, same_bytes
from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear
from pipeline_profiler.checks.indexed import (
    all_rows,
    made_sample,
    made_samples,
    random_indices,
    rows_of,
    spread_indices,
)
from pipeline_profiler.checks.loader.contents import (
    MIN_MOVED,
    NO_EVALUATION,
    SAMPLES,
    SEEDED,
    augments,
    features_of,
    stored_rows,
)
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    dataset_layers,
    decisive,
    same_files,
)
from pipeline_profiler.checks.ranks import own_files
from pipeline_profiler.checks.reported import HELD_OUT

Array = NDArray[Any]
MIN_IMAGES = 32
FILES, MIN_FILES = 40, 12
FAR_T, MIN_SHIFT = 5.5, 0.05  # deviations of the paired mean; deviations of pixels
APART = 1.0  # deviations of images' means
RATIO = 1.5
BEYOND = 4.5  # deviations from chance
SETS_TRANSFORM = re.compile(r"(?m)^\s*([\w.]+)\.dataset\.(?:target_)?transforms?\s*=\s*([\w.]+)")


class TrainAndEval(Check):
    """Evaluation inputs that are prepared otherwise than for training, or augmented.

    ## How it decides
    Compares 40 files through both transforms, or images of both loaders. Fails if types, channels
    or their order differ, deviations by a factor of 1.5, or means by one deviation of images (0.05
    for files). Fails if two draws of evaluation samples differ and their labels do not, or if your
    code sets the transform of a dataset that both loaders read.

    ## Limits
    Noise to be removed, masked patches and pairs of views may be random on purpose.
    """

    code = "LOAD013"
    name = "train-and-eval-differ"
    causes = (
        "Normalize is missing, or has other numbers, in one of the transforms",
        "one of them reads BGR (OpenCV), the other RGB (Pillow), or does not divide by 255",
    )
    next_step = "Build both transforms from one function, without random parts for evaluation."

    def run(self, subject: LoaderSubject) -> Answer:
        augmented = _judge_augmented(subject)
        if subject.make_eval is None:
            return augmented
        given = _judge_prepared(subject)
        return decisive([self.as_entered(subject, given, _judge_prepared), augmented])


def _judge_prepared(subject: LoaderSubject) -> Answer:
    sets = [getattr(x, "dataset", None) for x in (subject.loader, subject.eval_loader)]
    pairs = same_files(sets[0], sets[1], FILES) if subject.pairs is None else []
    if len(pairs) >= MIN_FILES and len({(image.dtype, len(image)) for image in pairs[0]}) == 1:
        return _judge_pairs(pairs)
    ours, theirs = _stack(subject.batches), _stack(subject.eval_batches)
    if ours is None or theirs is None:
        return absent("The inputs of one loader are no images of one size.")
    if ours.dtype != theirs.dtype or ours.shape[1] != theirs.shape[1]:
        return TrainAndEval.failed(
            f"Training gets {ours.dtype} of shape {ours.shape[1:]}, evaluation {theirs.dtype} of "
            f"shape {theirs.shape[1:]}."
        )
    if min(len(ours), len(theirs)) < MIN_IMAGES:
        return unclear(f"{len(ours)} and {len(theirs)} images are too few to compare.")
    images = [a.astype(np.float64) for a in (ours, theirs)]
    means = [a.mean(axis=2) for a in images]
    inner = np.array([np.median(a.std(axis=2), axis=0) for a in images]) + 1e-12
    spread = np.sqrt(np.mean([m.var(axis=0) for m in means], axis=0) + np.square(inner).mean())
    distance = float((abs(means[0].mean(axis=0) - means[1].mean(axis=0)) / spread).max())
    error = 3.9 * math.sqrt(1 / len(ours) + 1 / len(theirs))
    ratio = float((inner.max(axis=0) / inner.min(axis=0)).max())
    text = (
        f"Means of images are {distance:.2f} deviations apart, and deviations within images "
        f"differ by a factor of {ratio:.2f}"
    )
    apart = APART if np.allclose(inner[0], inner[1], rtol=0.3) else APART / 4
    if distance - error <= apart and ratio <= RATIO:
        return passed(f"{text}.")
    if subject.evaluations > 1:
        return unclear(f"{text}: your script evaluates several loaders.")
    return TrainAndEval.failed(f"{text}: training and evaluation prepare images differently.")


def _judge_pairs(pairs: list[tuple[Array, Array]]) -> Answer:
    """Compare the images that both transforms make of the same files, file by file."""
    ours, theirs = (np.array([pair[i].mean(axis=(1, 2)) for pair in pairs]) for i in (0, 1))
    inner = np.array([[image.std() for image in pair] for pair in pairs]) + 1e-12
    apart = (ours - theirs) / inner[:, 0].mean()
    shift = float(np.abs(apart.mean(axis=0)).max())
    error = float(apart.std(axis=0).max() / math.sqrt(len(pairs)))
    ratio = float(np.divide(*np.median(inner, axis=0)))
    plain, turned = (np.abs(ours - other).sum(axis=1) for other in (theirs, theirs[:, ::-1]))
    coloured = np.abs(ours[:, 0] - ours[:, -1]) > 1e-3
    swapped = coloured.sum() >= MIN_FILES and (turned < 0.25 * plain)[coloured].mean() > 0.9
    text = (
        f"The same {len(pairs)} files have means that lie {shift:.2f} deviations apart by channel "
        f"({np.median(np.abs(apart)):.2f} within a file), and deviations of a ratio of {ratio:.2f}"
    )
    if swapped or shift - FAR_T * error > MIN_SHIFT or not 1 / RATIO < ratio < RATIO:
        what = "with the channels in another order" if swapped else "differently"
        return TrainAndEval.failed(f"{text}: training and evaluation prepare one file {what}.")
    return passed(f"{text}.")


def _stack(batches: Any) -> Array | None:
    """(images, channels, pixels) of the central half by each axis: a crop may pad the border."""
    parts = [b.inputs for b in batches if b.inputs is not None and b.inputs.ndim == 4]
    if not parts or len({p.shape[1:] for p in parts}) != 1:
        return None
    height, width = (size // 4 for size in parts[0].shape[2:])
    stacked = np.concatenate(parts)[:, :, height : -height or None, width : -width or None]
    return stacked.reshape(*stacked.shape[:2], -1)


def _judge_augmented(subject: LoaderSubject) -> Answer:
    """Whether samples for evaluation change from draw to draw, and their labels do not."""
    dataset = rows_of(subject.loader if subject.evaluation else subject.eval_loader)
    if dataset is None or not len(dataset):
        return skipped(*NO_EVALUATION)
    if place := _transform_set_twice(subject):
        return TrainAndEval.failed(
            "Both splits read one dataset: the transform that is set for the held-out samples "
            "applies to training too.",
            "subset.dataset is the whole dataset: make it twice, and take the same indices",
            place=place,
        )
    indices = spread_indices(dataset, SAMPLES)
    draws = [[made_sample(subject, dataset, i) for i in indices] for _ in range(2)]
    pairs = list(zip(*draws, strict=True))
    moved = np.array([not same_bytes(one[0], two[0]) for one, two in pairs])
    if not moved.any():
        seeded = getattr(dataset, "augments", False)
        return unclear(SEEDED) if seeded else passed(f"{len(indices)} samples stay the same.")
    text = f"{moved.sum()} of {len(indices)} samples for evaluation come out otherwise each time"
    labels = [label for _, label in draws[0] if label is not None and label.size == 1]
    stay = len(labels) == len(pairs) and all(same_bytes(one[1], two[1]) for one, two in pairs)
    if not stay or getattr(draws[0][0][0], "ndim", 0) != 3:
        return unclear(f"{text}: no images with one label that stays.")
    first, second = (np.array([features_of(image) for image, _ in made]) for made in draws)
    apart = np.abs(first[:, None] - second[None]).mean(axis=2)
    among = (np.ravel(labels)[:, None] == np.ravel(labels)) | augments(dataset)
    nearest = np.where(among, apart, np.inf).argmin(axis=1) == np.arange(len(apart))
    chance = 1 / among.sum(axis=1)[moved]
    error = math.sqrt(max(1e-18, (chance * (1 - chance)).sum()))
    if moved.sum() < MIN_MOVED or nearest[moved].sum() - chance.sum() < BEYOND * error:
        return unclear(f"{text}, and not surely of the same images.")
    return TrainAndEval.failed(
        f"{text}, with the label they had: they are augmented at random.",
        "the split has the transform of training (random_split of one dataset)",
    )


def _transform_set_twice(subject: LoaderSubject) -> str:
    """The line that sets the transform of both loaders' one dataset for held-out samples, or ""."""
    train, test = rows_of(subject.loader), rows_of(subject.eval_loader)
    if train is None or test is None or stored_rows(train)[0] is not stored_rows(test)[0]:
        return ""
    for path, text in own_files().items():
        found = list(SETS_TRANSFORM.finditer(text))
        same = {m[2] for m in found if not HELD_OUT.search(m[1])}
        for match in found:
            if HELD_OUT.search(match[1]) and match[2] not in same:
                return f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}"
    return ""


LISTS = ("classes", "class_names", "label_names")
MAX_SHOWN = 5
MAX_LABELS, MIN_LABELS, IN_COMMON = 240, 64, 0.15


class LabelNumbers(Check):
    """Training and evaluation with other classes, or other numbers of one class.

    ## How it decides
    Fails if a class name of both datasets has different numbers (`class_to_idx`, `label2id`,
    `classes`, features of Hugging Face). Exact. Fails if the class shares of up to 240 random
    labels of each overlap by less than 15%. Needs 64 labels, and ten samples per class.

    ## Limits
    If the evaluation has new classes on purpose, skip this check.
    """

    code = "LOAD018"
    name = "labels-numbered-apart"
    causes = (
        "a folder of a class is missing in one of them, and the rest moved up",
        "names are sorted differently, or two tables of labels",
    )
    next_step = "Number both by the table of the training set, and shuffle before the split."

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.make_eval is None:
            return skipped(*NO_EVALUATION)
        return decisive([_judge_names(subject), _judge_shares(subject)])


def _judge_names(subject: LoaderSubject) -> Answer:
    sets = [getattr(x, "dataset", x) for x in (subject.loader, subject.eval_loader)]
    ours, theirs = map(_numbers_of, sets)
    shared = [name for name in ours if name in theirs]
    apart = [f"{n}: {ours[n]} and {theirs[n]}" for n in shared if ours[n] != theirs[n]]
    if not shared:
        return absent("The two datasets have no name of a class in common.")
    if not apart:
        return passed(f"{len(shared)} names of classes have one number in both datasets.")
    text = (
        f"{len(apart)} of {len(shared)} classes have another number in training than in evaluation "
        f"({', '.join(apart[:MAX_SHOWN])}{' and others' * (len(apart) > MAX_SHOWN)})"
    )
    layers = [layer for dataset in sets for layer in dataset_layers(dataset)]
    if any(getattr(layer, "target_transform", None) is not None for layer in layers):
        return unclear(f"{text}; a target_transform may number them anew.")
    return LabelNumbers.failed(f"{text}.")


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
    cause = "data stored class by class, of which the last part is held out"
    return passed(text) if common >= IN_COMMON else LabelNumbers.failed(text, cause)


def _labels_of(subject: LoaderSubject, loader: Any) -> Array | None:
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


def _numbers_of(dataset: Any) -> dict[str, str]:
    """Number by name, of the outermost dataset that has names; empty where none has."""
    for layer in dataset_layers(dataset):
        for key in ("class_to_idx", "label2id", "id2label"):
            if isinstance(table := getattr(layer, key, None), Mapping):
                pairs = [pair[::-1] if key == "id2label" else pair for pair in table.items()]
                return {str(name): str(number) for name, number in pairs}
        features = getattr(layer, "features", None)
        parts = features.values() if isinstance(features, Mapping) else ()
        lists = [getattr(part, "names", None) for part in parts]
        for names in lists + [getattr(layer, key, None) for key in LISTS]:
            if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
                continue
            per_sample = hasattr(layer, "__len__") and len(names) == len(layer)
            if len({*names}) == len(names) and not per_sample:
                return {name: str(number) for number, name in enumerate(names)}
    return {}
