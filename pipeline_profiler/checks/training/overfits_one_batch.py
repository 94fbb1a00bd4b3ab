"""TRAIN003: a single batch cannot be learned by heart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipeline_profiler.checks.batches import links_examples
from pipeline_profiler.checks.check import (
    Answer,
    Check,
    Judgement,
    Nearness,
    absent,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checks.keras_subject import Examined
from pipeline_profiler.checks.user_code import Patience
from pipeline_profiler.checks.user_training import SMALL_BATCH, Training

STEPS, QUICK_EVERY = 400, 20
RAMP = 20  # steps in which the largest rate of a schedule is reached
ENOUGH = 0.9  # of the way from the first loss to the least loss
LEARNS = 0.5  # of the way to 0, for a loss of unknown least value
SECONDS = 20.0


class Learned(NamedTuple):
    """The result of training on one batch: shares of the way to the least loss, of hits."""

    steps: int
    share: float
    agree: float | None
    halfway: float  # the share after half of the steps


class OverfitsOneBatch(Check):
    """A batch of 16 that the training cannot memorise.

    ## How it decides
    Trains up to 400 steps on 16 samples. Passes if 90% of the way to the lowest loss of free
    outputs is done, or all predictions are right. Inconclusive if 200 more steps at the last pace
    suffice, all labels are equal, or the lowest value of the loss is unknown. Else tries Adam at
    0.001: if it succeeds, check the optimizer and the learning rate.

    ## Limits
    Strong dropout or augmentation in the step slows the training: switch them off for this check.
    """

    code = "TRAIN003"
    name = "batch-not-learned"
    nearness = Nearness.SYMPTOM

    def run(self, subject: Examined) -> Answer:
        if links_examples(subject.batches[0][1]):
            return absent("The examples are nodes of a graph, which cannot be cut to a few.")
        training, alone = subject.held(RAMP), subject.small_alone if subject.takes_tensor else None
        least = 0.0 if alone is None else alone.best_outputs[0]
        least = least if math.isfinite(least) else 0.0
        first = subject.measured(training, subject.small, mode=True)
        done = _train(subject, training, first, least)
        answer = _judge(subject, done, first, least)
        if answer.judgement is Judgement.FAIL:
            why, last = "", first - done.share * (first - least)
            # of a loss of unknown kind, or a likelihood, the least value is that of noise by heart
            noise = subject.task.kind == "unknown" or (
                subject.task.kind == "regression" and subject.is_likelihood
            )
            if alone is None:
                why = "the least value of this loss is unknown" if done.share > LEARNS else ""
            elif subject.loss_alone.bottomless:
                why = "this loss falls without end, so there is no least value"
            elif noise and last < alone.constant:
                why = "that is better than any constant output, and the share of noise is unknown"
            answer = _with_labels(subject, training, answer)
            if why:
                answer = unclear(f"{answer.sentence[:-1]}; but {why}.", **answer.evidence)
        return subject.weighed(answer)

    run_keras = run


def _train(subject: Examined, training: Training, first: float, least: float) -> Learned:
    patience = Patience(SECONDS, max(3.0, subject.time_left() / 4))
    best, number, share, agree, halfway = math.inf, 0, 0.0, None, 0.0
    for number in range(1, STEPS + 1):
        subject.step(training, subject.small)
        if number % QUICK_EVERY and number != STEPS:
            continue
        both = [subject.measured(training, subject.small, mode) for mode in (False, True)]
        best = min(best, *(v for v in both if math.isfinite(v)), math.inf)
        agree = _agreement(subject, training)
        if math.isfinite(best) and math.isfinite(first):
            share = 1.0 if first <= least else (first - best) / (first - least)
        halfway = share if number <= STEPS // 2 else halfway
        if share >= ENOUGH or agree == 1.0 or patience.over:
            break
    return Learned(number, share, agree, halfway)


def _agreement(subject: Examined, training: Training) -> float | None:
    if subject.task.kind != "classes":
        return None
    wanted, shares = subject.small_labels, []
    for mode in (False, True):
        found = subject.outputs(training, subject.small[1], mode).argmax(subject.task.axis)
        equal = (found == wanted)[wanted >= 0]
        shares.append(float(equal.mean()) if equal.size else 0.0)
    return max(shares)


def _with_labels(subject: Examined, training: Training, answer: Answer) -> Answer:
    """Return a failure with the labels and the predictions of the small batch."""
    if subject.task.kind != "classes":
        return answer
    found = subject.outputs(training, subject.small[1]).argmax(subject.task.axis)
    labels, predictions = (
        " ".join(map(str, row.flatten()[:SMALL_BATCH])) for row in (subject.small_labels, found)
    )
    return replace(answer, next=f"{answer.next} Labels: {labels}; predictions: {predictions}.")


def _judge(subject: Examined, done: Learned, first: float, least: float) -> Answer:
    steps, share, agree, halfway = done
    text = f"After {steps} steps on 16 examples, {share:.0%} of the way to the least loss is done"
    if agree is not None:
        text += f", and {agree:.0%} of the predictions equal the labels"
    if share >= ENOUGH or agree == 1.0:
        if agree is not None and len(np.unique(subject.small_labels)) == 1:
            return unclear(f"{text}; but the labels are equal, so a constant is right.")
        return passed(f"{text}.")
    if steps < STEPS:
        alone = "Run it alone: --only TRAIN003 --seconds 600."
        return unclear(f"{text}; the time allowed no more steps.", alone)
    if 2 * share - halfway >= ENOUGH:  # half as many more would do, at the last half's pace
        return unclear(f"{text}; it is on its way, and needs more steps than these.")
    other = subject.with_adam()
    with_adam = 0.0 if other is None else _train(subject, other, first, least).share
    causes = [
        "the graph is cut, or the loss asks for something else (see the checks above)",
        "too little capacity",
        "labels that contradict each other",
    ]
    if with_adam >= ENOUGH:
        causes = ["the learning rate or the optimizer's settings"]
    return wrong(
        f"{text}; with Adam at 0.001 it is {with_adam:.0%}.",
        causes,
        "Fix this first: the results of later checks depend on it.",
        share_with_adam=round(with_adam, 4),
    )
