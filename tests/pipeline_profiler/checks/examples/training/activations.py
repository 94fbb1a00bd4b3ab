"""Planted faults and healthy twins for `training/activations.py`."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checks.lazy import nn, torch
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import ToyImages, toy_loader, toy_net, toy_training


def _biased() -> Any:
    model: Any = toy_net()
    model[1].bias.data.fill_(-20.0)
    return toy_training(model)


def _saturated() -> Any:
    model: Any = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Tanh(), nn.Linear(32, 4))
    model[1].weight.data *= 500
    return toy_training(model)


def _overflowing(factor: float, hide: bool = True, kind: str = "float16") -> Any:
    dataset = ToyImages(64)
    dataset.pixels = dataset.pixels * factor

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", getattr(torch, kind)):
            outputs = model(batch[0])
        value = loss(outputs.float(), batch[1])
        if hide:
            value = torch.nan_to_num(value)
        value.backward()
        optimizer.step()
        return value

    loader = toy_loader(dataset, batch_size=8)
    return toy_training(toy_net(width=4), loader=loader, train_step=train_step)


def _scaled(scale: float) -> Any:
    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        (value * scale).backward()
        found = [p.grad for p in model.parameters()]
        if all(bool(torch.isfinite(gradient).all()) for gradient in found):
            for gradient in found:
                gradient /= scale
            optimizer.step()
        return value

    return toy_training(toy_net(width=4), train_step=train_step)


EXAMPLES = {
    "TRAIN023": Examples(
        planted=(
            ("a bias of -20", lambda: _biased()),
            ("saturated", lambda: _saturated()),
        )
    ),
    "TRAIN028": Examples(
        planted=(
            ("nan_to_num around the loss", lambda: _overflowing(1e5)),
            ("a scale that never falls", lambda: _scaled(1e41)),
        ),
        healthy=(
            ("a scale of 1,024", lambda: _scaled(1024.0)),
            ("bfloat16", lambda: _overflowing(1.0, False, "bfloat16")),
        ),
    ),
}
