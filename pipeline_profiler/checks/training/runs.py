"""Trainings that are run: on one batch, for some steps, twice, and after saving and loading."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import digest_of, links_examples, map_nested
from pipeline_profiler.checks.caught_tape import leaves
from pipeline_profiler.checks.check import (
    Answer,
    Check,
    CheckTable,
    Nearness,
    absent,
    fault,
    passed,
    unclear,
)
from pipeline_profiler.checks.keras_subject import Examined
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience, UsersError, seed_everything, users_code
from pipeline_profiler.checks.user_training import SMALL_BATCH, Training

ROWS = CheckTable()
BATCH_STEPS, QUICK_EVERY = 400, 20
RAMP = 20  # steps in which the largest rate of a schedule is reached
ENOUGH = 0.9  # of the way from the first loss to the least loss
LEARNS = 0.5  # of the way to 0, for a loss of unknown least value
BATCH_SECONDS = 20.0

Progress = list[tuple[float, float | None]]  # see _learn


@ROWS.row("TRAIN003", "batch-not-learned", torch_only="", nearness=Nearness.SYMPTOM)
def judge_one_batch(subject: Examined) -> Answer:
    """A batch of 16 that the training cannot memorise.

    ## How it decides
    Trains up to 400 steps. Passes if 90% of the way to the lowest loss of free outputs is done, or
    all predictions are right. Inconclusive if 200 more steps at the last pace suffice, labels are
    equal, or the lowest loss is unknown. Else tries Adam at 0.001. Strong dropout or augmentation
    in the step slows the training: switch them off for this check.
    """
    if links_examples(subject.batches[0][1]):
        return absent("The examples are nodes of a graph, which cannot be cut to a few.")
    training, alone = subject.held(RAMP), subject.small_alone if subject.takes_tensor else None
    least = 0.0 if alone is None else alone.best_outputs[0]
    least = least if math.isfinite(least) else 0.0
    first = subject.measured(training, subject.small, mode=True)
    progress = _learn(subject, training, first, least)
    answer, why = _judge_learned(subject, training, progress, first, least), ""
    kind, share = subject.task.kind, progress[-1][0]
    # of a loss of unknown kind, or a likelihood, the least value is that of noise by heart
    noise = kind == "unknown" or (kind == "regression" and subject.is_likelihood)
    if alone is None:
        why = "the least value of this loss is unknown" if share > LEARNS else ""
    elif subject.loss_alone.bottomless:
        why = "this loss falls without end, so there is no least value"
    elif noise and first - share * (first - least) < alone.constant:
        why = "that is better than any constant output, and the share of noise is unknown"
    if why and answer.judgement == "failed":
        answer = unclear(f"{answer.sentence[:-1]}; but {why}.", **answer.evidence)
    return subject.weighed(answer)


def _learn(subject: Examined, training: Training, first: float, least: float) -> Progress:
    """Return (share of the way to the least loss, share of hits) after every 20 steps."""
    patience, progress = Patience(BATCH_SECONDS, max(3.0, subject.time_left() / 4)), Progress()
    best, share, agree = math.inf, 0.0, None
    while not patience.over and len(progress) < BATCH_STEPS // QUICK_EVERY:
        for _ in range(QUICK_EVERY):
            subject.step(training, subject.small)
        both = [subject.measured(training, subject.small, mode) for mode in (False, True)]
        best = min(best, *(v for v in both if math.isfinite(v)), math.inf)
        if subject.task.kind == "classes":
            agree = max(float(_hits(subject, training, mode)[1].mean()) for mode in (False, True))
        if math.isfinite(best) and math.isfinite(first):
            share = 1.0 if first <= least else (first - best) / (first - least)
        progress.append((share, agree))
        if share >= ENOUGH or agree == 1.0:
            break
    return progress


def _hits(subject: Examined, training: Training, mode: bool = False) -> tuple[Any, Any]:
    """Return the predicted classes of the small batch, and where they are the labels."""
    found = subject.outputs(training, subject.small[1], mode).argmax(subject.task.axis)
    wanted = subject.small_labels
    equal = (found == wanted)[wanted >= 0]
    return found, equal if equal.size else np.zeros(1)


def _judge_learned(
    subject: Examined, training: Training, progress: Progress, first: float, least: float
) -> Answer:
    (share, agree), steps = progress[-1], QUICK_EVERY * len(progress)
    text = f"After {steps} steps on 16 examples, {share:.0%} of the way to the least loss is done"
    if agree is not None:
        text += f", and {agree:.0%} of the predictions equal the labels"
    if share >= ENOUGH or agree == 1.0:
        if agree is not None and len(np.unique(subject.small_labels)) == 1:
            return unclear(f"{text}; but the labels are equal, so a constant is right.")
        return passed(f"{text}.")
    if steps < BATCH_STEPS:
        alone = "Run it alone: --only TRAIN003 --seconds 600."
        return unclear(f"{text}; the time allowed no more steps.", alone)
    halfway = progress[len(progress) // 2 - 1][0]
    if 2 * share - halfway >= ENOUGH:  # half as many more would do, at the last half's pace
        return unclear(f"{text}; it is on its way, and needs more steps than these.")
    action = "Fix this first: the results of later checks depend on it."
    if subject.task.kind == "classes":
        rows = (subject.small_labels, _hits(subject, training)[0])
        labels, found = (" ".join(map(str, row.flatten()[:SMALL_BATCH])) for row in rows)
        action = f"{action} Labels: {labels}; predictions: {found}."
    other = subject.with_adam()
    with_adam = 0.0 if other is None else _learn(subject, other, first, least)[-1][0]
    cause = "a cut graph or a wrong loss (see the checks above), or too little capacity"
    cause = "the learning rate or the optimizer's settings" if with_adam >= ENOUGH else cause
    text += f"; with Adam at 0.001 it is {with_adam:.0%}."
    return fault(text, cause, action, share_with_adam=round(with_adam, 4))


FALL_STEPS, MIN_FALL_STEPS, FALL_SECONDS = 80, 40, 12.0
BEYOND = (2, 4, 8, 16)  # times as far as training moved the outputs
FASTER = math.sqrt(2)  # a power p makes the slope 2^(p-1) times as steep with each doubling
T_999 = 3.7  # two-sided 99.9 % with some 20 batches


@ROWS.row("TRAIN015", "loss-does-not-fall", torch_only="", nearness=Nearness.SYMPTOM)
def judge_fall(subject: Examined) -> Answer:
    """A training loss that does not fall, or that has no minimum.

    ## How it decides
    Trains up to 80 steps on the first batches. Fails if the mean paired change is above zero. Fails
    if it is not below zero at 99.9%, and less than 1% of the first loss was gained. Fails if the
    loss falls ever faster along the line from the first outputs to the last outputs.
    """
    training, start = subject.fresh(), None
    if isinstance(subject, TrainingSubject):
        seed_everything(subject.seed)  # a model may draw numbers
        start = subject.evaluated(training, subject.batches[0])
    answer = _judge_fall(subject, training)
    if answer.judgement == "passed" and isinstance(subject, TrainingSubject):
        answer = _without_minimum(subject, training, start) or answer
    return subject.weighed(answer)


def _judge_fall(subject: Examined, training: Training) -> Answer:
    batches, number = subject.batches, 0
    before = [subject.measured(training, b, mode=True) for b in batches]
    patience = Patience(FALL_SECONDS, max(2.0, subject.time_left() / 5))
    while number < FALL_STEPS and not patience.over:
        number += 1
        subject.step(training, batches[number % len(batches)])
    after = [min(subject.measured(training, b, mode) for mode in (True, False)) for b in batches]
    first, last, gains = float(np.mean(before)), float(np.mean(after)), np.subtract(before, after)
    text = f"The loss goes from {first:.4g} to {last:.4g} in {number} steps on {len(batches)}"
    spread = T_999 * float(np.std(gains, ddof=1)) / math.sqrt(len(gains)) if gains[1:].any() else 0
    little = first - last < 0.01 * abs(first)
    if number < MIN_FALL_STEPS and little:
        return unclear(f"{text} batches; the time allowed no more steps.")
    uncertain = little and first - last - spread <= 0.001 * abs(first)
    if math.isfinite(last) and last < first and not uncertain:
        return passed(f"{text} batches.")
    cause = "a cause listed before this one, or a learning rate far too low or too high"
    action = "Fix what is listed above; else try the learning rate times 10 and by 10."
    return fault(f"{text} batches.", cause, action)


def _without_minimum(subject: TrainingSubject, training: Training, start: Any) -> Answer | None:
    """Return a failure if the loss has no minimum where training goes, else None."""
    seed_everything(subject.seed)
    end, targets = subject.evaluated(training, subject.batches[0]), subject.batches[0][2]
    training.model.train()
    losses = list[float]()
    try:
        with torch.no_grad():
            for times in (1, *BEYOND):
                outputs = _extrapolated(start, end, times)
                losses.append(float(subject.loss_of(training, outputs, targets)))
    except (UsersError, TypeError, ValueError, RuntimeError, StopIteration):  # of another form
        return None
    if not _bottomless(losses):
        return None
    text = f"The loss falls to {losses[0]:.4g}, and to {losses[-1]:.4g} with outputs"
    text += f" {BEYOND[-1]} times as far: the loss has no least value."
    cause = "a term of the loss has the wrong sign, or makes a distance large that nothing bounds"
    return fault(text, cause, "Print the terms of the loss, and see which of them falls.")


def _extrapolated(start: Any, end: Any, times: float) -> Any:
    """Return the outputs on the line from start to end, `times` as far as the end."""
    firsts = (tensor for _, tensor in leaves(start))

    def beyond(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return map_nested(value, beyond)
        first = next(firsts)
        return first + times * (value - first) if value.is_floating_point() else value

    return beyond(end)


def _bottomless(losses: list[float]) -> bool:
    """Return whether the loss at 1, 2, 4, ... times falls by a power of the distance above 1.5."""
    if any(math.isnan(loss) or loss == math.inf for loss in losses):
        return False
    finite = [loss for loss in losses if math.isfinite(loss)]
    slopes = [(a - b) / 2**n for n, (a, b) in enumerate(itertools.pairwise(finite))]
    last = slopes[-3:]
    if len(last) < 3 or last[0] <= 0:
        return len(finite) < len(losses) and bool(last) and last[-1] > 0
    return all(b > FASTER * a for a, b in itertools.pairwise(last))


SEED_STEPS = 4
SEED_NEAR = 1e-3  # relative; sums in another order on a GPU stay below


@ROWS.row("TRAIN008", "not-deterministic", torch_only="", nearness=Nearness.EFFECT)
def judge_determinism(subject: Examined) -> Answer:
    """A training that differs between runs with the same seeds.

    ## How it decides
    Creates the training twice with one seed, and trains four steps on the same batches. Fails if
    the first weights differ, or losses differ by more than a thousandth. Inconclusive if the script
    sets no seed, or draws random numbers before it sets one.
    """
    states, losses = [], []
    for _ in range(2):
        training = subject.fresh(subject.seed)
        states.append(list(subject.state(training).values()))
        subject.batches  # noqa: B018 - taken before seeding: loading draws numbers
        seed_everything(subject.seed)
        losses.append(subject.steps(training, SEED_STEPS))
    same = all(np.array_equal(a, b) for a, b in zip(*states, strict=True))
    apart = _apart(*losses)
    if not same or apart > SEED_NEAR:
        what = "losses differ" if same else "the first weights differ, and losses"
        text = f"After the same seed {what} by {apart:.1%} at most."
        cause = "a generator without a seed, the clock, or an object's address"
        return fault(text, cause, "Seed every generator; look for default_rng() and time().")
    text = f"agree {f'to {apart:.0e}' if apart else 'to the last bit'} over {SEED_STEPS} steps"
    if subject.unseeded:
        subject.notes.append(subject.unseeded)
    unseeded = Check.without_seed(subject, f"two trainings {text}")
    return unseeded or passed(f"Two trainings with one seed {text}.")


def _apart(ours: list[float], theirs: list[float]) -> float:
    """Return the largest relative difference; two NaN are equal."""
    pairs = zip(ours, theirs, strict=True)
    return max(abs(a - b) / (abs(a) + 1e-9) if a == a or b == b else 0.0 for a, b in pairs)


BEFORE, AFTER = 3, 3  # steps before the checkpoint and after it
RESUME_NEAR = 1e-4  # relative; on a CPU the losses agree to the last bit
PARTS = ("model", "optimizer", "schedule", "loss")
MAX_NAMED, MAX_ACCUMULATED = 5, 16  # attributes; steps between two updates


@ROWS.row("TRAIN032", "resume-differs", nearness=Nearness.EFFECT)
def judge_resume(subject: TrainingSubject) -> Answer:
    """A checkpoint after which the training continues differently.

    ## How it decides
    Trains three steps (more with accumulation), saves the state_dict() of model, optimizer,
    schedule and loss, and trains three more; repeats these with new objects that load the file.
    Fails if a loss differs by more than 1e-4, the state does not load, or a loader with
    state_dict() continues elsewhere. What your own code saves is not read.
    """
    subject.batches  # noqa: B018 - taken before seeding: loading draws numbers
    training = subject.fresh()
    head = _train(subject, training, 0, BEFORE - 1)
    for _ in range(MAX_ACCUMULATED):  # nobody saves half of a gradient
        before = [p.detach().clone() for p in training.model.parameters()]
        head += _train(subject, training, len(head), 1)
        if not all(map(torch.equal, before, training.model.parameters())):
            break
    first = len(head)
    whole, resumed = _train(subject, subject.fresh(), 0, first + AFTER), subject.fresh()
    action = "Put what differs into a buffer, or into state_dict(); then resume and compare."
    cause = "an attribute that is no buffer, or state in a closure or a global variable"
    try:
        saved = _transfer_state(training, resumed)
    except UsersError as error:
        return fault(f"The checkpoint does not load: {error}", cause, action)
    ours, theirs = _attributes(training), _attributes(resumed)
    lost = [name for name, digest in ours.items() if digest != theirs.get(name)]
    tail, again = (_train(subject, made, first, AFTER) for made in (training, resumed))
    if _apart(head + tail, whole) > RESUME_NEAR:
        return unclear("Uninterrupted trainings differ too.", "Fix TRAIN008 first.")
    apart = _apart(tail, again)
    if apart > RESUME_NEAR:
        text = f"After loading, the losses of {AFTER} steps differ by {apart:.2g} of their size."
        text += f" What differs: {', '.join(lost[:MAX_NAMED])}." * bool(lost)
        return fault(text, cause, action, apart=apart)
    if not _loader_continues(subject):
        text = "After load_state_dict() the loader does not continue with the next batch."
        return fault(text, "the position is not in its state_dict()", action, apart=apart)
    text = f"After saving and loading {', '.join(saved)}, {AFTER} steps give the same losses"
    return passed(f"{text}. A loader without state_dict() starts an epoch anew.", apart=apart)


def _train(subject: TrainingSubject, training: Training, first: int, count: int) -> list[float]:
    losses = []
    for number in range(first, first + count):
        seed_everything(subject.seed + number)  # each step draws alike, whatever ran before it
        losses.append(subject.step(training, subject.batches[number % len(subject.batches)]))
    return losses


def _transfer_state(source: Training, target: Training) -> list[str]:
    """Save the state_dict() of each part to a file, load it; return the names of the parts."""
    with tempfile.TemporaryDirectory(prefix="resume-check-") as folder:
        file = Path(folder) / "checkpoint.pt"
        parts = {name: getattr(source, name) for name in PARTS}
        with users_code("state_dict()"):
            state = {n: p.state_dict() for n, p in parts.items() if hasattr(p, "state_dict")}
            torch.save(state, file)
        with users_code("load_state_dict()"):
            state = torch.load(file, weights_only=False, map_location="cpu")  # written just now
            for name, values in state.items():
                getattr(target, name).load_state_dict(values)
    return [name for name, values in state.items() if values]


def _attributes(training: Training) -> dict[str, str]:
    """Return digests of learning rates, and of tensors and numbers that parts hold, by name."""
    parts = {"optimizer": training.optimizer, "schedule": training.schedule}
    for name in ("model", "loss"):
        part = getattr(training, name)
        if isinstance(part, torch.nn.Module):
            parts |= {f"{name}.{n}" if n else name: m for n, m in part.named_modules()}
    rates = [group.get("lr") for group in training.optimizer.param_groups]
    return {"the learning rate": str(rates)} | {
        f"{name}.{key}": digest_of(value)
        for name, part in parts.items()
        for key, value in getattr(part, "__dict__", {}).items()
        if isinstance(value, torch.Tensor | int | float | str) and key != "training"
    }


def _loader_continues(subject: TrainingSubject) -> bool:
    """Return whether a loader with state_dict() continues with the next batch; True without one."""
    loader = subject.settings.loader
    try:  # what accelerate prepares has the method, and works only with a stateful loader inside
        loader.state_dict()
    except (Exception, SystemExit):  # noqa: BLE001 - whatever it raises, there is no state
        return True
    with users_code("The loader's state_dict()"):
        seed_everything(subject.seed)
        iterator = iter(loader)
        next(iterator, None)
        state = loader.state_dict()
        expected = next(iterator, None)
        loader.load_state_dict(state)
        found = next(iter(loader), None)
    return expected is None or digest_of(expected) == digest_of(found)
