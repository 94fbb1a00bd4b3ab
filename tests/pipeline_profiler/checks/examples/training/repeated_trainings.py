"""Planted faults and healthy twins for `training/repeated_trainings.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import lr_scheduler, nn
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import descent, toy_around, toy_net, toy_training


def _noisy() -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        return net(pixels) * float(np.random.default_rng().uniform(0.5, 1.5))

    return toy_training(toy_around(forward))


def _dropout() -> Any:
    return toy_training(nn.Sequential(nn.Dropout(0.3), toy_net()))


def _counting() -> Any:
    class Counting(nn.Module):
        """Scales its outputs by a running mean that no state_dict() holds."""

        def __init__(self) -> None:
            super().__init__()
            self.net, self.level = toy_net(), 1.0

        def forward(self, pixels: Any) -> Any:
            if self.training:
                self.level = 0.8 * self.level + 0.4
            return self.net(pixels) * self.level

    return toy_training(Counting())


def _own_schedule() -> Any:
    class Halved:
        """A schedule whose step number is nowhere saved."""

        def __init__(self, optimizer: Any) -> None:
            self.optimizer, self.number = optimizer, 0

        def step(self) -> None:
            self.number += 1
            for group in self.optimizer.param_groups:
                group["lr"] = 3e-3 / (1 + self.number)

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    return toy_training(schedule=Halved)


def _scheduled() -> Any:
    return toy_training(
        nn.Sequential(nn.Dropout(0.2), toy_net()),
        optimizer=descent("SGD", 0.1, momentum=0.9),
        schedule=lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    )


def _accumulated() -> Any:
    count = [0]

    def step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        value = loss(model(batch[0]), batch[1]) / 4
        value.backward()
        count[0] += 1
        if count[0] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value * 4

    return toy_training(train_step=step)


EXAMPLES = {
    "TRAIN008": Examples(
        planted=(("a generator without a seed", lambda: _noisy()),),
        healthy=(("dropout", lambda: _dropout()),),
    ),
    "TRAIN032": Examples(
        planted=(
            ("a value beside the state", lambda: _counting()),
            ("a schedule without state", lambda: _own_schedule()),
        ),
        healthy=(
            ("dropout, momentum and a schedule", lambda: _scheduled()),
            ("gradients of four steps", lambda: _accumulated()),
        ),
    ),
}
