"""What is read from model, optimizer and schedule, with some steps at most."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from statistics import median_high
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import batch_size, main_tensor
from pipeline_profiler.checks.check import Answer, Check, CheckTable, absent, fault, passed, unclear
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import lr_scheduler, nn, torch
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

ROWS = CheckTable()
GRADIENT_STEPS = 6


@ROWS.row("TRAIN005", "untrained-parameters", torch_only="")
def judge_parameters(subject: Examined) -> Answer:
    """Parameters that are not trained, or not by this optimizer, or twice.

    ## How it decides
    Trains six steps. Fails on parameters without a gradient, or that the optimizer omits, repeats
    or has from another model; on modules and tensors that are unregistered; on a layer that a
    container repeats on its own output; and on a last layer frozen at random. Frozen layers pass if
    no seed changes them. Two optimizers (GAN) count as one: skip this check there.
    """
    judges: list[Any] = [_judge_gradients]
    if isinstance(subject, TrainingSubject):
        judges = [_judge_unheld, _judge_optimizer, _judge_repeated, _judge_gradients]
    answer = Check.judged_by(subject, *judges)
    frozen = None if answer.judgement == "failed" else _judge_frozen(subject)
    return frozen or answer


REMAKE = "Make the optimizer from the parameters of the finished model."


def _judge_unheld(subject: TrainingSubject) -> Answer | None:
    """Fail a module that gradients reach in each step of a loop, and no optimizer holds."""
    if subject.loop is None or subject.loop.unheld is None:
        return None
    kind, place = subject.loop.unheld
    return fault(
        f"No optimizer holds the parameters of {kind}, which gradients reach in each step.",
        "parameters of a loss or head are not given to the optimizer",
        "Give its parameters() to the optimizer too.",
        place,
    )


def _judge_optimizer(subject: TrainingSubject) -> Answer | None:
    """Fail parameters that neither the model nor the optimizer registers, or that it repeats."""
    training = subject.settings
    held = [id(p) for group in training.optimizer.param_groups for p in group["params"]]
    of_loss = learned_by_loss(training)
    own = {id(p) for p in (*training.model.parameters(), *of_loss.values())}
    foreign, twice = sum(number not in own for number in held), len(held) - len(set(held))
    idle = [name for name, p in of_loss.items() if id(p) not in held]
    first, second = (learned_by_loss(subject.fresh(seed)) if idle else {} for seed in OTHER_SEEDS)
    drawn = [name for name in idle if not torch.equal(first[name], second[name])]
    hidden = _unregistered(training.model, held)
    rows = (
        (hidden, f"parameters() leaves out {_few(hidden)}: it is never trained, moved or saved.",
         "a list instead of nn.ModuleList, or a plain tensor instead of nn.Parameter",
         "Use nn.ModuleList, nn.ModuleDict and nn.Parameter, or register_buffer for constants."),
        (drawn, f"The loss has random parameters ({_few(drawn)}) in no optimizer.",
         "the optimizer was made from the model's parameters alone",
         "Give it [*model.parameters(), *loss.parameters()]."),
        (foreign, f"{foreign} parameters of the optimizer are not the model's.",
         "the optimizer was made for another model, or before this model was copied", REMAKE),
        (twice, f"{twice} parameters are in the optimizer twice.",
         "overlapping modules were given to the optimizer", REMAKE),
    )  # fmt: skip
    return Check.first_fault(rows, about="optimizer")


def _unregistered(model: Any, held: list[int]) -> list[str]:
    """Return attributes to be trained that parameters() and the optimizer leave out."""
    known, found = {id(m) for m in model.modules()}, list[str]()
    for owner, module in model.named_modules():
        for key, value in vars(module).items():
            parts = list(value.values()) if isinstance(value, dict) else value
            parts = parts if isinstance(parts, list | tuple) else []
            lost = [part for part in parts if isinstance(part, nn.Module) and id(part) not in known]
            trains = any(p.requires_grad for part in lost for p in part.parameters())
            if isinstance(value, torch.Tensor):
                trains = value.requires_grad and value.is_leaf and id(value) not in held
            found += [f"{owner}.{key}".lstrip(".")] * trains
    return found


def _judge_gradients(subject: Examined) -> Answer:
    """Fail trainable parameters without a gradient, or outside of the optimizer."""
    training, sizes = subject.fresh(), dict[str, float]()
    for number in range(GRADIENT_STEPS):  # a branch that starts at zero has one from the second
        batch = subject.batches[number % len(subject.batches)]
        for name, size in subject.step_with_gradients(training, batch)[1].items():
            sizes[name] = max(sizes.get(name, 0.0), size)
    weights = subject.weights(training)
    if isinstance(subject, TrainingSubject):
        if subject.loop is not None:  # the script's loss may use parameters beside the outputs
            sizes |= {name: 1.0 for name in subject.loop.graded if not sizes.get(name)}
        held = {id(p) for group in training.optimizer.param_groups for p in group["params"]}
        ours = {n for n, p in training.model.named_parameters() if id(p) in held}
        weights = {n: w for n, w in weights.items() if n in ours or n in sizes}  # no later training
        if omitted := [name for name in weights if name not in ours]:
            text = f"{len(omitted)} of {len(weights)} parameters with a gradient are not in the"
            cause = "only some modules were given to the optimizer, or layers were made later"
            return fault(f"{text} optimizer: {_few(omitted)}.", cause, REMAKE, about="optimizer")
    if not weights:
        return unclear("The model has no weights to be trained.")
    missing, total = [name for name in weights if name not in sizes], len(weights)
    zero = [name for name, weight in weights.items() if not sizes.get(name) and weight.ndim > 1]
    if not missing and not zero:
        return passed(f"All {total} parameters to be trained got gradients.")
    kind = "no gradient at all" if missing else "gradients that are exactly zero"
    text = f"{len(missing or zero)} of {total} parameters have {kind}: {_few(missing or zero)}."
    cause = "detach(), .item(), no_grad(), .data or numpy between them and the loss; or their "
    cause += "module is not called, or its output is not used"
    if len(missing) == total:
        cause = "detach() or no_grad() around the loss, or zero_grad() after backward()"
    return fault(text, cause, "Follow the path from these parameters to the loss.")


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + ", ..." * (len(names) > 4)


def _judge_repeated(subject: TrainingSubject) -> Answer | None:
    """Fail a container that holds a layer twice and calls it on its own output."""
    training = subject.fresh()
    for name, container in training.model.named_modules():
        if not isinstance(container, nn.Sequential | nn.ModuleList | nn.ModuleDict):
            continue
        # _modules: children() leaves out what it has named before
        for module, count in Counter(container._modules.values()).items():
            sizes = sum(p.numel() for p in module.parameters())
            if count > 1 and sizes and _feeds_itself(subject, training, module):
                text = f"The {count} layers of {name or type(training.model).__name__} are one"
                text += f" {type(module).__name__} of {sizes:,} weights."
                cause = "[layer] * n, which repeats the reference and not the layer"
                return fault(text, cause, "Make each layer anew: [layer() for _ in range(n)].")
    return None


def _feeds_itself(subject: TrainingSubject, training: Training, module: Any) -> bool:
    """Return whether the second call of a module depends on the output of its first call."""
    calls: list[list[Any]] = []
    note = module.register_forward_hook(lambda _, *parts: calls.append([*map(main_tensor, parts)]))
    try:
        training.model.train()
        subject.forward(training, subject.small[1])
    finally:
        note.remove()
    (_, first), (second, _) = [*calls, [None, None], [None, None]][:2]
    if not all(getattr(tensor, "requires_grad", False) for tensor in (first, second)):
        return False
    return torch.autograd.grad(second.sum(), first, allow_unused=True)[0] is not None


def _judge_frozen(subject: Examined) -> Answer | None:
    """Fail frozen weights that change with the seed: they are not pretrained."""
    model = subject.settings.model
    if isinstance(subject, TrainingSubject):
        rows = [(name, p.requires_grad, p.ndim > 1) for name, p in model.named_parameters()]
    else:
        trained = {w.path for w in model.trainable_variables}
        kernels = [w.path for w in model.weights if w.path.endswith(("kernel", "embeddings"))]
        rows = [(path, path in trained, True) for path in kernels]
    frozen = {name for name, trains, _ in rows if not trains}
    if rows and len(frozen) == len(rows):
        text = f"None of the model's {len(rows)} parameters is to be trained."
        cause = "requires_grad_(False) or trainable = False on all, or no gradient is applied"
        return fault(text, cause, "Freeze some layers only, then make the optimizer.")
    if not frozen:
        return None
    first, second = ([*subject.state(subject.fresh(seed)).values()] for seed in OTHER_SEEDS)
    pairs = zip(subject.state(subject.settings), first, second, strict=True)
    random = {name for name, a, b in pairs if not np.array_equal(a, b)} & frozen
    last = [name for name, _, wide in rows if wide][-1:]
    if {*last} & random:
        text = f"The last layer ({last[0]}) is frozen at random weights."
        cause = "requires_grad_(False), or trainable = False, was set on too much"
        return fault(text, cause, "Freeze the body before the new head is put on.")
    if random or subject.one_start:
        seeds = f"{len(random)} of them change" if random else "none of them changes"
        text = f"{len(frozen)} of {len(rows)} parameters are frozen, and {seeds} with the seed."
        return unclear(text, "Check that the pretrained weights are loaded, if there are any.")
    return None


STEPS = 2000
ZERO = 1e-12
LONG = 20  # epochs of a warm-up
MAX_RATE_FACTOR = 0.1  # a learning rate above it may be what a factor is meant to be


@ROWS.row("TRAIN014", "schedule", torch_only="")
def judge_schedule(subject: Examined) -> Answer:
    """A learning rate that is zero, vanishes, or does not follow its schedule.

    ## How it decides
    Steps the schedule alone 2,000 times, or reads the rates of your steps. Fails if the rate is
    negative, 0 in ten steps, or below 1e-5 of its maximum for good within 10 counts (100 steps, an
    epoch). Fails if rate and state never change, if a LambdaLR returns rates, if a script steps the
    schedule in another unit or never, or if a loaded state of the optimizer replaces the rate.
    """
    if isinstance(subject, KerasSubject):
        return _judge_keras_schedule(subject)
    training, loop = subject.fresh(), subject.loop
    schedule, facts = training.schedule, training.loop or LoopFacts()
    if loop is not None and loop.loaded_rate is not None:
        before, after, place = loop.loaded_rate
        text = f"load_state_dict() of the optimizer turns the rate {before:g} into {after:g}."
        cause = "the state of an optimizer holds its learning rate"
        return fault(text, cause, "Set param_groups[0]['lr'] after the load.", place)
    if schedule is None:  # train_step may hide it
        own = loop.rates if loop is not None and training.train_step is not None else []
        own = own if len(set(own)) > 1 else []
        return _judge_rates(own, within=100) if own else _constant(learning_rate(training))
    if found := _judge_unit(schedule, facts):
        return found
    if "Plateau" in type(schedule).__name__:
        return unclear("The schedule follows a metric, so it cannot be stepped alone.")
    if not isinstance(schedule, lr_scheduler.LRScheduler):
        training = subject.fresh(subject.seed)  # a copy would step what a closure holds
    rates, stands = _stepped(training)
    if facts.scheduled == "epoch" and (rises := int(np.argmax(rates))) >= LONG:
        return unclear(f"The rate is stepped once an epoch, and rises for {rises} epochs.")
    within = facts.epoch_steps if facts.scheduled == "step" and facts.epochs > 1 else 0
    return _judge_rates(rates, stands, max(10, within), training.schedule)


def _judge_keras_schedule(subject: KerasSubject) -> Answer:
    training = subject.fresh()
    rate = getattr(training.optimizer, "_learning_rate", training.optimizer.learning_rate)
    if not callable(rate):
        return _constant(float(rate.numpy()))
    with users_code("The schedule"):
        return _judge_rates([float(rate(number)) for number in range(STEPS + 1)])


def _constant(rate: float) -> Answer:
    if rate:
        return absent(f"There is no schedule; the learning rate is {rate:g}.")
    return fault("The learning rate is 0.", "lr=0 in the optimizer", "Give a learning rate.")


def _judge_unit(schedule: Any, loop: LoopFacts) -> Answer | None:
    """Return a failure if a script never steps its schedule, or in another unit; else None."""
    place = loop.places.get("schedule", "")
    name = _unused_name(loop, place)
    schedule, batches = getattr(schedule, "schedule", schedule), loop.epoch_steps
    epochs, total = (getattr(schedule, name, 0) or 0 for name in ("T_max", "total_steps"))
    kind, each = type(schedule).__name__, loop.scheduled in ("epoch", "evaluation") and batches > 1
    rows = (
        (name, f"The schedule is never stepped: `{name}` occurs only where it is made.",
         f"{name}.step() is missing",
         f"Call {name}.step() after each epoch, or after each batch if it counts batches."),
        (loop.scheduled == "step" and 0 < epochs < batches, f"{kind} is stepped once a batch, and "
         f"T_max={epochs} is less than an epoch ({batches}).", "T_max counts epochs",
         "Call step() once an epoch, or set T_max to the batches of the whole run."),
        (loop.scheduled == "step" and loop.epochs > 1 and _epoch_factor(schedule, batches) < 0.01,
         f"{kind} is stepped once a batch: the learning rate falls to "
         f"{_epoch_factor(schedule, batches):.2g} of its value in each epoch of {batches} batches.",
         "a schedule of epochs that is stepped by batch", "Call step() once an epoch."),
        (each and total >= 2 * batches and total % batches == 0, f"{kind} counts {total} batches, "
         f"and is stepped once an epoch of {batches} batches.",
         "step() stands in the loop over epochs", "Call step() after each batch."),
    )  # fmt: skip
    return Check.first_fault(rows, place)


def _epoch_factor(schedule: Any, batches: int) -> float:
    """Return the factor of the rate after an epoch of a schedule with a gamma, else 1."""
    drops = batches // getattr(schedule, "step_size", 1)
    if hasattr(schedule, "milestones"):
        drops = sum(step <= batches for step in schedule.milestones)
    return float(getattr(schedule, "gamma", 1.0)) ** drops


def _unused_name(loop: LoopFacts, place: str) -> str:
    """Return the name of a schedule that occurs only where it is made, else ''."""
    if loop.scheduled or loop.epochs < 2 or (site := site_of(place)) is None:
        return ""
    made = site.around(site.at.lineno)[0]
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    name = getattr(target, "id", getattr(target, "attr", ""))
    code = re.sub(r"#.*", "", "".join(site.lines))
    return name if name and len(re.findall(rf"\b{name}\b", code)) == 1 else ""


def _counts(schedule: Any) -> list[int]:
    """Return the counters of torch's schedules: of this one, or those in a closure of step()."""
    cells = getattr(getattr(type(schedule), "step", None), "__closure__", None) or ()
    parts = [schedule, *(cell.cell_contents for cell in cells)]
    return [part.last_epoch for part in parts if isinstance(part, lr_scheduler.LRScheduler)]


def _stepped(training: Training) -> tuple[list[float], bool]:
    """Return the rates, and whether the last thousand steps did not move the schedule."""
    rates = [learning_rate(training)]
    training.optimizer.step()  # without gradients nothing moves; torch wants it before the schedule
    rates += step_schedule(training, STEPS // 2)
    middle = _counts(training.schedule)
    rates += step_schedule(training, STEPS // 2 if len(rates) > STEPS // 2 else 0)
    return rates, middle == _counts(training.schedule) != []


def _judge_rates(
    rates: list[float], stands: bool = False, within: int = 10, schedule: Any = None
) -> Answer:
    """Judge rates by step; `stands`: the state stays too; `within`: steps that may not suffice."""
    top, steps = max(rates), len(rates) - 1
    first = next((i for i, rate in enumerate(rates) if rate > ZERO), len(rates))
    gone = max(1, 1 + max(i for i, rate in enumerate(rates) if rate >= 1e-5 * top))
    gone_text = f"The learning rate is below a hundred-thousandth of {top:g} after {gone} steps"
    unit, look = "a wrong unit or warm-up", "Print the learning rate of the first ten steps."
    constant, stays = len(set(rates)) == 1, f"The learning rate stays at {top:g} for {STEPS} steps"
    rows = (
        (min(rates) < -ZERO, f"The learning rate becomes negative ({min(rates):g}).", unit, look),
        (max(rates[1:11]) <= ZERO, f"The learning rate is 0 for the first {first} steps.", unit,
         look),
        (gone < min(within + 1, len(rates)), f"{gone_text}, and stays there.",
         "a schedule of epochs that is stepped by batch", look),
        (_holds_rates(schedule, rates), "The factors of the schedule are rates: the learning rate "
         f"is never above {top:.3g}.", "the function of LambdaLR returns a rate, which multiplies "
         "that of the optimizer", "Return the factor, rate / lr; or make the optimizer with lr=1."),
        (constant and stands and steps == STEPS, f"{stays}, which the schedule does not count.",
         "step() gets the same epoch each time, or a wrapper does not reach the schedule",
         "Call step() without an argument, and print the learning rate."),
    )  # fmt: skip
    if found := Check.first_fault(rows):
        return found
    if gone < min(101, len(rates)):
        text = f"{gone_text}: right for a schedule of epochs, wrong for a schedule of batches."
        return unclear(text, "Call it where your loop does, in train_step, and it is judged there.")
    if constant and steps >= STEPS:
        return unclear(f"{stays}: right if the schedule counts epochs, or waits longer.")
    text = f"The learning rate starts at {rates[0]:g}, reaches {top:g}"
    return passed(f"{text}, and is {rates[-1]:g} after {steps} steps.")


def _holds_rates(schedule: Any, rates: list[float]) -> bool:
    """Return whether the function of a LambdaLR returns the rate itself."""
    schedule = getattr(schedule, "schedule", schedule)
    if type(schedule) is not lr_scheduler.LambdaLR or rates[-1] == max(rates) > rates[0]:
        return False
    base = float(schedule.base_lrs[0])
    return 0 < base <= MAX_RATE_FACTOR and math.isclose(max(rates), base * base, rel_tol=0.01)


MIN_SAMPLES, ENOUGH_SAMPLES, MAX_WEIGHT = 4, 16, 0.5
GHOSTS = ("virtual_batch_size", "ghost_batch_size", "nominal_batch_size")
RANKS = ("num_replicas", "world_size", "num_shards")


@ROWS.row("TRAIN025", "batch-norm-statistics", torch_only="")
def judge_batch_norms(subject: Examined) -> Answer:
    """Batch norm with too small batches, wrong settings, or old statistics.

    ## How it decides
    Fails below 4 samples per batch (inconclusive below 16), with a weight of the new batch of 0 or
    above 0.5 (momentum in torch, 1 - momentum in Keras), or with a ghost batch that does not divide
    the batch. Fails if trained weights, also of an average (EMA, SWA), are evaluated with running
    statistics of the start. Inconclusive for several ranks without synchronised norms.
    """
    model, batches = subject.settings.model, subject.batches
    if isinstance(subject, TrainingSubject):
        batches = subject.whole_batches
        norms = {name: (norm.momentum, norm) for name, norm in batch_norms(model).items()}
    else:
        layers = [x for x in model._flatten_layers() if "BatchNorm" in type(x).__name__]
        norms = {layer.name: (1 - layer.momentum, layer) for layer in layers}
    if not norms:
        return passed("The model has no batch norm.")
    watched: Answer | None = getattr(subject, "watched", {}).get("TRAIN025")
    size = median_high(batch_size(batch[1]) for batch in batches)
    sampler = getattr(subject.settings.loader, "sampler", None)
    ranks = max(int(getattr(sampler, name, 1) or 1) for name in RANKS)
    return watched or _judge_norms(norms, size, ranks)


def _judge_norms(norms: dict[str, tuple[float | None, Any]], size: int, ranks: int) -> Answer:
    """Judge norms, (weight of the newest batch, layer) by name, for batches of `size` samples."""
    layers = [layer for _, layer in norms.values()]
    # the sub-batch that a ghost batch norm says it takes; 0 without one
    ghost = max(int(getattr(layer, name, 0) or 0) for layer in layers for name in GHOSTS)
    name, weight = next(
        ((name, w) for name, (w, _) in norms.items() if w is not None and not 0 < w <= MAX_WEIGHT),
        ("", 0),
    )
    each, trains = (
        ghost or size,
        any(getattr(x, "training", getattr(x, "trainable", True)) for x in layers),
    )
    split = ranks > 1 and not all("Sync" in type(layer).__name__ for layer in layers)
    action = "Set momentum=0.1 (Keras: 0.99), and take batches of 32; or use group norm."
    rows = (
        (name, f"The newest batch has the weight {weight:g} in the statistics of {name}.",
         "the convention of another framework (there 1 - momentum)", action),
        (ghost and (ghost >= size or size % ghost), f"The ghost batch is {ghost}, no proper part "
         f"of {size} samples of a device.", "ghost batch and device batch exchanged", action),
        (each * ranks < MIN_SAMPLES and trains and not split, "Batch norm estimates its statistics "
         f"from {each * ranks} samples.", "batches too small for batch norm", action),
    )  # fmt: skip
    if failure := Check.first_fault(rows):
        return failure
    if split:
        text = f"Each of {ranks} ranks has its own statistics, from {each} samples."
        return unclear(text, "Average them before each checkpoint, or use SyncBatchNorm.")
    if each * ranks < ENOUGH_SAMPLES:
        return unclear(f"Batch norm has {each * ranks} samples a batch; about 64 are wanted.")
    return passed(f"{len(norms)} batch norms have {each * ranks} samples a batch.")
