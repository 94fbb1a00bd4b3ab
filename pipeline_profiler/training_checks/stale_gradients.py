"""TRAIN016: gradients of earlier steps that are still there."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

CALLS = 12


class StaleGradients(Check):
    """A training step that adds its gradients to those of the steps before.

    ## What it does
    After each step of the optimizer, marks the gradients with NaN in a throw-away copy, and looks
    whether the mark is still there at the next step.

    ## Why is this bad
    Without zero_grad the sum of all gradients so far is the update: a momentum of 1 that never
    forgets.

    ## How it decides
    Fails where the mark reaches a later step of the optimizer. Accumulation over several batches
    clears its gradients after each step and passes; where a call makes no step, its gradients must
    still be there at the next one, else they were gathered for nothing. Exact.

    ## What to do
    optimizer.zero_grad() before backward(), of the optimizer that steps.

    ## Limits
    Needs `train_step` in your file: otherwise the step is ours, which clears.
    """

    code = "TRAIN016"
    name = "stale-gradients"
    torch_only = "a step of Keras clears its gradients by itself"

    def run(self, subject: TrainingSubject) -> Answer:
        """Mark and look."""
        training = subject.fresh()
        if training.train_step is None:
            return unclear("There is no train_step of yours: the step is ours, and it clears.")
        state = {"stale": 0, "steps": 0, "marked": 0, "lost": 0}
        parameters = [p for group in training.optimizer.param_groups for p in group["params"]]

        def look(*_: Any) -> None:
            state["steps"] += 1
            found = [p for p in parameters if p.grad is not None]
            kept = any(bool(p.grad.isnan().all()) for p in found)
            if state["marked"]:  # by a call that made no step: this is to be added to
                state["lost"] += not kept
            elif state["steps"] > 1 and kept:
                state["stale"] += 1
            state["marked"] = 0
            for p in found:  # the step itself shall see clean numbers
                p.grad.nan_to_num_(0.0)

        def mark(*_: Any) -> None:
            for p in parameters:
                if p.grad is not None:
                    p.grad.fill_(float("nan"))

        hooks = [
            training.optimizer.register_step_pre_hook(look),
            training.optimizer.register_step_post_hook(mark),
        ]
        for number in range(CALLS):
            steps = state["steps"]
            subject.step(training, subject.batches[number % len(subject.batches)])
            if state["steps"] == steps and any(p.grad is not None for p in parameters):
                mark()
                state["marked"] = 1
        for hook in hooks:
            hook.remove()
        if state["lost"] and not state["stale"]:
            return _lost(state["lost"], state["steps"])
        return _judge(state["stale"], state["steps"])

    @staticmethod
    def _step(clear: bool, every: int = 1, early: bool = False) -> Any:
        calls = {"n": 0}

        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            if early:
                optimizer.zero_grad()
            value = loss(model(batch[0]), batch[1]) / every
            value.backward()
            calls["n"] += 1
            if calls["n"] % every == 0:
                optimizer.step()
                if clear:
                    optimizer.zero_grad()
            return value

        return toy_training(train_step=train_step)

    PLANTED = (
        Example("no zero_grad", lambda: StaleGradients._step(False)),
        Example("cleared before all are gathered", lambda: StaleGradients._step(True, 4, True)),
    )
    HEALTHY = (
        Example("cleared", lambda: StaleGradients._step(True)),
        Example("accumulated over four", lambda: StaleGradients._step(True, 4)),
    )


def _lost(lost: int, steps: int) -> Answer:
    return wrong(
        f"Before {lost} of {steps} steps of the optimizer, gradients of earlier calls were cleared "
        "without having been used.",
        ["zero_grad() in every call, and a step only in every n-th"],
        "Call zero_grad() right after the optimizer's step only.",
        lost=lost,
        steps=steps,
    )


def _judge(stale: int, steps: int) -> Answer:
    numbers = {"steps": steps, "stale": stale}
    if not steps:
        return unclear(f"The optimizer made no step in {CALLS} calls of train_step.", "", **numbers)
    if stale:
        return wrong(
            f"In {stale} of {steps} steps of the optimizer the gradients of the step before were "
            "still there.",
            [
                "zero_grad() is missing",
                "zero_grad() of another optimizer or model",
                "zero_grad() between backward() and step(), with the old gradients kept elsewhere",
            ],
            "Call optimizer.zero_grad() before each backward() (or after each step()).",
            **numbers,
        )
    return passed(f"Gradients are cleared between all {steps} steps of the optimizer.", **numbers)
