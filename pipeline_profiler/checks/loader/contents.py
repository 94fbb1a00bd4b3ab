"""What samples hold, made again and compared: in evaluation and training, with their labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, digest_of, same_bytes
from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear
from pipeline_profiler.checks.indexed import (
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
    decisive,
    files_of,
    stream_states,
)

Array = NDArray[Any]
Floats = NDArray[np.float64]
Compared = tuple[str, set[Any], set[Any], float]  # kind, training, evaluation, tolerated hits
NO_EVALUATION = "There is no evaluation dataset with indices.", "Give its loader with --eval."
SAMPLES, MIN_MOVED = 48, 6
SEEDED = "tf.random.set_seed() was called: random numbers of map() begin again in each pass."


def stored_rows(dataset: Any) -> tuple[Any, list[int] | None]:
    """(the dataset inside, the indices of it that subsets leave; None where unknown)."""
    indices: list[int] | None = None
    for layer in dataset_layers(dataset):
        if not hasattr(layer, "dataset"):
            return layer, list(range(len(layer))) if indices is None else indices
        if (inside := getattr(layer, "indices", None)) is None:
            return layer, None
        indices = [int(i) for i in (inside if indices is None else np.array(inside)[indices])]
    return dataset, None


def augments(dataset: Any) -> bool:
    """Whether it, or a dataset inside it, has a transform or an augmentation."""
    parts = [getattr(layer, "__dict__", {}) for layer in dataset_layers(dataset)]
    return any(v for named in parts for n, v in named.items() if "transform" in n or "aug" in n)


def features_of(image: Any) -> Floats:
    """Means of 4 x 4 regions and quantiles, by channel; flips move the former only."""
    values = np.nan_to_num(np.asarray(image, np.float64))
    values = values if values.shape[0] in (1, 3, 4) else values.transpose(2, 0, 1)
    rows = np.array_split(values, min(4, values.shape[1]), axis=1)
    parts = [p for row in rows for p in np.array_split(row, min(4, row.shape[2]), axis=2)]
    levels = np.quantile(values.reshape(len(values), -1), np.linspace(0.05, 0.95, 8), axis=1)
    return np.concatenate([*(part.mean(axis=(1, 2)) for part in parts), *levels])


MAX_COMPARED, MAX_TRAINED, MIN_NUMBERS = 200, 20_000, 32
MIN_SHARE, MIN_HITS, DISTINCT = 0.05, 3, 0.9
RUN, WINDOWS = 12, 64  # steps; evaluation windows that are looked at


class EvaluationInTraining(Check):
    """Evaluation data that are in the training set or scale it, or targets among the inputs.

    ## How it decides
    Fails if both sets share indices, files, half of their windows, or 5% of 200 inputs, byte for
    byte; if tf.data cuts a set that each epoch shuffles; if a column of 60 rows is a linear
    function of the target; or if columns have mean 0 and deviation 1, or reach from 0 to 1, in the
    evaluation set alone or in both sets together, and not in the training set.

    ## Limits
    Near-duplicates, frames of one video, and images of one patient are not seen.
    """

    code = "LOAD020"
    name = "evaluation-in-training"
    causes = (
        "both loaders were given the same split, or two splits were drawn independently",
        "augmented or repeated copies were made before the split",
    )
    next_step = "Split once, disjoint; scale by the training data; leave the target out."

    def run(self, subject: LoaderSubject) -> Answer:
        return decisive([self._judge_samples(subject), _judge_columns(subject)])

    def _judge_samples(self, subject: LoaderSubject) -> Answer:
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
        hits, windows = _shared_runs(subject, train, test)
        if hits >= max(MIN_HITS, windows / 2) and subject.evaluations < 2:
            return self.failed(
                f"{hits} of {windows} windows for evaluation begin and end inside training "
                "windows.",
                "overlapping windows were split at random: split recordings, or stretches of time",
            )
        kind, ours, theirs, least = _identities(train, test) or _digests(subject, train, test)
        hits, text = len(ours & theirs), f"of {len(theirs)} {kind} for evaluation"
        if not theirs:
            return unclear("Inputs that are augmented, or no arrays, are not compared by bytes.")
        if hits > least and subject.evaluations < 2:
            return self.failed(f"{hits} {text} are in the training set.")
        if hits:
            return unclear(f"{hits} {text} are in the training set.", self.next_step)
        return passed(f"None {text} is in the training set.")


def _changes(subject: LoaderSubject, dataset: Any) -> bool:
    """Whether inputs differ from access to access."""
    indices = spread_indices(dataset, 8)
    first, second = ([made_sample(subject, dataset, i)[0] for i in indices] for _ in range(2))
    return not all(map(same_bytes, first, second))


def _digests(subject: LoaderSubject, train: Any, test: Any) -> Compared:
    """Digests of inputs; none if these are no arrays, or those of training change."""
    indices = spread_indices(test, MAX_COMPARED)
    inputs = [made_sample(subject, test, i)[0] for i in indices]
    if inputs[0] is None or _changes(subject, train):
        return "inputs", set(), set(), 0.0
    theirs = {digest_of(array) for array in inputs}
    made = made_samples(subject, train, random_indices(train, MAX_TRAINED))
    ours = [digest_of(array) for array, _ in made]
    least = max(MIN_HITS - 1, MIN_SHARE * len(indices) * len(ours) / len(train))
    if inputs[0].size < MIN_NUMBERS or len(theirs) < DISTINCT * len(indices):
        least = math.inf  # equal inputs may well be of other samples
    return f"inputs (beside {len(ours)} of training)", {*ours}, theirs, least


def _identities(train: Any, test: Any) -> Compared | None:
    """Indices of the same arrays, or files; None where samples have neither."""
    (one, ours), (two, theirs) = stored_rows(train), stored_rows(test)
    if ours is None or theirs is None:
        return None
    first, second = _arrays_of(one), _arrays_of(two)
    copied = len(first) == len(second) > 0 and all(map(same_bytes, first, second))
    if one is two or (copied and type(one) is type(two)):
        return "indices of one dataset", {*ours}, {*theirs}, 0.0
    named = list[set[Any]]()
    for base, indices in ((one, ours), (two, theirs)):
        files = files_of(base)
        rows = indices if all_rows(base) else range(len(files))
        usable = not all_rows(base) or len(files) == len(base)
        named.append({files[i].resolve() for i in rows} if usable else set())
    return ("files", named[0], named[1], 0.0) if all(named) else None


def _arrays_of(dataset: Any) -> list[Any]:
    """The arrays that a dataset holds, one row a sample."""
    values = list(vars(dataset).values()) if hasattr(dataset, "__dict__") else []
    values += [part for value in values if isinstance(value, tuple) for part in value]
    return [v for v in values if hasattr(v, "shape") and v.shape[:1] == (len(dataset),)]


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


COLUMNS, ROUNDING = (3, 4096), 1e-8  # fewest and most columns; of a correlation
MIN_ROWS, MAX_WINDOWS, MAX_TARGETS = 60, 600, 64
EXACT, MOST_COLUMNS = 1e-4, 0.9  # deviations; share of the columns


def _judge_columns(subject: LoaderSubject) -> Answer:
    """Whether a column is the target, or statistics of the evaluation data scale the inputs."""
    sets = [rows_of(subject.loader), rows_of(subject.eval_loader)]
    train, test = (_table_of(subject, dataset) for dataset in sets)
    if train is None:
        return absent("The inputs are no rows of one length, with a few targets each.")
    (rows, targets), width = train, train[0].shape[1]
    copies = [_linear_columns(rows, wanted) for wanted in targets.T]
    if all(copies) and rows.shape != targets.shape:
        named = ", ".join(map(str, sorted({column for found in copies for column in found})[:3]))
        cause = "the target, or a number made from it, was left in the table of features"
        text = f"Column {named} of the inputs gives the target away."
        return EvaluationInTraining.failed(text, cause)
    text = f"None of {width} columns gives the target away."
    if test is None or [(len(d), width) for d in sets] != [rows.shape, test[0].shape]:
        return passed(text)
    if fault := _scaling_fault(rows, test[0]):
        return EvaluationInTraining.failed(fault, "the scaler was fitted on the evaluation data")
    return passed(f"{text} Those of the evaluation data have statistics of their own.")


def _scaling_fault(train: Floats, test: Floats) -> str:
    """How statistics of the evaluation data scale the columns, or ""."""
    varying = (np.ptp(train, axis=0) > 0) & (np.ptp(test, axis=0) > 0)
    if varying.sum() < COLUMNS[0]:
        return ""
    parts = [part[:, varying] for part in (train, test, np.concatenate([train, test]))]
    standard, full = list[bool](), list[bool]()
    for rows in parts:  # nine of ten columns have mean 0 and deviation 1, or reach from 0 to 1
        apart = np.min([abs(rows.std(axis=0, ddof=n) - 1) for n in (0, 1)], axis=0)
        scaled = np.maximum(apart, abs(rows.mean(axis=0))) < EXACT
        standard.append(bool(scaled.mean() >= MOST_COLUMNS))
        reach = (rows.min(axis=0) == 0) & (rows.max(axis=0) == 1)
        full.append(bool(reach.mean() >= MOST_COLUMNS))
    in_train, in_test, in_both = standard
    if in_both and not in_test and not in_train:
        return "Training and evaluation data were scaled together."
    if full[2] and not full[0] and not in_test:
        return "Only both sets together reach from 0 to 1 in each column."
    text = "Each column of the evaluation data has mean 0 and deviation 1: its own statistics "
    return f"{text}scale it." if in_test and (in_train or not in_both) else ""


def _table_of(subject: LoaderSubject, dataset: Any) -> tuple[Floats, Floats] | None:
    """(rows of numbers, their targets) of samples from the whole of a dataset, or None."""
    if dataset is None or not all_rows(dataset) or len(dataset) < MIN_ROWS:
        return None
    first = made_sample(subject, dataset, 0)[0]
    if first is None or first.ndim not in (1, 2) or first.dtype.kind != "f":
        return None
    indices = random_indices(dataset, MAX_TRAINED if first.ndim == 1 else MAX_WINDOWS)
    made = made_samples(subject, dataset, indices)
    rows, targets = (as_array(list(part)) for part in zip(*made, strict=True))
    if rows is None or targets is None or targets.dtype.kind not in "biuf":
        return None
    rows, targets = (part.reshape(len(part), -1).astype(float) for part in (rows, targets))
    usable = COLUMNS[0] <= rows.shape[1] <= COLUMNS[1] and targets.shape[1] <= MAX_TARGETS
    return (rows, targets) if usable else None


def _linear_columns(columns: Floats, target: Floats) -> list[int]:
    """Columns that the target is a linear function of."""
    usable = np.flatnonzero((np.ptp(columns, axis=0) > 0) & np.isfinite(columns).all(axis=0))
    rest, apart = (part - part.mean(axis=0) for part in (columns[:, usable], target))
    norms = np.linalg.norm(rest, axis=0) * np.linalg.norm(apart)
    return list(map(int, usable[abs(apart @ rest) > (1 - ROUNDING) * norms]))


IN_PLACE, MIN_STORED = 8, 16  # samples that are read; numbers of a stored array


class AugmentedOnce(Check):
    """Samples that are augmented once for all epochs, or changed when they are read.

    ## How it decides
    Makes 48 training samples twice. Fails if at least six drew random numbers only the first time,
    or if cache() of tf.data follows a map() with random numbers. Fails if a stored array has other
    bytes after its sample was read, of 8 samples. Exact.

    ## Limits
    Inconclusive without a `transform` or `augment`. Augmentation at construction is not seen.
    """

    code = "LOAD021"
    name = "augmented-once"
    causes = ("the cache holds what the transform returned",)
    next_step = "Cache the decoded image; transform a copy of it on each access."

    def run(self, subject: LoaderSubject) -> Answer:
        return decisive([self._judge_drawn(subject), _judge_stored(subject)])

    def _judge_drawn(self, subject: LoaderSubject) -> Answer:
        dataset = None if subject.evaluation else rows_of(subject.fresh())
        if dataset is None or not len(dataset):
            return absent("There is no training set with indices.")
        indices = spread_indices(dataset, SAMPLES)
        if hasattr(dataset, "augments"):  # a graph of tf.data
            if dataset.augments and dataset.kept:
                return self.failed(
                    "The dataset draws random numbers in map(), and cache() lies behind it: the "
                    "augmentation is drawn once for all epochs."
                )
            if dataset.augments and not _changes(subject, dataset):
                return unclear(SEEDED)
            when = "anew in each pass" if dataset.augments else "in no operation"
            return passed(f"Random numbers are drawn {when}.")
        drawn = cached = 0
        for index in indices:
            states, made = [stream_states(dataset)], list[Any]()
            for _ in range(2):
                made.append(made_sample(subject, dataset, index))
                states.append(stream_states(dataset))
            drawn += states[0] != states[1]
            cached += states[0] != states[1] == states[2] and same_bytes(*made)
        if cached < MIN_MOVED:
            return passed(f"{drawn} of {len(indices)} samples draw, {cached} of a cache.")
        text = f"{cached} of {len(indices)} samples draw random numbers once, then come of a cache"
        if not augments(dataset):
            return unclear(f"{text}: right for data that are made up.")
        return self.failed(f"{text}: the augmentation is drawn once for all epochs.")


def _judge_stored(subject: LoaderSubject) -> Answer:
    """Whether reading samples changes what the dataset stores: `image -= mean` on cached arrays."""
    dataset = rows_of(subject.loader)
    if dataset is None or not len(dataset):
        return absent("There is no dataset with indices.")
    base, taken = stored_rows(dataset)
    indices = spread_indices(dataset, IN_PLACE)
    rows = indices if taken is None else [taken[i] for i in indices]
    before = _stored_digests(base, rows)
    for index in indices if before else ():
        made_sample(subject, dataset, index)
    after = _stored_digests(base, rows)
    changed = [name for name in before if after.get(name) != before[name]]
    if not before:
        return absent("The dataset holds no arrays by sample.")
    if not changed:
        return passed(f"Reading {len(indices)} samples leaves {len(before)} stored arrays as is.")
    return AugmentedOnce.failed(
        f"Reading {len(indices)} samples changed what the dataset stores ({changed[0]}): each "
        "epoch works on what the one before left.",
        "an operation in place (-=, /=, sub_, normalize(inplace=True)) on a cached array",
    )


def _stored_digests(dataset: Any, rows: list[int]) -> dict[str, str]:
    """Digests of the stored arrays of these samples, by name."""

    def in_memory(value: Any) -> bool:
        array = isinstance(value, np.ndarray) or hasattr(value, "untyped_storage")
        return array and math.prod(value.shape) >= MIN_STORED

    found: dict[str, str] = {}
    for name, value in vars(dataset).items() if hasattr(dataset, "__dict__") else ():
        if isinstance(value, list) and len(value) == len(dataset):
            found |= {f"{name}[{r}]": digest_of(value[r]) for r in rows if in_memory(value[r])}
        elif in_memory(value) and len(value) == len(dataset) and in_memory(value[0]):
            found[name] = digest_of(value[rows])
    return found


BLOCK, MIN_TABLE, MAX_CLASSES, RIDGE, FOLDS, MAX_NUMBERS = 600, 120, 50, 0.3, 4, 512
SURE, CHANCE, APART = 6.0, 2.5, 5.0  # deviations: of hits from chance; of a class from another
MAX_APART, WEIGHT, NEAR = 0.1, 1e-3, 1e-4  # weights of an image in a mix; relative error of it


class Table(NamedTuple):
    """Features of the first samples, labels, whether these are all, "images", "tokens" or ""."""

    rows: Floats
    labels: Array
    whole: bool
    kind: str


class LabelsOfOthers(Check):
    """Labels in another order than the inputs.

    ## How it decides
    Predicts labels by cross-validated ridge regression on colours, counts of tokens, or numbers.
    Fails if another order (reversed, sorted as text, a neighbour's) predicts 6 deviations better,
    or evaluation labels exceed 6 and training labels stay below 2.5; if a model of the training
    exchanges classes of the evaluation, each by 5; or if labels match no image of a mix in a step.

    ## Limits
    Inputs of one size or tokens, up to 50 classes, no random augmentation.
    """

    code = "LOAD022"
    name = "labels-of-others"
    causes = (
        "inputs and labels were shuffled or sorted apart",
        "an index is off by one between two lists",
    )
    next_step = "Look at --images; shuffle pairs, never two lists; number the classes once."

    def run(self, subject: LoaderSubject) -> Answer:
        if (apart := _mixed_apart(subject)) > MAX_APART:
            return self.failed(
                f"{apart:.0%} of the labels that enter the loss are of none of the images that "
                "their input is made of.",
                "images and labels are mixed by two draws of randperm",
            )
        sets = [rows_of(subject.loader), rows_of(subject.eval_loader)]
        train, test = (None if d is None else _features(subject, d) for d in sets)
        if train is None:
            return unclear("There are no inputs of one size with labels that stay the same.")
        score, hits, chance = _predicted(train.rows, train.labels)
        text = f"Labels are predicted from {len(train.rows)} inputs in {hits:.0%} ({chance:.0%} by "
        text += "chance)"
        for name, other in _orders(train) if score < SURE else ():
            moved = _predicted(train.rows, other)
            if moved[0] > SURE + max(0.0, score):
                return self.failed(f"{text}, those {name} in {moved[1]:.0%}.")
        if test is not None and (others := _renumbered(train, test)):
            return self.failed(
                f"{len(others)} classes have another number in the evaluation than in training: "
                f"label {', '.join(others[:3])} there.",
                "each split numbers its classes itself",
            )
        if score > CHANCE:
            return passed(f"{text}: they belong to the inputs.")
        if test is not None and {*test.labels} == {*train.labels}:
            score, hits, chance = _predicted(test.rows, test.labels)
            if score > SURE and len(test.rows) <= 2 * len(train.rows):
                beside = f"{hits:.0%} ({chance:.0%} by chance)"
                return self.failed(f"{text}, those for evaluation in {beside}.")
        return unclear(
            f"{text}: a hard task, or labels of other inputs.",
            "Look at --images: does each input have its own label?",
        )


def _mixed_apart(subject: LoaderSubject) -> float:
    """Share of the labels in the loss whose image is none of those that theirs is mixed of."""
    matched = list[bool]()
    steps = subject.entered()[0] if subject.at_model and subject.entered else []
    for raw, inputs, targets in steps:
        given, mixed = None if raw is None else subject.seen(raw), as_array(inputs)
        if given is None or mixed is None or given.inputs is None or given.targets is None:
            continue
        own, rows = given.targets, given.inputs.reshape(len(given.inputs), -1).astype(float)
        sums = mixed.reshape(len(mixed), -1).astype(float)
        # least squares separate images if these have far more pixels than there are images
        if own.ndim != 1 or rows.shape != sums.shape or 4 * len(rows) > rows.shape[1]:
            continue
        weights, _, rank, _ = np.linalg.lstsq(rows.T, sums.T, rcond=None)
        if rank < len(rows) or abs(rows.T @ weights - sums.T).max() > NEAR * abs(sums).max():
            continue
        parts = map(as_array, targets if isinstance(targets, tuple) else (targets,))
        labels = [p for p in parts if p is not None and np.array_equal(np.sort(p), np.sort(own))]
        visible = abs(weights) > WEIGHT
        hits = np.array([(visible & (own[:, None] == part)).any(axis=0) for part in labels])
        if len(hits) > 1:  # of a mix of nearly one image alone, one label can be seen
            hits |= (visible.sum(axis=0) < 2) & hits.any(axis=0)
        matched += hits.reshape(-1).tolist()
    return 1 - float(np.mean(matched or [True]))


def _orders(table: Table) -> Iterator[tuple[str, Array]]:
    """(in words, labels in another order) of the orders that happen."""
    if table.kind == "images":
        yield "1 place before", np.roll(table.labels, 1)
        yield "1 place after", np.roll(table.labels, -1)
    if table.whole and table.kind:  # other numbers may follow each other, and so may their labels
        order = np.array(sorted(range(len(table.labels)), key=str))
        yield "of the dataset turned round", table.labels[::-1]
        for rows in (order, np.argsort(order)):
            yield "in the order of numbers sorted as text", table.labels[rows]


def _features(subject: LoaderSubject, dataset: Any) -> Table | None:
    """The table of a dataset; None if inputs or labels change, or are not of one form."""
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
        if tokens:
            rows.append(np.bincount(inputs % MAX_NUMBERS, minlength=MAX_NUMBERS).astype(float))
        elif inputs.ndim == 3:
            rows.append(features_of(inputs))
        else:
            some = inputs.reshape(-1)[:: -(-inputs.size // MAX_NUMBERS)]
            rows.append(np.nan_to_num(some.astype(float)))
        labels.append(int(label.reshape(-1)[0]))
    classes = len({*labels})
    if len(rows) < MIN_TABLE or not 1 < classes <= min(MAX_CLASSES, len(rows) // 10):
        return None
    if len(shapes) > 1:
        return None
    kind = "tokens" if tokens else "images" if len(shapes.pop()) == 3 else ""
    return Table(np.array(rows), np.array(labels), len(rows) == len(dataset), kind)


def _predicted(rows: Floats, labels: Array) -> tuple[float, float, float]:
    """(deviations of the hits from chance, share of hits, share by chance), by four folds."""
    classes = np.unique(labels, return_inverse=True)[1]
    fold = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    found = np.zeros(len(rows), int)
    for number in range(FOLDS):
        here = fold == number
        found[here] = _ridge(rows[~here], classes[~here], rows[here])
    counts = (np.bincount(part, minlength=classes.max() + 1) for part in (found, classes))
    share = float(np.dot(*counts) / len(rows) ** 2)
    hits = float((found == classes).mean())
    return (hits - share) / (share * (1 - share) / len(rows) + 1e-12) ** 0.5, hits, share


def _renumbered(train: Table, test: Table) -> list[str]:
    """Evaluation labels that a model of the training data takes for others, as "1 is 2"."""
    values = np.unique(train.labels)
    if train.rows.shape[1] != test.rows.shape[1] or {*values} != {*test.labels}:
        return []
    splits = np.repeat([0, 1], [len(train.rows), len(test.rows)])
    if _predicted(np.concatenate([train.rows, test.rows]), splits)[0] > CHANCE:
        return []  # other inputs may well be taken for another class
    found = _ridge(train.rows, np.searchsorted(values, train.labels), test.rows)
    counts = np.zeros((len(values), len(values)))
    np.add.at(counts, (np.searchsorted(values, test.labels), found), 1)
    best, most, own = counts.argmax(axis=1), counts.max(axis=1), counts.diagonal()
    moved = np.flatnonzero(best != np.arange(len(values)))
    apart = ((most - own) / np.sqrt(most + own + 1e-12))[moved]
    if len({*best.tolist()}) < len(values) or apart.min(initial=math.inf) < APART:
        return []
    return [f"{values[row]} is {values[best[row]]}" for row in moved]


def _ridge(known: Array, classes: Array, rows: Array) -> NDArray[np.intp]:
    """The most likely class of each row, by ridge regression on rows of known classes."""
    mean, spread = known.mean(axis=0), known.std(axis=0) + 1e-9
    known, rows = (known - mean) / spread, (rows - mean) / spread
    wanted = np.eye(classes.max() + 1)[classes]
    middle = wanted.mean(axis=0)
    square = known.T @ known + RIDGE * len(known) * np.eye(known.shape[1])
    weights = np.linalg.solve(square, known.T @ (wanted - middle))
    likely: NDArray[np.intp] = (rows @ weights / ((middle * (1 - middle)) ** 0.5 + 1e-9)).argmax(1)
    return likely  # scaled, so that rare classes are predicted as well
