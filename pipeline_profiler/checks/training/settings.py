"""What is read from model, optimizer and schedule, with a step or two at most."""

from __future__ import annotations

import ast
import math
import re
from statistics import median_high
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import batch_size
from pipeline_profiler.checks.caught_tape import Tape, recording_mode
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import lr_scheduler, torch
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.training_subject import OTHER_SEEDS, TrainingSubject
from pipeline_profiler.checks.user_code import Patience, users_code
from pipeline_profiler.checks.user_source import site_of
from pipeline_profiler.checks.user_training import (
    Training,
    batch_norms,
    learned_by_loss,
    learning_rate,
    step_schedule,
)


class OptimizerParameters(Check):
    """Parameters of the model and the optimizer that do not match.

    ## What it does
    Compares the parameters of optimizer, model and loss by identity, and reads requires_grad.

    ## Why is this bad
    A parameter outside the optimizer never changes. A parameter listed twice changes twice as much.

    ## How it decides
    Fails on any of these (exact):

    - A parameter with a gradient is missing in the optimizer, or a parameter is listed twice.
    - The optimizer has parameters of another model.
    - Nothing is trainable, or the last layer is frozen at random weights.
    - Modules, or tensors with requires_grad, are unregistered.
    - Random parameters of the loss, or of a head that a script calls, are in no optimizer.

    Earlier frozen layers pass if their weights do not depend on the seed (pretrained). Inconclusive
    if they do, or no weight does.

    ## What to do
    Create the optimizer after the model is complete and on its device:
    `optimizer(model.parameters())`.

    ## Limits
    Two optimizers (GAN) are treated as one: skip this check there.
    """

    code = "TRAIN006"
    name = "optimizer-parameters"

    def run(self, subject: TrainingSubject) -> Answer:
        if subject.loop is not None and subject.loop.unheld is not None:
            kind, place = subject.loop.unheld
            return wrong(
                f"No optimizer holds the parameters of {kind}, which gradients reach in each step.",
                ["parameters of a loss or head are not given to the optimizer"],
                "Give its parameters() to the optimizer too.",
                place=place,
            )
        training = subject.settings
        of_loss = learned_by_loss(training)
        named = dict(training.model.named_parameters())
        held = [p for group in training.optimizer.param_groups for p in group["params"]]
        ids = [id(p) for p in held]
        own = {id(p) for p in (*named.values(), *of_loss.values())}
        wanted = [name for name, p in named.items() if p.requires_grad]
        missing = [name for name in wanted if id(named[name]) not in set(ids)]
        if 0 < len(missing) < len(wanted):  # what no gradient reaches has another training
            reached = subject.step_with_gradients(subject.fresh(), subject.batches[0])[1]
            missing = [name for name in missing if name in reached]
        foreign = [p for p in held if id(p) not in own]
        numbers: dict[str, Any] = {
            "parameters": len(named),
            "in_optimizer": len(held),
            "missing": missing[:20],
            "foreign": len(foreign),
        }
        if not named:
            return unclear("The model has no parameters.")
        hidden, loose = _unknown(training.model, ids)
        idle = [name for name, p in of_loss.items() if id(p) not in set(ids)]
        drawn = sorted(_changing(subject, idle)) if idle else []
        rows = (
            (hidden, f"The model has not registered {len(hidden)} of its modules "
             f"({', '.join(hidden[:3])}): they are in a plain list or dict, so parameters() leaves "
             "them out.", "a Python list instead of nn.ModuleList, a dict instead of nn.ModuleDict",
             "Put them in nn.ModuleList or nn.ModuleDict."),
            (loose, f"The model holds {', '.join(loose[:3])} with requires_grad, which "
             "parameters() leaves out: it is never trained, moved to a device or saved.",
             "a plain tensor instead of nn.Parameter",
             "Make it nn.Parameter, or register_buffer where it is not to be trained."),
            (drawn, f"The loss has parameters of its own ({', '.join(drawn[:3])}), which start at "
             "random and are not in the optimizer: they are never trained.",
             "the optimizer was made from the model's parameters alone",
             "Give it [*model.parameters(), *loss.parameters()]."),
        )  # fmt: skip
        for found, sentence, cause, action in rows:
            if found:
                return wrong(sentence, [cause], action, names=found[:20])
        problem, causes = _problem(
            len(named), wanted, missing, len(foreign), len(ids) - len(set(ids))
        )
        if problem:
            next_step = "Make the optimizer from the parameters of the finished model."
            return wrong(problem, causes, next_step, **numbers)
        frozen = [name for name, p in named.items() if not p.requires_grad]
        if not frozen:
            said = "All parameters that get a gradient are in the optimizer, once."
            return passed(said, **numbers, frozen=[])
        last = [name for name, p in named.items() if p.ndim > 1][-1:]
        random = _changing(subject, frozen)
        if not random and subject.one_start:
            return unclear(
                f"{len(frozen)} of {len(named)} parameters are frozen at weights that no seed "
                "changes, and no checkpoint was seen.",
                "Check that the pretrained weights are loaded.",
                **numbers,
                frozen=frozen[:20],
            )
        return _judge_frozen("parameters", frozen, len(named), "".join(last), random, numbers)

    def run_keras(self, subject: KerasSubject) -> Answer:
        model = subject.settings.model
        kernels = [w.path for w in model.weights if w.path.endswith(("kernel", "embeddings"))]
        trained = {w.path for w in model.trainable_variables}
        if not kernels:
            return unclear("The model has no kernels.")
        frozen = [path for path in kernels if path not in trained]
        if not trained:
            return wrong(
                f"None of the model's {len(kernels)} kernels is trainable: nothing is trained.",
                ["trainable = False on the whole model"],
                "Set trainable = True on what is to be trained, then compile again.",
            )
        if not frozen:
            return passed(f"All {len(kernels)} kernels are trainable.", kernels=len(kernels))
        one, two = (list(subject.state(subject.fresh(seed)).values()) for seed in OTHER_SEEDS)
        paths = [w.path for w in model.weights]
        drawn = {p for p, a, b in zip(paths, one, two, strict=True) if not np.array_equal(a, b)}
        numbers = {"kernels": len(kernels)}
        random = drawn & set(frozen)
        return _judge_frozen("kernels", frozen, len(kernels), kernels[-1], random, numbers)


def _unknown(model: Any, held: list[int]) -> tuple[list[str], list[str]]:
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


def _problem(
    total: int, wanted: list[str], missing: list[str], foreign: int, twice: int
) -> tuple[str, list[str]]:
    """(a sentence or "", its causes)."""
    if not wanted:
        said = f"None of the model's {total} parameters has requires_grad: nothing is trained."
        return said, ["requires_grad_(False) on the whole model"]
    if foreign:
        tail = f", and {len(missing)} of the model's are not in it" if missing else ""
        return f"{foreign} parameters of the optimizer are not the model's{tail}.", [
            "the optimizer was made for another model, or before this one was replaced or copied"
        ]
    said = f"{twice} parameters are in the optimizer twice." if twice else ""
    if missing:
        names = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        said = (
            f"{len(missing)} of {len(wanted)} parameters to be trained are not in the "
            f"optimizer: {names}."
        )
    return said, [
        "only some modules were given to the optimizer",
        "layers kept in a plain list or made later",
        "layers were replaced after the optimizer was made",
    ]


def _judge_frozen(
    what: str, frozen: list[str], total: int, last: str, random: set[str], numbers: dict[str, Any]
) -> Answer:
    """`what` is frozen; `random`: what of it changes with the seed, so is not pretrained."""
    numbers = numbers | {"frozen": frozen[:20]}
    if last in random:
        return wrong(
            f"The last layer ({last}) is frozen at random weights.",
            ["requires_grad_(False), or trainable = False, was set on too much"],
            "Freeze the body before the new head is put on.",
            **numbers,
        )
    if random:
        return unclear(
            f"{len(frozen)} of {total} {what} are frozen, and {len(random)} of them change "
            "with the seed: right for a fixed random body, wrong if a checkpoint should be loaded.",
            "Check that the pretrained weights are loaded.",
            **numbers,
        )
    return passed(
        f"{len(frozen)} of {total} {what} are frozen at fixed weights, the rest is trained.",
        **numbers,
    )


def _changing(subject: TrainingSubject, names: list[str]) -> set[str]:
    """Parameters of model and loss that differ between seeds: not pretrained."""
    made = [subject.fresh(seed) for seed in OTHER_SEEDS]
    one, two = (dict(t.model.named_parameters()) | learned_by_loss(t) for t in made)
    return {n for n in names if n in one and n in two and not torch.equal(one[n], two[n])}


STEPS = 2000
OWN_STEPS, OWN_SECONDS = 100, 6.0
ZERO = 1e-12
LONG = 20  # epochs of a warm-up
MOST_FACTOR = 0.1  # a learning rate above it may be what a factor is meant to be


class Schedule(Check):
    """The learning rate over the first 2,000 steps of the schedule.

    ## What it does
    Steps the schedule alone 2,000 times and reads the learning rates. If only your train_step has
    the schedule, reads up to 100 of your steps.

    ## Why is this bad
    A schedule that counts epochs but is stepped per batch, or the reverse, keeps the rate at zero
    or drives it there.

    ## How it decides
    Fails on any of these (exact):

    - The rate is negative, or zero in the first ten steps.
    - It falls below 1e-5 of its maximum for good, within 10 counts, 100 of your own steps, or the
      first epoch of a script that steps it once a batch.
    - The rate and the state of the torch schedule never change in 2,000 steps.
    - The largest factor of a LambdaLR is the learning rate: its function returns rates.
    - A script steps a cosine schedule once a batch, with T_max below the batches of an epoch.
    - It steps a OneCycleLR once an epoch, with the number of batches of several epochs.
    - It never uses the name of its schedule.
    - A state that is loaded into the optimizer replaces its learning rate, and no schedule sets it.

    Inconclusive: such a fall within 100 counts, which may be epochs, or a constant rate.

    ## Limits
    Schedules that need a metric (ReduceLROnPlateau) are inconclusive.
    """

    code = "TRAIN014"
    name = "schedule"
    causes = (
        "the schedule counts epochs and is stepped by batch, or the other way round",
        "a warm-up that begins at zero and is not stepped",
    )
    next_step = "Print the learning rate of the first ten steps."

    def run(self, subject: TrainingSubject) -> Answer:
        training = subject.fresh()
        rates = [g["lr"] for g in training.optimizer.param_groups]
        if subject.loop is not None and subject.loop.loaded_rate is not None:
            before, after, place = subject.loop.loaded_rate
            return wrong(
                f"load_state_dict() of the optimizer replaces the learning rate {before:g} by "
                f"{after:g}.",
                ["the state of an optimizer holds its learning rate"],
                "Set param_groups[0]['lr'] after the load, or do not load the optimizer.",
                place=place,
            )
        if not any(rates) and training.schedule is None:
            return wrong(
                "The learning rate is 0.",
                ["lr=0 in the optimizer"],
                "Give a learning rate.",
                rates=rates,
            )
        if training.schedule is None and training.train_step is not None:
            return _own_steps(subject, training)
        if training.schedule is None:
            return absent(f"There is no schedule; the learning rate is {rates[0]:g}.")
        if training.loop is not None and (found := _unused(training.loop)):
            return found
        if "Plateau" in type(training.schedule).__name__:
            return unclear("The schedule follows a metric, so it cannot be stepped alone.")
        if training.loop is not None and (found := _wrong_unit(training.schedule, training.loop)):
            return found
        if not isinstance(training.schedule, lr_scheduler.LRScheduler):
            training = subject.fresh(subject.seed)  # a copy would step what a closure holds
        series, stands = _series(training)
        rises = int(np.argmax(series))
        if training.loop is not None and training.loop.scheduled == "epoch" and rises >= LONG:
            return unclear(f"The rate is stepped once an epoch, and rises for {rises} epochs.")
        numbers: dict[str, Any] = {
            "first": series[0],
            "largest": max(series),
            "last": series[-1],
            "steps": len(series),
        }
        loop = training.loop or LoopFacts()
        within = loop.epoch_steps if loop.scheduled == "step" and loop.epochs > 1 else 0
        return _rates_as_factors(training.schedule, series) or _judge_schedule(
            series, numbers, stands, max(10, within)
        )

    def run_keras(self, subject: KerasSubject) -> Answer:
        training = subject.fresh()
        rate = getattr(training.optimizer, "_learning_rate", training.optimizer.learning_rate)
        if not callable(rate):
            value = float(rate.numpy())
            if value == 0:
                return wrong("The learning rate is 0.", ["learning_rate=0"], "Give one.")
            return absent(f"There is no schedule; the learning rate is {value:g}.")
        with users_code("The schedule"):
            series = [float(rate(number)) for number in range(STEPS + 1)]
        numbers = {"first": series[0], "largest": max(series), "last": series[-1]}
        return _judge_schedule(series, numbers | {"steps": len(series)})


def _unused(loop: LoopFacts) -> Answer | None:
    """A failure where a script makes a schedule, and its name occurs nowhere else."""
    place = loop.places.get("schedule", "")
    if loop.scheduled or loop.epochs < 2 or (site := site_of(place)) is None:
        return None
    made = site.around(site.at.lineno)[0]
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    name = getattr(target, "id", getattr(target, "attr", ""))
    code = re.sub(r"#.*", "", "".join(site.lines))
    if not name or len(re.findall(rf"\b{name}\b", code)) != 1:
        return None
    return wrong(
        f"The schedule is never stepped: `{name}` occurs only where it is made.",
        [f"{name}.step() is missing"],
        f"Call {name}.step() after each epoch, or after each batch if it counts batches.",
        place=place,
    )


def _wrong_unit(schedule: Any, loop: LoopFacts) -> Answer | None:
    """A failure where a schedule that counts epochs is stepped by batches, or the reverse."""
    schedule, batches = getattr(schedule, "schedule", schedule), loop.epoch_steps
    epochs, total = (getattr(schedule, name, 0) or 0 for name in ("T_max", "total_steps"))
    kind, place = type(schedule).__name__, loop.places.get("schedule", "")
    if loop.scheduled == "step" and 0 < epochs < batches:
        return wrong(
            f"{kind} is stepped once a batch, and T_max={epochs}: the rate falls to its minimum "
            f"and rises again within each epoch of {batches} batches.",
            ["T_max counts epochs"],
            "Call step() once an epoch, or set T_max to the batches of the whole run.",
            place=place,
        )
    by_epoch = loop.scheduled in ("epoch", "evaluation") and batches > 1
    if by_epoch and total >= 2 * batches and total % batches == 0:
        return wrong(
            f"{kind} counts {total} batches and is stepped once an epoch of {batches} batches: "
            "the run uses only the start of the schedule.",
            ["step() stands in the loop over epochs"],
            "Call step() after each batch.",
            place=place,
        )
    return None


def _state(schedule: Any) -> dict[str, Any]:
    """What torch's schedules keep between steps: this one, or those that its step() closes over."""
    cells = getattr(getattr(type(schedule), "step", None), "__closure__", None) or ()
    parts = [schedule, *(cell.cell_contents for cell in cells)]
    found = [vars(part) for part in parts if isinstance(part, lr_scheduler.LRScheduler)]
    return {f"{n}.{k}": v for n, kept in enumerate(found) for k, v in kept.items() if _plain(v)}


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return isinstance(value, int | float | str | bool)


def _series(training: Training) -> tuple[list[float], bool]:
    """(rates, whether the last thousand steps changed nothing that the schedule keeps)."""
    first = learning_rate(training)
    training.optimizer.step()  # without gradients nothing moves; torch wants it before the schedule
    half = step_schedule(training, STEPS // 2)
    if len(half) < STEPS // 2:
        return [first, *half], False
    middle = _state(training.schedule)
    series = [first, *half, *step_schedule(training, STEPS - len(half))]
    return series, bool(middle) and middle == _state(training.schedule)


def _rates_as_factors(schedule: Any, series: list[float]) -> Answer | None:
    """A failure where the function of a LambdaLR returns the rate itself."""
    schedule = getattr(schedule, "schedule", schedule)
    base, top = getattr(schedule, "base_lrs", [0.0])[0], max(series)
    rising = series[-1] == top > series[0]
    if type(schedule) is not lr_scheduler.LambdaLR or not 0 < base <= MOST_FACTOR or rising:
        return None
    if not math.isclose(top, base * base, rel_tol=0.01):
        return None
    return wrong(
        f"The largest factor of the schedule is {top / base:.3g}, the learning rate itself: the "
        f"rate is never above {top:.3g}.",
        ["the function of LambdaLR returns a rate, which is multiplied by that of the optimizer"],
        "Return the factor, rate / lr; or make the optimizer with lr=1.",
        largest=top,
    )


def _own_steps(subject: TrainingSubject, training: Training) -> Answer:
    """What the learning rate does in the user's own steps, where a schedule may be hidden."""
    patience = Patience(OWN_SECONDS, subject.time_left() / 5)
    series = [learning_rate(training)]
    for number in range(OWN_STEPS):
        subject.step(training, subject.batches[number % len(subject.batches)])
        series.append(learning_rate(training))
        if patience.over:
            break
    steps = len(series) - 1
    if len(set(series)) == 1:
        return unclear(
            f"The learning rate is {series[0]:g}, and {steps} of your own steps leave it there."
        )
    numbers = {"first": series[0], "largest": max(series), "steps": steps}
    return _judge_schedule(series, numbers, within=100)


def _judge_schedule(
    series: list[float], numbers: dict[str, Any], stands: bool = False, within: int = 10
) -> Answer:
    top = max(series)
    if min(series) < -ZERO:
        return Schedule.failed(f"The learning rate becomes negative ({min(series):g}).", **numbers)
    if top <= ZERO or max(series[1:11]) <= ZERO:
        first = next((i for i, rate in enumerate(series) if rate > ZERO), len(series))
        return Schedule.failed(f"The learning rate is 0 for the first {first} steps.", **numbers)
    high = [i for i, rate in enumerate(series) if rate >= 1e-5 * top]
    gone = max(1, high[-1] + 1)
    if gone < min(within + 1, len(series)):
        return Schedule.failed(
            f"The learning rate is below a hundred-thousandth of {top:g} after {gone} "
            "steps, and stays there.",
            **numbers,
        )
    if gone < min(101, len(series)):
        return unclear(
            f"The learning rate is below a hundred-thousandth of {top:g} after {gone} counts of "
            "the schedule: right where it is stepped once an epoch, wrong once a batch.",
            "Call it where your loop does, in train_step, and it is judged there.",
            **numbers,
        )
    still = len(set(series)) == 1 and len(series) > STEPS
    if still and stands:
        return wrong(
            f"The learning rate stays at {top:g} for {STEPS} steps, and the schedule counts none "
            "of them.",
            [
                "step() is called with the same epoch each time",
                "step() of a wrapper does not reach the schedule",
            ],
            "Call step() without an argument, and print the learning rate.",
            **numbers,
        )
    if still:
        return unclear(
            f"The learning rate stays at {top:g} for {STEPS} steps: right if the "
            "schedule counts epochs, or waits longer.",
            **numbers,
        )
    return passed(
        f"The learning rate starts at {series[0]:g}, has its largest value {top:g}, and "
        f"is {series[-1]:g} after {len(series) - 1} steps.",
        **numbers,
    )


FEWEST, ENOUGH, WANTED, MOST_MOMENTUM = 4, 16, 64, 0.5
GHOSTS = ("virtual_batch_size", "ghost_batch_size", "nominal_batch_size")
RANKS = ("num_replicas", "world_size", "num_shards")


class BatchStatistics(Check):
    """Batch norm statistics: their batches and settings, and those that an evaluation uses.

    ## What it does
    Counts the samples per batch, and reads momentum and eps of every batch norm. Compares the
    running statistics of the evaluated model, or copy, with those of the training.

    ## Why is this bad
    A mean of two samples is noise. In torch, momentum 0.99 is the weight of the new batch, so
    evaluation uses the last batch alone.

    ## How it decides
    Fails with fewer than 4 samples per batch, momentum 0 or above 0.5, or eps above 0.1. Fails if a
    ghost batch (`virtual_batch_size`) is not a proper divisor of the device batch. Inconclusive
    from 4 to 15 samples (about 64 are better), and for several ranks without synchronised norms.
    Fails if trained weights, also of an average (EMA, SWA), are evaluated with running statistics
    of the start, or of exactly 0 and 1.

    ## Limits
    Ranks are seen only in the sampler of the loader.
    momentum=None (cumulative mean) passes.
    """

    code = "TRAIN025"
    name = "batch-norm-statistics"
    next_step = "Set momentum=0.1 and eps=1e-5, batches of 32 or more, or use group norm."

    def run(self, subject: TrainingSubject) -> Answer:
        norms = batch_norms(subject.settings.model)
        if not norms:
            return passed("The model has no batch norm.")
        if self.code in subject.watched:
            return subject.watched[self.code]
        whole = subject.whole_batches
        size = median_high(batch_size(batch[1]) for batch in whole)
        momenta = {n: m.momentum for n, m in norms.items() if m.momentum is not None}
        odd = {n: value for n, value in momenta.items() if not 0 < value <= MOST_MOMENTUM}
        wide = [n for n, m in norms.items() if m.eps > 0.1]
        numbers: dict[str, Any] = {"norms": len(norms), "examples": size, "momentum": odd}
        if odd or wide:
            said = f"The eps of {wide[0]} is larger than 0.1." if wide else ""
            for name, momentum in [*odd.items()][:1]:
                said = f"The momentum of {name} is {momentum:g}: the weight of the newest batch."
            cause = "the convention of another framework (there 1 - momentum)"
            return self.failed(said, cause if odd else "eps and momentum exchanged", **numbers)
        # the sub-batch that a ghost batch norm says it takes; 0 without one
        named = [getattr(m, name, 0) for m in norms.values() for name in GHOSTS]
        ghost = max(int(held or 0) for held in named)
        if ghost and (ghost >= size or size % ghost):
            return BatchStatistics.failed(
                f"The ghost batch is {ghost}, and a device gets {size} examples: it must be a "
                "proper part of the device batch.",
                "ghost batch and device batch exchanged",
                **(numbers | {"ghost": ghost}),
            )
        sampler = getattr(subject.settings.loader, "sampler", None)
        ranks = max(int(getattr(sampler, name, 1) or 1) for name in RANKS)
        synced = all("Sync" in type(m).__name__ for m in norms.values())
        if ranks > 1 and not synced:
            return unclear(
                f"Each of {ranks} ranks keeps statistics of its own from {ghost or size} examples "
                "a batch (about 64 are wanted), and a checkpoint of rank 0 holds rank 0's alone.",
                "Average running statistics over ranks before each evaluation and checkpoint, or "
                "SyncBatchNorm.convert_sync_batchnorm(model).",
                **numbers | {"ranks": ranks},
            )
        size = (ghost or size) * (ranks if synced else 1)
        return _judge_size(size, len(norms), any(m.training for m in norms.values()), numbers)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Read the layers; here momentum is the share of what was."""
        layers = [
            x for x in subject.settings.model._flatten_layers() if "BatchNorm" in type(x).__name__
        ]
        if not layers:
            return passed("The model has no batch norm.")
        size = median_high(batch_size(batch[1]) for batch in subject.batches)
        numbers: dict[str, Any] = {"norms": len(layers), "examples": size}
        odd = [x for x in layers if not MOST_MOMENTUM <= x.momentum < 1]
        if odd:
            said = f"The momentum of {odd[0].name} is {odd[0].momentum:g}: the share that a batch "
            said += "leaves of the running statistics."
            causes = ["the convention of torch (there 1 - momentum)"]
            return wrong(said, causes, "Set momentum=0.99 or 0.9.", **numbers)
        if any(x.epsilon > 0.1 for x in layers):
            return self.failed("An epsilon is larger than 0.1.", "epsilon and momentum", **numbers)
        return _judge_size(size, len(layers), any(x.trainable for x in layers), numbers)


def _judge_size(size: int, norms: int, trained: bool, numbers: dict[str, Any]) -> Answer:
    if size < FEWEST and trained:
        return BatchStatistics.failed(
            f"Batch norm estimates its statistics from {size} examples.",
            "batches too small for batch norm",
            **numbers,
        )
    if size < ENOUGH:
        return unclear(
            f"Batch norm has {size} examples a batch; about {WANTED} are wanted.",
            "Take larger batches; where they do not fit, group or layer norm needs none.",
            **numbers,
        )
    return passed(
        f"{norms} batch norms have {size} examples a batch, and {ENOUGH} are enough.", **numbers
    )


MOST = 0.8


class DropoutRate(Check):
    """The rates of dropout modules, and dropout after the last layer.

    ## What it does
    Reads the rate of every dropout module. Looks for zeros in outputs of train mode that eval mode
    does not have.

    ## Why is this bad
    A rate of 0.9 that was meant as the share to keep leaves a tenth. Dropout on logits removes
    classes at random.

    ## How it decides
    Fails with a rate above 0.8. Fails if more than 2% of the outputs are exactly zero in train mode
    only. Fails if dropout called as a function acts in eval mode. Exact.

    ## Limits
    Intended dropout in eval mode (Monte Carlo dropout) fails: skip this check there.
    """

    code = "TRAIN027"
    name = "dropout"
    next_step = "Use a rate of 0.1 to 0.5, and none after the last layer."

    def run(self, subject: TrainingSubject) -> Answer:
        training = subject.fresh()
        always = _active_in_eval_mode(subject, training)
        if always:
            return wrong(
                f"{always} is called as a function and drops in eval mode as well.",
                ["functional.dropout() without training=self.training"],
                "Pass training=self.training, or use nn.Dropout.",
                function=always,
            )
        rates = {
            n: float(m.p)
            for n, m in training.model.named_modules()
            if "Dropout" in type(m).__name__ and hasattr(m, "p")
        }
        return _judge_dropout(subject, rates)

    def run_keras(self, subject: KerasSubject) -> Answer:
        layers = subject.settings.model._flatten_layers()
        rates = {x.name: float(x.rate) for x in layers if "Dropout" in type(x).__name__}
        return _judge_dropout(subject, rates)


def _active_in_eval_mode(subject: TrainingSubject, training: Any) -> str:
    """The name of a dropout function that acts in eval mode; '' for none."""
    tape, inputs = Tape(), subject.batches[0][1]  # taken before: taking them makes steps
    training.model.eval()
    with torch.no_grad(), recording_mode(lambda: tape):
        subject.output(training, inputs)
    training.model.train()
    for call in tape.calls:
        given = dict(zip(("input", "p", "training"), call.args, strict=False)) | call.kwargs
        if "dropout" in call.name and given.get("training", True) and given.get("p", 0.5) > 0:
            return call.name
    return ""


def _judge_dropout(subject: Examined, rates: dict[str, float]) -> Answer:
    high = {name: rate for name, rate in rates.items() if rate > MOST}
    if high:
        name, rate = next(iter(high.items()))
        return DropoutRate.failed(
            f"{name} drops {rate:.0%} of its input.",
            "the share to keep was given as the share to drop",
            rates=high,
        )
    training, inputs = subject.fresh(), subject.batches[0][1]
    zeros = [float((subject.outputs(training, inputs, m) == 0).mean()) for m in (True, False)]
    if zeros[0] > 0.02 and zeros[1] == 0:
        return DropoutRate.failed(
            f"{zeros[0]:.0%} of the outputs are exactly zero in train mode, none in eval mode.",
            "dropout after the last layer",
            zeros=zeros,
        )
    return passed(
        f"{len(rates)} dropout modules, with rates of at most "
        f"{max(rates.values(), default=0.0):g}.",
        rates=rates,
    )
