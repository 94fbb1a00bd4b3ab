"""What is read from model, optimizer and schedule, with a step or two at most."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from statistics import median_high
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import batch_size
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import lr_scheduler, torch
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.training_subject import OTHER_SEEDS, TrainingSubject
from pipeline_profiler.checks.user_code import users_code
from pipeline_profiler.checks.user_source import site_of
from pipeline_profiler.checks.user_training import (
    Training,
    batch_norms,
    learned_by_loss,
    learning_rate,
    step_schedule,
)


class OptimizerParameters(Check):
    """Parameters that the optimizer omits, repeats, or has from another model.

    ## How it decides
    Fails on any of these (exact):

    - A parameter with a gradient is missing in the optimizer, or a parameter is listed twice.
    - The optimizer has parameters of another model.
    - Nothing is trainable, or the last layer is frozen at random weights.
    - Modules, or tensors with requires_grad, are unregistered.
    - Random parameters of the loss, or of a head that a script calls, are in no optimizer.

    ## Limits
    Earlier frozen layers pass if no seed changes their weights (pretrained). Two optimizers (GAN)
    are treated as one: skip this check there.
    """

    code = "TRAIN006"
    name = "optimizer-parameters"

    def run(self, subject: TrainingSubject) -> Answer:
        if subject.loop is not None and subject.loop.unheld is not None:
            kind, place = subject.loop.unheld
            text = (
                f"No optimizer holds the parameters of {kind}, which gradients reach in each step."
            )
            causes = ["parameters of a loss or head are not given to the optimizer"]
            return wrong(text, causes, "Give its parameters() to the optimizer too.", place=place)
        training = subject.settings
        named = dict(training.model.named_parameters())
        if not named:
            return unclear("The model has no parameters.")
        for found, sentence, cause, action in _faults_of_parameters(subject, training, named):
            if found:
                return wrong(sentence, [cause], action)
        frozen = [name for name, p in named.items() if not p.requires_grad]
        last = [name for name, p in named.items() if p.ndim > 1][-1:]
        return _judge_frozen(subject, "parameters", len(named), frozen, "".join(last))

    def run_keras(self, subject: KerasSubject) -> Answer:
        model = subject.settings.model
        kernels = [w.path for w in model.weights if w.path.endswith(("kernel", "embeddings"))]
        trained = {w.path for w in model.trainable_variables}
        if not kernels:
            return unclear("The model has no kernels.")
        if not trained:
            text = f"None of the model's {len(kernels)} kernels is trainable: nothing is trained."
            causes = [
                "trainable = False on the whole model, or apply_gradients() gets none of them"
            ]
            return wrong(text, causes, "Set trainable = True on some layers, then compile again.")
        frozen = [path for path in kernels if path not in trained]
        return _judge_frozen(subject, "kernels", len(kernels), frozen, kernels[-1])


def _faults_of_parameters(
    subject: TrainingSubject, training: Training, named: dict[str, Any]
) -> Iterable[tuple[Any, str, str, str]]:
    """Return rows: what is wrong, the sentence, its cause and what to do."""
    held = [id(p) for group in training.optimizer.param_groups for p in group["params"]]
    of_loss = learned_by_loss(training)
    wanted = [name for name, p in named.items() if p.requires_grad]
    missing = [name for name in wanted if id(named[name]) not in held]
    if 0 < len(missing) < len(wanted):  # what no gradient reaches has another training
        reached = subject.step_with_gradients(subject.fresh(), subject.batches[0])[1]
        missing = [name for name in missing if name in reached]
    own = {id(p) for p in (*named.values(), *of_loss.values())}
    foreign = sum(number not in own for number in held)
    hidden, loose = _unregistered(training.model, held)
    idle = [name for name, p in of_loss.items() if id(p) not in held]
    first, second = (learned_by_loss(subject.fresh(seed)) if idle else {} for seed in OTHER_SEEDS)
    drawn = [name for name in idle if not torch.equal(first[name], second[name])]
    remake = "Make the optimizer from the parameters of the finished model."
    return (
        (hidden, f"parameters() leaves out {len(hidden)} modules in a plain list or dict: "
         f"{', '.join(hidden[:3])}.", "a Python list instead of nn.ModuleList",
         "Put them in nn.ModuleList or nn.ModuleDict."),
        (loose, f"parameters() leaves out {', '.join(loose[:3])} with requires_grad: it is never "
         "trained, moved to a device or saved.",
         "a plain tensor instead of nn.Parameter",
         "Make it nn.Parameter, or register_buffer where it is not to be trained."),
        (drawn, f"The loss has random parameters ({', '.join(drawn[:3])}) in no optimizer.",
         "the optimizer was made from the model's parameters alone",
         "Give it [*model.parameters(), *loss.parameters()]."),
        (not wanted, f"None of the model's {len(named)} parameters has requires_grad: nothing is "
         "trained.", "requires_grad_(False) on the whole model", remake),
        (foreign, f"{foreign} parameters of the optimizer are not the model's.",
         "the optimizer was made for another model, or before this model was copied", remake),
        (missing, f"{len(missing)} of {len(wanted)} parameters to be trained are not in the "
         f"optimizer: {', '.join(missing[:4])}{', ...' * (len(missing) > 4)}.",
         "only some modules were given to the optimizer, or layers were made or replaced later",
         remake),
        (len(set(held)) < len(held), f"{len(held) - len(set(held))} parameters are in the "
         "optimizer twice.", "overlapping modules were given to the optimizer", remake),
    )  # fmt: skip


def _unregistered(model: Any, held: list[int]) -> tuple[list[str], list[str]]:
    """Return modules and tensors to be trained that parameters() or the optimizer leaves out."""
    known, hidden, loose = {id(m) for m in model.modules()}, [], []
    attributes = [
        (f"{name}.{key}" if name else key, value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key not in ("_modules", "_parameters", "_buffers")
    ]
    for name, value in attributes:
        if isinstance(value, torch.Tensor):
            if value.requires_grad and value.is_leaf and id(value) not in held:
                loose.append(name)
            continue
        parts = list(value.values()) if isinstance(value, dict) else value
        for number, part in enumerate(parts if isinstance(parts, list | tuple) else []):
            unknown = isinstance(part, torch.nn.Module) and id(part) not in known
            if unknown and any(p.requires_grad for p in part.parameters()):
                hidden.append(f"{name}[{number}]")
    return hidden, loose


def _judge_frozen(subject: Examined, what: str, total: int, frozen: list[str], last: str) -> Answer:
    """Judge frozen weights, of which those that change with the seed are not pretrained."""
    if not frozen:
        return passed(f"All {total} {what} are trained.")
    first, second = ([*subject.state(subject.fresh(seed)).values()] for seed in OTHER_SEEDS)
    pairs = zip(subject.state(subject.settings), first, second, strict=True)
    random = {name for name, a, b in pairs if not np.array_equal(a, b)} & {*frozen}
    if last in random:
        text = f"The last layer ({last}) is frozen at random weights."
        causes = ["requires_grad_(False), or trainable = False, was set on too much"]
        return wrong(text, causes, "Freeze the body before the new head is put on.")
    if random or subject.one_start:
        seeds = f"{len(random)} of them change" if random else "none of them changes"
        text = f"{len(frozen)} of {total} {what} are frozen, and {seeds} with the seed."
        return unclear(text, "Check that the pretrained weights are loaded, if there are any.")
    return passed(f"{len(frozen)} of {total} {what} are frozen at fixed weights.")


STEPS = 2000
ZERO = 1e-12
LONG = 20  # epochs of a warm-up
MOST_FACTOR = 0.1  # a learning rate above it may be what a factor is meant to be


class Schedule(Check):
    """A learning rate that is zero, vanishes, or does not follow its schedule.

    ## How it decides
    Steps the schedule alone 2,000 times, or reads the rates of your steps. Fails on any of these:

    - The rate is negative, or zero in the first ten steps.
    - It falls below 1e-5 of its maximum for good, within 10 counts, 100 of your own steps, or the
      first epoch of a script that steps it once a batch.
    - The rate and the state of the schedule never change.
    - The largest factor of a LambdaLR is the learning rate: its function returns rates.
    - A script steps a schedule of epochs once a batch, a schedule of batches once an epoch, or
      never. A state that is loaded into the optimizer replaces its rate.
    """

    code = "TRAIN014"
    name = "schedule"
    causes = ("a schedule of epochs that is stepped by batch, or the reverse", "a wrong warm-up")
    next_step = "Print the learning rate of the first ten steps."

    def run(self, subject: TrainingSubject) -> Answer:
        training, loop = subject.fresh(), subject.loop
        schedule, rate = training.schedule, learning_rate(training)
        if loop is not None and loop.loaded_rate is not None:
            before, after, place = loop.loaded_rate
            text = f"load_state_dict() of the optimizer turns the rate {before:g} into {after:g}."
            causes = ["the state of an optimizer holds its learning rate"]
            return wrong(text, causes, "Set param_groups[0]['lr'] after the load.", place=place)
        if schedule is None:  # train_step may hide it
            own = loop.rates if loop is not None and training.train_step is not None else []
            return _judge_series(own, within=100) if len(set(own)) > 1 else _judge_constant(rate)
        if training.loop is not None and (found := _judge_calls(schedule, training.loop)):
            return found
        if "Plateau" in type(schedule).__name__:
            return unclear("The schedule follows a metric, so it cannot be stepped alone.")
        if not isinstance(schedule, lr_scheduler.LRScheduler):
            training = subject.fresh(subject.seed)  # a copy would step what a closure holds
        series, stands = _series(training)
        rises = int(np.argmax(series))
        if training.loop is not None and training.loop.scheduled == "epoch" and rises >= LONG:
            return unclear(f"The rate is stepped once an epoch, and rises for {rises} epochs.")
        facts = training.loop or LoopFacts()
        within = facts.epoch_steps if facts.scheduled == "step" and facts.epochs > 1 else 0
        found = _rates_as_factors(training.schedule, series)
        return found or _judge_series(series, stands, max(10, within))

    def run_keras(self, subject: KerasSubject) -> Answer:
        training = subject.fresh()
        rate = getattr(training.optimizer, "_learning_rate", training.optimizer.learning_rate)
        if not callable(rate):
            return _judge_constant(float(rate.numpy()))
        with users_code("The schedule"):
            return _judge_series([float(rate(number)) for number in range(STEPS + 1)])


def _judge_constant(rate: float) -> Answer:
    if rate:
        return absent(f"There is no schedule; the learning rate is {rate:g}.")
    return wrong("The learning rate is 0.", ["lr=0 in the optimizer"], "Give a learning rate.")


def _judge_calls(schedule: Any, loop: LoopFacts) -> Answer | None:
    """Return a failure if a script never steps its schedule, or in another unit; else None."""
    place = loop.places.get("schedule", "")
    if name := _unused_name(loop, place):
        text = f"The schedule is never stepped: `{name}` occurs only where it is made."
        action = f"Call {name}.step() after each epoch, or after each batch if it counts batches."
        return wrong(text, [f"{name}.step() is missing"], action, place=place)
    schedule, batches = getattr(schedule, "schedule", schedule), loop.epoch_steps
    epochs, total = (getattr(schedule, name, 0) or 0 for name in ("T_max", "total_steps"))
    kind = type(schedule).__name__
    if loop.scheduled == "step" and 0 < epochs < batches:
        text = (
            f"{kind} is stepped once a batch, and T_max={epochs} is less than an epoch ({batches})."
        )
        action = "Call step() once an epoch, or set T_max to the batches of the whole run."
        return wrong(text, ["T_max counts epochs"], action, place=place)
    by_epoch = loop.scheduled in ("epoch", "evaluation") and batches > 1
    if by_epoch and total >= 2 * batches and total % batches == 0:
        text = f"{kind} counts {total} batches, and is stepped once an epoch of {batches} batches."
        causes = ["step() stands in the loop over epochs"]
        return wrong(text, causes, "Call step() after each batch.", place=place)
    return None


def _unused_name(loop: LoopFacts, place: str) -> str:
    """Return the name of a schedule that occurs only where it is made, else ''."""
    if loop.scheduled or loop.epochs < 2 or (site := site_of(place)) is None:
        return ""
    made = site.around(site.at.lineno)[0]
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    name = getattr(target, "id", getattr(target, "attr", ""))
    code = re.sub(r"#.*", "", "".join(site.lines))
    return name if name and len(re.findall(rf"\b{name}\b", code)) == 1 else ""


def _counts(schedule: Any) -> list[int | None]:
    """Return the counters of torch's schedules: of this one, or those in a closure of step()."""
    cells = getattr(getattr(type(schedule), "step", None), "__closure__", None) or ()
    parts = [schedule, *(cell.cell_contents for cell in cells)]
    found = [part for part in parts if isinstance(part, lr_scheduler.LRScheduler)]
    return [getattr(part, "last_epoch", None) for part in found]


def _series(training: Training) -> tuple[list[float], bool]:
    """Return the rates, and whether the last thousand steps did not move the schedule."""
    first = learning_rate(training)
    training.optimizer.step()  # without gradients nothing moves; torch wants it before the schedule
    series = [first, *step_schedule(training, STEPS // 2)]
    middle = _counts(training.schedule)
    series += step_schedule(training, STEPS // 2 if len(series) > STEPS // 2 else 0)
    stands = bool(middle) and None not in middle and middle == _counts(training.schedule)
    return series, stands


def _rates_as_factors(schedule: Any, series: list[float]) -> Answer | None:
    """Return a failure if the function of a LambdaLR returns the rate itself."""
    schedule = getattr(schedule, "schedule", schedule)
    base, top = getattr(schedule, "base_lrs", [0.0])[0], max(series)
    rising = series[-1] == top > series[0]
    if type(schedule) is not lr_scheduler.LambdaLR or not 0 < base <= MOST_FACTOR or rising:
        return None
    if not math.isclose(top, base * base, rel_tol=0.01):
        return None
    text = f"The factors of the schedule are rates: the learning rate is never above {top:.3g}."
    causes = ["the function of LambdaLR returns a rate, which multiplies that of the optimizer"]
    return wrong(text, causes, "Return the factor, rate / lr; or make the optimizer with lr=1.")


def _judge_series(series: list[float], stands: bool = False, within: int = 10) -> Answer:
    """Judge rates by step; `stands`: the state stays too; `within`: steps that may not suffice."""
    top, steps = max(series), len(series) - 1
    if min(series) < -ZERO:
        return Schedule.failed(f"The learning rate becomes negative ({min(series):g}).")
    if max(series[1:11]) <= ZERO:
        first = next((i for i, rate in enumerate(series) if rate > ZERO), len(series))
        return Schedule.failed(f"The learning rate is 0 for the first {first} steps.")
    gone = max(1, 1 + max(i for i, rate in enumerate(series) if rate >= 1e-5 * top))
    text = f"The learning rate is below a hundred-thousandth of {top:g} after {gone} steps"
    if gone < min(within + 1, len(series)):
        return Schedule.failed(f"{text}, and stays there.")
    if gone < min(101, len(series)):
        text = f"{text}: right for a schedule of epochs, wrong for a schedule of batches."
        return unclear(text, "Call it where your loop does, in train_step, and it is judged there.")
    if len(set(series)) > 1 or steps < STEPS:
        text = f"The learning rate starts at {series[0]:g}, reaches {top:g}"
        return passed(f"{text}, and is {series[-1]:g} after {steps} steps.")
    if not stands:
        text = "right if the schedule counts epochs, or waits longer"
        return unclear(f"The learning rate stays at {top:g} for {STEPS} steps: {text}.")
    text = (
        f"The learning rate stays at {top:g} for {STEPS} steps, which the schedule does not count."
    )
    causes = ["step() gets the same epoch each time", "a wrapper does not reach the schedule"]
    return wrong(text, causes, "Call step() without an argument, and print the learning rate.")


FEWEST, ENOUGH, WANTED, MOST_WEIGHT, MOST_EPS = 4, 16, 64, 0.5, 0.1
GHOSTS = ("virtual_batch_size", "ghost_batch_size", "nominal_batch_size")
RANKS = ("num_replicas", "world_size", "num_shards")


class BatchStatistics(Check):
    """Batch norm with too small batches, wrong settings, or old statistics.

    ## How it decides
    Fails with fewer than 4 samples per batch, a weight of the new batch of 0 or above 0.5 (momentum
    in torch, 1 - momentum in Keras), or eps above 0.1. Fails if a ghost batch
    (`virtual_batch_size`) is not a proper divisor of the device batch. Fails if trained weights,
    also of an average (EMA, SWA), are evaluated with running statistics of the start. Inconclusive
    from 4 to 15 samples, and for several ranks without synchronised norms.

    ## Limits
    Ranks are seen only in the sampler of the loader. momentum=None (cumulative mean) passes.
    """

    code = "TRAIN025"
    name = "batch-norm-statistics"
    torch_only = ""
    next_step = "Set momentum=0.1 (Keras: 0.99), eps=1e-5, and batches of 32; or use group norm."

    def run(self, subject: Examined) -> Answer:
        norms = _norms_of(subject)
        if not norms:
            return passed("The model has no batch norm.")
        if found := getattr(subject, "watched", {}).get(self.code):
            answer: Answer = found
            return answer
        for name, weight, eps, _ in norms:
            if not 0 < weight <= MOST_WEIGHT:
                text = f"The newest batch has the weight {weight:g} in the statistics of {name}."
                return self.failed(text, "the convention of another framework (there 1 - momentum)")
            if eps > MOST_EPS:
                cause = "eps and momentum exchanged"
                return self.failed(f"The eps of {name} is {eps:g}, larger than 0.1.", cause)
        return self._judge_size(subject, any(trains for *_, trains in norms), len(norms))

    def _judge_size(self, subject: Examined, trains: bool, norms: int) -> Answer:
        batches, modules = subject.batches, list[Any]()
        if isinstance(subject, TrainingSubject):
            batches = subject.whole_batches
            modules = [*batch_norms(subject.settings.model).values()]
        size = median_high(batch_size(batch[1]) for batch in batches)
        # the sub-batch that a ghost batch norm says it takes; 0 without one
        ghost = max((int(getattr(m, n, 0) or 0) for m in modules for n in GHOSTS), default=0)
        if ghost and (ghost >= size or size % ghost):
            text = f"The ghost batch is {ghost}, no proper part of {size} samples of a device."
            return self.failed(text, "ghost batch and device batch exchanged")
        sampler = getattr(subject.settings.loader, "sampler", None)
        ranks = max(int(getattr(sampler, name, 1) or 1) for name in RANKS)
        if ranks > 1 and not all("Sync" in type(m).__name__ for m in modules):
            text = f"Each of {ranks} ranks has its own statistics, from {ghost or size} samples."
            return unclear(text, "Average them before each checkpoint, or use SyncBatchNorm.")
        size = (ghost or size) * ranks
        if size < FEWEST and trains:
            text = f"Batch norm estimates its statistics from {size} samples."
            return self.failed(text, "batches too small for batch norm")
        if size < ENOUGH:
            return unclear(
                f"Batch norm has {size} samples a batch; about {WANTED} are wanted.",
                "Take larger batches; where they do not fit, group or layer norm needs none.",
            )
        return passed(f"{norms} batch norms have {size} samples a batch.")


def _norms_of(subject: Examined) -> list[tuple[str, float, float, bool]]:
    """Return the batch norms: name, weight of the newest batch, eps, whether it trains."""
    model = subject.settings.model
    if isinstance(subject, TrainingSubject):
        return [
            (name, MOST_WEIGHT if m.momentum is None else m.momentum, m.eps, m.training)
            for name, m in batch_norms(model).items()
        ]
    layers = [x for x in model._flatten_layers() if "BatchNorm" in type(x).__name__]
    return [(x.name, 1 - x.momentum, x.epsilon, x.trainable) for x in layers]
