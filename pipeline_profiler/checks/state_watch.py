"""Running statistics of a loop, and graphs that its evaluation builds unused: answers by code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline_profiler.checks.batches import main_tensor
from pipeline_profiler.checks.check import Answer, passed, wrong
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import modes_of
from pipeline_profiler.checks.user_code import user_place

MIN_STEPS, MAX_PASSES = 3, 24


@dataclass
class ForwardPass:
    """A forward pass in an evaluation; `used`: a gradient goes through its output, or may."""

    module: Any
    args: Any
    kwargs: Any
    out: Any
    place: str = ""

    def __post_init__(self) -> None:
        tensor, inputs = main_tensor(self.out), [*self.args, *self.kwargs.values()]
        modes = modes_of(self.module) if self.module.training else {}  # else a part is on purpose
        self.trains = tuple(name for name, trains in modes.items() if trains)
        self.used = any(getattr(part, "requires_grad", False) for part in inputs)
        self.graph = bool(getattr(tensor, "requires_grad", False))
        if self.graph:
            tensor.register_hook(lambda gradient: setattr(self, "used", True))
        self.out = tensor.detach() if hasattr(tensor, "detach") else None  # not the graph


class Norm(NamedTuple):
    """A batch norm in train mode: its state now and at first, and the steps that called it."""

    state: tuple[Any, ...]  # mean, variance, weight, bias
    first: list[Any]
    steps: set[int]
    place: str

    def drift(self) -> float:
        """Return the largest move of the mean in deviations; 0 for a layer that is trained."""
        frozen = all(map(torch.equal, self.state[2:], self.first[2:]))
        move = (self.state[0] - self.first[0]) / (self.first[1] + 1e-5).sqrt()
        return float(move.abs().max()) if frozen and len(self.steps) >= MIN_STEPS else 0.0


class LoopWatch:
    """Follows steps, batch norms and evaluations of a model."""

    def __init__(self) -> None:
        self.answers = dict[str, Answer]()
        self.norms = dict[int, Norm]()  # by the identity of the running mean
        self.free = set[int]()  # norms that start at 0 and 1, or that a gradient reached
        self.passes: list[ForwardPass] = []
        self.step = 0  # number of steps of an optimizer
        self.frozen: list[tuple[Any, Any]] = []  # parameters with a gradient, before a step
        self.moved: set[int] = set()

    def note_norm(self, values: Any, *state: Any) -> None:
        """Follow a call of batch_norm in train mode; state: mean, variance, weight, bias."""
        if any(tensor is None for tensor in state):
            return
        number, reached = id(state[0]), state[2].requires_grad and torch.is_grad_enabled()
        known = number in self.norms.keys() | self.free
        if reached or values.requires_grad or (not known and _is_initial(*state[:2])):
            self.free.add(number)
        elif not known:
            first = [tensor.detach().clone() for tensor in state]
            self.norms[number] = Norm(state, first, set(), user_place())
        if norm := self.norms.get(number):
            norm.steps.add(self.step)

    def before_step(self, optimizer: Any) -> None:
        """Copy the frozen parameters that have a gradient."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        frozen = [p for p in parameters if not p.requires_grad and p.grad is not None]
        self.frozen = [(p, p.detach().clone()) for p in frozen]

    def after_step(self) -> None:
        """Count the step, and look for frozen parameters that it moved."""
        self.step += 1
        self.moved |= {id(p) for p, old in self.frozen if not torch.equal(p, old)}

    def evaluated(self, made: ForwardPass, first: Any, live: Any) -> None:
        """Look for trained weights with running statistics of the start.

        first: the model before its training. live: the model now. made: of it or a copy of it.
        """
        self.passes += [made] * (len(self.passes) < MAX_PASSES)
        used, stale = unwrapped(made.module), []
        models = (first, live, used) if first is not None else ()
        rows = [[row for row in model.named_modules() if _tracks(row[1])] for model in models]
        for (_, start), (_, now), (name, norm) in zip(*rows, strict=False):
            initial, current, own = (
                torch.stack([m.running_mean, m.running_var]).cpu() for m in (start, now, norm)
            )
            trained = _differ(start, now) if used is live else not current.equal(own)
            if trained and start.training and not norm.training:
                stale += [name] * (_is_initial(*own) or own.equal(initial))
        if stale and _differ(first, used):
            cause = "the copy follows parameters(); running statistics are buffers"
            self.answers["TRAIN025"] = wrong(
                f"An evaluation uses trained weights with the running statistics of the start "
                f"({len(stale)} of {len(rows[0])} norms): {', '.join(stale[:3])}.",
                ["momentum=0 or reset_running_stats()" if used is live else cause],
                "Copy or average buffers() too, or call update_bn() before the evaluation.",
                place=made.place,
            )

    def finish(self, model: Any) -> dict[str, Answer]:
        """Return all answers, with names of the model."""
        if moved := [name for name, p in model.named_parameters() if id(p) in self.moved]:
            self.answers["TRAIN046"] = wrong(
                f"Steps of the optimizer move {len(moved)} frozen parameters: "
                f"{', '.join(moved[:3])}.",
                ["gradients that are zeros and not None: momentum and weight decay go on"],
                "Set p.grad = None where you freeze p; zero_grad() does by default.",
            )
        names = {id(b): name.rpartition(".")[0] for name, b in model.named_buffers()}
        frozen = self.norms.keys() - self.free
        if moves := {
            i: move for i in self.norms if i in frozen and (move := self.norms[i].drift())
        }:
            named = ", ".join(names.get(i, "in another module") for i in [*moves][:3])
            self.answers["TRAIN046"] = wrong(
                f"Running statistics of frozen batch norms move in training, by up to "
                f"{max(moves.values()):.2g} deviations: {named}.",
                ["the frozen part is in train mode; requires_grad_(False) changes no mode"],
                "Call eval() on the frozen part after each model.train().",
                place=self.norms[next(iter(moves))].place,
            )
        graphs = [made for made in self.passes if made.graph]
        if self.passes and (not graphs or any(made.used for made in graphs)):
            text = f"Of {len(self.passes)} passes of the evaluation none builds a spare graph."
            self.answers["TRAIN049"] = passed(text)
        elif graphs:
            self.answers["TRAIN049"] = wrong(
                f"{len(graphs)} of {len(self.passes)} forward passes of your evaluation build a "
                "graph that no gradient uses.",
                ["no_grad() or inference_mode() is missing around the evaluation"],
                "Evaluate under `with torch.inference_mode():`.",
                place=graphs[0].place,
            )
        return self.answers


def _tracks(module: Any) -> bool:
    return type(getattr(module, "running_mean", None)) is torch.Tensor


def _is_initial(mean: Any, variance: Any) -> bool:
    return not bool(mean.any()) and bool((variance == 1).all())


def _differ(first: Any, second: Any) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=False)
    return not all(torch.equal(a.detach().cpu(), b.detach().cpu()) for a, b in pairs)


def unwrapped(module: Any) -> Any:
    """Return the model inside DistributedDataParallel and the like."""
    return module.module if "DataParallel" in type(module).__name__ else module
