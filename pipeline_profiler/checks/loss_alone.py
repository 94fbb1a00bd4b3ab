"""What is learned, and what the user's loss requires without the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.batches import Array, as_array, main_tensor
from pipeline_profiler.checks.lazy import functional, torch
from pipeline_profiler.checks.user_code import UsersError


class Task(NamedTuple):
    """What is learned: 'classes', 'binary', 'regression' or 'unknown', read from the tensors."""

    kind: str
    classes: int = 0
    axis: int = 1  # of the outputs, where the classes are


def read_task(outputs: Any, targets: Any) -> Task:
    """What the shapes and types say is learned; tensors of any framework."""
    found = [main_tensor(value) for value in (outputs, targets)]
    given, wanted = (None if value is None else as_array(value) for value in found)
    if given is None or wanted is None or given.dtype.kind != "f":
        return Task("unknown")
    whole = wanted.dtype.kind in "iu"
    one_each = given.size == wanted.size and set(np.unique(wanted).tolist()) <= {0, 1}  # a logit
    if whole and given.ndim == wanted.ndim + 1 and not one_each:
        if given.shape[:-1] == wanted.shape:
            return Task("classes", given.shape[-1], given.ndim - 1)
        if given.shape[0] == wanted.shape[0] and given.shape[2:] == wanted.shape[1:]:
            return Task("classes", given.shape[1], 1)
    if given.size == wanted.size:
        if set(np.unique(wanted).tolist()[:3]) <= {0.0, 1.0}:
            return Task("binary", 2)
        if not whole:
            return Task("regression")
    return Task("unknown")


FARTHER = 0.05  # of the way from zero outputs to the least loss
FREE_STEPS = 200
NEAR = 1e-4
FORMS = {"log": "log_softmax", "sum": "softmax", "positive": "softplus", "unit": "sigmoid"}


@dataclass
class LossAlone:
    """The loss of outputs for one batch of `targets`, without a model.

    `outputs`: the first outputs of the model; `bounded`: they lie in 0..1 whatever the weights.
    """

    loss: Callable[[Any], Any]
    outputs: Any
    targets: Any
    task: Task
    bounded: bool = False

    def of(self, outputs: Array) -> float:
        """Return the loss of these outputs, taken as they are."""
        return float(self.loss(self._tensor(outputs)))

    def formed(self, free: Any) -> Any:
        """Return free numbers, a tensor, in the form that the loss takes."""
        if not self.form:
            return free
        axis = [self.axis] if self.form in ("log", "sum") else []
        return getattr(self._library, FORMS[self.form])(free, *axis)

    @property
    def _library(self) -> Any:
        return functional

    def _tensor(self, numbers: Array) -> Any:
        return torch.from_numpy(numbers.copy()).to(self.outputs.device)

    def _with_gradient(self, free: Array) -> tuple[float, Array, Array | None]:
        """Return (loss, outputs, gradient) of free numbers, broadcast to the outputs."""
        numbers = self._tensor(free).requires_grad_()
        with torch.enable_grad():
            outputs = self.formed(numbers.expand(self.outputs.shape) * 1.0)
            loss = self.loss(outputs)
        found = None
        if loss.requires_grad:
            found = torch.autograd.grad(loss, numbers, allow_unused=True)[0]
        gradient = None if found is None else found.cpu().numpy()
        return float(loss.detach()), outputs.detach().cpu().numpy(), gradient

    @cached_property
    def numbers(self) -> Array:
        """The first outputs as an array."""
        return np.asarray(as_array(self.outputs), np.float32)

    @cached_property
    def form(self) -> str:
        """What the loss takes: '' for any numbers, 'log', 'sum', 'unit' or 'positive' else.

        'log': log-probabilities; 'sum': probabilities that sum to 1; 'unit', 'positive': numbers in
        0..1, or above 0, if the loss requires it.
        """
        if self.insists and (self.numbers <= 1).all() and not self._bears(self.numbers + 2):
            by_itself = self.task.kind == "binary" or self.axis is None
            return "unit" if by_itself else "sum"
        if self.axis is not None:
            return "sum" if (self.numbers >= 0).all() else "log"
        return "unit" if self.bounded else "positive" if self.insists else ""

    @cached_property
    def insists(self) -> bool:
        """Whether the loss refuses numbers below 0, and the model gives none."""
        sound = self.task.kind in ("binary", "regression") and (self.numbers >= 0).all()
        below = self.numbers - self.numbers.max(initial=0) - 1
        return bool(sound and self.numbers.size and not self._bears(below))

    def _bears(self, outputs: Array) -> bool:
        try:
            return math.isfinite(self.of(outputs))
        except UsersError:
            return False

    @cached_property
    def axis(self) -> int | None:
        """The axis over which outputs are probabilities, or logarithms of them."""
        given, kind = self.numbers, self.task.kind
        axes = {"classes": (self.task.axis,), "unknown": (-1,)}.get(kind, (-1, 1))
        for axis in axes if given.ndim > 1 else ():
            with np.errstate(over="ignore"):
                logs = np.allclose(np.exp(given).sum(axis), 1, atol=NEAR)
            shares = (given >= 0).all() and np.allclose(given.sum(axis), 1, atol=NEAR)
            if given.shape[axis] > 1 and (logs or (shares and kind != "unknown")):
                return axis
        return None

    @cached_property
    def uniform(self) -> float:
        """The loss of outputs that are all zero: all classes alike, or the value 0."""
        return self._with_gradient(np.zeros_like(self.numbers))[0]

    @cached_property
    def constant(self) -> float:
        """The least loss of an output that is the same for all samples of the batch."""
        return self._best(shared=True)[0]

    @cached_property
    def best_outputs(self) -> tuple[float, Array]:
        """(least loss, outputs) for the batch, by Adam on free outputs."""
        return self._best(shared=False)

    @cached_property
    def bottomless(self) -> bool:
        """Whether outputs that go twice as far have a loss that is lower by a twentieth more."""
        least = self.best_outputs[0]
        farther = self._descended(False, 2 * self._target_scale)[0]
        return least - farther > FARTHER * (self.uniform - least)

    @cached_property
    def _target_scale(self) -> float:
        """How large the targets are, 1 at least."""
        targets: Any = as_array(main_tensor(self.targets))
        floating = targets is not None and targets.dtype.kind == "f"
        return max(1.0, float(np.abs(targets).mean())) if floating else 1.0

    def _best(self, shared: bool) -> tuple[float, Array]:
        """Return the better of both scales of outputs: that of targets, or of logarithms."""
        scales = sorted({self._target_scale, 1.0})
        return min((self._descended(shared, scale) for scale in scales), key=lambda found: found[0])

    def _descended(self, shared: bool, scale: float) -> tuple[float, Array]:
        """Return (least loss, outputs) by Adam at this scale; `shared`: one output for all."""
        best, found = math.inf, np.zeros_like(self.numbers)
        free, first, second = (np.zeros_like(found[:1] if shared else found) for _ in range(3))
        for number in range(FREE_STEPS):
            loss, outputs, gradient = self._with_gradient(free)
            if gradient is None or not math.isfinite(loss):
                break
            if loss < best:
                best, found = loss, outputs
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            rate = 0.3 * scale * (1 - number / FREE_STEPS) + 1e-4 * scale
            rate /= 1 - 0.9 ** (number + 1)
            free -= rate * first / (np.sqrt(second / (1 - 0.999 ** (number + 1))) + 1e-8)
        return best, found


@dataclass
class KerasLossAlone(LossAlone):
    """The loss of free outputs in Keras, whose losses cut probabilities off instead of refusing."""

    def __post_init__(self) -> None:
        between = bool(((self.numbers >= 0) & (self.numbers <= 1)).all())
        self.bounded = self.task.kind == "binary" and between

    @property
    def _library(self) -> Any:
        import tensorflow as tf

        return tf.nn

    def _tensor(self, numbers: Array) -> Any:
        import tensorflow as tf

        return tf.constant(numbers, tf.float32)

    def _with_gradient(self, free: Array) -> tuple[float, Array, Array | None]:
        import tensorflow as tf

        numbers = self._tensor(free)
        with tf.GradientTape() as tape:
            tape.watch(numbers)
            outputs = self.formed(tf.broadcast_to(numbers, self.outputs.shape))
            loss = self.loss(outputs)
        gradient = tape.gradient(loss, numbers)
        return float(loss), outputs.numpy(), None if gradient is None else gradient.numpy()


TURNED = 0.999  # cosine of two gradients
Loss = Callable[[Any, Any], Any]


def only_compares(loss: Loss, outputs: Any, targets: Any) -> bool:
    """Return whether the loss uses only which labels are equal, as losses of embeddings do."""
    if not isinstance(targets, torch.Tensor) or targets.ndim != 1:
        return False
    values, place = torch.unique(targets, return_inverse=True)
    drawn = torch.Generator().manual_seed(0)
    made, costs = _drawn(outputs), []
    others = values.roll(1)[place], targets[torch.randperm(len(targets), generator=drawn)]
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            for wanted in (targets, *others):
                torch.manual_seed(0)
                costs.append(float(loss(made, wanted)))
    except UsersError:
        return False
    own, renamed, regrouped = costs
    near = 1e-5 * abs(own)
    return len(values) > 1 and abs(own - renamed) <= near < abs(own - regrouped)


def couples_samples(loss: Loss, outputs: Any, targets: Any, by_targets: bool) -> bool:
    """Return whether the output of a sample turns the gradient of others: ranking, survival.

    by_targets: or its target does, as in contrast.
    """
    drawn = _drawn(outputs)
    moved = drawn.clone()
    moved[0] = 1 - drawn[0]
    pairs = [(drawn, targets), (moved, targets)]
    if by_targets and isinstance(targets, torch.Tensor) and len(targets) > 2:
        pairs.append((drawn, targets[[1, *range(1, len(targets))]]))
    own, *others = (_gradient(loss, *pair) for pair in pairs)
    for other in others:
        if own is not None and other is not None and len(own) > 2:
            first, second = own[1:].flatten(), other[1:].flatten()
            turned = float(functional.cosine_similarity(first, second, dim=0)) < TURNED
            if turned and bool(first.any()) and bool(second.any()):
                return True
    return False


def _gradient(loss: Loss, outputs: Any, targets: Any) -> Any:
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        free = outputs.detach().clone().requires_grad_()
        torch.manual_seed(0)
        value = loss(free, targets)
        if not value.requires_grad or not bool(torch.isfinite(value)):
            return None
        return torch.autograd.grad(value, free, allow_unused=True)[0]


def _drawn(outputs: Any) -> Any:
    drawn = torch.Generator().manual_seed(0)
    return torch.randn(outputs.shape, generator=drawn).to(outputs.device)
