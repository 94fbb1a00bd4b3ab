"""Planted faults and healthy twins for `training/weights.py`."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checks.lazy import nn
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import descent, toy_net, toy_training


def _net(cut: bool) -> Any:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = toy_net(classes=16)
            self.head = nn.Linear(16, 4)
            self.scale = nn.Parameter(self.head.weight.new_zeros(1))

        def forward(self, pixels: Any) -> Any:
            features = self.body(pixels)
            features = features.detach() if cut else features
            return self.head(features) + self.scale * self.head(features.tanh())

    return toy_training(Cut())


def _no_step() -> Any:
    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.zero_grad()
        optimizer.step()
        return value

    return toy_training(toy_net(), train_step=train_step)


def _constant(layers: list[int], value: float) -> Any:
    model = toy_net()
    for number in layers:
        model[number].weight.data.fill_(value)
    return toy_training(model)


EXAMPLES = {
    "TRAIN005": Examples(
        planted=(("detach in forward", lambda: _net(True)),),
        healthy=(("a branch that starts at zero", lambda: _net(False)),),
    ),
    "TRAIN012": Examples(
        planted=(
            ("cleared before the step", lambda: _no_step()),
            ("Adam at 1", lambda: toy_training(optimizer=descent("Adam", 1.0))),
            ("SGD at 1e-9", lambda: toy_training(optimizer=descent("SGD", 1e-9))),
        )
    ),
    "TRAIN019": Examples(
        planted=(("constants", lambda: _constant([0, 5], 0.1)),),
        healthy=(("a last layer of zeros", lambda: _constant([5], 0.0)),),
    ),
}
