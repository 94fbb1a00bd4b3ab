"""What samples hold, made again and compared: in evaluation and training, with their labels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, digest_of, same_bytes
from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear, wrong
from pipeline_profiler.checks.indexed import (
    Made,
    all_rows,
    made_sample,
    made_samples,
    random_indices,
    reshuffled_split,
    rows_of,
    spread_indices,
)
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    dataset_layers,
    files_of,
    stream_states,
)
from pipeline_profiler.checks.ranks import own_files
from pipeline_profiler.checks.reported import HELD_OUT

Array = NDArray[Any]
Table = tuple[NDArray[np.float64], Array, bool, str]
NO_EVALUATION = "There is no evaluation dataset with indices.", "Give its loader with --eval."
SAMPLES, DRAWS, MIN_MOVED, BEYOND = 48, 3, 6, 4.5
SETS_TRANSFORM = re.compile(r"(?m)^\s*([\w.]+)\.dataset\.(?:target_)?transforms?\s*=\s*([\w.]+)")
SEEDED = (
    "The dataset draws random numbers in map(), and two passes give the same: operations of "
    "tf.data begin again in each pass where tf.random.set_seed was called."
)


class EvaluationAugmented(Check):
    """An evaluation loader with random augmentation.

    ## How it decides
    Makes 48 samples of the evaluation dataset three times each. Fails if at least six images
    change, all labels stay, and new draws are nearest to their own sample 4.5 deviations more often
    than by chance, among samples of the same label (among all, with a `transform` or `augment`).
    Fails if both loaders read one dataset, and your code sets its transform for a split.

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
        dataset = rows_of(subject.loader if subject.evaluation else subject.eval_loader)
        if dataset is None or not len(dataset):
            return skipped(*NO_EVALUATION)
        if place := _transform_set_twice(rows_of(subject.loader), rows_of(subject.eval_loader)):
            return wrong(
                "Both splits read one dataset: the transform that is set for the held-out samples "
                "applies to training too.",
                ["subset.dataset is the whole dataset, and no copy"],
                "Make the dataset twice, each with its transform, and take the same indices.",
                place=place,
            )
        indices = spread_indices(dataset, SAMPLES)
        draws = [[made_sample(subject, dataset, i) for _ in range(DRAWS)] for i in indices]
        moved = [any(not same_bytes(d[0][0], x) for x, _ in d[1:]) for d in draws]
        if not any(moved):
            if getattr(dataset, "augments", False):
                return unclear(SEEDED)
            return passed(f"{len(indices)} samples come out the same each time.")
        text = f"{sum(moved)} of {len(indices)} samples for evaluation come out otherwise each time"
        labels = [y for d in draws for _, y in d[:1] if y is not None and y.size == 1]
        stay = all(same_bytes(d[0][1], y) for d in draws for _, y in d[1:])
        if not stay or len(labels) < len(draws) or getattr(draws[0][0][0], "ndim", 0) != 3:
            return unclear(f"{text}: no images with one label that stays.")
        first, second = (np.array([_features(d[n][0]) for d in draws]) for n in range(2))
        apart = np.abs(first[:, None] - second[None]).mean(axis=2)
        values = np.ravel(labels)
        other = values[:, None] != values[None]
        score = _own_beyond_chance(np.where(other, np.inf, apart), ~other, moved)
        if _augments(dataset):
            score = max(score, _own_beyond_chance(apart, np.ones_like(other), moved))
        if sum(moved) < MIN_MOVED or score < BEYOND:
            return unclear(f"{text}, and not surely of the same images.")
        return self.failed(f"{text}, with the label they had: they are augmented at random.")


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


def _features(image: Any) -> NDArray[np.float64]:
    """Means of 4 x 4 regions and quantiles, by channel; flips move the former only."""
    values = np.nan_to_num(np.asarray(image, np.float64))
    values = values if values.shape[0] in (1, 3, 4) else values.transpose(2, 0, 1)
    rows = np.array_split(values, min(4, values.shape[1]), axis=1)
    parts = [p for row in rows for p in np.array_split(row, min(4, row.shape[2]), axis=2)]
    levels = np.quantile(values.reshape(len(values), -1), np.linspace(0.05, 0.95, 8), axis=1)
    return np.concatenate([*(part.mean(axis=(1, 2)) for part in parts), *levels])


MAX_COMPARED, MAX_TRAINED, MIN_NUMBERS = 200, 20_000, 32
SOME, MIN_HITS, DISTINCT = 0.05, 3, 0.9
RUN, WINDOWS = 12, 64  # steps; evaluation windows that are looked at


class EvaluationInTraining(Check):
    """Evaluation samples that are in the training set as well.

    ## How it decides
    Fails if subsets of one dataset, or of two with equal arrays, share indices, or both list the
    same files, or 5% of 200 inputs, and at least three, equal a training input byte for byte. Fails
    if tf.data applies take() and skip() after a shuffle that changes each epoch. Fails if half of
    the windows of a series begin and end with 12 steps of training windows. Exact.

    ## Limits
    Inconclusive: fewer copies, augmented training inputs, or a second evaluation loader (training
    accuracy). Near-duplicates, frames of one video, and images of one patient are not seen.
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
            return skipped(*NO_EVALUATION)
        if train is test:
            return unclear("The loader that is evaluated has the very training set.")
        hits, windows = _shared_runs(subject, train, test) if subject.evaluations < 2 else (0, 0)
        if hits >= max(MIN_HITS, windows / 2):
            return self.failed(
                f"{hits} of {windows} windows for evaluation begin and end inside training "
                "windows.",
                "overlapping windows were split at random: split recordings, or stretches of time",
            )
        for what, find in (("places of one dataset", _indices), ("files", _files)):
            if (sets := find(train, test)) is not None:
                return self._judge(subject, what, len(sets[0] & sets[1]), len(sets[1]))
        return self._by_bytes(subject, train, test)

    def _judge(
        self, subject: LoaderSubject, what: str, hits: int, count: int, least: float = 0
    ) -> Answer:
        text = f"{hits} of {count} {what} for evaluation are in the training set."
        if hits > least and subject.evaluations < 2:
            return self.failed(text)
        if hits:
            return unclear(text, self.next_step)
        return passed(f"None of {count} {what} for evaluation is in the training set.")

    def _by_bytes(self, subject: LoaderSubject, train: Any, test: Any) -> Answer:
        first, indices = made_sample(subject, test, 0)[0], spread_indices(test, MAX_COMPARED)
        theirs = {digest_of(made_sample(subject, test, i)[0]) for i in indices}
        few = first is None or first.size < MIN_NUMBERS or len(theirs) < DISTINCT * len(indices)
        if few or _changes(subject, train, spread_indices(train, 8)):
            return unclear("Inputs that are augmented, small or alike are not compared by bytes.")
        made = made_samples(subject, train, random_indices(train, MAX_TRAINED))
        ours = [digest_of(inputs) for inputs, _ in made]
        total, number = max(getattr(train, "total", len(train)), len(ours)), len(ours)
        what = "inputs" if number == total else f"inputs (against {number} of {total})"
        least = max(MIN_HITS - 1, SOME * len(indices) * number / len(train))
        return self._judge(subject, what, len(theirs & {*ours}), len(indices), least)


def _changes(subject: LoaderSubject, dataset: Any, indices: list[int]) -> bool:
    """Whether inputs differ from access to access."""
    pairs = ([made_sample(subject, dataset, i)[0] for _ in range(2)] for i in indices)
    return not all(same_bytes(*pair) for pair in pairs)


def _shared_runs(subject: LoaderSubject, train: Any, test: Any) -> tuple[int, int]:
    """(evaluation windows whose first and last steps lie in other training windows, all)."""
    if not len(_steps(made_sample(subject, test, 0)[0])):
        return 0, 0
    windows = [_steps(made_sample(subject, test, i)[0]) for i in spread_indices(test, WINDOWS)]
    ends = [(w[:RUN], w[-RUN:]) for w in windows]
    ends = [e for e in ends if all(len(set(c)) >= RUN / 2 for run in e for c in run.T.tolist())]
    firsts, inside = [run[0, 0] for pair in ends for run in pair], set[bytes]()
    indices = random_indices(train, MAX_TRAINED) if ends else []
    for inputs, _ in made_samples(subject, train, indices):
        steps = _steps(inputs)
        starts = np.flatnonzero(np.isin(steps[1:-RUN, 0], firsts)) + 1
        inside.update(steps[at : at + RUN].tobytes() for at in starts.tolist())
    return sum(all(run.tobytes() in inside for run in pair) for pair in ends), len(windows)


def _steps(values: Array | None) -> Array:
    """(steps, channels) of a window of floats; empty for other inputs."""
    if values is None or values.dtype.kind != "f" or values.ndim not in (1, 2) or not values.size:
        return np.zeros((0, 1))
    rows = values.reshape(len(values), -1)
    return np.ascontiguousarray(rows if rows.shape[0] > rows.shape[1] else rows.T)


def _taken(dataset: Any) -> tuple[Any, list[int] | None]:
    """(the dataset inside, the indices of it that subsets leave; None where unknown)."""
    indices: list[int] | None = None
    for layer in dataset_layers(dataset):
        if not hasattr(layer, "dataset"):
            return layer, list(range(len(layer))) if indices is None else indices
        if (inside := getattr(layer, "indices", None)) is None:
            return layer, None
        inside = [int(i) for i in inside]
        indices = inside if indices is None else [inside[i] for i in indices]
    return dataset, None


def _arrays_of(dataset: Any) -> list[Any]:
    """The arrays that a dataset holds, one row a sample."""
    held = list(vars(dataset).values()) if hasattr(dataset, "__dict__") else []
    held += [part for value in held if isinstance(value, tuple) for part in value]
    return [v for v in held if hasattr(v, "shape") and v.shape[:1] == (len(dataset),)]


def _indices(train: Any, test: Any) -> tuple[set[int], set[int]] | None:
    """Indices of one dataset that both take; None where they are of different ones."""
    (one, ours), (two, theirs) = _taken(train), _taken(test)
    if ours is None or theirs is None:
        return None
    if one is not two:
        held = _arrays_of(one), _arrays_of(two)
        if type(one) is not type(two) or len(held[0]) != len(held[1]) or not held[0]:
            return None
        if not all(map(same_bytes, *held)):
            return None
    return set(ours), set(theirs)


def _files(train: Any, test: Any) -> tuple[set[str], set[str]] | None:
    found = []
    for dataset in (train, test):
        base, indices = _taken(dataset)
        files = files_of(base)
        if not all_rows(base):
            indices = list(range(len(files)))
        elif len(files) != len(base):
            return None
        if not files or indices is None:
            return None
        found.append({str(files[i].resolve()) for i in indices})
    return found[0], found[1]


class AugmentedOnce(Check):
    """A cache after the augmentation: each sample is augmented once and never again.

    ## How it decides
    Makes 48 training samples twice in this process. Fails if at least six samples drew random
    numbers only the first time. For tf.data, fails if cache() follows a map() with random numbers.
    Exact.

    ## Limits
    Inconclusive if the dataset has no `transform` or `augment`. A dataset that augments all samples
    at construction or earlier is not seen.
    """

    code = "LOAD021"
    name = "augmented-once"
    causes = ("the cache holds what the transform returned",)
    next_step = "Cache the decoded image; call the transform on each access."

    def run(self, subject: LoaderSubject) -> Answer:
        dataset = None if subject.evaluation else rows_of(subject.fresh())
        if dataset is None or not len(dataset):
            return unclear("There is no training set with indices.")
        indices = spread_indices(dataset, SAMPLES)
        if hasattr(dataset, "augments"):  # a graph of tf.data
            return self._of_graph(subject, dataset, indices)
        drawn = cached = 0
        for index in indices:
            states, made = [stream_states(dataset)], list[Made]()
            for _ in range(2):
                made.append(made_sample(subject, dataset, index))
                states.append(stream_states(dataset))
            drawn += states[0] != states[1]
            cached += states[0] != states[1] and states[1] == states[2] and same_bytes(*made)
        if cached < MIN_MOVED:
            return passed(f"{drawn} of {len(indices)} samples draw, {cached} of a cache.")
        text = f"{cached} of {len(indices)} samples draw random numbers once, then come of a cache"
        if not _augments(dataset):
            return unclear(f"{text}: right for data that are made up.")
        return self.failed(f"{text}: the augmentation is drawn once for all epochs.")

    def _of_graph(self, subject: LoaderSubject, rows: Any, indices: list[int]) -> Answer:
        if not rows.augments:
            return passed("No operation of the dataset draws random numbers.")
        if rows.kept:
            return self.failed(
                "The dataset draws random numbers in map(), and cache() lies behind it: the "
                "augmentation is drawn once for all epochs."
            )
        if not _changes(subject, rows, indices):
            return unclear(SEEDED)
        return passed("The dataset draws random numbers in map() anew in each pass.")


class ChangedInPlace(Check):
    """A dataset that changes its stored data each time a sample is read.

    ## Why is this bad
    `image -= mean` on a cached array applies again in every epoch: the images fade.

    ## How it decides
    Fails if a stored array of 16 numbers or more has other bytes after its sample was read, of 8
    samples. Exact.

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
        base, taken = _taken(dataset)
        indices = spread_indices(dataset, IN_PLACE)
        rows = indices if taken is None else [taken[i] for i in indices]
        before = _stored_digests(base, rows)
        if not before:
            return absent("The dataset holds no arrays by sample.")
        for index in indices:
            made_sample(subject, dataset, index)
        after = _stored_digests(base, rows)
        text = f"Reading {len(indices)} samples"
        if changed := [name for name in before if after.get(name) != before[name]]:
            return self.failed(
                f"{text} changed what the dataset stores ({changed[0]}): each epoch works on what "
                "the one before left."
            )
        return passed(f"{text} left {len(before)} arrays of the dataset as they were.")


IN_PLACE, MIN_STORED = 8, 16


def _stored_digests(dataset: Any, rows: list[int]) -> dict[str, str]:
    """Digests of the stored arrays of these samples, by name."""
    found: dict[str, str] = {}
    for name, value in vars(dataset).items() if hasattr(dataset, "__dict__") else ():
        if isinstance(value, list) and len(value) == len(dataset):
            large = [r for r in rows if _size_of(value[r]) >= MIN_STORED]
            found |= {f"{name}[{r}]": digest_of(value[r]) for r in large}
        elif _size_of(value) >= MIN_STORED * len(dataset) and len(value) == len(dataset):
            found[name] = digest_of(value[rows])
    return found


def _size_of(value: Any) -> int:
    """The numbers in an array of numpy or torch; 0 for anything else."""
    in_memory = isinstance(value, np.ndarray) or hasattr(value, "untyped_storage")
    return math.prod(value.shape) if in_memory else 0


BLOCK, MIN_ROWS, MAX_CLASSES, RIDGE, FOLDS, MAX_NUMBERS = 600, 120, 50, 0.3, 4, 512
SURE, CHANCE, APART = 6.0, 2.5, 5.0  # deviations: of hits from chance; of a class from another
MAX_APART, WEIGHT, NEAR = 0.1, 1e-3, 1e-4  # weights of an image in a mix; relative error of it


class LabelsOfOthers(Check):
    """Labels in another order than the inputs.

    ## How it decides
    Predicts labels by cross-validated ridge regression on colours of images, counts of tokens, or
    other numbers. Fails if another order (reversed, sorted as text, a neighbour's) predicts them 6
    deviations better than the given order, or evaluation labels exceed 6 deviations, while training
    labels stay below 2.5. Fails if a model of the training data exchanges classes of the evaluation
    one for one, each by 5 deviations. Fails if a tenth of the labels in the loss match no image
    that your step mixed into their input.

    ## Limits
    Inputs of one size or tokens, up to 50 classes, no random augmentation. Other unpredictable
    labels are inconclusive: the task may be hard, or the order random.
    """

    code = "LOAD022"
    name = "labels-of-others"
    causes = (
        "inputs and labels were shuffled or sorted apart",
        "an index is off by one between two lists",
    )
    next_step = "Look at --images; shuffle or sort pairs, never two lists."

    def run(self, subject: LoaderSubject) -> Answer:
        if (apart := _mixed_apart(subject)) > MAX_APART:
            return self.failed(
                f"{apart:.0%} of the labels that enter the loss are of none of the images that "
                "their input is made of.",
                "images and labels are mixed by two draws of randperm",
            )
        sets = [rows_of(subject.loader), rows_of(subject.eval_loader)]
        train, test = (None if d is None else _table(subject, d) for d in sets)
        if train is None:
            return unclear("There are no inputs of one size with labels that stay the same.")
        score, hits, chance = _predicted(*train[:2])
        text = f"Labels are predicted from {len(train[0])} inputs in {hits:.0%} ({chance:.0%} by "
        text += "chance)"
        for name, other in _orders(*train[1:]) if score < SURE else ():
            moved = _predicted(train[0], other)
            if moved[0] > SURE + max(0.0, score):
                return self.failed(f"{text}, those {name} in {moved[1]:.0%}.")
        if test is not None and (others := _renumbered(train, test)):
            pairs = ", ".join(f"{theirs} is {ours}" for theirs, ours in others[:3])
            return wrong(
                f"{len(others)} classes have another number in the evaluation than in training: "
                f"label {pairs} there.",
                ["each split numbers its classes itself"],
                "Build the table of class numbers once, from the training data.",
            )
        if score > CHANCE:
            return passed(f"{text}: they belong to the inputs.")
        if test is not None and {*test[1]} == {*train[1]} and len(test[0]) <= 2 * len(train[0]):
            score, hits, chance = _predicted(*test[:2])
            if score > SURE:
                beside = f"{hits:.0%} ({chance:.0%} by chance)"
                return self.failed(f"{text}, those for evaluation in {beside}.")
        return unclear(
            f"{text}: a hard task, or labels of other inputs.",
            "Look at --images: does each input have its own label?",
        )


def _mixed_apart(subject: LoaderSubject) -> float:
    """Share of the labels in the loss whose image is none of those that theirs is mixed of."""
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
        # least squares separate images if these have far more pixels than there are images
        if own.ndim != 1 or rows.shape != sums.shape or 4 * len(rows) > rows.shape[1]:
            continue
        weights, _, rank, _ = np.linalg.lstsq(rows.T, sums.T, rcond=None)
        if rank < len(rows) or abs(rows.T @ weights - sums.T).max() > NEAR * abs(sums).max():
            continue
        for labels in parts:
            if labels is not None and np.array_equal(np.sort(labels), np.sort(own)):
                theirs = (abs(weights) > WEIGHT) & (own[:, None] == labels)
                apart, count = apart + int((~theirs.any(axis=0)).sum()), count + len(labels)
    return apart / max(count, 1)


def _as_text(count: int) -> NDArray[np.int64]:
    return np.array(sorted(range(count), key=str))


def _orders(labels: Array, whole: bool, kind: str) -> Iterator[tuple[str, Array]]:
    """(in words, labels in another order) of the orders that happen."""
    for step in (1, -1, 2, -2) if kind == "images" else ():
        plural, side = "s" * (abs(step) > 1), "before" if step > 0 else "after"
        yield f"{abs(step)} place{plural} {side}", np.roll(labels, step)
    if whole and kind:  # other numbers may follow each other, and so may their labels
        order = _as_text(len(labels))
        yield "of the dataset turned round", labels[::-1]
        for places in (order, np.argsort(order)):
            yield "in the order of numbers sorted as text", labels[places]


def _table(subject: LoaderSubject, dataset: Any) -> Table | None:
    """(features, labels, whether that is all, images, tokens or "") of the first samples."""
    rows, labels, shapes, tokens = list[Any](), list[int](), set[Any](), False
    made = made_samples(subject, dataset, range(min(len(dataset), BLOCK)))
    for index, (inputs, label) in enumerate(made):
        if inputs is None or label is None or not inputs.ndim or label.size != 1:
            return None
        if {label.dtype.kind, inputs.dtype.kind} - set("biuf") or label.reshape(-1)[0] % 1:
            return None
        if index < MIN_MOVED and not same_bytes(inputs, made_sample(subject, dataset, index)[0]):
            return None
        tokens = inputs.ndim == 1 and inputs.dtype.kind in "iu"
        shapes.add(1 if tokens else inputs.shape)
        if len(shapes) > 1:
            return None
        rows.append(_features(inputs) if inputs.ndim == 3 else _numbers(inputs, tokens))
        labels.append(int(label.reshape(-1)[0]))
    if len(rows) < MIN_ROWS or not 1 < len({*labels}) <= min(MAX_CLASSES, len(rows) // 10):
        return None
    kind = "tokens" if tokens else "images" if len(shapes.pop()) == 3 else ""
    return np.array(rows), np.array(labels), len(rows) == len(dataset), kind


def _numbers(values: Array, tokens: bool) -> NDArray[np.float64]:
    """Counts of tokens, or some numbers of another input."""
    if tokens:
        return np.bincount(values % MAX_NUMBERS, minlength=MAX_NUMBERS).astype(np.float64)
    some = values.reshape(-1)[:: -(-values.size // MAX_NUMBERS)]
    return np.nan_to_num(some.astype(np.float64))


def _predicted(rows: NDArray[np.float64], labels: Array) -> tuple[float, float, float]:
    """(deviations of the hits from chance, share of hits, share by chance), by four folds."""
    places = np.unique(labels, return_inverse=True)[1]
    fold = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    found = np.zeros(len(rows), int)
    for number in range(FOLDS):
        here = fold == number
        found[here] = _ridge(rows[~here], places[~here], rows[here])
    counts = (np.bincount(part, minlength=places.max() + 1) for part in (found, places))
    share = float(np.dot(*counts) / len(rows) ** 2)
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
    found = _ridge(rows, np.searchsorted(values, labels), theirs)
    counts = np.zeros((len(values), len(values)))
    np.add.at(counts, (np.searchsorted(values, wanted), found), 1)
    best, most, own = counts.argmax(axis=1), counts.max(axis=1), counts.diagonal()
    moved = np.flatnonzero(best != np.arange(len(values)))
    apart = ((most - own) / np.sqrt(most + own + 1e-12))[moved]
    if len({*best.tolist()}) < len(values) or apart.min(initial=math.inf) < APART:
        return []
    return [(int(values[place]), int(values[best[place]])) for place in moved]


def _ridge(known: Array, places: Array, rows: Array) -> NDArray[np.intp]:
    """The most likely class of each row, by ridge regression on rows of known classes."""
    mean, spread = known.mean(axis=0), known.std(axis=0) + 1e-9
    known, rows = (known - mean) / spread, (rows - mean) / spread
    wanted = np.eye(places.max() + 1)[places]
    middle = wanted.mean(axis=0)
    square = known.T @ known + RIDGE * len(known) * np.eye(known.shape[1])
    weights = np.linalg.solve(square, known.T @ (wanted - middle))
    likely: NDArray[np.intp] = (rows @ weights / ((middle * (1 - middle)) ** 0.5 + 1e-9)).argmax(1)
    return likely  # scaled, so that rare classes are predicted as well


COLUMNS, GAP, ROUNDING = (3, 4096), 0.25, 1e-8  # fewest and most; of the range; of a correlation
MIN_TABLE, MAX_TARGETS = 60, 64
NO_COLUMNS = "The inputs are no rows of one length, with a few targets each."


class TargetInInputs(Check):
    """A column of the inputs that gives the target away.

    ## How it decides
    Compares each column of 60 to 600 rows, or windows of a series, with their targets. Fails if the
    values of a column lie apart for all classes, by a quarter of its range. Fails if each target of
    numbers is a linear function of a column, to eight digits of the correlation.

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
        if found is None or found[0].shape == found[1].shape:
            return absent(NO_COLUMNS)
        columns, targets = found
        by_target = [_columns_like(columns, wanted) for wanted in targets.T]
        if not all(by_target):
            return passed(f"None of {columns.shape[1]} columns gives the target away.")
        named = ", ".join(map(str, sorted({c for found in by_target for c in found})[:3]))
        return self.failed(f"Column {named} of the inputs gives the target away.")


def _columns(
    subject: LoaderSubject, dataset: Any, most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """(rows of numbers, their targets) of samples from the whole of a dataset, or None."""
    if dataset is None or not all_rows(dataset) or len(dataset) < MIN_TABLE:
        return None
    first = made_sample(subject, dataset, 0)[0]
    if first is None or first.ndim not in (1, 2) or first.dtype.kind != "f":
        return None
    made = made_samples(subject, dataset, random_indices(dataset, most))
    rows, targets = (as_array(list(part)) for part in zip(*made, strict=True))
    if rows is None or targets is None or targets.dtype.kind not in "biuf":
        return None
    rows, targets = (part.reshape(len(part), -1).astype(float) for part in (rows, targets))
    usable = COLUMNS[0] <= rows.shape[1] <= COLUMNS[1] and targets.shape[1] <= MAX_TARGETS
    return (rows, targets) if usable else None


def _columns_like(columns: NDArray[np.float64], targets: NDArray[np.float64]) -> list[int]:
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
        gap = min(low - high for (_, high), (low, _) in pairwise(ends))
        found += [index] * bool(gap * (len(classes) - 1) > GAP * np.ptp(column))
    return found


MAX_SCALED, EXACT, MOST_COLUMNS = 20_000, 1e-4, 0.9  # rows; deviations; share of the columns


class ScaledByEvaluation(Check):
    """Inputs that are scaled by statistics of the evaluation data.

    ## How it decides
    Fails if nine of ten columns have mean 0 and deviation 1 to 1e-4 in the evaluation set alone, or
    in both sets together and not in the training set. Ranges from 0 to 1 that only both sets
    reach together fail too. Exact.

    ## Limits
    Needs two sets of rows of numbers, at most 20,000 each, that are read whole.
    """

    code = "LOAD030"
    name = "scaled-by-evaluation"
    causes = ("the scaler was fitted on the evaluation data", "the data were scaled, then split")
    next_step = "Fit the scaler on the training data, and apply it to both."

    def run(self, subject: LoaderSubject) -> Answer:
        sets = [rows_of(subject.loader), rows_of(subject.eval_loader)]
        if any(d is None for d in sets):
            return skipped(*NO_EVALUATION)
        first = made_sample(subject, sets[0], 0)[0] if len(sets[0]) >= MIN_TABLE else None
        if first is not None and first.ndim > 1:
            return absent("The inputs are windows of a series, which overlap, or images.")
        train, test = (_columns(subject, d, MAX_SCALED) for d in sets)
        if train is None or test is None or list(map(len, sets)) != [len(train[0]), len(test[0])]:
            return absent("The two sets are no rows of numbers that can be read whole.")
        parts = [train[0], test[0]]
        if parts[0].shape[1] != parts[1].shape[1]:
            return absent(NO_COLUMNS)
        varying = np.array([np.ptp(part, axis=0) > 0 for part in parts]).all(axis=0)
        parts = [part[:, varying] for part in (*parts, np.concatenate(parts))]
        if varying.sum() < COLUMNS[0]:
            return absent(NO_COLUMNS)
        in_train, in_test, in_both = (_standardised(rows) for rows in parts)
        own, _, joint = (_from_0_to_1(rows) for rows in parts)
        if in_both and not in_test and not in_train:
            return self.failed("Training and evaluation data were scaled together.")
        if joint and not own and not in_test:
            return self.failed("Only both sets together reach from 0 to 1 in each column.")
        if in_test and (in_train or not in_both):
            return self.failed(
                "Each column of the evaluation data has mean 0 and deviation 1: its own statistics "
                "scale it.",
                "fit_transform() on the evaluation data",
            )
        return passed("The columns of the evaluation data have statistics of their own.")


def _standardised(rows: NDArray[np.float64]) -> bool:
    """Whether nine of ten columns have mean 0 and deviation 1."""
    deviations = [abs(rows.std(axis=0, ddof=n) - 1) for n in (0, 1)]
    scaled = (abs(rows.mean(axis=0)) < EXACT) & (np.minimum(*deviations) < EXACT)
    return bool(scaled.mean() >= MOST_COLUMNS)


def _from_0_to_1(rows: NDArray[np.float64]) -> bool:
    return bool(((rows.min(0) == 0) & (rows.max(0) == 1)).mean() >= MOST_COLUMNS)
