"""Planted faults and healthy twins for `training/settings.py`."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checks.lazy import functional, lr_scheduler, nn, torch
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import (
    ToyImages,
    toy_around,
    toy_loader,
    toy_net,
    toy_step,
    toy_training,
)


def _planted(kind: str) -> Any:
    model, other = toy_net(), toy_net()
    frozen = {"frozen": model[-1:], "body": model[:3]}.get(kind, model[:0])
    frozen.requires_grad_(False)
    chosen = {"part": model[:3], "other": other, "body": model[-1]}.get(kind, model)
    return toy_training(model, optimizer=lambda m: torch.optim.SGD(chosen.parameters(), lr=0.1))


def _loose() -> Any:
    class Loose(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = toy_net()
            self.shift = torch.zeros(4).requires_grad_()

        def forward(self, pixels: Any) -> Any:
            return self.net(pixels) + self.shift

    return toy_training(Loose())


def _seeded() -> Any:
    torch.manual_seed(1)
    return _planted("body")


def _decayed(kind: str, decay: float, split: bool = False) -> Any:
    def make(model: Any) -> Any:
        weights = [p for p in model.parameters() if p.ndim > 1]
        flat = [p for p in model.parameters() if p.ndim <= 1]
        groups: Any = [{"params": weights}, {"params": flat, "weight_decay": 0.0}]
        chosen = groups if split else model.parameters()
        return getattr(torch.optim, kind)(chosen, lr=1e-3, weight_decay=decay)

    return toy_training(optimizer=make)


def _lambda(function: Any) -> Any:
    return toy_training(schedule=lambda o: lr_scheduler.LambdaLR(o, function))


def _restarted(place: int | None) -> Any:
    class Restarts(lr_scheduler.CosineAnnealingWarmRestarts):
        def step(self, epoch: Any = place) -> None:
            super().step(epoch)

    return toy_training(schedule=lambda o: Restarts(o, 10))


def _hidden(batches: int) -> Any:
    """A schedule in the user's own step, moved on after so many batches."""
    training, done = toy_training(), [0]
    schedule = lr_scheduler.StepLR(training.optimizer, 3, gamma=0.1)

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        value = toy_step(model, batch, loss, optimizer)
        done[0] += 1
        if done[0] % batches == 0:
            schedule.step()
        return value

    training.train_step = train_step
    return training


def _norm(**attributes: float) -> Any:
    model = toy_net()
    vars(model[1]).update(attributes)
    return toy_training(model)


def _of_ranks() -> Any:
    made: Any = ToyImages()
    return toy_training(
        loader=toy_loader(made, sampler=torch.utils.data.DistributedSampler(made, 2, 0))
    )


def _dropping(rate: float, last: bool) -> Any:
    model = toy_net(nn.Dropout(rate)) if last else nn.Sequential(nn.Dropout(rate), toy_net())
    return toy_training(model)


def _function(follows: bool) -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        return net(functional.dropout(pixels, 0.2, net.training if follows else True))

    return toy_training(toy_around(forward))


EXAMPLES = {
    "TRAIN006": Examples(
        planted=(
            ("the head is missing", lambda: _planted("part")),
            ("another model", lambda: _planted("other")),
            ("a plain tensor", lambda: _loose()),
            ("a frozen head", lambda: _planted("frozen")),
        ),
        healthy=(
            ("a frozen body on purpose", lambda: _planted("body")),
            ("a frozen body, by a seed of its own", lambda: _seeded()),
        ),
    ),
    "TRAIN007": Examples(
        planted=(
            ("AdamW at 0.3 on all", lambda: _decayed("AdamW", 0.3)),
            ("Adam with 0.1", lambda: _decayed("Adam", 0.1)),
        ),
        healthy=(
            ("AdamW as it comes", lambda: _decayed("AdamW", 0.01)),
            ("AdamW at 0.05 on all", lambda: _decayed("AdamW", 0.05)),
            ("SGD with 5e-4", lambda: _decayed("SGD", 5e-4)),
            ("0.3 with exceptions", lambda: _decayed("AdamW", 0.3, True)),
        ),
    ),
    "TRAIN014": Examples(
        planted=(
            ("an epoch's stairs by the batch", lambda: _hidden(1)),
            ("restarts that stand still", lambda: _restarted(0)),
            ("zero for long", lambda: _lambda(lambda step: max(0, step - 500) / 1000)),
            ("gone at once", lambda: _lambda(lambda step: 0.1**step)),
            ("rates for factors", lambda: _lambda(lambda step: 3e-3 * 0.99**step)),
        ),
        healthy=(
            ("a warm-up", lambda: _lambda(lambda step: min(1, step / 500))),
            ("an epoch's stairs", lambda: _hidden(16)),
            ("stairs that count epochs", lambda: _lambda(lambda step: 0.7**step)),
            ("stairs of seven epochs", lambda: _lambda(lambda step: 0.1 ** (step // 7))),
            ("restarts", lambda: _restarted(None)),
            ("a rate for long", lambda: _lambda(lambda step: 1.0)),
        ),
    ),
    "TRAIN025": Examples(
        planted=(
            (
                "a ghost batch of 64 in batches of 16",
                lambda: _norm(virtual_batch_size=64),
            ),
            ("momentum 0.99", lambda: _norm(momentum=0.99)),
            ("two examples", lambda: toy_training(loader=toy_loader(ToyImages(), batch_size=2))),
        ),
        healthy=(
            ("a ghost batch of 8", lambda: _norm(virtual_batch_size=8)),
            ("two ranks", lambda: _of_ranks()),
        ),
    ),
    "TRAIN027": Examples(
        planted=(
            ("a function that is always on", lambda: _function(False)),
            ("0.9", lambda: _dropping(0.9, False)),
            ("on the outputs", lambda: _dropping(0.3, True)),
        ),
        healthy=(
            ("a function that follows the mode", lambda: _function(True)),
            ("0.3", lambda: _dropping(0.3, False)),
        ),
    ),
}
