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

from pipeline_profiler.checks.batches import (
    batch_size,
    inputs_and_targets,
    main_tensor,
    padding_of,
)
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
TRAINING = "of the training loader, not of held-out samples"
LARGER = re.compile(r"acc|f1|auc|iou|dice|precision|recall|top.?1", re.IGNORECASE)
SMALLER = re.compile(r"loss|err|rmse|mae|mse|perplexity|ppl", re.IGNORECASE)
COMPARED = re.compile(r"([^<>=]+) ([<>])=? ([^<>=]+)")
Rows = list[tuple[str, float]]  # (RIGHT or what is wrong with the formula, value)


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

    means: (mean, number of values) of each batch by (metric, flaw). labels: (scores of class 1 or
    None, predicted classes, targets) of each batch, a row for each sample.
    """

    seen: Any
    iteration: int
    sizes: list[int] = field(default_factory=list)
    means: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    labels: list[tuple[Any, Any, Any]] = field(default_factory=list)
    ignores: bool = False  # some targets, such as padding
    padding: float = math.nan  # the token that fills the ends of rows

    def note(self, metric: str, flaw: str, values: Any) -> None:
        """Note the values of the samples of a batch."""
        row = float(values.float().mean()), values.numel()
        self.means.setdefault((metric, flaw), []).append(row)


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
            current, size = self.passes[-1], self.passes[-1].sizes[-1]
            current.note("loss", RIGHT, (value / (size if summed else 1)).expand(size))
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
        if (task := read_task(scores, wanted)).kind != "unknown":
            tokens, ignored = main_tensor(inputs), wanted.detach() < 0
            if tokens.ndim == 2 and tokens.shape == wanted.shape and not tokens.is_floating_point():
                found = padding_of(tokens)
                last.padding = last.padding if found is None else found[0]
                ignored |= (tokens == last.padding).to(ignored.device)
            scores, wanted = scores.detach().float(), wanted.detach().to(scores.device)
            self._compare(last, task, scores, wanted, ignored.to(scores.device))

    def _compare(self, current: Pass, task: Any, scores: Any, wanted: Any, ignored: Any) -> None:
        """Note metrics of a batch by right and by wrong formulas; `ignored`: targets."""
        size, of_one = len(wanted), None
        if task.kind == "classes":
            counted = ~ignored & (wanted < task.classes)  # others are ignored by the loss
            predicted, wrong = scores.argmax(task.axis), scores.softmax(0).argmax(task.axis)
            flaw = "a softmax over the batch axis"
            if task.classes == 2 and task.axis == 1:
                of_one = scores[:, 1] - scores[:, 0]
        else:
            scores, wanted = scores.reshape(-1), wanted.reshape(-1)
            current.note("MAE", RIGHT, (scores - wanted).abs())
            current.note("MSE", RIGHT, (scores - wanted) ** 2)
            if task.kind == "regression":
                return
            predicted, wrong = scores > 0.5 * (not self.by_logits), scores > 0.5
            flaw, of_one, counted = "a threshold of 0.5 on logits", scores, ~ignored.reshape(-1)
        right = predicted == wanted
        current.note("accuracy", RIGHT, right[counted])
        current.note("accuracy", "padded or ignored positions count as samples", right)
        current.note("accuracy", flaw, (wrong == wanted)[counted])
        current.ignores |= not bool(counted.all())
        if not current.ignores and (task.axis == 1 or task.kind == "binary"):
            current.labels.append((of_one, *(x.reshape(size, -1) for x in (predicted, wanted))))

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
            found += sorted(named, key=lambda row: (row.flaw != RIGHT, not row.is_exact))[:1]
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


def _compared(metric: str, number: Number, rows: Rows) -> Reported | None:
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
    if not equal or (equal[0] and any(number.equals(v, 3.0) for v in right)):
        return None
    if equal[0] and not exact and not (held_out and number.place):
        return None
    label = number.label.strip(" |,:;=-'\"{([/\n")
    best = (right or [number.value])[0]
    return Reported(label, metric, number.value, best, equal[0], number.place, exact)


def without_chance(rows: Sequence[Reported]) -> list[Reported]:
    """Return the rows without rounded faults that no second value of the same line repeats."""
    values = dict[tuple[str, str], set[float]]()
    for row in rows:
        values.setdefault((row.line, row.flaw), set()).add(row.value)
    return [
        row for row in rows
        if row.flaw == RIGHT or row.is_exact or len(values[row.line, row.flaw]) > 1
    ]  # fmt: skip


def formulas_of(metric: str, current: Pass, train: Any) -> Rows:
    """(RIGHT or a wrong formula, value) of what a script may report as a metric of a pass."""
    rows = _of_labels(metric, current) if metric in ("AUC", "F1", "IoU") else []
    for (kind, flaw), each in current.means.items():
        if kind != ("MSE" if metric == "RMSE" else metric) or len(each) != len(current.sizes):
            continue
        means, counts = zip(*each, strict=True)
        whole = float(np.average(means, weights=counts))
        plain = flaw or (current.ignores and metric == "accuracy")
        rows += [(flaw, whole)] if plain else _combined(current, metric, means, whole, train)
        if metric == "RMSE":
            rows = [(formula, math.sqrt(value)) for formula, value in rows if value >= 0]
            rows.append(("the mean of the roots of batches", float(np.mean(np.sqrt(means)))))
    right = [value for formula, value in rows if formula == RIGHT]
    if current.seen is train:
        return [(TRAINING, value) for value in right] if len(current.sizes) > 1 else []
    far = [(f, v) for f, v in rows if all(abs(v - r) > MATERIAL * abs(r) for r in right)]
    return [(RIGHT, value) for value in right] + far


def _of_labels(metric: str, current: Pass) -> Rows:
    """Values of a metric of all predictions, of the predicted classes, and its mean of batches."""
    if len(current.labels) != len(current.sizes):
        return []
    scores, predicted, wanted = zip(*current.labels, strict=True)
    found = scores if metric == "AUC" else predicted
    if found[0] is None:
        return []
    # rows of tokens may have other lengths in a batch
    columns: list[Any] = [
        torch.cat([part.reshape(-1) for part in parts]) for parts in (found, predicted, wanted)
    ]
    whole, classes, target = columns
    if len(whole.unique()) < 2:
        return []  # the model has learned nothing yet: all formulas agree
    batches = list(zip(found, wanted, strict=True))
    groups = [(RIGHT, [(whole, target)]), ("the mean of batches", batches)]
    if metric == "AUC":
        flaw = "the area for predicted classes instead of scores"
        groups.append((flaw, [(classes, target)]))
    elif len(whole) > sum(current.sizes):  # each image by itself
        groups.append((RIGHT, [row for p, w in batches for row in zip(p, w, strict=True)]))
    size = max(2, int(classes.max()) + 1, int(target.max()) + 1)
    rows = [
        (flaw, float(value)) for flaw, pairs in groups
        for value in np.mean([_overlap(metric, p, w, size) for p, w in pairs], axis=0)
    ]  # fmt: skip
    return [(formula, value) for formula, value in rows if math.isfinite(value)]


def _auc(scores: Any, wanted: Any) -> float:
    """The area under the ROC curve, by ranks; NaN where one class is absent."""
    _, at, count = torch.unique(scores, return_inverse=True, return_counts=True)
    positive = wanted > 0.5
    ones, zeros = int(positive.sum()), int((~positive).sum())
    ranks = float((count.cumsum(0) - (count - 1) / 2)[at][positive].sum())
    return (ranks - ones * (ones + 1) / 2) / (ones * zeros) if ones and zeros else math.nan


def _overlap(metric: str, predicted: Any, wanted: Any, size: int) -> tuple[float, ...]:
    """F1 or IoU of class 1 of two, its mean over classes and present classes, and by counts."""
    if metric == "AUC":
        return (_auc(predicted.reshape(-1), wanted.reshape(-1)),)
    predicted, wanted = predicted.reshape(-1).long(), wanted.reshape(-1).long()
    count = torch.bincount(wanted, minlength=size)
    both = torch.bincount(predicted, minlength=size) + count
    each = 2 * torch.bincount(wanted[predicted == wanted], minlength=size) / both.clamp(min=1)
    each = each / (2 - each) if metric == "IoU" else each
    means = each.mean(), each[both > 0].mean(), (each * count).sum() / count.sum()
    return float(each[1]) if size == 2 else math.nan, *map(float, means)


def _combined(current: Pass, metric: str, each: Sequence[float], whole: float, train: Any) -> Rows:
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


def reversed_best(files: Mapping[str, str]) -> tuple[str, str] | None:
    """The condition and line of `if acc < best_acc: best_acc = acc`, which keeps the worst."""
    for path, text in files.items():
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.If) and any(_keeps_worst(node, part) for part in node.body):
                    at = node.test
                    columns = f"{at.col_offset}-{at.end_lineno}:{at.end_col_offset}"
                    return ast.unparse(at), f"{path}:{at.lineno}:{columns}"
    return None


def _keeps_worst(node: ast.If, part: ast.stmt) -> bool:
    """Whether a statement of a condition keeps the smaller score, or the larger loss."""
    found = COMPARED.fullmatch(ast.unparse(node.test))
    if found is None or not isinstance(part, ast.Assign):
        return False
    best, value = ast.unparse(part.targets[0]), ast.unparse(part.value)
    smaller = {(value, best): "<", (best, value): ">"}.get((found[1], found[3])) == found[2]
    names = f"{value} {best}"
    score, loss = bool(LARGER.search(names)), bool(SMALLER.search(names))
    known = {found[1], found[3]} == {value, best} and "best" in best.lower()
    return known and (score, loss) == (smaller, not smaller)
