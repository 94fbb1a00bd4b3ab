"""TRAIN003: a single batch cannot be learned by heart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    Judgement,
    Nearness,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.examined_training import ExaminedTraining
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.nested_batches import batch_size, main_tensor
from pipeline_profiler.checking.patience import Patience
from pipeline_profiler.checking.toy_trainings import toy_regression, toy_training
from pipeline_profiler.checking.training_subject import SMALL_BATCH, TrainingSubject
from pipeline_profiler.checking.user_training import Training

STEPS, QUICK_EVERY = 400, 20
ENOUGH = 0.9  # of the way from the first loss to the least one
SECONDS = 20.0


class Learned(NamedTuple):
    """What came of training on one batch: shares of the way to the least loss, of equal answers."""

    steps: int
    share: float
    agree: float | None
    halfway: float = 0.0  # the share after half of the steps

    @property
    def on_its_way(self) -> bool:
        """Whether half as many steps more would do, at the pace of the last half."""
        return 2 * self.share - self.halfway >= ENOUGH


class OverfitsOneBatch(Check):
    """A batch of 16 that the training cannot learn by heart.

    ## What it does
    Trains on the first 16 examples for up to 400 steps with your step, optimizer and learning
    rate. The least loss that outputs can have is found by optimising outputs alone, so label
    smoothing and noise in the loss are no obstacle. If it fails, Adam at 0.001 is tried.

    ## Why is this bad
    A pipeline that cannot learn 16 examples by heart has a defect, or far too little capacity:
    until this passes, every later verdict rests on sand.

    ## How it decides
    Passes where 90 % of the way to the least loss is done, in train or eval mode, or all
    predictions equal the labels. Where the pace of the last 200 steps would bring it there in 200
    more, it cannot tell; nor where the loss has no least value, or is a likelihood (of counts, or
    with a spread that is learned) or of unknown kind, and the result beats every constant output.
    There is no chance in it beyond the seed.

    ## What to do
    If Adam at 0.001 manages, look at optimizer and learning rate; if not, at the causes listed
    before this check, then at capacity.

    ## Limits
    Strong dropout or augmentation inside the step slow it down: switch them off for this check.
    """

    code = "TRAIN003"
    name = "batch-not-learned"
    nearness = Nearness.SYMPTOM

    def run(self, subject: TrainingSubject) -> Answer:
        """The user's training first, then Adam."""
        batch = subject.small
        training = subject.fresh()
        least = _least(subject, training)
        first = subject.measured(training, batch, mode=True)
        done = _train(subject, training, first, least)
        answer = _judge(done, first, least, lambda: _with_adam(subject, first, least))
        if answer.judgement is Judgement.FAIL and subject.takes_tensor:
            last = first - done.share * (first - least)
            answer = _bounded(subject, answer, last, subject.small_alone.constant)
        return subject.weighed(_beside_labels(subject, training, answer))

    def run_keras(self, subject: KerasSubject) -> Answer:
        """The user's training first, then Adam."""
        training = subject.fresh()
        found = subject.best_outputs[0] if subject.takes_tensor else 0.0
        least = found if math.isfinite(found) else 0.0
        first = subject.measured(training, subject.small, True)
        done = _keras_steps(subject, training, first, least)

        def other() -> float:
            import keras

            made = subject.fresh(subject.seed)
            made.train_step, made.model.run_eagerly = None, False
            made.model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=made.loss)
            return _keras_steps(subject, made, first, least).share

        answer = _judge(done, first, least, other)
        if answer.judgement is not Judgement.FAIL or not subject.takes_tensor:
            return answer
        last = first - done.share * (first - least)
        return _bounded(subject, answer, last, subject.constant_loss)

    @staticmethod
    def _linear_bottleneck() -> Any:
        from torch import nn

        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 1), nn.Tanh(), nn.Linear(1, 4))
        return toy_training(model, optimizer=_tiny)

    PLANTED = (
        Example("hardly a step", lambda: toy_training(optimizer=_tiny)),
        Example("one unit", _linear_bottleneck),
    )
    HEALTHY = (
        Example("classes", toy_training),
        Example("label smoothing", lambda: toy_training(loss=_smoothed())),
        Example("numbers", toy_regression),
        Example("slow and steady", lambda: toy_regression(optimizer=_slow)),
    )


def _tiny(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=1e-6)


def _slow(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=1.5e-3)


def _smoothed() -> Any:
    from torch import nn

    return nn.CrossEntropyLoss(label_smoothing=0.1)


def _least(subject: TrainingSubject, training: Training) -> float:
    if not subject.takes_tensor:
        return 0.0
    found = subject.small_alone.best_outputs[0]
    return found if math.isfinite(found) else 0.0


def _train(subject: TrainingSubject, training: Training, first: float, least: float) -> Learned:
    """Up to 400 steps on the small batch."""
    patience = Patience(SECONDS, max(3.0, subject.time_left() / 4))
    best, number, halfway = math.inf, 0, 0.0
    for number in range(1, STEPS + 1):
        subject.step(training, subject.small)
        if number % QUICK_EVERY == 0 or number == STEPS:
            both = [subject.measured(training, subject.small, mode) for mode in (False, True)]
            best = min(best, *(v for v in both if math.isfinite(v)), math.inf)
            agree = _agreement(subject, training)
            if number <= STEPS // 2:
                halfway = _share(first, best, least)
            if _share(first, best, least) >= ENOUGH or agree == 1.0 or patience.over:
                break
    return Learned(number, _share(first, best, least), _agreement(subject, training), halfway)


def _share(first: float, now: float, least: float) -> float:
    if not math.isfinite(now) or not math.isfinite(first):
        return 0.0
    if first <= least:
        return 1.0
    return (first - now) / (first - least)


def _agreement(subject: TrainingSubject, training: Training) -> float | None:
    import torch

    task = subject.task
    if task.kind != "classes":
        return None
    shares = []
    for mode in (False, True):
        training.model.train(mode)
        with torch.no_grad():
            outputs = subject.output(training, subject.small[1])
        targets = main_tensor(subject.small[2])
        known = targets >= 0
        equal = (outputs.argmax(task.axis) == targets)[known]
        shares.append(float(equal.float().mean()) if equal.numel() else 0.0)
    training.model.train()
    return max(shares)


def _with_adam(subject: TrainingSubject, first: float, least: float) -> float:
    import torch

    training = subject.fresh()
    parameters = [p for p in training.model.parameters() if p.requires_grad]
    if not parameters:
        return 0.0
    training.optimizer = torch.optim.Adam(parameters, lr=1e-3)
    training.schedule, training.train_step = None, None
    return _train(subject, training, first, least).share


def _keras_steps(subject: KerasSubject, training: Training, first: float, least: float) -> Learned:
    """Up to 400 steps on the small batch."""
    patience = Patience(SECONDS, max(3.0, subject.time_left() / 4))
    best, number, agree, halfway = math.inf, 0, None, 0.0
    wanted = subject.targets[: batch_size(subject.small[0])]
    for number in range(1, STEPS + 1):
        subject.step(training, subject.small)
        if number % QUICK_EVERY and number != STEPS:
            continue
        losses = [subject.measured(training, subject.small, mode) for mode in (False, True)]
        best = min(best, *(loss for loss in losses if math.isfinite(loss)), math.inf)
        if subject.task.kind == "classes":
            outputs = subject.outputs(training, subject.small[0])
            agree = float((outputs.argmax(axis=-1) == wanted).mean())
        if number <= STEPS // 2:
            halfway = _share(first, best, least)
        if _share(first, best, least) >= ENOUGH or agree == 1.0 or patience.over:
            break
    return Learned(number, _share(first, best, least), agree, halfway)


def _bounded(subject: ExaminedTraining, answer: Answer, last: float, constant: float) -> Answer:
    """The failure; "cannot tell" where the loss has no least value, or hides what it is of."""
    if subject.bottomless:
        why = "this loss falls without end, so there is no least one"
    elif _noise_unknown(subject) and last < constant:
        why = (
            "that is better than any constant output, and how much of the rest is noise is unknown"
        )
    else:
        return answer
    return unclear(f"{answer.sentence[:-1]}; but {why}.", "", **answer.evidence)


def _noise_unknown(subject: ExaminedTraining) -> bool:
    """Of a loss of unknown kind, or a likelihood: its least value is that of noise by heart."""
    kind = subject.task.kind
    return kind == "unknown" or (kind == "regression" and subject.is_likelihood)


def _beside_labels(subject: TrainingSubject, training: Training, answer: Answer) -> Answer:
    """A failure with the labels of the small batch beside what was learned of them."""
    import torch

    task = subject.task
    if answer.judgement is not Judgement.FAIL or task.kind != "classes":
        return answer
    training.model.eval()
    with torch.no_grad():
        said = subject.output(training, subject.small[1]).argmax(task.axis)
    pair = [t.flatten()[:SMALL_BATCH].tolist() for t in (main_tensor(subject.small[2]), said)]
    labels, predictions = (" ".join(map(str, row)) for row in pair)
    shown = {"labels": pair[0], "predictions": pair[1]}
    return replace(
        answer,
        next=f"{answer.next} Labels: {labels}; predictions: {predictions}.",
        evidence={**answer.evidence, **shown},
    )


def _judge(done: Learned, first: float, least: float, other: Callable[[], float]) -> Answer:
    steps, share, agree, _ = done
    numbers: dict[str, Any] = {
        "steps": steps,
        "first_loss": first,
        "least_loss": least,
        "share_of_the_way": round(share, 4),
        "agree": agree,
    }
    said = f"After {steps} steps on 16 examples, {share:.0%} of the way to the least loss is done"
    if agree is not None:
        said += f", and {agree:.0%} of the predictions equal the labels"
    if share >= ENOUGH or agree == 1.0:
        return passed(f"{said}.", **numbers)
    if steps < STEPS:
        return unclear(
            f"{said}; the time allowed no more steps.",
            "Run it alone: --only TRAIN003 --seconds 600.",
            **numbers,
        )
    if done.on_its_way:
        return unclear(f"{said}; it is on its way, and needs more steps than these.", "", **numbers)
    with_adam = other()
    numbers["share_with_adam"] = round(with_adam, 4)
    causes = (
        ["the learning rate or the optimizer's settings"]
        if with_adam >= ENOUGH
        else [
            "the graph is cut, or the loss asks for something else (see the checks above)",
            "too little capacity",
            "labels that contradict each other",
        ]
    )
    return wrong(
        f"{said}; with Adam at 0.001 it is {with_adam:.0%}.",
        causes,
        "Fix this first: later verdicts rest on it.",
        **numbers,
    )
