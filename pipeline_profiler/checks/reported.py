"""Numbers that a script reports after an evaluation, beside the metrics of the same batches.

A number that equals a wrong combination of the batches, and no right one, is a fault.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.batches import batch_size, inputs_and_targets, main_tensor
from pipeline_profiler.checks.caught_tape import at
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import Reported
from pipeline_profiler.checks.loss_alone import read_task
from pipeline_profiler.profiling.measure.watchdog import is_own_code

METRICS = re.compile(
    r"(?P<accuracy>acc|top.?1(?!\d))|(?P<RMSE>rmse)|(?P<MSE>mse)|(?P<MAE>mae)|(?P<loss>loss)"
    r"|(?P<AUC>auc|auroc)|(?P<F1>f1|dice)|(?P<IoU>iou|jaccard)",
    re.IGNORECASE,
)
OTHER = re.compile(r"train|\btr\b|tr_|best|balanced|top.?[2-9]|sum|total|run|lr|time|sec", re.I)
HELD_OUT = re.compile(r"(?<!e)val|test|dev", re.I)
NUMBER = re.compile(r"(?<![\w.])-?\d+\.(\d+)(?:e([-+]?\d+))?")
LABEL = 40  # characters before a number
PRINTED, PRINTED_LOSS, UNNAMED = 7e-4, 3e-3, 2.6e-4  # largest relative rounding of a fault
NEAR, MATERIAL = 1e-5, 0.01  # relative
LAST, ADDED, RIGHT = "only the last batch", "the values of batches, not divided by their number", ""
IGNORED = "padded or ignored positions count as samples"
TRAINING = "of the training loader, not of held-out samples"


class Number(NamedTuple):
    """A number, and the line that prints it after `batches` of a pass; '' for a variable."""

    label: str
    value: float
    rounding: float = 0.0
    place: str = ""
    sizes: Sequence[int] = ()  # of the batches of the pass
    batches: int = 0

    def equals(self, value: float, times: float = 1.0) -> bool:
        """Whether the number is this value or share in percent, within `times` the rounding."""
        scales = (1, 100) if abs(value) <= 1 else (1,)
        gap = min(abs(self.value - value * scale) for scale in scales)
        return gap <= times * self.rounding + NEAR * abs(self.value)


@dataclass
class Pass:
    """A pass over a loader without gradients.

    means: of each batch by (metric, flaw). labels: (scores of class 1 or None, predicted classes,
    targets) of each batch, a row for each sample.
    """

    seen: Any
    iteration: int
    sizes: list[int] = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)  # targets, and those that count
    means: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    labels: list[tuple[Any, Any, Any]] = field(default_factory=list)

    @property
    def ignores(self) -> bool:
        """Whether some targets are ignored, such as padding."""
        return any(counted < given for given, counted in self.counts)

    def _note(self, metric: str, flaw: str, values: Any) -> None:
        self.means.setdefault((metric, flaw), []).append(float(values.float().mean()))


@dataclass
class Evaluations:
    """What was evaluated and reported after the last training step; `again`: calls beside it."""

    passes: list[Pass] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)  # variables
    again: int = 0
    batch: Any = None  # the last of a loader, while no model took it
    taken: bool = False  # a model took it
    losses: list[tuple[bool, Any]] = field(default_factory=list)  # (summed, mean) since the batch
    by_logits: bool = False  # the loss takes logits of two classes
    target_path: tuple[Any, ...] | None = None  # in a batch of the training

    def next_batch(self, batch: Any) -> None:
        """Begin a batch of a loader; the losses so far are of the batch before it."""
        for summed, value in self.losses if self.taken else ():
            current = self.passes[-1]
            current._note("loss", RIGHT, value / (current.sizes[-1] if summed else 1))
        self.batch, self.losses, self.taken = batch, [], False

    def add(self, seen: Any, out: Any) -> None:
        """Add the outputs of an evaluated model for the batch."""
        if self.batch is None:
            self.again += 1
            return
        last = self.passes[-1] if self.passes else None
        self.before = self.before if last else dict(_variables())
        if last is None or last.seen is not seen or last.iteration != seen.iterations:
            self.passes.append(last := Pass(seen, seen.iterations))
        inputs, targets = inputs_and_targets(self.batch)
        if self.target_path is not None:
            with contextlib.suppress(LookupError, TypeError):  # the batch has another form
                targets = at(self.batch, self.target_path)
        last.sizes.append(batch_size(inputs))
        self.batch, self.taken = None, True
        scores, wanted = main_tensor(out), main_tensor(targets)
        if (task := read_task(scores, wanted)).kind == "unknown":
            return
        scores, wanted = scores.detach().float(), wanted.detach().to(scores.device)
        if task.kind == "classes":
            counted = (wanted >= 0) & (wanted < task.classes)  # others are ignored by the loss
            last.counts.append((counted.numel(), int(counted.sum())))
            right = scores.argmax(task.axis) == wanted
            last._note("accuracy", RIGHT, right[counted])
            if last.ignores:
                last._note("accuracy", IGNORED, right)
                return
            if task.axis == 1:
                of_one = scores[:, 1] - scores[:, 0] if task.classes == 2 else None
                predicted = scores.argmax(1).reshape(len(wanted), -1)
                last.labels.append((of_one, predicted, wanted.reshape(len(wanted), -1)))
            over_batch = scores.softmax(0).argmax(task.axis)
            last._note("accuracy", "a softmax over the batch axis", over_batch == wanted)
            return
        size, scores, wanted = len(wanted), scores.reshape(-1), wanted.reshape(-1)
        last._note("MAE", RIGHT, (scores - wanted).abs())
        last._note("MSE", RIGHT, (scores - wanted) ** 2)
        if task.kind == "binary":
            predicted = scores > 0.5 * (not self.by_logits)
            last._note("accuracy", RIGHT, predicted == wanted)
            rows = predicted.reshape(size, -1), wanted.reshape(size, -1)
            last.labels.append((scores, *rows))
        if task.kind == "binary" and self.by_logits:
            last._note("accuracy", "a threshold of 0.5 on logits", (scores > 0.5) == wanted)

    def loss(self, name: str, kwargs: Any, value: Any) -> None:
        """Note the result of a loss function of torch."""
        self.by_logits |= "with_logits" in name
        mean = value.detach().float().mean()
        self.losses.append((kwargs.get("reduction") == "sum", mean))

    def text(self, text: str, place: str) -> None:
        """Note the numbers of a text, with the labels before them."""
        end = 0
        for match in NUMBER.finditer(text):
            label, end = text[end : match.start()][-LABEL:], match.end()
            rounding = 0.5001 * 10.0 ** (int(match[2] or 0) - len(match[1]))
            sizes = self.passes[-1].sizes
            self.numbers.append(Number(label, float(match[0]), rounding, place, sizes, len(sizes)))

    def close(self, train: Any) -> list[Reported]:
        """Return one number of each metric, and begin anew; `train`: the loader of the training."""
        self.next_batch(None)
        found, numbers = list[Reported](), list[Number]()
        if self.passes and self.again < 2:
            early = {n.place for n in self.numbers if n.batches < len(n.sizes)}
            numbers = [Number(*pair) for pair in _variables() if pair not in self.before.items()]
            known = [*self.before.values()]
            numbers += [
                n for n in self.numbers if n.place not in early and not any(map(n.equals, known))
            ]
        for metric in METRICS.groupindex:
            rows = [row for p in self.passes for row in formulas_of(metric, p, train)]
            named = [row for n in numbers if (row := _compared(metric, n, rows))]
            found += sorted(named, key=lambda row: row[4])[:1]
        self.passes, self.numbers, self.again = [], [], 0
        return found


def _variables() -> Iterator[tuple[str, float]]:
    """Finite numbers in variables of the user's functions that run, and in their dicts."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        own = is_own_code(frame.f_code.co_filename)
        for name, value in list(frame.f_locals.items()) if own else ():
            named = isinstance(value, dict) and name[:2] != "__"
            for label, part in list(value.items()) if named else [(name, value)]:
                if isinstance(part, np.generic | torch.Tensor) and part.ndim == 0:
                    part = part.item()
                if isinstance(part, float) and math.isfinite(part):
                    yield str(label), part
        frame = frame.f_back


def _compared(metric: str, number: Number, rows: list[tuple[str, float]]) -> Reported | None:
    """The number beside the right value; None if it equals no known value."""
    named, held_out = METRICS.search(number.label), HELD_OUT.search(number.label) is not None
    if named is None or named.lastgroup != metric or OTHER.search(number.label):
        return None
    right = [value for formula, value in rows if formula == RIGHT]
    left_out = set[str]() if number.place else {LAST, ADDED}  # variables of the loop
    left_out |= set() if held_out else {TRAINING}
    equal = sorted(f for f, value in rows if f not in left_out and number.equals(value))
    rounded = (PRINTED_LOSS if metric == "loss" else PRINTED) if held_out else UNNAMED
    exact = number.rounding <= rounded * abs(number.value)
    if not equal or (equal[0] and (not exact or any(number.equals(v, 3.0) for v in right))):
        return None
    label = number.label.strip(" |,:;=-'\"{([/\n")
    return label, metric, number.value, (right or [number.value])[0], equal[0], number.place


def formulas_of(metric: str, current: Pass, train: Any) -> list[tuple[str, float]]:
    """(RIGHT or a wrong formula, value) of what a script may report as a metric of a pass."""
    if metric == "RMSE":
        return _roots(current, formulas_of("MSE", current, train))
    rows = _of_labels(metric, current) if metric in ("AUC", "F1", "IoU") else []
    for (kind, flaw), each in current.means.items():
        if kind != metric or len(each) != len(current.sizes):
            continue
        if current.ignores and metric == "accuracy":
            weights = [given if flaw else counted for given, counted in current.counts]
            rows.append((flaw, float(np.average(each, weights=weights))))
            continue
        whole = float(np.average(each, weights=current.sizes))
        rows += [(flaw, whole)] if flaw else _combined(current, metric, each, whole, train)
    right = [value for formula, value in rows if formula == RIGHT]
    if current.seen is train:
        return [(TRAINING, value) for value in right] if len(current.sizes) > 1 else []
    far = [(f, v) for f, v in rows if all(abs(v - r) > MATERIAL * abs(r) for r in right)]
    return [(RIGHT, value) for value in right] + far


def _of_labels(metric: str, current: Pass) -> list[tuple[str, float]]:
    """Values of a metric of all predictions, of the predicted classes, and its mean of batches."""
    batches = current.labels
    if len(batches) != len(current.sizes) or (metric == "AUC" and batches[0][0] is None):
        return []
    columns = list(zip(*batches, strict=True))  # rows of tokens may have other lengths in a batch
    whole: list[Any] = [
        column[0] if column[0] is None else torch.cat([part.reshape(-1) for part in column])
        for column in columns
    ]
    if metric != "AUC" and len(whole[1].unique()) < 2:
        return []  # the model has learned nothing yet: all formulas agree
    if metric == "AUC":
        rows = [(RIGHT, _auc(whole[0], whole[2]))]
        rows += [("the area for predicted classes instead of scores", _auc(whole[1], whole[2]))]
        rows += [("the mean of batches", float(np.mean([_auc(s, w) for s, _, w in batches])))]
    else:
        size = max(2, *(int(part.max()) + 1 for part in whole[1:]))
        rows = [(RIGHT, value) for value in _overlap(metric, whole[1], whole[2], size)]
        samples = [pair for _, p, w in batches for pair in zip(p, w, strict=True)]
        parts = [(RIGHT, samples)] if len(whole[1]) > len(samples) else []  # each image by itself
        for flaw, pairs in (*parts, ("the mean of batches", [(p, w) for _, p, w in batches])):
            means = np.mean([_overlap(metric, p, w, size) for p, w in pairs], axis=0)
            rows += [(flaw, value) for value in means.tolist()]
    return [(formula, value) for formula, value in rows if math.isfinite(value)]


def _auc(scores: Any, wanted: Any) -> float:
    """The area under the ROC curve, by ranks; NaN where one class is absent."""
    _, place, count = torch.unique(scores.reshape(-1), return_inverse=True, return_counts=True)
    ranks, positive = (count.cumsum(0) - (count - 1) / 2)[place], wanted.reshape(-1) > 0.5
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return math.nan
    return (float(ranks[positive].sum()) - ones * (ones + 1) / 2) / (ones * zeros)


def _overlap(metric: str, predicted: Any, wanted: Any, size: int) -> tuple[float, ...]:
    """F1 or IoU of class 1 of two, its mean over classes and present classes, and by counts."""
    predicted, wanted = predicted.reshape(-1).long(), wanted.reshape(-1).long()
    count = torch.bincount(wanted, minlength=size)
    both = torch.bincount(predicted, minlength=size) + count
    each = 2 * torch.bincount(wanted[predicted == wanted], minlength=size) / both.clamp(min=1)
    each = each / (2 - each) if metric == "IoU" else each
    means = each.mean(), each[both > 0].mean(), (each * count).sum() / count.sum()
    return float(each[1]) if size == 2 else math.nan, *map(float, means)


def _roots(current: Pass, squares: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Roots of the combinations of squared errors, and the mean of the roots of batches."""
    rows = [(formula, math.sqrt(value)) for formula, value in squares]
    each = current.means.get(("MSE", RIGHT), [])
    mean = float(np.mean(np.sqrt(each))) if len(each) == len(current.sizes) else math.nan
    right = [value for formula, value in rows if formula == RIGHT]
    far = right and all(abs(mean - r) > MATERIAL * r for r in right)
    return [*rows, ("the mean of the roots of batches", mean)] if far else rows


def _combined(
    current: Pass, metric: str, each: list[float], whole: float, train: Any
) -> list[tuple[str, float]]:
    """Right and wrong combinations of the means of batches, in this pass or in a longer pass."""
    batches, count, last, means = len(each), sum(current.sizes), current.sizes[-1], sum(each)
    given, length, size, held = extent(current.seen.loader) or (count, batches, last, count)
    by_train = extent(train and train.loader) or (given, length, size, held)
    seen_bias = abs(1 / batches - last / count)
    bias = abs(1 / length - (given % size or size) / given) / max(seen_bias, NEAR)
    biased = abs(means / batches - whole) * bias > MATERIAL * abs(whole) and metric != "loss"
    mean = "the mean of batches" if biased else RIGHT
    total = whole * count
    formulas: dict[str, tuple[float, ...]] = {
        "the sum divided by batches times batch size": (total, length * size, batches * size),
        "the sum over samples divided by the number of batches": (total, length, batches),
        "the sum divided by the length of the dataset": (total, held),
        "the sum over batches divided by the number of samples": (means, given, count),
        "the sum over batches divided by one batch too few": (means, max(1, batches - 1)),
        "the sum divided by the number of training samples": (total, by_train[0], by_train[3]),
        "the sum divided by the number of training batches": (means, by_train[1]),
        LAST: (each[-1] if each[-1] % 1 else math.nan, 1),  # a class may have 0 or 1 as well
        ADDED: (means, 1),
    }  # fmt: skip
    wrong = [(f, top / bottom) for f, (top, *bottoms) in formulas.items() for bottom in bottoms]
    right = [(RIGHT, whole), (RIGHT, total / given)]
    return [*right, (mean, means / batches), (mean, means / length), *wrong]


def extent(loader: Any) -> tuple[int, int, int, int] | None:
    """(samples of a whole pass, batches, batch size, samples of the dataset); None if unknown."""
    try:
        given, size, held = len(loader.sampler), int(loader.batch_size), len(loader.dataset)
    except Exception:  # noqa: BLE001 - an iterable dataset without a length raises its own errors
        return None
    length = given // size if loader.drop_last else -(-given // size)
    return (length * size if loader.drop_last else given), length, size, held


LARGER = re.compile(r"acc|f1|auc|iou|dice|precision|recall|top.?1", re.IGNORECASE)
SMALLER = re.compile(r"loss|err|rmse|mae|mse|perplexity|ppl", re.IGNORECASE)


def reversed_best(files: Mapping[str, str]) -> tuple[str, str] | None:
    """The condition and line of `if acc < best_acc: best_acc = acc`, which keeps the worst."""
    for path, text in files.items():
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.If) and _keeps_worst(node):
                    at = node.test
                    columns = f"{at.col_offset}-{at.end_lineno}:{at.end_col_offset}"
                    return ast.unparse(at), f"{path}:{at.lineno}:{columns}"
    return None


def _keeps_worst(node: ast.If) -> bool:
    """Whether a condition keeps the smaller of two scores, or the larger of two losses."""
    test = node.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, right = ast.unparse(test.left), ast.unparse(test.comparators[0])
    less = isinstance(test.ops[0], ast.Lt | ast.LtE)
    if not less and not isinstance(test.ops[0], ast.Gt | ast.GtE):
        return False
    value, best = (left, right) if "best" in right.lower() else (right, left)
    smaller = less if best == right else not less
    kept = any(
        isinstance(part, ast.Assign) and ast.unparse(part.value) == value
        and best in map(ast.unparse, part.targets)
        for part in node.body
    )  # fmt: skip
    names = f"{value} {best}"
    known = bool(LARGER.search(names)), bool(SMALLER.search(names))
    return (
        kept and "best" in best.lower() and known == ((True, False) if smaller else (False, True))
    )
