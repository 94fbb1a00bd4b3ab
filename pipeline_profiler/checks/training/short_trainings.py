"""TRAIN015: a short training, and where its loss goes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline_profiler.checks.check import (
    Answer,
    Check,
    Judgement,
    Nearness,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checks.keras_subject import Examined
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience, UsersError, seed_everything
from pipeline_profiler.checks.user_training import Training

STEPS, LEAST_STEPS, SECONDS = 80, 40, 12.0
BEYOND = (2, 4, 8, 16)  # times as far as training moved the outputs
FASTER = math.sqrt(2)  # a power p makes the slope 2^(p-1) times as steep with each doubling
T_999 = 3.7  # two-sided 99.9 % with some 20 batches


class LossFalls(Check):
    """A training loss that does not fall, or that has no minimum.

    ## How it decides
    Trains up to 80 steps on the first batches. Fails if the mean paired change is above zero. Fails
    if it is not below zero at 99.9%, and less than 1% of the first loss was gained. Fails if the
    loss falls ever faster along the line from the first outputs to the last outputs.

    ## Limits
    The result covers a few repeated batches, not new data. A warm-up may need more steps.
    """

    code = "TRAIN015"
    name = "loss-does-not-fall"
    nearness = Nearness.SYMPTOM
    causes = ("a cause listed before this one", "a learning rate far too low or too high")
    next_step = "Fix what is listed above; else try the learning rate times 10 and by 10."

    def run(self, subject: Examined) -> Answer:
        training = subject.fresh()
        if not isinstance(subject, TrainingSubject):
            return self._judge(subject, training)
        start = _outputs(subject, training)
        answer = self._judge(subject, training)
        if answer.judgement is Judgement.PASS:
            answer = _without_minimum(subject, training, start, answer)
        return subject.weighed(answer)

    run_keras = run

    def _judge(self, subject: Examined, training: Training) -> Answer:
        batches, number = subject.batches, 0
        before = [subject.measured(training, b, mode=True) for b in batches]
        patience = Patience(SECONDS, max(2.0, subject.time_left() / 5))
        while number < STEPS and not patience.over:
            number += 1
            subject.step(training, batches[number % len(batches)])
        modes = (True, False)
        after = [min(subject.measured(training, b, mode) for mode in modes) for b in batches]
        first, last = float(np.mean(before)), float(np.mean(after))
        text = f"The loss goes from {first:.4g} to {last:.4g} in {number} steps on {len(batches)}"
        gains = np.subtract(before, after)
        spread = (
            T_999 * float(np.std(gains, ddof=1)) / math.sqrt(len(gains)) if gains[1:].any() else 0
        )
        little = first - last < 0.01 * abs(first)
        if number < LEAST_STEPS and little:
            return unclear(f"{text} batches; the time allowed no more steps.")
        uncertain = little and first - last - spread <= 0.001 * abs(first)
        if not math.isfinite(last) or last >= first or uncertain:
            return self.failed(f"{text} batches.")
        return passed(f"{text} batches.")


def _outputs(subject: TrainingSubject, training: Training) -> Any:
    seed_everything(subject.seed)  # a model may draw numbers
    outputs = subject.evaluated(training, subject.batches[0])
    training.model.train()
    return outputs


def _without_minimum(
    subject: TrainingSubject, training: Training, start: Any, answer: Answer
) -> Answer:
    """Return `answer`, or a failure if the loss has no minimum where training goes."""
    end, targets = _outputs(subject, training), subject.batches[0][2]
    try:
        with torch.no_grad():
            losses = [
                float(subject.loss_of(training, _extrapolated(start, end, times), targets))
                for times in (1, *BEYOND)
            ]
    except (UsersError, TypeError, ValueError, KeyError, RuntimeError):  # outputs change their form
        return answer
    if not _bottomless(losses):
        return answer
    return wrong(
        f"{answer.sentence[:-1]}, and it falls ever faster where the outputs go: to "
        f"{losses[-1]:.4g} with outputs {BEYOND[-1]} times as far. It has no least value.",
        ["a term of the loss has the wrong sign", "a distance is made large that nothing bounds"],
        "Print the terms of the loss one by one, and see which of them falls below its least.",
    )


def _extrapolated(start: Any, end: Any, times: float) -> Any:
    """Return the outputs on the line from start to end, `times` as far as the end."""
    if isinstance(end, torch.Tensor):
        return start + times * (end - start) if end.is_floating_point() else end
    if isinstance(end, Mapping):
        return {key: _extrapolated(start[key], part, times) for key, part in end.items()}
    if isinstance(end, tuple | list):
        parts = [_extrapolated(a, b, times) for a, b in zip(start, end, strict=True)]
        return type(end)(*parts) if hasattr(end, "_fields") else type(end)(parts)
    return end


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
