"""Record the torch calls between a model's output and backward() as `loss(outputs, targets)`.

The recorded calls run again with other outputs and targets, so a squeeze or a sum of losses is part
of the loss. Outputs that a model returns beside its own loss are outputs like any other.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pipeline_profiler.checks.batches import TARGET_KEYS, batch_size, entering
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.user_code import user_place
from pipeline_profiler.checks.wrong_arguments import RULES

MOST_CALLS, MOST_HELD, NODE_BYTES, MARK = 100_000, 1000, 1000, "pipeline_profiler"
LOSSES = (
    *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss"),
)
SCALED = ("div", "mul", "truediv", "rmul", "imul", "itruediv")
ACTIVATIONS = ("softmax", "log_softmax", "sigmoid")
SIZED = ("view", "reshape", "expand")  # take sizes, so a batch that is cut needs others
Outputs = Sequence[tuple[tuple[Any, ...], int]]  # (path in an output, node)


class CaughtError(Exception):
    """What the loop does cannot be given to the checks; the text says why."""


@dataclass(frozen=True)
class Node:
    """The place of a tensor in the arguments of a call; no number, which an argument may be."""

    number: int


class Call(NamedTuple):
    """A call of torch: its tensors as nodes, and the nodes that it takes and makes."""

    name: str
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    taken: tuple[int, ...]
    made: tuple[int, ...]

    def run(self, values: Mapping[int, Any], resize: Callable[[Any], Any]) -> dict[int, Any]:
        """Return what the call makes of other values of its nodes."""
        given = (self.args, self.kwargs)
        put = torch.utils._pytree.tree_map_only
        args, kwargs = put(Node, lambda node: values[node.number], given)
        if self.name in SIZED:
            args = (args[0], *resize(args[1:]))
        # other outputs may lie in memory in another order, in which a view has no form
        function = torch.Tensor.reshape if self.name == "view" else self.function
        return dict(zip(self.made, _tensors(function(*args, **kwargs)), strict=True))


@dataclass
class ModelCall:
    """A module that the script called itself, and the calls on the tape before and after it."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    start: int
    end: int = 0
    out: Any = None
    place: str = ""
    made: int = -1  # the node of its result, at the time
    outs: Outputs = ()  # and of its parts


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, tensor) of everything nested."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping | list | tuple):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(part, (*path, key))


def at(value: Any, path: Sequence[Any]) -> Any:
    """The part of a nested value at a path."""
    for key in path:
        value = value[key]
    return value


def _tensors(value: Any) -> list[Any]:
    return [part for _, part in leaves(value)]


@dataclass
class Tape:
    """The calls of one step. `tensors` keeps them alive, as they are known by their identity."""

    calls: list[Call] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    made_by: dict[int, int] = field(default_factory=dict)  # node -> call; leaves have none
    now: dict[int, int] = field(default_factory=dict)  # identity -> node
    models: list[ModelCall] = field(default_factory=list)
    loss: str = ""  # where the last function of torch that is a loss was called

    def node(self, tensor: Any) -> int:
        """The node of a tensor as it is now; a new leaf where it was not seen."""
        return self.now[id(tensor)] if id(tensor) in self.now else self._add(tensor)

    def _add(self, tensor: Any) -> int:
        self.tensors.append(tensor)
        self.now[id(tensor)] = len(self.tensors) - 1
        return len(self.tensors) - 1

    def outputs(self, value: Any) -> Outputs:
        """(path, node) of the tensors of an output that were seen, as they are now."""
        found = [(path, self.now.get(id(tensor))) for path, tensor in leaves(_plain(value))]
        return [(path, node) for path, node in found if node is not None]

    def record(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Write a call down, where it makes tensors."""
        found = _tensors(result)
        if not found or len(self.calls) > MOST_CALLS:
            return
        name = str(getattr(function, "__name__", ""))
        self.loss = user_place() if name in LOSSES else self.loss
        in_place = name.endswith("_") and (not name.endswith("__") or name.startswith("__i"))
        given = {id(tensor) for tensor in _tensors((args, kwargs))}
        if not in_place and all(id(tensor) in given for tensor in found):
            return  # `.to` of what is there already
        taken = list[int]()

        def node_of(tensor: Any) -> Node:
            taken.append(self.node(tensor))
            return Node(taken[-1])

        tree_map = torch.utils._pytree.tree_map_only
        args, kwargs = tree_map(torch.Tensor, node_of, (tuple(args), dict(kwargs)))
        made = tuple(map(self._add, found))
        self.made_by.update(dict.fromkeys(made, len(self.calls)))
        self.calls.append(Call(name, function, args, kwargs, tuple(taken), made))

    def needed(self, result: int, stop: frozenset[int]) -> tuple[list[int], set[int]]:
        """(calls, leaves) that a node is made of, without going beyond the nodes of `stop`."""
        calls, roots, waiting, seen = set[int](), set[int](), [result], set(stop)
        while waiting:
            node = waiting.pop()
            if node not in seen and node not in self.made_by:
                roots.add(node)
            elif node not in seen and self.made_by[node] not in calls:
                calls.add(self.made_by[node])
                waiting += self.calls[self.made_by[node]].taken
            seen.add(node)
        return sorted(calls), roots


class KeptStates:
    """States that a script took from its model: read (copied, saved) by now, let go, or still held.

    A state is known by the tensor of its first trained weight. unread: (weak reference to it, the
    weight, line) by identity; any function of torch that is called on the tensor reads it.
    """

    def __init__(self) -> None:
        self.unread: dict[int, tuple[Any, Any, str]] = {}
        self.taken = 0

    def take(self, module: Any, state: Mapping[str, Any], prefix: str, place: str) -> None:
        """Note that the script reads a state."""
        rows = ((state.get(prefix + name), w) for name, w in module.named_parameters())
        for tensor, weight in rows:
            if weight.requires_grad and tensor is not None and tensor is not weight:
                self.taken += 1
                self.unread[id(tensor)] = weakref.ref(tensor), weight, place
                return

    def live(self) -> list[str]:
        """Lines of states that are held, unread, and share their memory with the weights."""
        rows = [(ref(), weight.data_ptr(), place) for ref, weight, place in self.unread.values()]
        return [place for t, address, place in rows if t is not None and t.data_ptr() == address]


def graphs_behind(value: Any) -> tuple[int, float]:
    """(marked graphs that a value keeps, MB of tensors that these hold)."""
    recent = value[-MOST_HELD:] if isinstance(value, list) else value
    tensors = _tensors([recent, getattr(value, "__dict__", {})])
    waiting, nodes, weights = [t.grad_fn for t in tensors], set[Any](), set[int]()
    sizes = {t.data_ptr(): t.nbytes for t in tensors if t.grad_fn}
    while waiting:
        if (node := waiting.pop()) is None or node in nodes:
            continue
        nodes.add(node)
        waiting += [following for following, _ in node.next_functions]
        weights |= {node.variable.data_ptr()} if hasattr(node, "variable") else set()
        for name in (name for name in dir(node) if name.startswith("_saved_")):
            with contextlib.suppress(RuntimeError, AttributeError):  # freed, or no tensor
                saved = getattr(node, name)
                sizes[saved.data_ptr()] = saved.nbytes
    held = NODE_BYTES * len(nodes) + sum(sizes[a] for a in sizes.keys() - weights)
    return sum(MARK in node.metadata for node in nodes), held / 1e6


def recording_mode(
    tape_of: Callable[[], Tape | None],
    states: KeptStates | None = None,
    on_loss: Callable[..., None] | None = None,
    note_norm: Callable[..., None] | None = None,
) -> Any:
    """A mode of torch that writes calls on the tape of the time, reads of states, and norms."""
    from torch.overrides import TorchFunctionMode

    batch_norm = torch.nn.functional.batch_norm

    class Recording(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = kwargs or {}
            if note_norm is not None and func is batch_norm and named["training"]:
                note_norm(*args, named["weight"], named["bias"])
            result = func(*args, **named)
            if states is not None and states.unread and args:
                states.unread.pop(id(args[0]), None)
            if on_loss is not None and getattr(func, "__name__", "") in {*LOSSES, *RULES}:
                on_loss(func, args, named, result)
            if (tape := tape_of()) is not None:
                tape.record(func, args, named, result)
            return result

    return Recording()


@dataclass(eq=False)
class Replayed:
    """The user's loss as it was called; held: other tensors by node; size: of the batch."""

    calls: Sequence[Call]
    result: int
    held: Mapping[int, Any]
    outputs: Outputs
    targets: Sequence[int]
    size: int

    def __deepcopy__(self, memo: Any) -> Replayed:
        return self

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return the loss."""
        single = isinstance(outputs, torch.Tensor)
        given = targets if len(self.targets) > 1 else (targets,)
        values = {**self.held, **dict(zip(self.targets, given, strict=False))}
        values |= {node: outputs if single else at(outputs, path) for path, node in self.outputs}
        size = batch_size(values[self.outputs[0][1]])
        for call in self.calls:
            values |= call.run(values, lambda sizes: self._fitting(sizes, size))
        return values[self.result]

    def _fitting(self, sizes: Any, size: int) -> Any:
        """Sizes of a view for a batch that is smaller or larger than the recorded one."""
        flat = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        first = flat[0] if flat else -1
        if not isinstance(first, int) or first <= 0 or first % self.size:
            return sizes
        return (first // self.size * size, *flat[1:])


@dataclass
class CaughtStep:
    """One step: what enters the model, what the loss compares with, and how both are called.

    path: of the output that the loss takes. head: what the script calls on it before the loss.
    labels: the argument with the targets, where the model computes its loss itself; names: the
    other arguments; like: one of these with the shape of the labels.
    """

    call: ModelCall
    inputs: Any
    targets: Any
    loss: Any
    path: tuple[Any, ...]
    head: Call | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    names: Sequence[str] = ()
    like: str = ""
    given: Any = None  # the batch as its loader gave it
    at: tuple[int, int] = (0, 0)  # the pass over a loader


def step_of_tape(tape: Tape, loss: Any, modules: Sequence[ModelCall]) -> CaughtStep:
    """Return the step that ends in `loss`, with other `modules` called; or raise CaughtError."""
    result, _ = _unscaled(tape, tape.now.get(id(loss), -1))
    used, _ = tape.needed(result, frozenset())
    models = [m for m in tape.models if any(m.start <= number < m.end for number in used)]
    if len(models) != 1:
        names = ", ".join(dict.fromkeys(type(m.module).__name__ for m in models)) or "no module"
        raise CaughtError(f"the loss is made by {len(models)} calls of models ({names})")
    call = models[0]
    # a scalar among the outputs is the loss that the model computes itself
    outs: Outputs = [(path, node) for path, node in call.outs if tape.tensors[node].ndim]
    stop, made = frozenset(node for _, node in outs), frozenset[int]()
    numbers, roots = tape.needed(result, stop)
    inside = min(numbers, default=call.end) < call.end
    if not inside:
        made = _made_targets(tape, numbers)
        numbers, roots = tape.needed(result, stop | made)
    taken = {node for number in numbers for node in tape.calls[number].taken}
    outs = [(path, node) for path, node in outs if node in taken]
    if not outs:
        raise CaughtError("the loss does not come from what the model returns")
    head, outs = _activation(tape, numbers, outs)
    size = batch_size(_tensors([call.args, call.kwargs]))
    targets, held = _targets(tape, roots | made, size)
    replayed = Replayed([tape.calls[n] for n in numbers], result, held, outs, targets, size)
    path, given = outs[0][0] if len(outs) == 1 else (), [outs[0][1], *targets]
    own = [  # a module that was called with just the output and the targets
        m.module for m in modules if len(outs) == 1
        if m.made == result and not m.kwargs and [tape.now.get(id(v)) for v in m.args] == given
    ]  # fmt: skip
    values = [tape.tensors[node] for node in targets]
    target = values[0] if len(values) == 1 else tuple(values) or None
    inputs = entering(call.args, call.kwargs and _named(call))
    step = CaughtStep(call, inputs, target, own[-1] if own else replayed, path, head)
    return _without_labels(step, tape, targets) if inside else step


def _activation(tape: Tape, numbers: list[int], outs: Outputs) -> tuple[Call | None, Outputs]:
    """A softmax on the output before the loss, which is the model's; and the output after it."""
    nodes = {node for _, node in outs}
    using = [number for number in numbers if not nodes.isdisjoint(tape.calls[number].taken)]
    call = tape.calls[using[0]]
    if len(outs) != 1 or len(using) != 1 or call.name not in ACTIVATIONS:
        return None, outs
    numbers.remove(using[0])
    return call, [(outs[0][0], call.made[0])]


def _plain(out: Any) -> Any:
    """An output as dicts and tuples: an object of a library by its fields."""
    if isinstance(out, Mapping):
        return dict(out)
    known = isinstance(out, torch.Tensor | list | tuple) or not hasattr(out, "__dict__")
    return out if known else dict(vars(out))


def _made_targets(tape: Tape, numbers: Sequence[int]) -> frozenset[int]:
    """Return the nodes of whole numbers that the loss takes: `labels - 1`, `labels[rows]`."""
    made, used = set[int](), set[int]()
    for call in (tape.calls[number] for number in numbers):
        parts = [tape.tensors[node] for node in (*call.taken, *call.made)]
        whole = not any(t.is_floating_point() or t.dtype == torch.bool for t in parts)
        alike = len(call.made) == 1 and any(t.shape == parts[-1].shape for t in parts[:-1])
        known = all(node in made or node not in tape.made_by for node in call.taken)
        counted = whole and alike and known and parts[-1].ndim
        made.update(call.made if counted else ())
        used.update(() if counted else call.taken)
    return frozenset(made & used)


def _targets(tape: Tape, roots: set[int], size: int) -> tuple[list[int], dict[int, Any]]:
    """(nodes with a row for each sample, everything else that is held)."""
    tensors = {node: tape.tensors[node] for node in sorted(roots)}
    rows = [n for n, t in tensors.items() if t.shape[:1] == (size,) and not t.requires_grad]
    return rows, {node: t.detach() for node, t in tensors.items() if node not in rows}


def _unscaled(tape: Tape, node: int) -> tuple[int, float]:
    """The loss before it is divided by the steps that are gathered, and its factor."""
    factor = 1.0
    while (number := tape.made_by.get(node)) is not None:
        call = tape.calls[number]
        name, by = call.name.strip("_"), call.args[-1] if len(call.args) == 2 else None
        if name not in SCALED or not isinstance(by, int | float) or by == 0:
            break
        node, factor = call.taken[0], factor * by if "mul" in name else factor / by
    return node, factor


def mean_factor(tape: Tape, loss: Any) -> float:
    """What the mean over a batch is multiplied by before backward(); 0 where it is no such mean."""
    node, factor = _unscaled(tape, tape.now.get(id(loss), -1))
    call = tape.calls[tape.made_by[node]] if node in tape.made_by else None
    reduced = call and (call.kwargs.get("reduction", "mean") if call.name in LOSSES else call.name)
    return factor if reduced == "mean" else 0.0


def _named(call: ModelCall) -> dict[str, Any]:
    """Return the arguments of a model by name."""
    try:
        bound = inspect.signature(call.module.forward).bind(*call.args, **call.kwargs).arguments
    except (TypeError, ValueError):
        raise CaughtError("the model's arguments have no names") from None
    rest = [bound.pop(name) for name in ("kwargs", "loss_kwargs") if name in bound]
    return {**bound, **{k: v for part in rest for k, v in part.items()}}


def _without_labels(step: CaughtStep, tape: Tape, targets: Sequence[int]) -> CaughtStep:
    """Return the step of a model that is given its targets and returns its loss."""
    inputs = _named(step.call)
    known = [n for n, v in inputs.items() if tape.now.get(id(v)) in targets]
    if len(targets) != 1 or len(known) != 1 or known[0].lower() not in TARGET_KEYS:
        raise CaughtError("the model computes its loss itself, in a way that is not known")
    labels = inputs.pop(known[0]).detach().clone()
    alike = (n for n, v in inputs.items() if getattr(v, "shape", ())[:2] == labels.shape)
    given = inputs if len(inputs) > 1 else next(iter(inputs.values()))
    names, like = tuple(inputs), next(alike, "") if labels.ndim == 2 else ""
    return replace(step, inputs=given, labels={known[0]: labels}, names=names, like=like)


def output_model(model: Any, step: CaughtStep) -> Any:
    """The model as one that returns what the loss takes; itself where it does so already."""
    if not step.labels and not step.path and step.head is None:
        return model

    class Output(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if step.labels:  # their values do not matter to the output
                named = dict(zip(step.names, args, strict=False)) | kwargs
                args, kwargs = (), named | _labels_for(step, named)
            out = at(_plain(self.model(*args, **kwargs)), step.path)
            if step.head is None:
                return out
            made = step.head.run(dict.fromkeys(step.head.taken, out), lambda sizes: sizes)
            return made[step.head.made[0]]

    return Output()


def _labels_for(step: CaughtStep, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return labels of the size of other inputs, from those of the step."""
    ((name, labels),) = step.labels.items()
    sizes = inputs[step.like].shape[:2] if step.like else (batch_size(_tensors(inputs)),)
    for axis, size in enumerate(sizes):
        places = torch.arange(size, device=labels.device) % labels.shape[axis]
        labels = labels.index_select(axis, places)
    return {name: labels}
