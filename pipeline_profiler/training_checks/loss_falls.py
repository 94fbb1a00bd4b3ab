"""TRAIN015: a loss that does not fall."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

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
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.patience import Patience
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.toy_trainings import toy_regression, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import UsersError
from pipeline_profiler.checking.user_training import Training

STEPS, LEAST_STEPS, SECONDS = 80, 40, 12.0
BEYOND = (2, 4, 8, 16)  # times as far as training moved the outputs
FASTER = math.sqrt(2)  # a power p makes the slope 2^(p-1) times as steep with each doubling
T_999 = 3.7  # two-sided 99.9 % with some 20 batches


class LossFalls(Check):
    """The training loss over the first 80 steps.

    ## What it does
    Trains on the first batches for up to 80 steps, and measures the loss of each of them before
    and after.

    ## Why is this bad
    Nothing is learned: everything that follows is a waste of time.

    ## How it decides
    Fails where the mean change over batches is above zero, or not below it at 99.9 % while less
    than 1 % of the first loss was gained. A paired comparison of the same batches: what differs is
    the training alone.

    ## What to do
    Look at the causes listed before this check, then at the learning rate.

    ## Limits
    Trained on the same few batches, so it says nothing of new data. A warm-up may need longer.
    """

    code = "TRAIN015"
    name = "loss-does-not-fall"
    nearness = Nearness.SYMPTOM

    def run(self, subject: TrainingSubject) -> Answer:
        """Before and after, and beyond."""
        training = subject.fresh()
        start = _outputs(subject, training)
        answer = self._compared(subject, training)
        if answer.judgement is Judgement.PASS:
            answer = _beyond(subject, training, start, answer)
        return subject.weighed(answer)

    @staticmethod
    def _compared(subject: Any, training: Any) -> Answer:
        batches = subject.batches
        before = [subject.measured(training, b, mode=True) for b in batches]
        patience = Patience(SECONDS, max(2.0, subject.time_left() / 5))
        number = 0
        for number in range(1, STEPS + 1):
            subject.step(training, batches[number % len(batches)])
            if patience.over:
                break
        after = [
            min(subject.measured(training, b, True), subject.measured(training, b, False))
            for b in batches
        ]
        return _judge(before, after, number)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """The same: the subject measures."""
        return self._compared(subject, subject.fresh())

    @staticmethod
    def _rate(rate: float) -> Any:
        import torch

        return toy_training(optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=rate))

    PLANTED = (
        Example("upwards", lambda: LossFalls._rate_negative()),
        Example("hardly at all", lambda: LossFalls._rate(1e-7)),
        Example("a term with the wrong sign", lambda: toy_training(loss=_signed(-1.0))),
    )
    HEALTHY = (
        Example("classes", toy_training),
        Example("numbers", toy_regression),
        Example("a penalty of large outputs", lambda: toy_training(loss=_signed(1.0))),
        Example("a density above one", lambda: _density()),
        Example("slow", lambda: LossFalls._rate(0.003)),
    )

    @staticmethod
    def _rate_negative() -> Any:
        import torch

        return toy_training(
            optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.05, maximize=True)
        )


def _signed(sign: float) -> Any:
    """Cross-entropy and, by sign, a penalty or a reward of large outputs."""
    from torch.nn import functional

    return lambda o, t: functional.cross_entropy(o, t) + sign * 0.05 * (o**2).sum(1).mean()


def _density() -> Any:
    """The mean and logarithmic spread of numbers that spread by a hundredth."""

    from torch import nn

    def loss(outputs: Any, targets: Any) -> Any:
        mean, spread = outputs[:, :1], outputs[:, 1:]
        return (spread + ((targets / 100 - mean) / spread.exp()) ** 2 / 2).mean()

    return toy_regression(model=nn.Linear(8, 2), loss=loss)


# ---- is there a least value on the way? ----


def _outputs(subject: TrainingSubject, training: Training) -> Any:
    import torch

    seed_everything(subject.seed)  # a model may draw numbers
    training.model.eval()
    with torch.no_grad():
        outputs = subject.forward(training, subject.batches[0][1])
    training.model.train()
    return outputs


def _beyond(subject: TrainingSubject, training: Training, start: Any, answer: Answer) -> Answer:
    """`answer`, or that the loss has no least value where training goes."""
    import torch

    end, targets = _outputs(subject, training), subject.batches[0][2]
    try:
        with torch.no_grad():
            losses = [
                float(subject.loss_of(training, _far(start, end, times), targets))
                for times in (1, *BEYOND)
            ]
    except (UsersError, TypeError, ValueError, KeyError, RuntimeError):  # outputs change their form
        return answer
    if not _bottomless(losses):
        return answer
    return wrong(
        f"{answer.sentence[:-1]}, and it falls ever faster where the outputs go: to "
        f"{losses[-1]:.4g} with outputs {BEYOND[-1]} times as far. It has no least value.",
        [
            "a term of the loss has the wrong sign",
            "a distance is made large that nothing bounds",
        ],
        "Print the terms of the loss one by one, and see which of them falls below its least.",
        **answer.evidence,
        beyond=losses,
    )


def _far(start: Any, end: Any, times: float) -> Any:
    """What lies on the line from start to end, `times` as far as the end."""
    import torch

    if isinstance(end, torch.Tensor):
        return start + times * (end - start) if end.is_floating_point() else end
    if isinstance(end, Mapping):
        return {key: _far(start[key], part, times) for key, part in end.items()}
    if isinstance(end, tuple) and hasattr(end, "_fields"):
        return type(end)(*(_far(a, b, times) for a, b in zip(start, end, strict=True)))
    if isinstance(end, tuple | list):
        return type(end)(_far(a, b, times) for a, b in zip(start, end, strict=True))
    return end


def _bottomless(losses: list[float]) -> bool:
    """Whether the loss at 1, 2, 4, ... times falls by a power of the distance above 1.5."""
    if any(math.isnan(loss) or loss == math.inf for loss in losses):
        return False
    finite = [loss for loss in losses if math.isfinite(loss)]
    slopes = [(a - b) / 2**n for n, (a, b) in enumerate(itertools.pairwise(finite))]
    last = slopes[-3:]
    if len(last) < 3 or last[0] <= 0:
        return len(finite) < len(losses) and bool(last) and last[-1] > 0
    return all(b > FASTER * a for a, b in itertools.pairwise(last))


# ---- does it fall? ----


def _judge(before: list[float], after: list[float], steps: int) -> Answer:
    first, last = sum(before) / len(before), sum(after) / len(after)
    numbers: dict[str, Any] = {"steps": steps, "before": first, "after": last}
    if not math.isfinite(last):
        return _failed(f"The loss is {last} after {steps} steps.", numbers)
    gains = [b - a for b, a in zip(before, after, strict=True)]
    mean = sum(gains) / len(gains)
    if len(gains) > 1:
        spread = math.sqrt(sum((g - mean) ** 2 for g in gains) / (len(gains) - 1) / len(gains))
    else:
        spread = 0.0
    numbers |= {"gain": mean, "interval": T_999 * spread}
    said = f"The loss goes from {first:.4g} to {last:.4g} in {steps} steps on {len(before)} batches"
    if steps < LEAST_STEPS and mean < 0.01 * abs(first):
        return unclear(f"{said}; the time allowed no more steps.", "", **numbers)
    if mean <= 0:
        return _failed(f"{said}.", numbers)
    if mean < 0.01 * abs(first) and mean - T_999 * spread <= 0.001 * abs(first):
        return _failed(f"{said}.", numbers)
    return passed(f"{said}.", **numbers)


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        ["a cause listed before this one", "a learning rate far too low or too high"],
        "Fix what is listed above; else try the learning rate times 10 and by 10.",
        **numbers,
    )
