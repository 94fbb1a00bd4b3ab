"""The same training again: with the same seed, and after it was saved and loaded."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import UsersError, seed_everything, users_code
from pipeline_profiler.checks.user_training import Training

STEPS = 4
SEED_NEAR = 1e-3  # relative; sums in another order on a GPU stay below


class Determinism(Check):
    """A training that differs between runs with the same seeds.

    ## What it does
    Creates the training twice with one seed and compares the weights. Trains both on the same
    batches for four steps and compares the losses.

    ## Why is this bad
    If runs differ by an unknown amount, they cannot show the effect of a change.

    ## How it decides
    Fails if the first weights differ, or losses differ by more than a thousandth. GPU rounding is
    smaller. Inconclusive if the script sets no seed, or draws random numbers before it sets one.

    ## What to do
    Seed random, numpy and torch before you create the model. Use no generator without a seed.

    ## Limits
    Differences between processes (hash order) and slow drift over many steps are not seen.
    """

    code = "TRAIN008"
    name = "not-deterministic"
    nearness = Nearness.EFFECT

    def run(self, subject: Examined) -> Answer:
        states, losses = [], []
        for _ in range(2):
            training = subject.fresh(subject.seed)
            states.append(list(subject.state(training).values()))
            subject.batches  # noqa: B018 - taken before seeding: loading draws numbers
            seed_everything(subject.seed)
            losses.append(subject.steps(training, STEPS))
        same = all(np.array_equal(a, b) for a, b in zip(*states, strict=True))
        apart = [abs(a - b) / (abs(a) + 1e-9) for a, b in zip(*losses, strict=True)]
        numbers: dict[str, Any] = {"equal_weights": same, "largest_difference": max(apart)}
        if not same or max(apart) > SEED_NEAR:
            what = "the losses differ" if same else "the first weights differ already"
            at = next((i for i, d in enumerate(apart) if d > SEED_NEAR), 0)
            return wrong(
                f"After the same seed {what} (by {max(apart):.1%} at most, from step {at + 1} on).",
                [
                    "a generator that takes its seed from the system"
                    if same
                    else "weights drawn from a generator that is not torch's and not seeded",
                    "the clock, or an object's address, decides something",
                ],
                "Seed every generator; look for default_rng() and time.time().",
                **numbers,
            )
        exact = "to the last bit" if max(apart) == 0 else f"to {max(apart):.0e}"
        agree = f"agree {exact} over {STEPS} steps"
        if subject.unseeded:
            subject.notes.append(subject.unseeded)
        return self.without_seed(subject, f"two trainings {agree}", **numbers) or passed(
            f"Two trainings with one seed {agree}.", **numbers
        )

    run_keras = run


BEFORE, AFTER = 3, 3  # steps before the checkpoint and after it
RESUME_NEAR = 1e-4  # relative; on a CPU the losses agree to the last bit
PARTS = ("model", "optimizer", "schedule", "loss")
NO_PLACE = "The loader has no state_dict(): save at the end of an epoch."
MOST_NAMED = 5
MOST_ACCUMULATED = 16  # steps between two updates


class Resume(Check):
    """A checkpoint after which the training continues differently.

    ## What it does
    Trains three steps (more with accumulation), saves the state_dict() of model, optimizer,
    schedule and loss, and trains three more. Repeats these with new objects that load the file,
    with the same seeds. Compares the next batch of a loader with state_dict() too.

    ## Why is this bad
    A resumed run becomes another run: the loss jumps, the learning rate restarts, or averages are
    lost.

    ## How it decides
    Fails if a loss after loading differs by more than 1e-4 of its size, or the state does not load.
    Fails if the loader continues elsewhere. Names the differences: learning rates, and module
    attributes without state_dict(). Inconclusive if uninterrupted trainings differ too (TRAIN008).

    ## What to do
    Use `register_buffer` for changing tensors and `get_extra_state` for other values. Save
    optimizer and schedule with the model.

    ## Limits
    Saves what state_dict() returns, not what your code saves. All objects are in one process, so
    differences between processes (hash order) are not seen.
    """

    code = "TRAIN032"
    name = "resume-differs"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        batches = subject.batches  # taken before seeding: loading draws numbers
        training = subject.fresh()
        head = _train_to_an_update(subject, training, batches)
        first = len(head)
        whole = _train(subject, subject.fresh(), batches, 0, first + AFTER)
        with tempfile.TemporaryDirectory(prefix="resume-check-") as folder:
            file = Path(folder) / "checkpoint.pt"
            saved = _save(training, file)
            resumed = subject.fresh()
            try:
                _load(resumed, file)
            except UsersError as error:
                return _failed(f"The checkpoint does not load: {error}", [], {})
        lost = _lost(training, resumed)
        rates = [
            [float(group.get("lr", 0.0)) for group in made.optimizer.param_groups]
            for made in (training, resumed)
        ]
        tail = _train(subject, training, batches, first, AFTER)
        again = _train(subject, resumed, batches, first, AFTER)
        numbers: dict[str, Any] = {"saved": saved, "uninterrupted": tail, "resumed": again}
        if _apart(head + tail, whole) > RESUME_NEAR:
            return unclear(
                "Two trainings that are not interrupted differ already: TRAIN008 says why.",
                "Make the training deterministic first.",
                **numbers,
            )
        numbers["apart"] = _apart(tail, again)
        if numbers["apart"] > RESUME_NEAR:
            if rates[0] != rates[1]:
                lost = [f"the learning rate ({rates[0]} was {rates[1]} after loading)", *lost]
            pairs = zip(tail, again, strict=True)
            at = next(i for i, (a, b) in enumerate(pairs) if _apart([a], [b]) > RESUME_NEAR)
            return _failed(
                f"After loading the loss of step {first + at + 1} is {again[at]:.6g}, and "
                f"{tail[at]:.6g} without the interruption.",
                lost,
                numbers,
            )
        return _with_loader(subject, numbers)


def _train(
    subject: TrainingSubject, training: Training, batches: list[Any], first: int, count: int
) -> list[float]:
    losses = []
    for number in range(first, first + count):
        seed_everything(subject.seed + number)  # each step draws alike, whatever ran before it
        losses.append(subject.step(training, batches[number % len(batches)]))
    return losses


def _train_to_an_update(
    subject: TrainingSubject, training: Training, batches: list[Any]
) -> list[float]:
    """Three steps, and more until one changed the weights: nobody saves half of a gradient."""
    losses = _train(subject, training, batches, 0, BEFORE - 1)
    for _ in range(MOST_ACCUMULATED):
        before = [p.detach().clone() for p in training.model.parameters()]
        losses += _train(subject, training, batches, len(losses), 1)
        after = training.model.parameters()
        if any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)):
            break
    return losses


def _save(training: Training, file: Path) -> list[str]:
    """Write what has a state_dict(); returns the names of the parts."""
    parts = {name: getattr(training, name) for name in PARTS}
    with users_code("state_dict()"):
        state = {n: p.state_dict() for n, p in parts.items() if hasattr(p, "state_dict")}
        torch.save(state, file)
    return [name for name, held in state.items() if held]


def _load(training: Training, file: Path) -> None:
    with users_code("load_state_dict()"):
        state = torch.load(file, weights_only=False, map_location="cpu")  # written just now
        for name, held in state.items():
            getattr(training, name).load_state_dict(held)


def _apart(ours: list[float], theirs: list[float]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return max(abs(a - b) / (abs(a) + 1e-9) if a == a or b == b else 0.0 for a, b in pairs)


def _lost(before: Training, after: Training) -> list[str]:
    """Names of attributes that differ after loading: tensors and numbers of modules and parts."""
    ours, theirs = _attributes(before), _attributes(after)
    return [name for name, value in ours.items() if not _same(value, theirs.get(name))]


def _attributes(training: Training) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name in ("model", "loss"):
        part = getattr(training, name)
        if isinstance(part, torch.nn.Module):
            parts |= {f"{name}.{n}" if n else name: m for n, m in part.named_modules()}
    parts |= {"optimizer": training.optimizer, "schedule": training.schedule}
    return {
        f"{name}.{key}": value
        for name, part in parts.items()
        for key, value in getattr(part, "__dict__", {}).items()
        if isinstance(value, torch.Tensor | int | float | str) and key != "training"
    }


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, torch.Tensor) or isinstance(theirs, torch.Tensor):
        both = isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)
        return both and ours.shape == theirs.shape and bool(torch.equal(ours, theirs))
    return bool(ours == theirs or (ours != ours and theirs != theirs))


def _with_loader(subject: TrainingSubject, numbers: dict[str, Any]) -> Answer:
    """The verdict on the loader's place, where it knows one."""
    agreed = (
        f"After saving and loading {', '.join(numbers['saved'])}, {AFTER} steps give the losses of "
        "the training that was not interrupted"
    )
    loader = subject.settings.loader
    try:  # what accelerate prepares has the method, and a place only with a stateful loader inside
        state = loader.state_dict()
    except (Exception, SystemExit):  # noqa: BLE001 - whatever it raises, there is no place
        state = None
    if state is None or not hasattr(loader, "load_state_dict"):
        return passed(f"{agreed}. {NO_PLACE}", loader="no state", **numbers)
    with users_code("The loader's state_dict()"):
        seed_everything(subject.seed)
        iterator = iter(loader)
        next(iterator, None)
        state = loader.state_dict()
        expected = next(iterator, None)
        loader.load_state_dict(state)
        got = next(iter(loader), None)
    if expected is None or digest_of(expected) == digest_of(got):
        return passed(f"{agreed}, and the loader goes on with the next batch.", **numbers)
    return _failed(
        "After load_state_dict() the loader does not go on with the batch that came next.",
        ["the loader's position"],
        numbers,
    )


def _failed(text: str, lost: list[str], numbers: dict[str, Any]) -> Answer:
    named = ", ".join(lost[:MOST_NAMED])
    causes = [
        "an attribute that changes and is no buffer",
        "a part whose state_dict() leaves something out",
        "state in a closure or a global variable",
    ]
    return wrong(
        f"{text} What differs: {named}." if named else text,
        causes,
        "Put what differs into a buffer, or into state_dict(); then resume once and compare.",
        differs=lost[:20],
        **numbers,
    )
