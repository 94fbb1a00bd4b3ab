"""TRAIN031: how the predictions on one batch move while it trains."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from pipeline_profiler.checks.batches import main_tensor
from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear, wrong
from pipeline_profiler.checks.lazy import functional, torch
from pipeline_profiler.checks.toys import descent, toy_training
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience
from pipeline_profiler.checks.user_training import batch_norms

STEPS, LEAST, SECONDS = 40, 12, 8.0
OVERSHOOT = 0.75
TOO_MANY = 20_000  # steps at this pace
GAINED = 0.9  # of the first loss: below this it learns, however it moves
UNTRAINED = 0.9  # of the best loss that one output for all can have
SHOWN = 8  # examples whose predictions are kept
SURE = 4.0  # standard errors


class PredictionDynamics(Check):
    """Predictions that jump back and forth, or stand still.

    ## What it does
    Trains up to 40 steps and predicts the same batch after each (class probabilities, or numbers
    over the deviation of the targets). Jitter is (1 - c) / 2, where c is the mean cosine between
    one change of the predictions and the next: 0 is a steady drift, 0.5 a random walk, 1 a back and
    forth. The series are kept for the app.

    ## Why is this bad
    A learning rate that overshoots undoes each step by the next; one that is too low needs more
    steps than anybody has.

    ## How it decides
    Around a minimum of curvature k a step of rate r keeps 1 - rk of the distance, and in noise the
    changes then have the correlation -rk / 2: rk = 1, where overshooting begins, is a jitter of
    0.75. Fails as too high where the jitter is above that by 4 standard errors and the loss of the
    batch has not fallen by a tenth (or is no number); as too low where it does not overshoot, the
    targets are more than 20,000 steps away at its net pace, and the loss is that of a model that
    knows nothing yet (a trained one has reason to stand still). With a schedule the low end is not
    judged: it may be a warm-up.

    ## What to do
    A tenth of the learning rate, or a hundred times of it; TRAIN026 tries them.

    ## Limits
    40 steps on the batches that were taken. One number per example and class is followed, so a
    few jumping examples among many quiet ones are seen in the series only.
    """

    code = "TRAIN031"
    name = "prediction-dynamics"
    nearness = Nearness.EFFECT
    quick = False

    def run(self, subject: TrainingSubject) -> Answer:
        if subject.task.kind == "unknown":
            return unclear(
                "What is predicted is not known from the shapes, so nothing is followed."
            )
        series = follow_predictions(subject)
        if len(series["losses"]) <= LEAST and math.isfinite(series["losses"][-1]):
            return unclear("The budget does not allow enough steps.")
        untrained = (
            subject.takes_tensor and series["losses"][0] > UNTRAINED * subject.loss_alone.constant
        )
        return subject.weighed(_judge(series, subject.settings.schedule is not None, untrained))

    PLANTED = (("SGD at 1e-7", lambda: toy_training(optimizer=descent("SGD", 1e-7))),)


def follow_predictions(subject: TrainingSubject, steps: int = STEPS) -> dict[str, Any]:
    """Losses, sizes of the changes, cosines of neighbouring changes, and the first predictions.

    `left` is the distance from the first predictions to the targets, `moved` from the first to the
    last, both root mean squares over the batch.
    """
    training, batches = subject.fresh(), subject.batches
    patience = Patience(SECONDS, max(2.0, subject.time_left() / 6))
    predicted = [_predict(subject, training)]
    losses = [subject.measured(training, batches[0], mode=True)]
    for number in range(steps):
        loss = subject.step(training, batches[number % len(batches)])
        predicted.append(_predict(subject, training))
        losses.append(subject.measured(training, batches[0], mode=True))
        if not (math.isfinite(loss) and math.isfinite(losses[-1])) or patience.over:
            break
    stack = torch.stack(predicted).double()
    changes = stack[1:] - stack[:-1]
    sizes = changes.flatten(1).norm(dim=1)
    dots = (changes[1:] * changes[:-1]).flatten(1).sum(1)
    moving = (sizes[1:] > 0) & (sizes[:-1] > 0)  # at the end of learning nothing moves
    cosines = dots[moving] / (sizes[1:] * sizes[:-1])[moving]
    root = math.sqrt(stack[0].numel())
    return {
        "losses": losses,
        "changes": (sizes / root).tolist(),
        "cosines": cosines.tolist(),
        "moved": float((stack[-1] - stack[0]).norm()) / root,
        "left": float((_targets(subject, stack[0]) - stack[0]).norm()) / root,
        "examples": stack[:, :SHOWN].flatten(2).max(2).values.T.tolist(),
    }


def _predict(subject: TrainingSubject, training: Any) -> Any:
    """(examples, values) of the first batch: probabilities, or outputs over the targets' size."""
    kind, form = subject.task.kind, subject.loss_alone.form
    mode = training.model.training
    with torch.no_grad(), _without_dropout(training.model):
        outputs = subject.output(training, subject.batches[0][1]).float()
    training.model.train(mode)
    if kind == "classes" and not form:
        outputs = outputs.softmax(subject.task.axis)
    elif kind == "classes" and form == "log":
        outputs = outputs.exp()
    elif kind == "binary" and not form:
        outputs = outputs.sigmoid()
    elif kind == "regression":
        outputs = outputs / _target_size(subject)
    return outputs.reshape(outputs.shape[0], -1).cpu()


@contextlib.contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """Eval mode, but batch norm with the statistics of the batch, which it does not keep.

    Running statistics move by themselves: they would be taken for learning.
    """
    norms = list(batch_norms(model).values())
    kept = [
        (n.momentum, None if (c := n.num_batches_tracked) is None else c.clone()) for n in norms
    ]
    model.eval()
    for norm in norms:
        norm.training, norm.momentum = True, 0.0
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, kept, strict=True):
            norm.momentum = momentum
            if count is not None and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.copy_(count)


def _target_size(subject: TrainingSubject) -> float:
    targets = main_tensor(subject.batches[0][2]).float()
    return float(targets.std()) if targets.numel() > 1 and float(targets.std()) > 0 else 1.0


def _targets(subject: TrainingSubject, like: Any) -> Any:
    """The targets in the form of the predictions."""
    targets, task = main_tensor(subject.batches[0][2]).cpu(), subject.task
    if task.kind == "classes":
        known = targets.long().clamp(0, task.classes - 1)
        hot = functional.one_hot(known, task.classes).double()
        if task.axis == 1 and hot.ndim > 2:
            hot = hot.movedim(-1, 1)
        return hot.reshape(like.shape)
    size = _target_size(subject) if task.kind == "regression" else 1.0
    return (targets.to(torch.float64) / size).reshape(like.shape)


def jitter_of(cosines: list[float]) -> tuple[float, float]:
    """(jitter, its standard error): 0 is a steady drift, 0.5 a random walk, 1 back and forth."""
    count = len(cosines)
    mean = sum(cosines) / max(count, 1)
    variance = sum((c - mean) ** 2 for c in cosines) / max(count - 1, 1)
    return (1 - mean) / 2, math.sqrt(variance / max(count, 1)) / 2


def _judge(series: dict[str, Any], scheduled: bool, untrained: bool) -> Answer:
    jitter, error = jitter_of(series["cosines"])
    first, last = series["losses"][0], series["losses"][-1]
    count = len(series["changes"])
    pace = series["moved"] / max(count, 1)
    away = series["left"] / pace if pace > 0 else math.inf
    numbers = {**series, "jitter": jitter, "jitter_error": error, "steps_away": away}
    said = f"Over {count} steps the predictions on one batch have a jitter of {jitter:.2f}"
    if series["moved"] == 0 and math.isfinite(last):
        return unclear(
            f"The predictions on one batch do not move in {count} steps.",
            "TRAIN017 and TRAIN005 say whether the weights move.",
            **numbers,
        )
    learned = math.isfinite(last) and last < GAINED * first
    if not math.isfinite(last) or (jitter - SURE * error > OVERSHOOT and not learned):
        return _failed(f"{said}, and its loss goes from {first:.4g} to {last:.4g}: they overshoot.",
                       "too high", "Try a tenth of the learning rate.", numbers)  # fmt: skip
    if jitter - SURE * error <= OVERSHOOT and away > TOO_MANY and untrained and not learned:
        if scheduled:
            return unclear(
                f"{said} and are {away:.0g} steps away from the targets; this may be a warm-up.",
                **numbers,
            )
        return _failed(f"{said} and at this pace are {away:.0g} steps away from the targets.",
                       "too low", "Try a hundred times the learning rate.", numbers)  # fmt: skip
    return passed(
        f"{said} (0 is a steady drift, 0.5 a random walk, 1 back and forth); the loss of the batch "
        f"goes from {first:.4g} to {last:.4g}.",
        **numbers,
    )


def _failed(text: str, how: str, next_step: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [f"the learning rate is {how}", "the loss or its gradient has another scale than intended"],
        next_step,
        learning_rate=how,
        **numbers,
    )
