"""TRAIN008: the same seed that gives another training."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    Nearness,
    passed,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

STEPS = 4
NEAR = 1e-3  # relative; sums in another order on a GPU stay below


class Determinism(Check):
    """A training that differs although everything was seeded alike.

    ## What it does
    Makes the training twice after the same seed, compares the weights, trains both on the same
    batches for four steps and compares the losses.

    ## Why is this bad
    Two runs that differ by an unknown amount cannot show what a change is worth.

    ## How it decides
    Fails where the first weights differ at all, or the losses by more than a thousandth. On a CPU
    they agree to the last bit; sums in another order on a GPU stay below this bound.

    ## What to do
    Seed random, numpy and torch before the model is made; no generator without a seed.

    ## Limits
    What differs between processes (hash order) is not seen, nor what builds up over many steps.
    """

    code = "TRAIN008"
    name = "not-deterministic"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        """Twice the same."""
        import torch

        one, two = subject.fresh(subject.seed), subject.fresh(subject.seed)
        same = all(
            torch.equal(a, b)
            for a, b in zip(
                one.model.state_dict().values(), two.model.state_dict().values(), strict=True
            )
        )
        losses = [_losses(subject, subject.fresh(subject.seed)) for _ in range(2)]
        return _judge(same, losses)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Twice the same."""
        states, losses = [], []
        for _ in range(2):
            training = subject.fresh(subject.seed)
            states.append(list(subject.state(training).values()))
            batches = subject.batches
            losses.append([subject.step(training, batches[i % len(batches)]) for i in range(STEPS)])
        same = all(np.array_equal(a, b) for a, b in zip(*states, strict=True))
        return _judge(same, losses)

    @staticmethod
    def _noisy() -> Any:
        from torch import nn

        class Noisy(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net, self.rng = toy_net(), np.random.default_rng()

            def forward(self, pixels: Any) -> Any:
                return self.net(pixels) * float(np.random.default_rng().uniform(0.5, 1.5))

        return toy_training(Noisy())

    @staticmethod
    def _dropout() -> Any:
        from torch import nn

        return toy_training(nn.Sequential(nn.Dropout(0.3), toy_net()))

    PLANTED = (Example("a generator without a seed", _noisy),)
    HEALTHY = (Example("a small network", toy_training), Example("dropout", _dropout))


def _losses(subject: TrainingSubject, training: Any) -> list[float]:
    from pipeline_profiler.checking.torch_state import seed_everything

    batches = subject.batches  # taken before seeding: loading draws numbers
    seed_everything(subject.seed)
    return [subject.step(training, batches[i % len(batches)]) for i in range(STEPS)]


def _judge(same: bool, losses: list[list[float]]) -> Answer:
    apart = [abs(a - b) / (abs(a) + 1e-9) for a, b in zip(*losses, strict=True)]
    numbers: dict[str, Any] = {"equal_weights": same, "largest_difference": max(apart)}
    if not same or max(apart) > NEAR:
        what = "the losses differ" if same else "the first weights differ already"
        at = next((i for i, d in enumerate(apart) if d > NEAR), 0)
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
    return passed(f"Two trainings with one seed agree {exact} over {STEPS} steps.", **numbers)
