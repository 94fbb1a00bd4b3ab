"""A training of torch under examination: made by the user's factories once for each check."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipeline_profiler.checks.batches import (
    Array,
    as_array,
    as_tensors,
    batch_size,
    cut_batch,
    inputs_and_targets,
    main_tensor,
    moved,
)
from pipeline_profiler.checks.check import Answer, unclear
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.loss_alone import LossAlone, Task, only_compares, read_task
from pipeline_profiler.checks.user_code import (
    UsersError,
    batches_of,
    kept_state,
    seed_everything,
    users_code,
)
from pipeline_profiler.checks.user_training import (
    ENOUGH_EXAMPLES,
    MOST_BATCHES,
    SMALL_BATCH,
    Batch,
    ExaminedTraining,
    Training,
    call_own,
    checked,
    cut,
    deep_copied,
    learning_rate,
    step_schedule,
)

if TYPE_CHECKING:
    from pipeline_profiler.checks.caught_torch import Recorded

OTHER_SEEDS = 11, 12
RANDOM_WEIGHTS = 8  # trainings with other weights
COUNTS, MOST_COUNTS = 100, 2000  # of a schedule: one of epochs is at 0 after the first number
LONG_STEP_S, ALL_STEPS_S = 0.1, 2.4  # a step, and a step on each batch, if batches can be cut
LEAST_BATCHES = 4
UNLIKE = 0.05  # of the ratio of two losses over three batches


@dataclass
class TrainingSubject(ExaminedTraining):
    """What the checks on a training examine; `make()` returns a new Training.

    functions: the user's own by name. caught: of a script without loaded weights. facts: of a
    script. enters: batches hold what enters the model, not what the loader gave.
    """

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    caught: bool = False
    facts: LoopFacts | None = None
    enters: bool = False

    def fresh(self, seed: int | None = None) -> Training:
        """A new training, made after seeding everything; with the first seed a copy will do."""
        made = self.settings
        if seed is None and made.train_step is None and made.evaluate is None:
            with contextlib.suppress(Exception, SystemExit):  # it cannot be copied: make it again
                parts = (made.model, made.optimizer, made.schedule, made.loss)
                model, optimizer, schedule, loss = deep_copied(parts)
                seed_everything(self.seed)
                return replace(made, model=model, loss=loss, optimizer=optimizer, schedule=schedule)
        return self._made(self.seed if seed is None else seed)

    @cached_property
    def rates(self) -> list[float]:
        """The rate after each count of the schedule alone; [] without one that only counts."""
        with kept_state():
            training = self.fresh(self.seed)  # a copy would step what a closure holds
            if training.schedule is None or "Plateau" in type(training.schedule).__name__:
                return []
            return [learning_rate(training), *step_schedule(training, MOST_COUNTS)]

    @cached_property
    def counts_batches(self) -> bool:
        """Return whether steps move the schedule: no metric, no decay to 0 in a hundred steps."""
        first = self.rates[: COUNTS + 1]
        return bool(first) and (len(first) <= COUNTS or first[-1] >= 1e-5 * max(first))

    def held(self, ramp: int = 1) -> Training:
        """Return a new training at its largest learning rate, reached in `ramp` steps."""
        if not self.rates:
            return self.fresh()
        training, schedule = self.fresh(self.seed), None
        step_schedule(training, self.rates.index(max(self.rates)))
        for group in training.optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        if self.counts_batches:
            schedule = torch.optim.lr_scheduler.LambdaLR(
                training.optimizer, lambda count: min(1.0, (count + 1) / ramp)
            )
        return replace(training, schedule=schedule)

    def _made(self, seed: int) -> Training:
        seed_everything(seed)
        return checked(self.make())

    @cached_property
    def one_start(self) -> bool:
        """Return whether make() starts alike for any seed without a checkpoint."""
        if self.caught:
            return True
        first, second = ((self._made(seed), torch.get_rng_state())[1] for seed in OTHER_SEEDS)
        return bool(torch.equal(first, second))

    @cached_property
    def settings(self) -> Training:
        """A training to look at, never to train."""
        return self._made(self.seed)

    @cached_property
    def batches(self) -> list[Batch]:
        """Return (raw, inputs, targets) of the first batches, in parts if a step takes long."""
        whole = self.whole_batches
        size, seconds = batch_size(whole[0][1]), self._seconds_a_step(whole[0])
        parts = max(1, min(math.ceil(seconds / LONG_STEP_S), size // SMALL_BATCH))
        found = self._in_parts(whole, parts) if parts > 1 else whole
        most = int(ALL_STEPS_S * len(found) / len(whole) / max(seconds, 1e-9))
        used = found[: max(LEAST_BATCHES, most)]
        if len(used) != len(whole):
            self.notes.append(
                f"A step on {size} examples takes {seconds:.1f} s: the checks use "
                f"{len(used)} batches of {batch_size(used[0][1])}."
            )
        return used

    def _in_parts(self, whole: list[Batch], parts: int) -> list[Batch]:
        found = list[Batch]()
        for batch in whole:
            size = batch_size(batch[1])
            ends = sorted({size * number // parts for number in range(parts + 1)})
            found += [cut(batch, *pair) for pair in itertools.pairwise(ends)]
        with contextlib.suppress(UsersError):  # outputs may be as long as the batch's longest row
            for part in found[:parts]:
                self.measured(self.fresh(), part)
            return found
        return whole

    def _seconds_a_step(self, batch: Batch) -> float:
        training, times = self.fresh(), list[float]()
        with contextlib.suppress(UsersError):  # each check that takes a step reports it
            while len(times) < 2 and sum(times) < ALL_STEPS_S:  # the first one warms up
                start, used = time.monotonic(), time.process_time()
                self.step(training, batch)
                # the clock counts other processes, and CPU time counts threads twice
                times.append(min(time.monotonic() - start, time.process_time() - used))
        return min(times, default=0.0)

    def with_adam(self) -> Training:
        """A fresh training with our step and Adam at 0.001."""
        training = self.fresh()
        optimizer = torch.optim.Adam(training.model.parameters(), lr=1e-3)
        return replace(training, optimizer=optimizer, schedule=None, train_step=None)

    @cached_property
    def whole_batches(self) -> list[Batch]:
        """The batches as the loader gives them, or as they enter the model in your own step."""
        taken = self.given_batches
        if self.settings.train_step is None:
            return taken
        with kept_state(), contextlib.suppress(UsersError), torch.no_grad():
            self.forward(self.fresh(), taken[0][1])
            return taken
        steps = zip(taken, self.recorded.steps, strict=False)
        found = [(raw, step.inputs, targets) for (raw, _, targets), step in steps]
        if found:
            self.notes.append("The checks use what enters the model in your train_step.")
        self.enters = bool(found)
        return found or taken

    @cached_property
    def given_batches(self) -> list[Batch]:
        """The batches as the loader gives them."""
        taken, examples, made = list[Batch](), 0, self.settings
        device = next((p.device for p in made.model.parameters()), torch.device("cpu"))
        for batch in batches_of(made.loader):
            raw = moved(as_tensors(batch), device)
            taken.append((raw, *inputs_and_targets(raw, made.split_batch)))
            examples += batch_size(taken[-1][1])
            enough = examples >= ENOUGH_EXAMPLES and len(taken) >= 4
            if enough or len(taken) >= MOST_BATCHES:
                break
        if not taken:
            raise UsersError(
                "The loader gives no batch: is the dataset empty, or smaller than a "
                "batch with drop_last=True?"
            )
        return taken

    @cached_property
    def small_labels(self) -> Array:
        """The targets of the small batch as an array."""
        return _as_numbers(self.small[2], "The target")

    @cached_property
    def recorded(self) -> Recorded:
        """What the hooks of a script record of a loop over train_step and evaluate."""
        from pipeline_profiler.checks.functions_run import record_functions

        return record_functions(self)

    @cached_property
    def loop(self) -> LoopFacts | None:
        """The facts of a script, or of a loop over train_step and evaluate; None without both."""
        if self.facts is not None or self.settings.loop is not None:
            return self.facts or self.settings.loop
        own = self.settings.train_step or self.settings.evaluate
        return self.recorded.facts if own else None

    @property
    def watched(self) -> Mapping[str, Answer]:
        """Answers of the loop, by code."""
        return {} if self.loop is None else self.loop.answers

    def forward(self, training: Training, inputs: Any) -> Any:
        """The model's output as it is; what it raises becomes a sentence."""
        with users_code("The model's forward pass"):
            if isinstance(inputs, Mapping):
                return training.model(**inputs)
            if isinstance(inputs, tuple | list):
                return training.model(*inputs)
            return training.model(inputs)

    def evaluated(self, training: Training, batch: Batch, mode: bool = False) -> Any:
        """The output for a batch as it is, without a graph; the model is left in this mode."""
        training.model.train(mode)
        with torch.no_grad():
            return self.forward(training, batch[1])

    def outputs(self, training: Training, inputs: Any, mode: bool = False) -> Array:
        """The main output as an array; the model is left in this mode."""
        return _as_numbers(
            self.evaluated(training, (None, inputs, None), mode), "The model's output"
        )

    def loss_of(self, training: Training, outputs: Any, targets: Any) -> Any:
        """The loss as a scalar tensor."""
        with users_code("The loss"):
            value = training.loss(outputs, targets)
        is_tensor = hasattr(value, "backward")
        if not is_tensor or value.numel() != 1:
            kind = f"the shape {tuple(value.shape)}" if is_tensor else type(value).__name__
            raise UsersError(f"The loss returned {kind}: take its mean, a tensor of one number.")
        return value.reshape(())

    def objective(self, training: Training, batch: Batch) -> Any:
        """The loss of a batch, with its graph."""
        return self.loss_of(training, self.forward(training, batch[1]), batch[2])

    def step(self, training: Training, batch: Batch) -> float:
        training.model.train()
        if training.train_step is not None:
            return self.own_step(training, batch)

        def backward() -> Any:
            training.optimizer.zero_grad()
            loss = self.objective(training, batch)
            if loss.requires_grad:
                with users_code("backward()"):
                    loss.backward()
                if training.clip is not None:
                    training.clip(training.model.parameters())
            return loss

        loss, closed = backward(), isinstance(training.optimizer, torch.optim.LBFGS)
        with users_code("optimizer.step()"):
            training.optimizer.step(*[backward] * closed)
        if training.schedule is not None and self.counts_batches:
            training.schedule.step()
        return float(loss.detach())

    def own_step(self, training: Training, batch: Batch) -> float:
        """Return the loss of your train_step; the mode of the model before it is left."""
        raw, inputs, targets = batch
        if self.enters:
            inputs, _ = inputs_and_targets(raw, training.split_batch)
        value = call_own(training, "train_step", batch=raw, inputs=inputs, targets=targets)
        if isinstance(value, Mapping):
            value = [value["loss"]] if "loss" in value else list(value.values())
        if isinstance(value, tuple | list):
            value = value[0] if value else None
        if not hasattr(value, "__float__"):
            return self.measured(training, batch, training.model.training)
        return float(value.detach() if hasattr(value, "detach") else value)

    def step_with_gradients(
        self, training: Training, batch: Batch
    ) -> tuple[float, dict[str, float]]:
        """A step: its loss, and the largest gradients before the optimizer's step or after it."""
        had: dict[str, float] = {}

        def collect(*_: Any) -> None:
            for name, parameter in training.model.named_parameters():
                if parameter.grad is not None:
                    size = float(parameter.grad.detach().float().abs().sum())
                    had[name] = max(had.get(name, 0.0), size if math.isfinite(size) else math.inf)

        hook = training.optimizer.register_step_pre_hook(collect)
        try:
            loss = self.step(training, batch)
            collect()
        finally:
            hook.remove()
        return loss, had

    def measured(self, training: Training, batch: Batch, mode: bool = False) -> float:
        """The loss of a batch without training; `mode`: in train mode."""
        before = training.model.training
        training.model.train(mode)
        with torch.no_grad():
            value = float(self.objective(training, batch))
        training.model.train(before)
        return value

    def weights(self, training: Training) -> dict[str, Array]:
        """Copies of the parameters with requires_grad, by name."""
        named = training.model.named_parameters()
        return {name: _as_numbers(p, name).copy() for name, p in named if p.requires_grad}

    def state(self, training: Training) -> dict[str, Array]:
        """Copies of all parameters and buffers, by name."""
        named = training.model.state_dict().items()
        return {name: _as_numbers(value, name).copy() for name, value in named}

    def weighed(self, answer: Answer) -> Answer:
        """`answer`; "inconclusive" if your step minimises another loss, or its rate is unknown."""
        loop, why = self.settings.loop, ""
        rates = loop.rates if loop is not None and loop.scheduled == "by hand" else [0.0]
        if answer.judgement != "failed":
            return answer
        if self.settings.train_step is not None:
            why = (not self.recorded.steps and self.recorded.why) or self.other_objective
        if rates[0] < rates[-1] == max(rates) and answer.evidence.get("share_with_adam", 1.0) > 0.5:
            why = "your loop was still raising its learning rate"
        return unclear(f"{answer.sentence} But {why}.", **answer.evidence) if why else answer

    @cached_property
    def other_objective(self) -> str:
        """What your train_step minimises beside or instead of the loss of the outputs; "" else."""
        training, trained = self.fresh(), set[str]()
        named = dict(training.model.named_parameters())

        def collect(*_: Any) -> None:
            trained.update(name for name, p in named.items() if p.grad is not None)

        training.optimizer.register_step_pre_hook(collect)
        pairs = list[tuple[float, float]]()  # (loss of the step, of the outputs)
        for batch in self.batches[:3]:
            seed_everything(self.seed)
            plain = self.measured(training, batch, mode=True)
            seed_everything(self.seed)
            pairs.append((self.step(training, batch), plain))
        training = self.fresh()
        if (loss := self.objective(training, self.batches[0])).requires_grad:
            loss.backward()
        reached = {name for name, p in training.model.named_parameters() if p.grad is not None}
        if trained - reached:
            names = ", ".join(sorted(trained - reached)[:3])
            return f"your train_step also trains what this loss does not reach ({names})"
        ratios = [own / plain for own, plain in pairs if plain and math.isfinite(own / plain)]
        if len(ratios) < 2 or max(ratios) - min(ratios) <= UNLIKE * abs(max(ratios)):
            return ""
        return f"your train_step reports {pairs[0][0]:.4g} where the loss is {pairs[0][1]:.4g}"

    @cached_property
    def task(self) -> Task:
        """Read from the output's shape and the targets' type."""
        outputs, targets, made = self.first_outputs, self.batches[0][2], self.settings
        task = read_task(outputs, targets)
        if task.kind != "classes" or not self.takes_tensor:
            return task
        embedded = only_compares(lambda o, t: self.loss_of(made, o, t), outputs, targets)
        # else targets may have the axes of the outputs in another order
        square = outputs.shape[0] == outputs.shape[1]
        return Task("unknown") if embedded or (square and not batch_first(self)) else task

    @cached_property
    def first_outputs(self) -> Any:
        """The outputs for the first batch at initialisation, in eval mode, without a graph."""
        return main_tensor(self.evaluated(self.fresh(), self.batches[0]))

    @cached_property
    def takes_tensor(self) -> bool:
        """Whether the loss gets one tensor and not a tuple or an object."""
        return isinstance(self.evaluated(self.fresh(), self.batches[0]), torch.Tensor)

    @cached_property
    def ends_in_sigmoid(self) -> bool:
        """Outputs stay between 0 and 1 whatever the weights: no logits do."""
        inputs, first = self.batches[0][1], as_array(self.first_outputs)
        if first is None:
            return False
        drawn = (self.outputs(training, inputs) for training in self.drawn())
        return not any(((o < 0) | (o > 1)).any() for o in itertools.chain([first], drawn))

    def drawn(self) -> Iterator[Training]:
        """New trainings whose weights are drawn, larger than those of an initialisation."""
        for number in range(RANDOM_WEIGHTS):
            training = self.fresh()
            torch.manual_seed(number)
            with torch.no_grad():
                for weight in training.model.parameters():
                    spread = 2 / math.sqrt(weight[0].numel()) if weight.ndim > 1 else 0.5
                    weight.normal_(0, spread)
            yield training

    @cached_property
    def loss_alone(self) -> LossAlone:
        return self._alone(self.batches[0])

    @cached_property
    def small_alone(self) -> LossAlone:
        """The loss of free outputs for the small batch, whose least may be another."""
        return self._alone(self.small)

    def _alone(self, batch: Batch) -> LossAlone:
        training, targets = self.fresh(), batch[2]
        # the loss may read what its model kept of its last pass
        outputs = main_tensor(self.evaluated(training, batch))
        bounded = self.task.kind == "binary" and self.ends_in_sigmoid
        return LossAlone(
            lambda free: self.loss_of(training, free, targets), outputs, targets, self.task, bounded
        )


def batch_first(subject: Any) -> bool:
    """Whether the batch is the first axis of the outputs, and no other axis."""
    training, inputs = subject.fresh(), subject.batches[0][1]
    size, whole = batch_size(inputs), subject.outputs(training, inputs).shape
    fewer = (size - 1, *whole[1:])
    with contextlib.suppress(UsersError):  # a model of one size of batches
        fewer = subject.outputs(training, cut_batch(inputs, size, slice(size - 1))).shape
    return bool(whole[:1] == (size,) and fewer == (size - 1, *whole[1:]))


def _as_numbers(value: Any, name: str) -> Array:
    """Return the main tensor of a value as an array."""
    found = as_array(main_tensor(value))
    if found is None:
        raise UsersError(f"{name} cannot be read as numbers: it is no dense tensor.")
    return found
