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

    ## How it decides
    Creates the training twice with one seed, and trains four steps on the same batches. Fails if
    the first weights differ, or losses differ by more than a thousandth. Inconclusive if the script
    sets no seed, or draws random numbers before it sets one.

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
        apart = _apart(*losses)
        if not same or apart > SEED_NEAR:
            what = "the losses differ" if same else "the first weights differ already"
            source = "weights drawn from a generator that is not torch's and not seeded"
            source = "a generator that takes its seed from the system" if same else source
            return wrong(
                f"After the same seed {what} (by {apart:.1%} at most).",
                [source, "the clock, or an object's address, decides something"],
                "Seed every generator; look for default_rng() and time.time().",
            )
        text = f"agree {f'to {apart:.0e}' if apart else 'to the last bit'} over {STEPS} steps"
        if subject.unseeded:
            subject.notes.append(subject.unseeded)
        unseeded = self.without_seed(subject, f"two trainings {text}")
        return unseeded or passed(f"Two trainings with one seed {text}.")

    run_keras = run


def _apart(ours: list[float], theirs: list[float]) -> float:
    """Return the largest relative difference; two NaN are equal."""
    pairs = zip(ours, theirs, strict=True)
    return max(abs(a - b) / (abs(a) + 1e-9) if a == a or b == b else 0.0 for a, b in pairs)


BEFORE, AFTER = 3, 3  # steps before the checkpoint and after it
RESUME_NEAR = 1e-4  # relative; on a CPU the losses agree to the last bit
PARTS = ("model", "optimizer", "schedule", "loss")
MOST_NAMED = 5
MOST_ACCUMULATED = 16  # steps between two updates


class Resume(Check):
    """A checkpoint after which the training continues differently.

    ## How it decides
    Trains three steps (more with accumulation), saves the state_dict() of model, optimizer,
    schedule and loss, and trains three more. Repeats these with new objects that load the file.
    Fails if a loss after loading differs by more than 1e-4, the state does not load, or a loader
    with state_dict() continues elsewhere. Names learning rates and attributes that differ.

    ## Limits
    Saves what state_dict() returns, not what your code saves, and in one process. Inconclusive if
    uninterrupted trainings differ too (TRAIN008).
    """

    code = "TRAIN032"
    name = "resume-differs"
    nearness = Nearness.EFFECT
    causes = (
        "an attribute that changes and is no buffer",
        "a part whose state_dict() leaves something out",
        "state in a closure or a global variable",
    )
    next_step = "Put what differs into a buffer, or into state_dict(); then resume and compare."

    def run(self, subject: TrainingSubject) -> Answer:
        subject.batches  # noqa: B018 - taken before seeding: loading draws numbers
        training = subject.fresh()
        head = _train(subject, training, 0, BEFORE - 1)
        for _ in range(MOST_ACCUMULATED):  # nobody saves half of a gradient
            before = [p.detach().clone() for p in training.model.parameters()]
            head += _train(subject, training, len(head), 1)
            if not all(map(torch.equal, before, training.model.parameters())):
                break
        first = len(head)
        whole = _train(subject, subject.fresh(), 0, first + AFTER)
        resumed = subject.fresh()
        try:
            saved = _transfer_state(training, resumed)
        except UsersError as error:
            return self.failed(f"The checkpoint does not load: {error}")
        ours, theirs = _attributes(training), _attributes(resumed)
        lost = [name for name, value in ours.items() if not _same(value, theirs.get(name))]
        tail, again = (_train(subject, made, first, AFTER) for made in (training, resumed))
        if _apart(head + tail, whole) > RESUME_NEAR:
            return unclear(
                "Two trainings that are not interrupted differ already: TRAIN008 says why.",
                "Make the training deterministic first.",
            )
        apart = _apart(tail, again)
        if apart > RESUME_NEAR:
            differs = f" What differs: {', '.join(lost[:MOST_NAMED])}." if lost else ""
            return self.failed(
                f"After loading, the losses of {AFTER} steps differ by {apart:.2g} of their size "
                f"from a training without the interruption.{differs}",
                apart=apart,
            )
        text = f"After saving and loading {', '.join(saved)}, {AFTER} steps give the same losses"
        return _judge_loader(subject, text, apart)


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


def _attributes(training: Training) -> dict[str, Any]:
    """Return learning rates, and tensors and numbers that modules and parts hold, by name."""
    parts = {"optimizer": training.optimizer, "schedule": training.schedule}
    for name in ("model", "loss"):
        part = getattr(training, name)
        if isinstance(part, torch.nn.Module):
            parts |= {f"{name}.{n}" if n else name: m for n, m in part.named_modules()}
    rates = [group.get("lr") for group in training.optimizer.param_groups]
    return {"the learning rate": str(rates)} | {
        f"{name}.{key}": value
        for name, part in parts.items()
        for key, value in getattr(part, "__dict__", {}).items()
        if isinstance(value, torch.Tensor | int | float | str) and key != "training"
    }


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return ours.shape == theirs.shape and bool(torch.equal(ours, theirs))
    if isinstance(ours, torch.Tensor) or isinstance(theirs, torch.Tensor):
        return False
    return bool(ours == theirs or (ours != ours and theirs != theirs))


def _judge_loader(subject: TrainingSubject, text: str, apart: float) -> Answer:
    """Return whether a loader with state_dict() continues with the next batch."""
    loader = subject.settings.loader
    try:  # what accelerate prepares has the method, and works only with a stateful loader inside
        state = loader.state_dict()
    except (Exception, SystemExit):  # noqa: BLE001 - whatever it raises, there is no state
        state = None
    if state is None or not hasattr(loader, "load_state_dict"):
        return passed(f"{text}. The loader has no state_dict(): save at the end of an epoch.")
    with users_code("The loader's state_dict()"):
        seed_everything(subject.seed)
        iterator = iter(loader)
        next(iterator, None)
        state = loader.state_dict()
        expected = next(iterator, None)
        loader.load_state_dict(state)
        found = next(iter(loader), None)
    if expected is None or digest_of(expected) == digest_of(found):
        return passed(f"{text}, and the loader continues with the next batch.", apart=apart)
    return Resume.failed(
        "After load_state_dict() the loader does not continue with the next batch.",
        "the position of the loader is not in its state_dict()",
        apart=apart,
    )
