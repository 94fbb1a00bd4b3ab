"""A training of torch under examination: made by the user's factories once for each check."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pipeline_profiler.checks.batches import (
    Array,
    as_array,
    as_tensors,
    batch_size,
    cut_batch,
    digest_of,
    entering,
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
    call_with,
    kept_state,
    seed_everything,
    user_place,
    users_code,
)
from pipeline_profiler.checks.user_training import (
    ENOUGH_EXAMPLES,
    MOST_BATCHES,
    SMALL_BATCH,
    Batch,
    ExaminedTraining,
    Training,
    checked,
    cut,
    deep_copied,
    learning_rate,
    step_schedule,
)

OTHER_SEEDS = 11, 12
AUGMENTED_SAMPLES = 8
DRAWN = 8  # trainings with other weights
HELD_COUNTS = 2000  # of a schedule among which its largest rate is looked for
COUNTS = 100  # of a schedule, after which one that counts epochs is at nothing
LONG_STEP_S = 0.1  # above this time a batch comes in parts: no example is lost
SLOW_STEP_S, SLOW_BATCHES, FEWEST = 0.3, 4, 8  # above this time a step is tried on fewer examples


@dataclass
class TrainingSubject(ExaminedTraining):
    """What the checks on a training examine; `make()` returns a new Training.

    functions: the user's own by name, for other processes. caught: of a script without loaded
    weights.
    """

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    caught: bool = False
    facts: LoopFacts | None = None  # of a script
    enters: bool = False  # batches hold what enters the model, not what the loader gave
    entered_at: str = ""  # the line of the user's own step that calls the model

    def fresh(self, seed: int | None = None) -> Training:
        """A new training, made after seeding everything; with the first seed a copy will do."""
        if seed is None and self._copies:
            made = self.settings
            try:
                parts = (made.model, made.optimizer, made.schedule, made.loss)
                model, optimizer, schedule, loss = deep_copied(parts)
            except (Exception, SystemExit):  # noqa: BLE001 - make it again
                return self._made(self.seed)
            seed_everything(self.seed)
            return replace(made, model=model, loss=loss, optimizer=optimizer, schedule=schedule)
        return self._made(self.seed if seed is None else seed)

    def held(self, ramp: int = 0) -> Training:
        """Return a new training at its largest learning rate, reached in `ramp` steps."""
        training = self.fresh()
        if training.schedule is None or "Plateau" in type(training.schedule).__name__:
            return training
        groups = training.optimizer.param_groups
        with kept_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wants a step of the optimizer first
            largest = [float(group["lr"]) for group in groups]
            for _ in range(HELD_COUNTS):
                if not step_schedule(training, 1):
                    break
                largest = [max(r, float(g["lr"])) for r, g in zip(largest, groups, strict=True)]
        training = self.fresh()
        for group, rate in zip(training.optimizer.param_groups, largest, strict=True):
            group["lr"] = group["initial_lr"] = rate
        schedule = None
        if ramp and self.counts_batches:
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
        with kept_state():
            states = []
            for seed in OTHER_SEEDS:
                self._made(seed)
                states.append(torch.get_rng_state())
        return bool(torch.equal(*states))

    @cached_property
    def settings(self) -> Training:
        """A training to look at, never to train."""
        return self._made(self.seed)

    @cached_property
    def _copies(self) -> bool:
        """Functions of the user's may hold the model in a closure, so these are made anew."""
        made = self.settings
        return made.train_step is None and made.evaluate is None and not _holds_module(made.loss)

    @cached_property
    def batches(self) -> list[Batch]:
        """Return (raw, inputs, targets) of the first batches, cut if a step takes long."""
        whole = self.whole_batches
        size, seconds = batch_size(whole[0][1]), self._seconds_a_step(whole[0])
        parts = min(math.ceil(seconds / LONG_STEP_S), size // SMALL_BATCH)
        if parts > 1 and seconds <= SLOW_STEP_S:
            self.notes.append(
                f"A step on {size} examples takes {seconds:.1f} s: each batch comes in {parts} "
                "parts."
            )
            return [part for batch in whole for part in _parts_of(batch, parts)]
        keep = max(FEWEST, int(size * SLOW_STEP_S / max(seconds, 1e-9)))
        if seconds <= SLOW_STEP_S or keep >= size:
            return whole
        self.notes.append(
            f"A step on {size} examples takes {seconds:.1f} s: the checks use "
            f"{min(len(whole), SLOW_BATCHES)} batches of {keep}."
        )
        return [cut(batch, 0, keep) for batch in whole[:SLOW_BATCHES]]

    def _seconds_a_step(self, batch: Batch) -> float:
        training, times = self.fresh(), []
        for _ in range(2):  # the first one warms up
            start, used = time.monotonic(), time.process_time()
            try:
                self.step(training, batch)
            except UsersError:  # whoever needs a step will say so
                return 0.0
            # on a busy machine the clock counts what others do, and CPU time what threads share
            times.append(min(time.monotonic() - start, time.process_time() - used))
            if times[0] > 20 * SLOW_STEP_S:
                break
        return min(times)

    def with_adam(self) -> Training | None:
        """A fresh training with our step and Adam at 0.001; None where nothing is to be trained."""
        training = self.fresh()
        parameters = [p for p in training.model.parameters() if p.requires_grad]
        if not parameters:
            return None
        training.optimizer = torch.optim.Adam(parameters, lr=1e-3)
        training.schedule, training.train_step = None, None
        return training

    @cached_property
    def whole_batches(self) -> list[Batch]:
        """The batches as the loader gives them, or as they enter the model."""
        return self._as_the_model_gets_them(self.given_batches)

    @cached_property
    def given_batches(self) -> list[Batch]:
        """The batches as the loader gives them; `notes` says where they are augmented."""
        taken: list[Batch] = []
        if self.settings.loop is None and _augments(self.settings.loader):
            self.notes.append(
                "The loader augments at random, which could not be switched off (make_loader takes "
                "no `augment`): the checks see each batch augmented once."
            )
        examples = 0
        for batch in batches_of(self.settings.loader):
            raw = moved(as_tensors(batch), self.device)
            taken.append((raw, *inputs_and_targets(raw, self.settings.split_batch)))
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

    def _as_the_model_gets_them(self, taken: list[Batch]) -> list[Batch]:
        """Return the batches as they enter the model in the user's step, if theirs do not fit."""
        if self.settings.train_step is None:
            return taken
        with kept_state(), contextlib.suppress(UsersError), torch.no_grad():
            self.forward(self.fresh(), taken[0][1])
            return taken
        if not (found := self.entered(taken)):
            return taken
        self.notes.append("The checks use what enters the model in your train_step.")
        self.enters = True
        return found

    def entered(self, taken: list[Batch]) -> list[Batch]:
        """The batches with what enters the model in the user's own step; [] where it calls none."""
        found, caught = list[Batch](), list[Any]()

        def keep(module: Any, args: Any, named: Any) -> None:
            self.entered_at = user_place()
            caught.append(copy.deepcopy(as_tensors((args, named))))

        with kept_state():
            training = self.fresh()
            hook = training.model.register_forward_pre_hook(keep, with_kwargs=True)
            try:
                for batch in taken:
                    caught.clear()
                    self.step(training, batch)
                    found.append((batch[0], entering(*caught[0]), batch[2]))
            except (UsersError, IndexError):  # the step fails as well, or calls another model
                return []
            finally:
                hook.remove()
        return found

    @cached_property
    def counts_batches(self) -> bool:
        """Return whether steps move the schedule: no metric, no decay to 0 in a hundred steps."""
        with kept_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wants a step of the optimizer first
            training = self.fresh(self.seed)
            if training.schedule is None or "Plateau" in type(training.schedule).__name__:
                return False
            first, rates = learning_rate(training), step_schedule(training, COUNTS)
        return len(rates) < COUNTS or rates[-1] >= 1e-5 * max(first, *rates)

    @cached_property
    def device(self) -> Any:
        """Where the model's parameters are."""
        first = next(iter(self.settings.model.parameters()), None)
        return torch.device("cpu") if first is None else first.device

    @cached_property
    def small_labels(self) -> Array:
        """The targets of the small batch as an array."""
        return _copied(main_tensor(self.small[2]))

    @cached_property
    def loop(self) -> LoopFacts | None:
        """The facts of a script, or of a loop over train_step and evaluate; None without both."""
        from pipeline_profiler.checks.functions_run import record_functions

        if self.facts is not None:
            return self.facts
        made = self.settings
        if made.loop is None and (made.train_step is not None or made.evaluate is not None):
            return record_functions(self)
        return made.loop

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

    def output(self, training: Training, inputs: Any) -> Any:
        """The main tensor of the output."""
        return main_tensor(self.forward(training, inputs))

    def outputs(self, training: Training, inputs: Any, mode: bool = False) -> Array:
        """The main output as an array, without a graph; the model is left in this mode."""
        training.model.train(mode)
        with torch.no_grad():
            found = as_array(self.output(training, inputs))
        if found is None:
            raise UsersError("The model's output is no tensor.")
        return found

    def loss_of(self, training: Training, outputs: Any, targets: Any) -> Any:
        """The loss as a scalar tensor."""
        with users_code("The loss"):
            value = training.loss(outputs, targets)
        if not hasattr(value, "backward"):
            raise UsersError(
                f"The loss returned {type(value).__name__}: it must return a tensor "
                "that backward() can start from."
            )
        if value.numel() != 1:
            raise UsersError(
                f"The loss has the shape {tuple(value.shape)}: take its mean, so that "
                "it is one number."
            )
        return value.reshape(())

    def objective(self, training: Training, batch: Batch) -> Any:
        """The loss of a batch, with its graph."""
        return self.loss_of(training, self.forward(training, batch[1]), batch[2])

    def step(self, training: Training, batch: Batch, mode: bool | None = True) -> float:
        if training.train_step is not None:
            return self.own_step(training, batch, mode)
        training.model.train()

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

    def own_step(self, training: Training, batch: Batch, mode: bool | None = True) -> float:
        """Return the loss of your train_step; `mode`: of the model before it, None leaves it."""
        raw, inputs, targets = batch
        if self.enters:
            inputs, _ = inputs_and_targets(raw, training.split_batch)
        offers = {
            "model": training.model,
            "batch": raw,
            "loss": training.loss,
            "optimizer": training.optimizer,
            "schedule": training.schedule,
            "inputs": inputs,
            "targets": targets,
            "scheduler": training.schedule,
            "loss_fn": training.loss,
            "criterion": training.loss,
            "x": inputs,
            "y": targets,
            "optim": training.optimizer,
        }
        if mode is not None:
            training.model.train(mode)
        value = call_with(training.train_step, offers, "train_step()")
        if isinstance(value, Mapping):
            value = value.get("loss", next(iter(value.values()), None))
        if isinstance(value, tuple | list):
            value = value[0] if value else None
        if not hasattr(value, "__float__"):
            with torch.no_grad():
                value = self.objective(training, batch)
        return float(value.detach() if hasattr(value, "detach") else value)

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
        return {name: _copied(p) for name, p in named if p.requires_grad}

    def state(self, training: Training) -> dict[str, Array]:
        """Copies of all parameters and buffers, by name."""
        return {name: _copied(value) for name, value in training.model.state_dict().items()}

    @cached_property
    def other_objective(self) -> str:
        """What your own step does beside that loss, to follow "Your train_step"; else empty."""
        if self.settings.train_step is None:
            return ""
        if beside := _trained_beside(self):
            return f"also trains what this loss does not reach ({', '.join(beside[:3])})"
        if (pair := _own_loss(self)) is None:
            return ""
        return f"reports {pair[0]:.4g} where loss(model(inputs), targets) is {pair[1]:.4g}"

    def weighed(self, answer: Answer) -> Answer:
        """`answer`; "inconclusive" if your step minimises another loss, or its rate is unknown."""
        loop = self.settings.loop
        rates = loop.rates if loop is not None and loop.scheduled == "by hand" else [0.0]
        rising = rates[0] < rates[-1] == max(rates)
        rising &= answer.evidence.get("share_with_adam", 1.0) > 0.5
        if answer.judgement != "failed" or not (rising or self.other_objective):
            return answer
        why = f"Your train_step {self.other_objective}: it minimises something else."
        why = "Your loop was still raising its learning rate." if rising else why
        return unclear(f"{answer.sentence} {why}", **answer.evidence)

    @cached_property
    def task(self) -> Task:
        """Read from the output's shape and the targets' type."""
        task, targets = read_task(self.first_outputs, self.batches[0][2]), self.batches[0][2]
        if task.kind == "classes" and self.takes_tensor:
            made = self.settings
            if only_compares(lambda o, t: self.loss_of(made, o, t), self.first_outputs, targets):
                return Task("unknown")  # outputs are embeddings
            if self.first_outputs.shape[0] == self.first_outputs.shape[1] and not batch_first(self):
                return Task("unknown")  # targets have the axes of the outputs in another order
        return task

    @cached_property
    def first_outputs(self) -> Any:
        """The outputs for the first batch at initialisation, in eval mode, without a graph."""
        return main_tensor(self.evaluated(self.fresh(), self.batches[0]))

    def evaluated(self, training: Training, batch: Batch) -> Any:
        """The output for a batch as it is, in eval mode, without a graph."""
        training.model.eval()
        with torch.no_grad():
            return self.forward(training, batch[1])

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
        for number in range(DRAWN):
            training = self.fresh()
            torch.manual_seed(number)
            with torch.no_grad():
                for weight in training.model.parameters():
                    spread = 2 / math.sqrt(weight[0].numel()) if weight.ndim > 1 else 0.5
                    weight.normal_(0, spread)
            yield training

    @cached_property
    def loss_alone(self) -> LossAlone:
        if not self._copies:  # the loss may read what the model kept of its last pass
            self.evaluated(self.settings, self.batches[0])
        return self._alone(self.settings, self.first_outputs, self.batches[0][2])

    @cached_property
    def small_alone(self) -> LossAlone:
        """The loss of free outputs for the small batch, whose least may be another."""
        training = self.fresh()
        outputs = main_tensor(self.evaluated(training, self.small))
        return self._alone(training, outputs, self.small[2])

    def _alone(self, training: Training, outputs: Any, targets: Any) -> LossAlone:
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


def _augments(loader: Any) -> bool:
    """Whether samples of a dataset with indices depend on the state of the generators."""
    dataset: Any = getattr(loader, "dataset", None)
    found = [set[str]() for _ in range(AUGMENTED_SAMPLES)]
    with kept_state(), contextlib.suppress(Exception):  # whatever reads it next says what is wrong
        for seed in OTHER_SEEDS:
            seed_everything(seed)
            for number, digests in enumerate(found):
                digests.add(digest_of(dataset[number]))
    return any(len(digests) > 1 for digests in found)


def _copied(tensor: Any) -> Array:
    found = as_array(tensor)
    if found is None:
        raise UsersError(f"A weight of the type {tensor.dtype} cannot be read as numbers.")
    return found.copy()


def _parts_of(batch: Batch, parts: int) -> list[Batch]:
    size = batch_size(batch[1])
    ends = [size * number // parts for number in range(parts + 1)]
    return [cut(batch, a, b) for a, b in itertools.pairwise(ends) if b > a]


def _holds_module(function: Any) -> bool:
    """Whether a plain function reaches a module by its closure or a global name."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    held += [function.__globals__.get(name) for name in code.co_names]
    return any(isinstance(value, torch.nn.Module) for value in held)


# A critic's step trains a generator too, a denoiser draws inputs and targets of its own: that
# loss(model(inputs), targets) does not fall is no defect there. Costs five steps.

UNLIKE = 0.05  # of the ratio of two losses over three batches


def _trained_beside(subject: Any) -> list[str]:
    """Parameters that the step trains, and that the loss of the outputs does not reach."""
    training, batch = subject.fresh(), subject.batches[0]
    named = dict(training.model.named_parameters())
    loss = subject.objective(training, batch)
    if loss.requires_grad:
        loss.backward()
    reached = {name for name, p in named.items() if p.grad is not None}
    training, had = subject.fresh(), set[str]()
    named = dict(training.model.named_parameters())

    def collect(*_: Any) -> None:
        had.update(name for name, p in named.items() if p.grad is not None)

    training.optimizer.register_step_pre_hook(collect)
    subject.step(training, batch)
    return sorted(had - reached)


def _own_loss(subject: Any) -> tuple[float, float] | None:
    """Return (loss of the step, of the outputs) if they differ by more than a factor."""
    training, pairs = subject.fresh(), []
    for batch in subject.batches[:3]:
        seed_everything(subject.seed)
        plain = subject.measured(training, batch, mode=True)
        seed_everything(subject.seed)
        pairs.append((subject.step(training, batch), plain))
    ratios = [own / plain for own, plain in pairs if plain and math.isfinite(own / plain)]
    alike = len(ratios) < 2 or max(ratios) - min(ratios) <= UNLIKE * abs(max(ratios))
    return None if alike else pairs[0]
