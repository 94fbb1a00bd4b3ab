"""TRAIN009: training in eval mode, or evaluation in train mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_training import Training, call_evaluate

MODAL = ("Dropout", "BatchNorm", "AlphaDropout", "InstanceNorm", "DropPath", "StochasticDepth")


class WrongMode(Check):
    """train() and eval() at the wrong place.

    ## What it does
    Watches the mode of the model during your own train_step and evaluate, and after them.

    ## Why is this bad
    Evaluated in train mode, dropout and batch statistics make the metric noisy and dependent on the
    batch; trained in eval mode, dropout is off and the running statistics never move.

    ## How it decides
    Fails where a model with dropout or batch norm is evaluated in train mode, is in eval mode in
    your training step although it was handed over in train mode, or the evaluation changes running
    statistics. Exact. Sub-modules in eval mode (a frozen batch norm) are not judged.

    ## What to do
    model.train() at the start of each training epoch, model.eval() at the start of each evaluation.

    ## Limits
    Needs `train_step` or `evaluate` in your file. Loops around them are not seen, so an evaluation
    that leaves the model in eval mode is only reported.
    """

    code = "TRAIN009"
    name = "wrong-mode"

    def run(self, subject: TrainingSubject) -> Answer:
        """Watch both functions."""
        training = subject.fresh()
        if training.train_step is None and training.evaluate is None:
            return unclear("There is neither train_step nor evaluate of yours to watch.")
        modal = [
            type(m).__name__
            for m in training.model.modules()
            if any(word in type(m).__name__ for word in MODAL)
        ]
        if not modal:
            return passed("The model has no module that behaves differently by mode.")
        problems = [*_in_training(subject, training), *_in_evaluation(subject, training)]
        if problems:
            return wrong(
                f"{problems[0][0]}.",
                problems[0][1],
                "Call model.train() before training and model.eval() before evaluating.",
                modules=sorted(set(modal)),
                problems=[text for text, _ in problems],
            )
        after = "train" if training.model.training else "eval"
        return passed(
            f"Training and evaluation run in their modes; the model is left in {after} mode.",
            left_in=after,
        )

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Two predictions, and the statistics before and after."""
        training, inputs = subject.fresh(), subject.batches[0][0]
        before = subject.state(training)
        one, two = (subject.outputs(training, inputs) for _ in range(2))
        after = subject.state(training)
        changed = [path for path, value in before.items() if not np.array_equal(value, after[path])]
        if changed:
            return _always_training(f"A prediction changes {changed[0]}", "batch normalisation")
        if not np.allclose(one, two, rtol=1e-4, atol=1e-6):
            return _always_training("Two predictions of one batch differ", "dropout or noise")
        return passed("Predictions repeat and change no statistics: layers follow the mode.")

    @staticmethod
    def _evaluated(right: bool) -> Any:
        import torch

        def evaluate(model: Any, loader: Any) -> float:
            if right:
                model.eval()
            with torch.no_grad():
                hits = [float((model(x).argmax(1) == y).float().mean()) for x, y in loader]
            model.train()
            return sum(hits) / len(hits)

        return toy_training(evaluate=evaluate)

    @staticmethod
    def _trained() -> Any:
        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            model.eval()
            optimizer.zero_grad()
            value = loss(model(batch[0]), batch[1])
            value.backward()
            optimizer.step()
            return value

        return toy_training(train_step=train_step)

    @staticmethod
    def _frozen_norm() -> Any:
        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            model.train()
            model[1].eval()
            optimizer.zero_grad()
            value = loss(model(batch[0]), batch[1])
            value.backward()
            optimizer.step()
            return value

        return toy_training(toy_net(), train_step=train_step)

    PLANTED = (
        Example("evaluated in train mode", lambda: WrongMode._evaluated(False)),
        Example("trained in eval mode", _trained),
    )
    HEALTHY = (
        Example("evaluated in eval mode", lambda: WrongMode._evaluated(True)),
        Example("a frozen batch norm", _frozen_norm),
        Example("no functions", toy_training),
    )


def _watched(training: Training) -> tuple[list[bool], Any]:
    modes: list[bool] = []
    hook = training.model.register_forward_pre_hook(lambda m, _: modes.append(m.training))
    return modes, hook


def _in_training(subject: TrainingSubject, training: Training) -> list[tuple[str, list[str]]]:
    if training.train_step is None:
        return []
    modes, hook = _watched(training)
    subject.step(training, subject.batches[0])
    hook.remove()
    if modes and not modes[0]:
        return [
            (
                "The training step runs the model in eval mode",
                ["model.eval() in the training step", "train() is never called after eval()"],
            )
        ]
    return []


def _in_evaluation(subject: TrainingSubject, training: Training) -> list[tuple[str, list[str]]]:
    if training.evaluate is None:
        return []
    training.model.train()
    modes, hook = _watched(training)
    call_evaluate(training, [batch[0] for batch in subject.batches[:2]])
    hook.remove()
    if any(modes):
        return [("The evaluation runs the model in train mode", ["model.eval() is missing"])]
    return []


def _always_training(text: str, layer: str) -> Answer:
    return wrong(
        f"{text} although training=False.",
        [f"training=True is fixed in the call of a layer ({layer})"],
        "Call the layer without training=True: Keras passes the mode on.",
    )
