"""What is learned, and what the user's loss requires without the model."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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


class FreeOutputs(ABC):
    """The loss of one batch, without a model; see `LossAlone` and `KerasLossAlone`."""

    @property
    @abstractmethod
    def uniform(self) -> float:
        """The loss of outputs that are all zero: all classes alike, or the value 0."""

    @abstractmethod
    def _descended(self, shared: bool, scale: float) -> tuple[float, Any]:
        """(least loss, outputs) by Adam at this scale; `shared`: one output for all examples."""

    @abstractmethod
    def _target_scale(self) -> float:
        """How large the targets are, 1 at least."""

    @cached_property
    def constant(self) -> float:
        """The least loss of an output that is the same for all examples of the first batch."""
        return self.shared_outputs[0]

    @cached_property
    def shared_outputs(self) -> tuple[float, Any]:
        """(least loss, outputs) where all examples have one output."""
        return self._best(shared=True)

    @cached_property
    def best_outputs(self) -> tuple[float, Any]:
        """Return (least loss, outputs) for the first batch, by Adam on free outputs."""
        return self._best(shared=False)

    @cached_property
    def bottomless(self) -> bool:
        """Whether outputs that go twice as far have a loss that is lower by a twentieth more."""
        least = self.best_outputs[0]
        farther = self._descended(False, 2 * max(1.0, self._target_scale()))[0]
        return least - farther > FARTHER * (self.uniform - least)

    def _best(self, shared: bool) -> tuple[float, Any]:
        """The better of both scales that outputs may have: that of targets, or of logarithms."""
        scales = sorted({self._target_scale(), 1.0})
        return min((self._descended(shared, scale) for scale in scales), key=lambda found: found[0])


FREE_STEPS = 200


@dataclass
class LossAlone(FreeOutputs):
    """`loss` of outputs for one batch of `targets`; `bounded`: the model's outputs lie in 0..1."""

    loss: Callable[[Any], Any]
    outputs: Any
    targets: Any
    task: Task
    bounded: bool = False

    @cached_property
    def form(self) -> str:
        """What the loss takes: '' for any numbers, 'log', 'sum', 'unit' or 'positive' else.

        'log': log-probabilities; 'sum': probabilities that sum to 1; 'unit', 'positive': numbers in
        0..1, or above 0, which a loss insists on.
        """
        outputs = self.outputs.float()
        if self.insists and bool((outputs <= 1).all()) and not self._bears(outputs + 2):
            by_itself = self.task.kind == "binary" or self._axis is None
            return "unit" if by_itself else "sum"
        if self._axis is not None:
            return "sum" if bool((outputs >= 0).all()) else "log"
        return "unit" if self.bounded else "positive" if self.insists else ""

    @cached_property
    def insists(self) -> bool:
        """Whether the loss of numbers refuses what is below 0, and the model gives none such."""
        outputs = self.outputs.float()
        sound = self.task.kind in ("binary", "regression") and bool((outputs >= 0).all())
        return bool(sound and outputs.numel() and not self._bears(outputs - outputs.max() - 1))

    def _bears(self, outputs: Any) -> bool:
        try:
            return bool(torch.isfinite(self.loss(outputs)))
        except UsersError:
            return False

    @cached_property
    def _axis(self) -> int | None:
        """The axis over which outputs are probabilities, or logarithms of them."""
        outputs, task = self.outputs.float(), self.task
        axes = {"classes": (task.axis,), "unknown": (-1,)}.get(task.kind, (-1, 1))
        for axis in axes if outputs.ndim > 1 else ():
            ones = torch.ones_like(outputs.sum(axis))
            logs = torch.allclose(outputs.exp().sum(axis), ones, atol=1e-4)
            shares = torch.allclose(outputs.sum(axis), ones, atol=1e-4)
            shares = shares and bool((outputs >= 0).all())
            if outputs.shape[axis] > 1 and (logs or (shares and task.kind != "unknown")):
                return axis
        return None

    def formed(self, free: Any) -> Any:
        """Free numbers as the loss takes them."""
        if self.form == "log":
            return free.log_softmax(self._axis)
        if self.form == "sum":
            return free.softmax(self._axis)
        if self.form == "positive":
            return functional.softplus(free)
        return free.sigmoid() if self.form == "unit" else free

    @cached_property
    def uniform(self) -> float:
        with torch.no_grad():
            zeros = self.formed(torch.zeros_like(self.outputs))
            return float(self.loss(zeros))

    def _descended(self, shared: bool, scale: float) -> tuple[float, Any]:
        shape = self.outputs
        start = shape.detach().float()
        free = torch.zeros_like(start.mean(0, keepdim=True) if shared else start)
        free.requires_grad_()
        best, kept = math.inf, free.detach().clone()
        with torch.enable_grad():
            optimizer = torch.optim.Adam([free])
            for number in range(FREE_STEPS):
                rate = 0.3 * scale * (1 - number / FREE_STEPS) + 1e-4 * scale
                optimizer.param_groups[0]["lr"] = rate
                outputs = self.formed(free.expand_as(shape) if shared else free * 1.0)
                loss = self.loss(outputs)
                if not loss.requires_grad or not torch.isfinite(loss):
                    break
                if float(loss.detach()) < best:
                    best, kept = float(loss.detach()), outputs.detach().clone()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return best, kept

    def _target_scale(self) -> float:
        targets = main_tensor(self.targets)
        if targets is None or not torch.is_floating_point(targets):
            return 1.0
        return max(1.0, float(targets.abs().mean()))


KERAS_STEPS = 150


@dataclass
class KerasLossAlone(FreeOutputs):
    """`loss` of output tensors for one batch; `outputs` as the model gives them at first."""

    loss: Callable[[Any], Any]
    outputs: Array
    targets: Array
    task: Task

    @cached_property
    def form(self) -> str:
        """'sum': probabilities of classes; 'unit': in 0..1; 'positive': above 0; '': any numbers.

        'positive' where the loss insists on it, as that of Poisson does.
        """
        outputs, kind = self.outputs, self.task.kind
        if (
            not outputs.size
            or (outputs < 0).any()
            or kind not in ("classes", "binary", "regression")
        ):
            return ""
        axis = self.task.axis if kind == "classes" else -1
        several = outputs.ndim > 1 and outputs.shape[axis] > 1
        if several and np.allclose(outputs.sum(axis=axis), 1, atol=1e-4):
            return "sum"
        if kind == "binary":
            return "unit" if (outputs <= 1).all() else ""
        insists = kind == "regression" and not math.isfinite(self.of(outputs - outputs.max() - 1))
        return "positive" if insists else ""

    def formed(self, free: Any) -> Any:
        """Free numbers as the loss takes them."""
        import tensorflow as tf

        if self.form == "sum":
            return tf.nn.softmax(free, axis=self.task.axis if self.task.kind == "classes" else -1)
        if self.form == "positive":
            return tf.nn.softplus(free)
        return tf.sigmoid(free) if self.form == "unit" else free

    def of(self, outputs: Array) -> float:
        """The loss of these outputs, taken as they are."""
        import tensorflow as tf

        return float(self.loss(tf.constant(outputs, tf.float32)))

    @cached_property
    def uniform(self) -> float:
        """The loss of outputs that are all zero before softmax or sigmoid."""
        import tensorflow as tf

        return float(self.loss(self.formed(tf.zeros(self.outputs.shape))))

    def _descended(self, shared: bool, scale: float) -> tuple[float, Array]:
        shape = (1, *self.outputs.shape[1:]) if shared else self.outputs.shape
        free, first, second = (np.zeros(shape) for _ in range(3))
        best, kept = math.inf, np.zeros(self.outputs.shape)
        for number in range(1, KERAS_STEPS + 1):
            loss, outputs, gradient = self._with_gradient(free)
            if gradient is None or not math.isfinite(loss):
                break
            if loss < best:
                best, kept = loss, outputs
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            rate = 0.4 * scale * (1 - number / (KERAS_STEPS + 1)) + 1e-4 * scale
            step = first / (1 - 0.9**number)
            free -= rate * step / (np.sqrt(second / (1 - 0.999**number)) + 1e-12)
        return best, kept

    def _with_gradient(self, free: Array) -> tuple[float, Array, Array | None]:
        import tensorflow as tf

        numbers = tf.constant(free, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(numbers)
            outputs = self.formed(tf.broadcast_to(numbers, self.outputs.shape))
            loss = self.loss(outputs)
        gradient = tape.gradient(loss, numbers)
        found = None if gradient is None else gradient.numpy().astype(np.float64)
        return float(loss), outputs.numpy(), found

    def _target_scale(self) -> float:
        if self.targets.dtype.kind != "f":
            return 1.0
        return max(1.0, float(np.abs(self.targets).mean()))


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


def couples_outputs(loss: Loss, outputs: Any, targets: Any) -> bool:
    """Return whether other outputs turn the gradient of a sample: ranking, survival."""
    made = _drawn(outputs)
    other = made.clone()
    other[0] = 1 - other[0]
    return _turned(loss, (made, targets), (other, targets))


def couples_targets(loss: Loss, outputs: Any, targets: Any) -> bool:
    """Whether what it asks of an example turns with the target of another: contrast."""
    if not isinstance(targets, torch.Tensor) or len(targets) < 3:
        return False
    other = targets.clone()
    other[0] = targets[1]
    made = _drawn(outputs)
    return _turned(loss, (made, targets), (made, other))


def _turned(loss: Loss, first: tuple[Any, Any], second: tuple[Any, Any]) -> bool:
    one, two = (_gradient(loss, *pair) for pair in (first, second))
    if one is None or two is None or len(one) < 3:
        return False
    pair = one[1:].flatten(), two[1:].flatten()
    cosine = torch.nn.functional.cosine_similarity(*pair, dim=0)
    return all(bool(g.any()) for g in pair) and float(cosine) < TURNED


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
