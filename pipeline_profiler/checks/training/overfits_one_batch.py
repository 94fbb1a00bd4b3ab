"""TRAIN003: a single batch cannot be learned by heart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.batches import links_examples
from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined
from pipeline_profiler.checks.user_code import Patience
from pipeline_profiler.checks.user_training import SMALL_BATCH, Training

STEPS, QUICK_EVERY = 400, 20
RAMP = 20  # steps in which the largest rate of a schedule is reached
ENOUGH = 0.9  # of the way from the first loss to the least one
LEARNS = 0.5  # of the way to 0, for a loss of unknown least value
SECONDS = 20.0


class Learned(NamedTuple):
    """What came of training on one batch: shares of the way to the least loss, of equal answers."""

    steps: int
    share: float
    agree: float | None
    halfway: float = 0.0  # the share after half of the steps


class OverfitsOneBatch(Check):
    """A batch of 16 that the training cannot memorise.

    ## What it does
    Trains on the first 16 samples for up to 400 steps with your settings. Optimises free outputs to
    find the lowest possible loss. If the training fails, tries Adam at 0.001.

    ## Why is this bad
    Such a training has a defect or far too little capacity. All later results depend on this check.

    ## How it decides
    Passes if 90% of the way to the lowest loss is done, or all predictions are right. Inconclusive
    if 200 more steps at the last pace suffice, all labels are equal, or the loss has no minimum.
    Inconclusive if a likelihood or unknown loss beats every constant output, or a loss of several
    outputs halves: its lowest value is unknown.

    ## What to do
    If Adam at 0.001 succeeds, check the optimizer and the learning rate. Else check the causes
    listed before this check, then the capacity.

    ## Limits
    Strong dropout or augmentation in the step slows the training: switch them off for this check.
    """

    code = "TRAIN003"
    name = "batch-not-learned"
    nearness = Nearness.SYMPTOM

    def run(self, subject: Examined) -> Answer:
        if links_examples(subject.batches[0][1]):
            return absent("The examples are nodes of a graph, which cannot be cut to a few.")
        batch, training = subject.small, subject.held(RAMP)
        least = subject.small_alone.best_outputs[0] if subject.takes_tensor else 0.0
        least = least if math.isfinite(least) else 0.0
        first = subject.measured(training, batch, mode=True)
        done = _train(subject, training, first, least)
        answer = _judge(subject, done, first, least)
        if answer.judgement == "failed" and subject.takes_tensor:
            last = first - done.share * (first - least)
            answer = _bounded(subject, answer, last, subject.small_alone.constant)
        elif answer.judgement == "failed" and done.share > LEARNS:
            text = f"{answer.sentence[:-1]}; but the least value of this loss is unknown."
            answer = unclear(text, **answer.evidence)
        return subject.weighed(_beside_labels(subject, training, answer))

    run_keras = run


def _train(subject: Examined, training: Training, first: float, least: float) -> Learned:
    patience = Patience(SECONDS, max(3.0, subject.time_left() / 4))
    best, number, agree, halfway = math.inf, 0, None, 0.0
    for number in range(1, STEPS + 1):
        subject.step(training, subject.small)
        if number % QUICK_EVERY and number != STEPS:
            continue
        both = [subject.measured(training, subject.small, mode) for mode in (False, True)]
        best = min(best, *(v for v in both if math.isfinite(v)), math.inf)
        agree = _agreement(subject, training)
        if number <= STEPS // 2:
            halfway = _share(first, best, least)
        if _share(first, best, least) >= ENOUGH or agree == 1.0 or patience.over:
            break
    return Learned(number, _share(first, best, least), agree, halfway)


def _share(first: float, now: float, least: float) -> float:
    if not math.isfinite(now) or not math.isfinite(first):
        return 0.0
    if first <= least:
        return 1.0
    return (first - now) / (first - least)


def _agreement(subject: Examined, training: Training) -> float | None:
    if subject.task.kind != "classes":
        return None
    wanted, shares = subject.small_labels, []
    for mode in (False, True):
        said = subject.outputs(training, subject.small[1], mode).argmax(subject.task.axis)
        equal = (said == wanted)[wanted >= 0]
        shares.append(float(equal.mean()) if equal.size else 0.0)
    return max(shares)


def _bounded(subject: Examined, answer: Answer, last: float, constant: float) -> Answer:
    """The failure; "inconclusive" where the loss has no least value, or hides what it is of."""
    if subject.loss_alone.bottomless:
        why = "this loss falls without end, so there is no least one"
    # of a loss of unknown kind, or a likelihood, the least value is that of noise by heart
    elif last < constant and (
        subject.task.kind == "unknown"
        or (subject.task.kind == "regression" and subject.is_likelihood)
    ):
        why = (
            "that is better than any constant output, and how much of the rest is noise is unknown"
        )
    else:
        return answer
    return unclear(f"{answer.sentence[:-1]}; but {why}.", **answer.evidence)


def _beside_labels(subject: Examined, training: Training, answer: Answer) -> Answer:
    """A failure with the labels of the small batch beside what was learned of them."""
    if answer.judgement != "failed" or subject.task.kind != "classes":
        return answer
    said = subject.outputs(training, subject.small[1]).argmax(subject.task.axis)
    pair = [found.flatten()[:SMALL_BATCH].tolist() for found in (subject.small_labels, said)]
    labels, predictions = (" ".join(map(str, row)) for row in pair)
    shown = {"labels": pair[0], "predictions": pair[1]}
    return replace(
        answer,
        next=f"{answer.next} Labels: {labels}; predictions: {predictions}.",
        evidence={**answer.evidence, **shown},
    )


def _judge(subject: Examined, done: Learned, first: float, least: float) -> Answer:
    steps, share, agree, _ = done
    numbers: dict[str, Any] = {"steps": steps, "first_loss": first, "least_loss": least}
    numbers |= {"share_of_the_way": round(share, 4), "agree": agree}
    said = f"After {steps} steps on 16 examples, {share:.0%} of the way to the least loss is done"
    if agree is not None:
        said += f", and {agree:.0%} of the predictions equal the labels"
    if share >= ENOUGH or agree == 1.0:
        if agree is not None and len(np.unique(subject.small_labels)) == 1:
            return unclear(f"{said}; but these are all one, so a constant is right.", **numbers)
        return passed(f"{said}.", **numbers)
    if steps < STEPS:
        return unclear(
            f"{said}; the time allowed no more steps.",
            "Run it alone: --only TRAIN003 --seconds 600.",
            **numbers,
        )
    if 2 * share - done.halfway >= ENOUGH:  # half as many more would do, at the last half's pace
        return unclear(f"{said}; it is on its way, and needs more steps than these.", **numbers)
    other = subject.with_adam()
    with_adam = 0.0 if other is None else _train(subject, other, first, least).share
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
