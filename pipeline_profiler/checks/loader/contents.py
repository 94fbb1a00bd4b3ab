"""What samples hold, made again and compared: in evaluation and training, with their labels."""

from __future__ import annotations

import itertools
import math
import operator
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, digest_of, inputs_and_targets
from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear, wrong
from pipeline_profiler.checks.indexed import all_rows, reshuffled_split, rows_of
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    dataset_layers,
    files_of,
    stream_states,
)
from pipeline_profiler.checks.ranks import own_files
from pipeline_profiler.checks.reported import HELD_OUT
from pipeline_profiler.checks.user_code import Patience, users_code

Made = tuple[NDArray[Any] | None, NDArray[Any] | None]
Table = tuple[NDArray[np.float64], NDArray[Any], bool, str]
BESIDE = "There is no loader for evaluation over a dataset with indices.", "Give it with --eval."
SECONDS = 4.0


def _evaluated(subject: LoaderSubject) -> Any:
    return rows_of(subject.loader if subject.evaluation else subject.eval_loader)


def _made(subject: LoaderSubject, dataset: Any, index: int) -> Made:
    """(inputs, targets) of a sample, made now."""
    with users_code(f"dataset[{index}]"):
        inputs, targets = inputs_and_targets(dataset[index], subject.split)
    return as_array(inputs), None if targets is None else as_array(targets)


def _patience(subject: LoaderSubject) -> Patience:
    left = max(0.5, min(SECONDS, (subject.deadline - time.monotonic()) / 4))
    return Patience(left, 3 * left)


def _spread(length: int, count: int) -> list[int]:
    return [int(i) for i in np.linspace(0, length - 1, min(count, length))]


def _equal(one: Any, two: Any) -> bool:
    return digest_of(one) == digest_of(two)


SAMPLES, DRAWS, LEAST, BEYOND = 48, 3, 6, 4.5
SETS_TRANSFORM = re.compile(r"(?m)^\s*([\w.]+)\.dataset\.(?:target_)?transforms?\s*=\s*([\w.]+)")
SEEDED = (
    "{}, and two passes give the same: operations of tf.data begin again in each pass where "
    "tf.random.set_seed was called."
)


class EvaluationAugmented(Check):
    """An evaluation loader with random augmentation.

    ## What it does
    Makes 48 samples of the evaluation dataset three times each, and compares the results.

    ## Why is this bad
    The metric is noisy and mostly too low, and chance selects the best checkpoint. `random_split`
    of a dataset with a training transform causes this.

    ## How it decides
    Fails if at least six images change, all labels stay, and new draws resemble their own sample.
    They must be nearest to it 4.5 deviations more often than by chance, among samples of the same
    label. With a `transform` or `augment`, all samples are compared. Other random samples are
    inconclusive. Fails if both loaders read one dataset, and your code sets its transform for a
    split.

    ## Limits
    One image and one label per sample. Noise to be removed, masked patches and pairs of views may
    be random on purpose. Augmentation in the step is not seen.
    """

    code = "LOAD019"
    name = "evaluation-augmented"
    causes = (
        "the split has the transform of training (random_split of one dataset)",
        "the transform for evaluation has random parts",
    )
    next_step = "Give the dataset for evaluation a transform without random parts."

    def run(self, subject: LoaderSubject) -> Answer:
        dataset = _evaluated(subject)
        if dataset is None or not len(dataset):
            return skipped(*BESIDE)
        if place := _transform_set_twice(rows_of(subject.loader), rows_of(subject.eval_loader)):
            return wrong(
                "Both splits read one dataset: the transform that is set for the held-out samples "
                "applies to training too.",
                ["subset.dataset is the whole dataset, and no copy"],
                "Make the dataset twice, each with its transform, and take the same indices.",
                place=place,
            )
        places = _spread(len(dataset), SAMPLES)
        draws = [[_made(subject, dataset, i) for _ in range(DRAWS)] for i in places]
        moved = [any(not _equal(d[0][0], x) for x, _ in d[1:]) for d in draws]
        kept = all(_equal(d[0][1], y) for d in draws for _, y in d[1:])
        numbers: dict[str, Any] = {"samples": len(places), "moved": sum(moved)}
        if not any(moved) and getattr(dataset, "augments", False):
            return unclear(SEEDED.format("The dataset draws random numbers in map()"), **numbers)
        if not any(moved):
            return passed(f"{len(places)} samples come out the same each time.", **numbers)
        said = f"{sum(moved)} of {len(places)} samples for evaluation come out otherwise each time"
        first = draws[0][0]
        single = first[0] is not None and first[0].ndim == 3 and first[1] is not None
        if not single or first[1] is None or first[1].size > 1 or not kept:
            return unclear(f"{said}: no images with one label that stays.", **numbers)
        seen = [np.array([_features(d[n][0]) for d in draws]) for n in range(2)]
        apart = np.abs(seen[0][:, None] - seen[1][None]).mean(axis=2)
        labels = np.array([d[0][1].reshape(-1)[0] for d in draws if d[0][1] is not None])
        other = labels[:, None] != labels[None]
        score = _own_beyond_chance(np.where(other, np.inf, apart), ~other, moved)
        if _augments(dataset):
            score = max(score, _own_beyond_chance(apart, np.ones_like(other), moved))
        numbers["deviations"] = round(score, 2)
        if sum(moved) < LEAST or score < BEYOND:
            return unclear(f"{said}, and not surely of the same images.", **numbers)
        return self.failed(
            f"{said}, with the label they had: they are augmented at random.", **numbers
        )


def _transform_set_twice(train: Any, test: Any) -> str:
    """The line that sets the transform of both loaders' one dataset for held-out samples, or ""."""
    if train is None or test is None or _taken(train)[0] is not _taken(test)[0]:
        return ""
    for path, text in own_files().items():
        found = list(SETS_TRANSFORM.finditer(text))
        same = {m[2] for m in found if not HELD_OUT.search(m[1])}
        held_out = [m for m in found if HELD_OUT.search(m[1]) and m[2] not in same]
        if held_out:
            return f"{path}:{text.count(chr(10), 0, held_out[0].start(1)) + 1}"
    return ""


def _own_beyond_chance(apart: Any, among: Any, moved: list[bool]) -> float:
    """By how many deviations more samples than by chance are nearest to themselves."""
    chance = 1 / among.sum(axis=1)[moved]
    hits = (apart.argmin(axis=1) == np.arange(len(apart)))[moved].sum()
    return float((hits - chance.sum()) / max(1e-9, (chance * (1 - chance)).sum()) ** 0.5)


def _augments(dataset: Any) -> bool:
    """Whether it, or one inside it, has a transform or an augmentation."""
    layers = [getattr(layer, "__dict__", {}) for layer in dataset_layers(dataset)]
    return any(v for held in layers for n, v in held.items() if "transform" in n or "aug" in n)


def _features(picture: Any) -> NDArray[np.float64]:
    """Means of 4 x 4 parts and quantiles, by channel; flips move the former only."""
    values = np.nan_to_num(np.asarray(picture, np.float64))
    values = values if values.shape[0] in (1, 3, 4) else values.transpose(2, 0, 1)
    rows = np.array_split(values, min(4, values.shape[1]), axis=1)
    parts = [p for row in rows for p in np.array_split(row, min(4, row.shape[2]), axis=2)]
    means = [part.mean(axis=(1, 2)) for part in parts]
    levels = np.quantile(values.reshape(len(values), -1), np.linspace(0.05, 0.95, 8), axis=1)
    return np.concatenate([*means, *levels])


LOOKED, MOST_TRAINED, FEWEST_NUMBERS = 200, 20_000, 32
SOME, LEAST_HITS, DISTINCT = 0.05, 3, 0.9
RUN, WINDOWS = 12, 64  # steps; evaluation windows that are looked at


class EvaluationInTraining(Check):
    """Evaluation samples that are in the training set as well.

    ## What it does
    Compares both datasets by the indices of subsets, else by files, else by bytes. Bytes cover up
    to 200 evaluation inputs, and about four seconds of training inputs.

    ## Why is this bad
    Memorised samples count as generalisation, so the metric is too high for new data.

    ## How it decides
    Fails on any of these (exact):

    - Subsets of one dataset, or of two with equal arrays, share indices.
    - Files are the same.
    - tf.data applies take() and skip() after a shuffle that changes each epoch.
    - 5% of the inputs, and at least three, equal a training input byte for byte.
    - Half of the windows of measured values, and at least three, begin and end with 12 steps that
      training windows hold at any place.

    Inconclusive: fewer copies, augmented training inputs, the training set itself, or a second
    evaluation loader (training accuracy).

    ## Limits
    Near-duplicates, other frames of one video, and other images of one patient are not seen.
    """

    code = "LOAD020"
    name = "evaluation-in-training"
    causes = (
        "both loaders were given the same split",
        "two splits were drawn independently of each other",
        "augmented or repeated copies were made before the split",
    )
    next_step = "Split once, disjoint; then audit find TRAIN TEST."

    def run(self, subject: LoaderSubject) -> Answer:
        if reshuffled_split(subject.loader, subject.eval_loader):
            return self.failed(
                "take() and skip() cut a dataset that is shuffled anew in each epoch: what is held "
                "out in one epoch is trained on in another.",
                "shuffle() before take() and skip(), without reshuffle_each_iteration=False",
            )
        train, test = rows_of(subject.loader), rows_of(subject.eval_loader)
        if train is None or test is None or not len(train) or not len(test):
            return skipped(*BESIDE)
        if train is test:
            return unclear("The loader that is evaluated has the very training set.")
        kinds = (("places of one dataset", _places), ("files", _files))
        hits, looked = _shared_runs(subject, train, test) if subject.evaluations < 2 else (0, 0)
        if hits >= max(LEAST_HITS, looked / 2):
            return self.failed(
                f"{hits} of {looked} windows for evaluation begin and end inside training windows.",
                "overlapping windows were split at random: split recordings, or stretches of time",
                windows=hits,
            )
        for what, find in kinds:
            both = find(train, test)
            if both is not None:
                least = 0.0 if subject.evaluations < 2 else math.inf
                return self._judged(what, len(both[0] & both[1]), len(both[1]), len(test), least)
        return self._by_bytes(subject, train, test)

    def _judged(self, what: str, hits: int, looked: int, count: int, least: float) -> Answer:
        said = f"{hits} of {looked} {what} for evaluation are in the training set"
        numbers = {"shared": hits, "looked": looked, "samples": count}
        if hits > least:
            return self.failed(f"{said}.", **numbers)
        return (
            unclear(f"{said}.", self.next_step, **numbers)
            if hits
            else passed(
                f"None of {looked} {what} for evaluation is in the training set.", **numbers
            )
        )

    def _by_bytes(self, subject: LoaderSubject, train: Any, test: Any) -> Answer:
        sizes = _made(subject, test, 0)[0]
        if sizes is None or sizes.size < FEWEST_NUMBERS:
            return unclear("Inputs of so few numbers may be equal by chance.")
        if any(
            not _equal(*(_made(subject, train, i)[0] for _ in "ab")) for i in _spread(len(train), 8)
        ):
            return unclear("The training set augments its samples, so bytes cannot be compared.")
        theirs = [digest_of(_made(subject, test, i)[0]) for i in _spread(len(test), LOOKED)]
        if len(set(theirs)) < DISTINCT * len(theirs):
            return unclear("Many inputs for evaluation equal each other.")
        patience, ours, number = _patience(subject), set[str](), 0
        for index in np.random.default_rng(0).permutation(len(train))[:MOST_TRAINED].tolist():
            ours.add(digest_of(_made(subject, train, index)[0]))
            number += 1
            if patience.over:
                break
        total = getattr(train, "total", len(train))
        whole = number == total
        what = "inputs" if whole else f"inputs (against {number} of {max(total, number)})"
        hits = len(set(theirs) & ours)
        least = max(LEAST_HITS - 1, SOME * len(theirs) * number / len(train))
        least = least if subject.evaluations < 2 else math.inf
        return self._judged(what, hits, len(theirs), len(test), least)


def _shared_runs(subject: LoaderSubject, train: Any, test: Any) -> tuple[int, int]:
    """(evaluation windows whose first and last steps lie in other training windows, all)."""
    many = WINDOWS if len(_steps(_made(subject, test, 0)[0])) else 0
    windows = [_steps(_made(subject, test, i)[0]) for i in _spread(len(test), many)]
    ends = [(w[:RUN], w[-RUN:]) for w in windows]
    ends = [e for e in ends if all(len(set(c)) >= RUN / 2 for run in e for c in run.T.tolist())]
    firsts = [run[0, 0] for pair in ends for run in pair]
    patience, inside = _patience(subject), set[bytes]()
    for index in np.random.default_rng(0).permutation(len(train))[:MOST_TRAINED].tolist():
        if not ends or patience.over:
            break
        steps = _steps(_made(subject, train, index)[0])
        starts = np.flatnonzero(np.isin(steps[1:-RUN, 0], firsts)) + 1
        inside.update(steps[at : at + RUN].tobytes() for at in starts.tolist())
    return sum(all(run.tobytes() in inside for run in pair) for pair in ends), len(windows)


def _steps(values: NDArray[Any] | None) -> NDArray[Any]:
    """(steps, channels) of a window of floats; empty for other inputs."""
    if values is None or values.dtype.kind != "f" or values.ndim not in (1, 2) or not values.size:
        return np.zeros((0, 1))
    rows = values.reshape(len(values), -1)
    return np.ascontiguousarray(rows if rows.shape[0] > rows.shape[1] else rows.T)


def _taken(dataset: Any) -> tuple[Any, list[int] | None]:
    """(the dataset inside, the places of it that subsets leave; None where one is unknown)."""
    places: list[int] | None = None
    for layer in dataset_layers(dataset):
        if not hasattr(layer, "dataset"):
            return layer, list(range(len(layer))) if places is None else places
        inside = getattr(layer, "indices", None)
        if inside is None:
            return layer, None
        inside = [int(i) for i in inside]
        places = inside if places is None else [inside[i] for i in places]
    return dataset, None


def _arrays_of(dataset: Any) -> list[Any]:
    """The arrays that a dataset holds, one row a sample."""
    held = list(vars(dataset).values()) if hasattr(dataset, "__dict__") else []
    held += [part for value in held if isinstance(value, tuple) for part in value]
    return [v for v in held if hasattr(v, "shape") and v.shape[:1] == (len(dataset),)]


def _places(train: Any, test: Any) -> tuple[set[int], set[int]] | None:
    """Places of one dataset that both take; None where they are of different ones."""
    (one, ours), (two, theirs) = _taken(train), _taken(test)
    if ours is None or theirs is None:
        return None
    if one is not two:
        held = _arrays_of(one), _arrays_of(two)
        alike = type(one) is type(two) and len(held[0]) == len(held[1]) and held[0]
        if not alike or not all(_equal(a, b) for a, b in zip(*held, strict=True)):
            return None
    return set(ours), set(theirs)


def _files(train: Any, test: Any) -> tuple[set[str], set[str]] | None:
    found = []
    for dataset in (train, test):
        base, places = _taken(dataset)
        files = files_of(base)
        if not files or places is None:
            return None
        if not all_rows(base):
            places = list(range(len(files)))
        elif len(files) != len(base):
            return None
        found.append({str(files[i].resolve()) for i in places})
    return found[0], found[1]


class AugmentedOnce(Check):
    """A cache after the augmentation: each sample is augmented once and never again.

    ## What it does
    Makes 48 training samples twice in this process, and reads the generators. Compares random draws
    and results of both passes.

    ## Why is this bad
    Cached augmentation has no effect: the model sees one crop of each image in all epochs.

    ## How it decides
    Fails if at least six samples drew random numbers only the first time. Inconclusive if the
    dataset has no `transform` or `augment`. For tf.data, fails if cache() follows a map() with
    random numbers. Exact.

    ## Limits
    A dataset that augments all samples at construction or earlier is not seen.
    """

    code = "LOAD021"
    name = "augmented-once"
    causes = ("the cache holds what the transform returned",)
    next_step = "Cache the decoded image; call the transform on each access."

    def run(self, subject: LoaderSubject) -> Answer:
        dataset = None if subject.evaluation else rows_of(subject.fresh())
        if dataset is None or not len(dataset):
            return unclear("There is no training set with indices.")
        if hasattr(dataset, "augments"):  # a graph says what it does
            return self._of_graph(subject, dataset)
        drawn = kept = 0
        places = _spread(len(dataset), SAMPLES)
        for index in places:
            states, made = [stream_states(dataset)], list[Made]()
            for _ in range(2):
                made.append(_made(subject, dataset, index))
                states.append(stream_states(dataset))
            drawn += states[0] != states[1]
            kept += states[0] != states[1] and states[1] == states[2] and _equal(*made)
        numbers = {"samples": len(places), "drawn": drawn, "kept": kept}
        if kept < LEAST:
            return passed(f"{drawn} of {len(places)} samples draw, {kept} of a cache.", **numbers)
        said = f"{kept} of {len(places)} samples draw random numbers once, then come out of a cache"
        if not _augments(dataset):
            return unclear(f"{said}: right for data that are made up.", **numbers)
        return self.failed(f"{said}: the augmentation is drawn once for all epochs.", **numbers)

    def _of_graph(self, subject: LoaderSubject, rows: Any) -> Answer:
        if not rows.augments:
            return passed("No operation of the dataset draws random numbers.")
        said = "The dataset draws random numbers in map()"
        if rows.kept:
            return self.failed(
                f"{said}, and cache() lies behind it: the augmentation is drawn once for all of "
                "the epochs."
            )
        places = _spread(len(rows), SAMPLES)
        if all(_equal(*(_made(subject, rows, i)[0] for _ in "ab")) for i in places):
            return unclear(SEEDED.format(said))
        return passed(f"{said} anew in each pass.")


BLOCK, FEWEST_SAMPLES, MOST_CLASSES, RIDGE, FOLDS, MOST_NUMBERS = 600, 120, 50, 0.3, 4, 512
SURE, CHANCE = 6.0, 2.5  # deviations of the number of hits from what chance gives


class ChangedInPlace(Check):
    """A dataset that changes its stored data each time a sample is read.

    ## What it does
    Takes digests of the stored arrays of 8 samples before and after reading them.

    ## Why is this bad
    `image -= mean` on a cached array applies again in every epoch: the images fade. Each worker has
    its own copy.

    ## How it decides
    Fails if an array of 16 numbers or more has other bytes after its sample was read. Exact.

    ## Limits
    Datasets with indices that hold arrays. A list whose arrays become decoded images at first
    access fails too: read each sample once before.
    """

    code = "LOAD027"
    name = "changed-in-place"
    causes = ("an operation in place (-=, /=, sub_, normalize(inplace=True)) on a cached array",)
    next_step = "Copy the array before it is changed, or compute a new one."

    def run(self, subject: LoaderSubject) -> Answer:
        dataset = rows_of(subject.loader)
        if dataset is None or not len(dataset):
            return unclear("There is no dataset with indices.")
        base, places = _taken(dataset)
        indices = _spread(len(dataset), IN_PLACE)
        rows = indices if places is None else [places[i] for i in indices]
        held = _held(base, rows)
        before = {name: digest_of(part()) for name, part in held.items()}
        if not held:
            return absent("The dataset holds no arrays by sample.")
        for index in indices:
            _made(subject, dataset, index)
        changed = [name for name, part in held.items() if digest_of(part()) != before[name]]
        said = f"Reading {len(indices)} samples"
        if changed:
            return self.failed(
                f"{said} changed what the dataset keeps ({changed[0]}): each epoch works on what "
                "the one before left.",
                changed=changed,
            )
        return passed(f"{said} left {len(held)} arrays of the dataset as they were.")


IN_PLACE, LEAST_NUMBERS = 8, 16


def _held(dataset: Any, rows: list[int]) -> dict[str, Callable[[], Any]]:
    """What gives the arrays of these samples that a dataset keeps, by name."""
    found: dict[str, Callable[[], Any]] = {}
    for name, value in vars(dataset).items() if hasattr(dataset, "__dict__") else ():
        if isinstance(value, list) and len(value) == len(dataset):
            entries = {r: value[r] for r in rows if _numbers_in(value[r]) >= LEAST_NUMBERS}
            found |= {f"{name}[{r}]": partial(operator.getitem, value, r) for r in entries}
        elif _numbers_in(value) >= LEAST_NUMBERS * len(dataset) and len(value) == len(dataset):
            found[name] = partial(operator.getitem, value, rows)
    return found


def _numbers_in(value: Any) -> int:
    """Of an array of numpy or torch; 0 of anything else."""
    in_memory = isinstance(value, np.ndarray) or hasattr(value, "untyped_storage")
    return math.prod(value.shape) if in_memory else 0


MOST_LABELS, FEWEST_LABELS, IN_COMMON = 240, 64, 0.15


class EvaluationOfOthers(Check):
    """An evaluation of other classes than the trained classes.

    ## What it does
    Counts the labels of up to 240 random samples of each dataset. Sums the smaller share of each
    class: the overlap.

    ## Why is this bad
    If data are stored class by class, the last fifth is the last class. Training hardly sees it,
    and the metric covers it alone.

    ## How it decides
    Fails if the class shares overlap by less than 15%. Needs at least 64 labels of each dataset,
    two training classes, and ten samples per class.

    ## Limits
    One label per sample, as whole number or one-hot. If the evaluation has new classes on purpose,
    use `--skip LOAD026`.
    """

    code = "LOAD026"
    name = "evaluation-of-other-classes"
    causes = (
        "data stored class by class, of which the last part is held out (validation_split, x[:n])",
        "two tables of labels",
    )
    next_step = "Shuffle once before the split, or split each class."

    def run(self, subject: LoaderSubject) -> Answer:
        ours, theirs = (_labels(subject, part) for part in (subject.loader, subject.eval_loader))
        if ours is None or theirs is None:
            return unclear("There are no labels of training and evaluation to compare.")
        if min(len(ours), len(theirs)) < FEWEST_LABELS:
            return unclear(f"{len(ours)} and {len(theirs)} labels are too few to compare.")
        values = np.union1d(ours, theirs)
        one, two = ((part[:, None] == values).mean(0) for part in (ours, theirs))
        if (one > 0).sum() < 2 or 10 * len(values) > min(len(ours), len(theirs)):
            return unclear("There is one class, or too many for so few samples.")
        common = float(np.minimum(one, two).sum())
        most = int(two.argmax())
        said = (
            f"The class shares of training and evaluation overlap by {common:.0%}: label "
            f"{values[most]:g} is {two[most]:.0%} of the evaluation and {one[most]:.0%} of training"
        )
        numbers = {"common": common, "labels": (len(ours), len(theirs))}
        return (self.failed if common < IN_COMMON else passed)(f"{said}.", **numbers)


def _labels(subject: LoaderSubject, loader: Any) -> NDArray[Any] | None:
    """Labels of samples drawn from the whole of a loader's data; None where there are none."""
    dataset = rows_of(loader)
    found: list[NDArray[Any]] = []
    if dataset is not None and all_rows(dataset):
        patience = _patience(subject)
        for index in np.random.default_rng(0).permutation(len(dataset))[:MOST_LABELS].tolist():
            if (target := _made(subject, dataset, index)[1]) is None:
                return None
            found.append(target)
            if patience.over:
                break
        if len({y.shape for y in found}) != 1 or found[0].dtype.kind not in "biuf":
            return None
        targets: NDArray[Any] = np.stack(found)
    else:
        return None
    targets = targets.reshape(len(targets), -1)
    if targets.shape[1] > 1 and (targets.sum(1) == 1).all() and (targets.max(1) == 1).all():
        targets = targets.argmax(1)[:, None]
    whole = targets.shape[1] == 1 and (targets == np.round(targets)).all()
    return targets[:, 0] if whole else None


class LabelsOfOthers(Check):
    """Labels in another order than the inputs.

    ## What it does
    Predicts labels by cross-validated ridge regression on colours and regions of images, counts of
    tokens, or other numbers. For images and tokens, also tests the reversed order, and numbers
    sorted as text; for images, neighbouring labels. If your step mixes or reorders images, finds
    them by least squares.

    ## Why is this bad
    Two lists that are shuffled or sorted separately give wrong labels, so nothing can be learned.

    ## How it decides
    Fails on any of these:

    - Another order predicts labels 6 deviations better than the given order, which stays below 6.
    - Evaluation labels exceed 6 deviations, while training labels of the same classes stay below
      2.5. The evaluation has at most twice as many samples.
    - A tenth of the reordered labels in the loss match no source image of their input.
    - A model of the training data exchanges classes of the evaluation one for one, each by 5
      standard deviations, and the inputs of both are alike.

    Other unpredictable labels are inconclusive: the task may be hard, or the order random.

    ## Limits
    Inputs of one size or tokens, and up to 50 classes, without random augmentation.
    """

    code = "LOAD022"
    name = "labels-of-others"
    causes = (
        "inputs and labels were shuffled or sorted apart",
        "an index is off by one between two lists",
    )
    next_step = "Look at --images; shuffle or sort pairs, never two lists."

    def run(self, subject: LoaderSubject) -> Answer:
        if (apart := _mixed_apart(subject)) > MOST_APART:
            return self.failed(
                f"{apart:.0%} of the labels that enter the loss are of none of the images that "
                "their input is made of.",
                "images and labels are mixed by two draws of randperm",
                apart=apart,
            )
        train, test = rows_of(subject.loader), rows_of(subject.eval_loader)
        sets = [_table(subject, d) for d in (train, test) if d is not None]
        if train is None or sets[0] is None:
            return unclear("There are no inputs of one size with labels that stay the same.")
        rows, labels, whole, kind = sets[0]
        score, hits, chance = _predicted(rows, labels)
        said = (
            f"Labels are predicted from {len(rows)} inputs in {hits:.0%} ({chance:.0%} by chance)"
        )
        numbers: dict[str, Any] = {"hits": round(hits, 4), "chance": round(chance, 4)}
        for name, other in _orders(labels, whole, kind) if score < SURE else ():
            moved = _predicted(rows, other)
            if moved[0] > SURE + max(0.0, score):
                return self.failed(f"{said}, those {name} in {moved[1]:.0%}.", **numbers)
        if len(sets) > 1 and sets[1] is not None and (others := _renumbered(sets[0], sets[1])):
            pairs = ", ".join(f"{theirs} is {ours}" for theirs, ours in others[:3])
            return wrong(
                f"{len(others)} classes have another number in the evaluation than in training: "
                f"label {pairs} there.",
                ["each split numbers its classes itself"],
                "Build the table of class numbers once, from the training data.",
                renumbered=others,
            )
        if score > CHANCE:
            return passed(f"{said}: they belong to the inputs.", **numbers)
        if len(sets) > 1 and sets[1] is not None and set(sets[1][1]) == set(labels):
            theirs = _predicted(*sets[1][:2])
            if theirs[0] > SURE and len(sets[1][0]) <= 2 * len(rows):
                beside = f"{theirs[1]:.0%} ({theirs[2]:.0%} by chance)"
                return self.failed(f"{said}, those for evaluation in {beside}.", **numbers)
        return unclear(
            f"{said}: a hard task, or labels of other inputs.",
            "Look at --images: does each input have its own label?",
            **numbers,
        )


MOST_APART, WEIGHT, NEAR = 0.1, 1e-3, 1e-4  # weights of a picture in a mix; relative error of it


def _mixed_apart(subject: LoaderSubject) -> float:
    """Share of the labels in the loss whose picture is none of those that theirs is mixed of."""
    apart = count = 0
    for raw, inputs, targets in (
        subject.entered()[0] if subject.at_model and subject.entered else ()
    ):
        given, mixed = None if raw is None else subject.seen(raw), as_array(inputs)
        if given is None or mixed is None or given.inputs is None or given.targets is None:
            continue
        own, rows = given.targets, given.inputs.reshape(len(given.inputs), -1).astype(float)
        sums = mixed.reshape(len(mixed), -1).astype(float)
        parts = [as_array(t) for t in (targets if isinstance(targets, tuple) else (targets,))]
        orders = [p for p in parts if p is not None and np.array_equal(np.sort(p), np.sort(own))]
        # least squares tell the pictures apart where they have far more pixels than there are
        if own.ndim != 1 or rows.shape != sums.shape or 4 * len(rows) > rows.shape[1]:
            continue
        weights, _, rank, _ = np.linalg.lstsq(rows.T, sums.T, rcond=None)
        if rank < len(rows) or abs(rows.T @ weights - sums.T).max() > NEAR * abs(sums).max():
            continue
        for labels in orders:
            theirs = (abs(weights) > WEIGHT) & (own[:, None] == labels)
            apart, count = apart + int((~theirs.any(axis=0)).sum()), count + len(labels)
    return apart / max(count, 1)


def _as_text(count: int) -> NDArray[np.int64]:
    return np.array(sorted(range(count), key=str))


def _orders(labels: NDArray[Any], whole: bool, kind: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """(in words, labels in another order) of the orders that happen."""
    for step in (1, -1, 2, -2) if kind == "images" else ():
        yield (
            f"{abs(step)} place{'s' * (abs(step) > 1)} {'before' if step > 0 else 'after'}",
            np.roll(labels, step),
        )
    if whole and kind:  # other numbers may follow each other, and so may their labels
        order = _as_text(len(labels))
        yield "of the dataset turned round", labels[::-1]
        yield "in the order of numbers sorted as text", labels[order]
        yield "in the order of numbers sorted as text", labels[np.argsort(order)]


def _table(subject: LoaderSubject, dataset: Any) -> Table | None:
    """(features, labels, whether that is all, images, tokens or "") of the first samples."""
    patience, rows, labels = _patience(subject), list[Any](), list[int]()
    shape: Any = None
    for index in range(min(len(dataset), BLOCK)):
        picture, label = _made(subject, dataset, index)
        if picture is None or label is None or not picture.ndim or label.size != 1:
            return None
        if {label.dtype.kind, picture.dtype.kind} - set("biuf") or label.reshape(-1)[0] % 1:
            return None
        if index < LEAST and not _equal(picture, _made(subject, dataset, index)[0]):
            return None
        shape = shape or picture.shape
        tokens = picture.ndim == 1 and picture.dtype.kind in "iu"
        if picture.shape != shape and not tokens:
            return None
        rows.append(_features(picture) if picture.ndim == 3 else _numbers(picture, tokens))
        labels.append(int(label.reshape(-1)[0]))
        if patience.over:
            break
    known = len(set(labels))
    if len(rows) < FEWEST_SAMPLES or not 1 < known <= min(MOST_CLASSES, len(rows) // 10):
        return None
    kind = "images" if len(shape) == 3 else "tokens" if tokens else ""
    return np.array(rows), np.array(labels), len(rows) == len(dataset), kind


def _numbers(values: NDArray[Any], tokens: bool) -> NDArray[np.float64]:
    """Counts of tokens, or some numbers of another input."""
    if tokens:
        return np.bincount(values % MOST_NUMBERS, minlength=MOST_NUMBERS).astype(np.float64)
    some = values.reshape(-1)[:: -(-values.size // MOST_NUMBERS)]
    return np.nan_to_num(some.astype(np.float64))


def _predicted(rows: NDArray[np.float64], labels: NDArray[Any]) -> tuple[float, float, float]:
    """(deviations of the hits from chance, share of hits, share by chance), by four folds."""
    values, places = np.unique(labels, return_inverse=True)
    wanted = np.eye(len(values))[places]
    rows = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-9)
    fold = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    found = np.zeros(len(rows), int)
    for number in range(FOLDS):
        here = fold == number
        found[here] = _ridge(rows[~here], wanted[~here], rows[here])
    share = float((np.bincount(found, minlength=len(values)) @ wanted.sum(axis=0)) / len(rows) ** 2)
    hits = float((found == places).mean())
    return (hits - share) / (share * (1 - share) / len(rows) + 1e-12) ** 0.5, hits, share


def _renumbered(train: Table, test: Table) -> list[tuple[int, int]]:
    """(evaluation label, training label) of classes that a model of the training data exchanges."""
    (rows, labels, *_), (theirs, wanted, *_) = train, test
    values = np.unique(labels)
    if rows.shape[1] != theirs.shape[1] or not np.array_equal(values, np.unique(wanted)):
        return []
    both, splits = np.concatenate([rows, theirs]), np.repeat([0, 1], [len(rows), len(theirs)])
    if _predicted(both, splits)[0] > CHANCE:
        return []  # other inputs may well be taken for another class
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    rows, theirs = (rows - mean) / spread, (theirs - mean) / spread
    found = _ridge(rows, np.eye(len(values))[np.searchsorted(values, labels)], theirs)
    counts = np.zeros((len(values), len(values)))
    np.add.at(counts, (np.searchsorted(values, wanted), found), 1)
    best, own = counts.argmax(axis=1), counts.diagonal()
    if len({*best.tolist()}) < len(values):
        return []
    apart = (counts.max(axis=1) - own) / np.sqrt(counts.max(axis=1) + own + 1e-12)
    moved = np.flatnonzero(best != np.arange(len(values)))
    if not len(moved) or apart[moved].min() < APART:
        return []
    return [(int(values[place]), int(values[best[place]])) for place in moved]


def _ridge(known: NDArray[Any], wanted: NDArray[Any], asked: NDArray[Any]) -> NDArray[np.intp]:
    """The most likely class of each row of `asked`, by ridge regression on known rows."""
    middle = wanted.mean(axis=0)
    square = known.T @ known + RIDGE * len(known) * np.eye(known.shape[1])
    weights = np.linalg.solve(square, known.T @ (wanted - middle))
    likely: NDArray[np.intp] = (asked @ weights / ((middle * (1 - middle)) ** 0.5 + 1e-9)).argmax(1)
    return likely  # scaled, so that rare classes are predicted as well


COLUMNS, GAP, ROUNDING = (3, 4096), 0.25, 1e-8  # fewest and most; of the range; of a correlation
FEWEST_ROWS, MOST_TARGETS, APART = 60, 64, 5.0  # APART: standard deviations of a class
NO_COLUMNS = "The inputs are no rows of one length, with a few targets each."


class TargetInInputs(Check):
    """A column of the inputs that gives the target away.

    ## What it does
    Compares each column of 60 to 600 rows, or windows of a series, with their targets.

    ## Why is this bad
    The model learns to copy the column, and nothing else. The metric is excellent until the column
    is missing.

    ## How it decides
    Fails if the values of a column lie apart for all classes, by a quarter of its range. Fails if
    each target of numbers is a linear function of a column, to eight digits of the correlation.

    ## Limits
    Needs rows of 3 to 4,096 numbers. Sums of columns are not compared. Inputs that are to be
    reconstructed, and tokens, are left out.
    """

    code = "LOAD029"
    name = "target-in-inputs"
    causes = ("the target, or a number made from it, was left in the table of features",)
    next_step = "Remove the column."

    def run(self, subject: LoaderSubject) -> Answer:
        found = _columns(subject, rows_of(subject.loader), BLOCK)
        if found is None:
            return absent(NO_COLUMNS)
        columns, targets = found
        if not COLUMNS[0] <= columns.shape[1] <= COLUMNS[1] or columns.shape == targets.shape:
            return absent(NO_COLUMNS)
        by_target = [_alike(columns, wanted) for wanted in targets.T]
        alike = sorted({column for found in by_target for column in found})
        if not all(by_target):
            return passed(f"None of {columns.shape[1]} columns gives the target away.")
        named = ", ".join(map(str, alike[:3]))
        return self.failed(f"Column {named} of the inputs gives the target away.", columns=alike)


def _columns(
    subject: LoaderSubject, dataset: Any, most: int
) -> tuple[NDArray[np.float64], NDArray[Any]] | None:
    """(rows of numbers, their targets) of samples from the whole of a dataset, or None."""
    if dataset is None or not all_rows(dataset) or len(dataset) < FEWEST_ROWS:
        return None
    made, patience = list[Made](), _patience(subject)
    for index in np.random.default_rng(0).permutation(len(dataset))[:most].tolist():
        made.append(_made(subject, dataset, index))
        inputs, target = made[-1]
        plain = inputs is not None and inputs.ndim in (1, 2) and inputs.dtype.kind == "f"
        if not plain or target is None or target.size > MOST_TARGETS:
            return None
        if target.dtype.kind not in "biuf":
            return None
        if patience.over:
            break
    rows = [inputs.reshape(-1) for inputs, _ in made if inputs is not None]
    targets = [target.reshape(-1) for _, target in made if target is not None]
    if len({len(row) for row in rows}) > 1 or len({len(target) for target in targets}) > 1:
        return None
    return np.stack(rows).astype(float), np.stack(targets).astype(float)


def _alike(columns: NDArray[np.float64], targets: NDArray[np.float64]) -> list[int]:
    """Columns that a target is a linear function of, or whose values lie apart for all classes."""
    classes = np.unique(targets)
    usable = np.flatnonzero((np.ptp(columns, axis=0) > 0) & np.isfinite(columns).all(axis=0))
    if len(classes) > len(targets) // 20:
        rest = columns[:, usable] - columns[:, usable].mean(axis=0)
        apart = targets - targets.mean()
        shares = abs(apart @ rest) / (np.linalg.norm(rest, axis=0) * np.linalg.norm(apart))
        return [int(index) for index in usable[shares > 1 - ROUNDING]]
    found = []
    for index in usable.tolist() if len(classes) > 1 else ():
        column = columns[:, index]
        ends = sorted((part.min(), part.max()) for k in classes for part in [column[targets == k]])
        gaps = [low - high for (_, high), (low, _) in itertools.pairwise(ends)]
        found += [index] * bool(min(gaps) * (len(classes) - 1) > GAP * np.ptp(column))
    return found


MOST_SCALED, EXACT, LEAST_COLUMNS = 20_000, 1e-4, 0.9  # rows; deviations; share of the columns


class ScaledByEvaluation(Check):
    """Inputs that are scaled by statistics of the evaluation data.

    ## What it does
    Computes mean, deviation and range of each column of the training set, the evaluation set, and
    both.

    ## Why is this bad
    A model in use gets one sample at a time, and has no statistics of the samples to come. The
    metric is measured on inputs that do not exist later.

    ## How it decides
    Fails if nine of ten columns have mean 0 and deviation 1 to 1e-4 in the evaluation set alone, or
    in both sets together and not in the training set. Ranges from 0 to 1 that only both sets
    reach together fail too. Exact for sets that are read whole.

    ## Limits
    Needs rows of numbers, at most 20,000 of them in each set, and two sets.
    """

    code = "LOAD030"
    name = "scaled-by-evaluation"
    causes = ("the scaler was fitted on the evaluation data", "the data were scaled, then split")
    next_step = "Fit the scaler on the training data, and apply it to both."

    def run(self, subject: LoaderSubject) -> Answer:
        sets = [rows_of(subject.loader), rows_of(subject.eval_loader)]
        if subject.eval_loader is None or any(d is None for d in sets):
            return skipped(*BESIDE)
        found = [_columns(subject, d, MOST_SCALED) for d in sets]
        whole = [f is not None and len(f[0]) == len(d) for f, d in zip(found, sets, strict=True)]
        if not all(whole) or found[0] is None or found[1] is None:
            return absent("The two sets are no rows of numbers that can be read whole.")
        if (first := _made(subject, sets[0], 0)[0]) is not None and first.ndim > 1:
            return absent("The inputs are windows of a series, which overlap.")
        train, test = found[0][0], found[1][0]
        varying = (np.ptp(train, axis=0) > 0) & (np.ptp(test, axis=0) > 0)
        train, test = train[:, varying], test[:, varying]
        if train.shape[1] < COLUMNS[0] or train.shape[1] != test.shape[1]:
            return absent(NO_COLUMNS)
        both = np.concatenate([train, test])
        apart = [_unscaled(rows) for rows in (train, test, both)]
        if apart[1]:
            if not apart[2] and apart[0]:
                return self.failed("Training and evaluation data were scaled together.")
            joint = ((both.min(0) == 0) & (both.max(0) == 1)).mean() >= LEAST_COLUMNS
            own = ((train.min(0) == 0) & (train.max(0) == 1)).mean() >= LEAST_COLUMNS
            if joint and not own:
                return self.failed("Only both sets together reach from 0 to 1 in each column.")
            return passed("The columns of the evaluation data have statistics of their own.")
        if apart[0] and not apart[2]:
            return passed("The columns of the evaluation data have statistics of their own.")
        return self.failed(
            "Each column of the evaluation data has mean 0 and deviation 1: its own statistics "
            "scale it.",
            "fit_transform() on the evaluation data",
        )


def _unscaled(rows: NDArray[np.float64]) -> bool:
    """Whether less than nine of ten columns have mean 0 and deviation 1."""
    sample = len(rows) / (len(rows) - 1)
    deviations = [rows.std(axis=0), rows.std(axis=0) * sample**0.5]
    scaled = np.min([abs(d - 1) for d in deviations], axis=0) < EXACT
    return bool(((abs(rows.mean(axis=0)) < EXACT) & scaled).mean() < LEAST_COLUMNS)
