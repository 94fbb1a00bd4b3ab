"""Record the torch calls between a model's output and backward() as `loss(outputs, targets)`.

The recorded calls run again with other outputs and targets, so a squeeze or a sum of losses is part
of the loss. If the model computes its loss itself, the input of the loss function counts as output.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline_profiler.checks.batches import TARGET_KEYS, batch_size
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.user_code import user_place
from pipeline_profiler.checks.wrong_arguments import RULES

MOST_CALLS, MOST_HELD, NODE_BYTES, MARK = 100_000, 1000, 1000, "pipeline_profiler"
LOSSES = (
    *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss"),
)
SHAPED = ("view", "reshape", "flatten", "contiguous", "float", "to", "squeeze", "__getitem__")
SCALED = ("div", "mul", "truediv", "rmul", "imul", "itruediv")
ACTIVATIONS = ("softmax", "log_softmax", "sigmoid")
SIZED = ("view", "reshape", "expand")  # take sizes, so a batch that is cut needs others


class CaughtError(Exception):
    """What the loop does cannot be given to the checks; the text says why."""


class Node(NamedTuple):
    """A tensor at one time: its number on the tape."""

    number: int


class Call(NamedTuple):
    """A call of torch, its tensors as nodes; `made` are the nodes of its result, by place."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    made: tuple[tuple[tuple[Any, ...], int], ...]

    @property
    def name(self) -> str:
        """Of the function."""
        return str(getattr(self.function, "__name__", ""))


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
    outs: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)  # and of its parts


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, tensor) of everything nested."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from leaves(part, (*path, number))


def at(value: Any, path: Sequence[Any]) -> Any:
    """The part of a nested value at a path."""
    for key in path:
        value = value[key]
    return value


def _replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Node | torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        parts = [_replaced(part, change) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    if type(value) is dict:
        return {key: _replaced(part, change) for key, part in value.items()}
    return value


@dataclass
class Tape:
    """The calls of one step. `tensors` keeps them alive, as they are known by their identity."""

    calls: list[Call] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    made_by: dict[int, int] = field(default_factory=dict)  # node -> call; leaves have none
    now: dict[int, int] = field(default_factory=dict)  # identity -> node
    models: list[ModelCall] = field(default_factory=list)
    loss: str = ""  # where the last function of torch that is a loss was called

    def node(self, tensor: Any) -> Node:
        """The node of a tensor as it is now; a new leaf where it was not seen."""
        if id(tensor) not in self.now:
            self._add(tensor)
        return Node(self.now[id(tensor)])

    def _add(self, tensor: Any) -> int:
        self.tensors.append(tensor)
        self.now[id(tensor)] = len(self.tensors) - 1
        return len(self.tensors) - 1

    def outputs(self, value: Any) -> list[tuple[tuple[Any, ...], int]]:
        """(path, node) of the tensors of an output that were seen, as they are now."""
        found = [(path, self.now.get(id(tensor))) for path, tensor in leaves(_plain(value))]
        return [(path, node) for path, node in found if node is not None]

    def record(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Write a call down, where it makes tensors."""
        found = list(leaves(result))
        if not found or len(self.calls) > MOST_CALLS:
            return
        name = str(getattr(function, "__name__", ""))
        self.loss = user_place() if name in LOSSES else self.loss
        in_place = name.endswith("_") and (not name.endswith("__") or name.startswith("__i"))
        given = {id(tensor) for _, tensor in leaves((args, list((kwargs or {}).values())))}
        if not in_place and all(id(tensor) in given for _, tensor in found):
            return  # `.to` of what is there already
        taken, named = _replaced((tuple(args), dict(kwargs or {})), self.node)
        made = tuple((path, self._add(tensor)) for path, tensor in found)
        self.made_by.update({node: len(self.calls) for _, node in made})
        self.calls.append(Call(function, taken, named, made))

    def needed(self, result: int, stop: frozenset[int]) -> tuple[list[int], set[int]]:
        """(calls, leaves) that a node is made of, without going beyond the nodes of `stop`."""
        calls, roots, waiting, seen = set[int](), set[int](), [result], set[int]()
        while waiting:
            node = waiting.pop()
            if node in seen or node in stop:
                continue
            seen.add(node)
            number = self.made_by.get(node)
            if number is None:
                roots.add(node)
            elif number not in calls:
                calls.add(number)
                _replaced((self.calls[number].args, self.calls[number].kwargs), _into(waiting))
        return sorted(calls), roots


def _into(waiting: list[int]) -> Callable[[Any], Any]:
    return lambda node: waiting.append(node.number) if isinstance(node, Node) else node


class KeptStates:
    """States that a script took from its model: read (copied, saved) by now, let go, or still held.

    A state is known by the tensor of its first trained weight. unread: (weak reference to it, the
    weight, place) by identity; any function of torch that is called on the tensor reads it.
    """

    def __init__(self) -> None:
        self.unread: dict[int, tuple[Any, Any, str]] = {}
        self.taken = 0

    def take(self, module: Any, state: Mapping[str, Any], prefix: str, place: str) -> None:
        """A state was asked for."""
        for name, weight in module.named_parameters():
            tensor = state.get(prefix + name)
            if weight.requires_grad and tensor is not None and tensor is not weight:
                self.taken += 1
                self.unread[id(tensor)] = weakref.ref(tensor), weight, place
                return

    def live(self) -> list[str]:
        """Places of states that are held, unread, and share their memory with the weights."""
        rows = list(self.unread.values())
        held = [
            (tensor, weight, place) for ref, weight, place in rows if (tensor := ref()) is not None
        ]
        return [place for tensor, weight, place in held if tensor.data_ptr() == weight.data_ptr()]


def graphs_behind(value: Any) -> tuple[int, float]:
    """(marked graphs that a value keeps, MB of tensors that these hold)."""
    recent = value[-MOST_HELD:] if isinstance(value, list) else value
    tensors = [t for _, t in leaves([recent, getattr(value, "__dict__", {})])]
    waiting, nodes, marks = [tensor.grad_fn for tensor in tensors], set[Any](), 0
    sizes, weights = {t.data_ptr(): t.nbytes for t in tensors if t.grad_fn}, set[int]()
    while waiting:
        if (node := waiting.pop()) is None or node in nodes:
            continue
        nodes.add(node)
        marks += MARK in node.metadata
        waiting += [following for following, _ in node.next_functions]
        weights |= {node.variable.data_ptr()} if hasattr(node, "variable") else set()
        for name in dir(node):
            with contextlib.suppress(RuntimeError):  # freed by backward()
                value = getattr(node, name) if name.startswith("_saved_") else None
                if isinstance(value, torch.Tensor):
                    sizes[value.data_ptr()] = value.nbytes
    return marks, (NODE_BYTES * len(nodes) + sum(sizes[a] for a in sizes.keys() - weights)) / 1e6


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
            if note_norm is not None and func is batch_norm and kwargs["training"]:
                note_norm(*args, kwargs["weight"], kwargs["bias"])
            result = func(*args, **(kwargs or {}))
            if states is not None and states.unread and args:
                states.unread.pop(id(args[0]), None)
            if on_loss is not None and getattr(func, "__name__", "") in {*LOSSES, *RULES}:
                on_loss(func, args, kwargs or {}, result)
            tape = tape_of()
            if tape is not None:
                tape.record(func, args, kwargs, result)
            return result

    return Recording()


class Replayed:
    """The user's loss as it was called: outputs and targets at the places of the recorded ones."""

    def __init__(
        self, calls: Sequence[Call], result: int, held: Mapping[int, Any],
        outputs: Sequence[tuple[tuple[Any, ...], int]], targets: Sequence[int], size: int,
    ) -> None:  # fmt: skip
        self.calls, self.result, self.held = calls, result, held
        self.outputs, self.targets, self.size = outputs, targets, size
        self.__name__ = next((c.name for c in reversed(calls) if c.name in LOSSES), "your loss")

    def __deepcopy__(self, memo: Any) -> Replayed:
        return self

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return the loss."""
        single = isinstance(outputs, torch.Tensor)
        values = dict(self.held)
        values |= {node: outputs if single else at(outputs, p) for p, node in self.outputs}
        values |= dict(
            zip(self.targets, targets if len(self.targets) > 1 else (targets,), strict=False)
        )
        size = batch_size(next(values[node] for _, node in self.outputs))

        def value_of(node: Any) -> Any:
            return values[node.number]

        for call in self.calls:
            args, kwargs = _replaced((call.args, call.kwargs), value_of)
            if call.name in SIZED and size != self.size:
                args = (args[0], *self._fitting(args[1:], size))
            # other outputs may lie in memory in another order, in which a view has no form
            result = (torch.Tensor.reshape if call.name == "view" else call.function)(
                *args, **kwargs
            )
            values.update({node: at(result, path) for path, node in call.made})
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
    """One step: what enters the model, what the loss compares with, and how both are called."""

    call: ModelCall
    inputs: Any
    targets: Any
    loss: Any
    path: tuple[Any, ...]  # of the output that the loss takes
    inside: LossInside | None = None
    head: Call | None = None  # what the script calls on the output before the loss
    given: Any = None  # the batch as its loader gave it
    at: tuple[int, int] = (0, 0)  # the pass over a loader


class LossInside(NamedTuple):
    """A loss that the model computes: its number among the losses, and the calls before it.

    labels: the argument with the targets; names: other arguments; places: those with rows as long.
    """

    number: int
    back: int
    labels: Mapping[str, Any]
    names: tuple[str, ...]
    places: str = ""


def step_of_tape(tape: Tape, loss: Any, modules: Sequence[ModelCall]) -> CaughtStep:
    """Return the step that ends in `loss`, with other `modules` called; or raise CaughtError."""
    if id(loss) not in tape.now:
        raise CaughtError("backward() starts from a value that the model's forward did not make")
    (result, _), calls = _unscaled(tape, tape.now[id(loss)]), tape.calls
    used, _ = tape.needed(result, frozenset())
    models = [m for m in tape.models if any(m.start <= number < m.end for number in used)]
    if len(models) != 1:
        names = ", ".join(dict.fromkeys(type(m.module).__name__ for m in models)) or "no module"
        raise CaughtError(f"the loss is made by {len(models)} calls of models ({names})")
    call = models[0]
    size = batch_size([tensor for _, tensor in leaves([call.args, call.kwargs])])
    if tape.made_by.get(result, -1) < call.end:
        return _inside(tape, call, result, used, size)
    outs = call.outs
    stop = frozenset(node for _, node in outs)
    labels = _counted(tape, tape.needed(result, stop)[0])
    numbers, roots = tape.needed(result, stop | labels)
    if min(numbers, default=call.end) < call.end:
        raise CaughtError("the loss takes more of the model than its output")
    taken = set[int]()
    _replaced([(calls[n].args, calls[n].kwargs) for n in numbers], lambda n: taken.add(n.number))
    outs = [(path, node) for path, node in outs if node in taken]
    if len(outs) == 1 and not tape.tensors[outs[0][1]].ndim:  # the model's own loss, scaled
        return _inside(tape, call, outs[0][1], used, size)
    if not outs:
        raise CaughtError("the loss does not come from what the model returns")
    head, outs = _activation(tape, numbers, outs)
    targets, held = _targets(tape, roots | labels, size)
    own = [m for m in modules if m.start >= call.end and _is_loss(m, tape, result, outs, targets)]
    replayed = Replayed([calls[n] for n in numbers], result, held, outs, targets, size)
    values = [tape.tensors[node] for node in targets]
    target = values[0] if len(values) == 1 else tuple(values) or None
    loss_of, place = own[-1].module if own else replayed, outs[0][0] if len(outs) == 1 else ()
    return CaughtStep(call, _inputs(call), target, loss_of, place, head=head)


def _activation(tape: Tape, numbers: list[int], outs: Any) -> tuple[Call | None, Any]:
    """A softmax on the output before the loss, which is the model's; and the output after it."""
    nodes = {node for _, node in outs}
    using = []
    for number in numbers:
        taken: list[int] = []
        _replaced((tape.calls[number].args, tape.calls[number].kwargs), _into(taken))
        using += [number] * bool(nodes & set(taken))
    if len(outs) != 1 or len(using) != 1 or tape.calls[using[0]].name not in ACTIVATIONS:
        return None, outs
    numbers.remove(using[0])
    call = tape.calls[using[0]]
    return call, [(outs[0][0], call.made[0][1])]


def _plain(out: Any) -> Any:
    """An output as dicts and tuples: an object of a library by its fields."""
    if isinstance(out, Mapping):
        return dict(out)
    known = isinstance(out, torch.Tensor | list | tuple) or not hasattr(out, "__dict__")
    return out if known else dict(vars(out))


def _is_loss(m: ModelCall, tape: Tape, result: int, outs: Any, targets: Sequence[int]) -> bool:
    """Whether a module was called with just the output and the targets, and gave the loss."""
    given = [tape.now.get(id(value)) for value in m.args]
    return m.made == result and not m.kwargs and len(outs) == 1 and given == [outs[0][1], *targets]


def _counted(tape: Tape, numbers: Sequence[int]) -> frozenset[int]:
    """Return the nodes of whole numbers that the loss takes: `labels - 1`, `labels[rows]`."""
    made, used, drawn = set[int](), set[int](), set[int]()  # drawn: of no tensor, such as arange
    for number in numbers:
        call, given = tape.calls[number], list[int]()
        _replaced((call.args, call.kwargs), _into(given))
        result = [node for _, node in call.made]
        parts = [tape.tensors[node] for node in (*given, *result)]
        whole = not any(t.is_floating_point() or t.dtype == torch.bool for t in parts)
        alike = len(result) == 1 and any(t.shape == parts[-1].shape for t in parts[:-1])
        known = all(node in made | drawn or node not in tape.made_by for node in given)
        if not given:
            drawn.update(result)
        elif whole and alike and known and parts[-1].ndim:
            made.add(result[0])
        else:
            used.update(given)
    return frozenset(made & used)


def _targets(tape: Tape, roots: set[int], size: int) -> tuple[list[int], dict[int, Any]]:
    """(nodes with a row for each example, everything else that is held)."""
    rows, held = [], {}
    for node in sorted(roots):
        tensor = tape.tensors[node]
        own = isinstance(tensor, torch.nn.Parameter) or not tensor.ndim or len(tensor) != size
        if own or tensor.requires_grad:
            held[node] = tensor.detach()
        else:
            rows.append(node)
    return rows, held


def _unscaled(tape: Tape, node: int) -> tuple[int, float]:
    """The loss before it is divided by the steps that are gathered, and its factor."""
    factor = 1.0
    while (number := tape.made_by.get(node)) is not None:
        call = tape.calls[number]
        name, by = call.name.strip("_"), call.args[-1] if len(call.args) == 2 else None
        if name not in SCALED or not isinstance(by, int | float) or by == 0:
            break
        node, factor = call.args[0].number, factor * by if "mul" in name else factor / by
    return node, factor


def mean_factor(tape: Tape, loss: Any) -> float:
    """What the mean over a batch is multiplied by before backward(); 0 where it is no such mean."""
    node, factor = _unscaled(tape, tape.now.get(id(loss), -1))
    call = tape.calls[tape.made_by[node]] if node in tape.made_by else None
    reduced = call and (call.kwargs.get("reduction", "mean") if call.name in LOSSES else call.name)
    return factor if reduced == "mean" else 0.0


def _inputs(call: ModelCall) -> Any:
    """The arguments as the subject gives them to a model: one, a tuple, or by name."""
    if not call.kwargs:
        return call.args[0] if len(call.args) == 1 else call.args
    return _named(call)


def _named(call: ModelCall) -> dict[str, Any]:
    try:
        bound = inspect.signature(call.module.forward).bind(*call.args, **call.kwargs).arguments
    except (TypeError, ValueError):
        raise CaughtError("the model's arguments have no names") from None
    rest = [bound.pop(name) for name in ("kwargs", "loss_kwargs") if name in bound]
    return {**bound, **{k: v for part in rest for k, v in part.items()}}


def _inside(tape: Tape, call: ModelCall, result: int, used: Sequence[int], size: int) -> CaughtStep:
    """The step of a model that is given its targets and returns its loss."""
    made = [number for number in used if tape.calls[number].name in LOSSES]
    labels = {
        name: value
        for name, value in _named(call).items()
        if isinstance(value, torch.Tensor) and id(value) in tape.now
        and (name.lower() in TARGET_KEYS or name.lower() in ("labels", "targets"))
    }  # fmt: skip
    if len(made) != 1 or len(labels) != 1:
        raise CaughtError("the model computes its loss itself, in a way that is not known")
    before, back = _whole_output(tape, tape.calls[made[0]].args[0].number, size)
    nodes = {tape.now[id(value)] for value in labels.values()}
    numbers, roots = tape.needed(result, frozenset({before}))
    targets, held = _targets(tape, roots, size)
    if set(targets) != nodes:
        raise CaughtError("the model's loss takes more than its labels")
    (name, value), *_ = labels.items()
    order = [n for n, c in enumerate(tape.calls) if c.name in LOSSES and call.start <= n < call.end]
    calls = [tape.calls[n] for n in numbers]
    replayed = Replayed(calls, result, held, [((), before)], targets, size)
    inputs = {key: part for key, part in _named(call).items() if key != name}
    labelled = {name: value.detach().clone()}
    alike = (n for n, p in inputs.items() if getattr(p, "shape", ())[:2] == value.shape[:2])
    places = next(alike, "") if value.ndim == 2 else ""
    inside = LossInside(order.index(made[0]), back, labelled, tuple(inputs), places)
    if len(inputs) == 1:
        (inputs,) = inputs.values()
    return CaughtStep(call, inputs, value, replayed, (), inside)


def _whole_output(tape: Tape, node: int, size: int) -> tuple[int, int]:
    """The last node with a row for each example from which only its form changed, and how far."""
    best, back = (node, 0), 0
    while (number := tape.made_by.get(node)) is not None and tape.calls[number].name in SHAPED:
        first = tape.calls[number].args[0]
        if not isinstance(first, Node):
            break
        node, back = first.number, back + 1
        if tape.tensors[node].ndim and len(tape.tensors[node]) == size:
            best = (node, back)
    return best


def output_model(model: Any, step: CaughtStep) -> Any:
    """The model as one that returns what the loss takes; itself where it does so already."""
    if step.inside is None and not step.path and step.head is None:
        return model

    class Output(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if step.inside is None:
                out = at(_plain(self.model(*args, **kwargs)), step.path)
                if step.head is None:
                    return out
                given, named = _replaced((step.head.args, step.head.kwargs), lambda node: out)
                return step.head.function(*given, **named)
            named = dict(zip(step.inside.names, args, strict=False))
            return _grabbed(self.model, step.inside, named | kwargs)

    return Output()


def _grabbed(model: Any, inside: LossInside, inputs: dict[str, Any]) -> Any:
    """What enters the loss that the model computes; the labels do not matter to it."""
    size = batch_size([tensor for _, tensor in leaves(inputs)])
    ((name, labels),) = inside.labels.items()
    labels = labels[torch.arange(size, device=labels.device) % len(labels)]
    if inside.places in inputs:  # rows are as long as the longest of their batch
        length = inputs[inside.places].shape[1]
        labels = labels[:, torch.arange(length, device=labels.device) % labels.shape[1]]
    tape = Tape()
    with recording_mode(lambda: tape):
        model(**inputs, **{name: labels})
    made = [call for call in tape.calls if call.name in LOSSES]
    node = made[inside.number].args[0].number
    for _ in range(inside.back):
        node = tape.calls[tape.made_by[node]].args[0].number
    return tape.tensors[node]
