"""Trainings that are run: short ones and repeated ones."""

from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import functional, lr_scheduler, nn, torch
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import (
    ToyRows,
    descent,
    toy_around,
    toy_loader,
    toy_net,
    toy_regression,
    toy_training,
    warm_up_and_decay,
)


def _steep(kind: str, rate: float, **options: Any) -> Any:
    return lambda: toy_training(optimizer=descent(kind, rate, **options))


def _linear_bottleneck() -> Any:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 1), nn.Tanh(), nn.Linear(1, 4))
    return toy_training(model, optimizer=descent("SGD", 1e-6))


def _variational(sign: int) -> Any:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(8, 16), nn.Linear(8, 8)

        def forward(self, rows: Any) -> Any:
            mean, log_variance = self.encoder(rows).chunk(2, 1)
            drawn = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            return self.decoder(drawn), mean, log_variance

    def loss(outputs: Any, rows: Any) -> Any:
        made, mean, log_variance = outputs
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
        return ((made - rows) ** 2).sum(1).mean() + sign * kl.mean()

    inputs = np.random.default_rng(0).normal(0, 2, (256, 8)).astype(np.float32)
    loader = toy_loader(ToyRows(inputs, inputs))
    return toy_training(Autoencoder(), loss, loader=loader, optimizer=descent("Adam", 1e-2))


def _signed(sign: float) -> Any:
    """Cross-entropy and, by sign, a penalty or a reward of large outputs."""
    return lambda o, t: functional.cross_entropy(o, t) + sign * 0.05 * (o**2).sum(1).mean()


def _density() -> Any:
    """The mean and logarithmic spread of numbers that spread by a hundredth."""

    def loss(outputs: Any, targets: Any) -> Any:
        mean, spread = outputs[:, :1], outputs[:, 1:]
        return (spread + ((targets / 100 - mean) / spread.exp()) ** 2 / 2).mean()

    return toy_regression(model=nn.Linear(8, 2), loss=loss)


def _noisy() -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        return net(pixels) * float(np.random.default_rng().uniform(0.5, 1.5))

    return toy_training(toy_around(forward))


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


class _Halved:
    """A schedule whose step number is nowhere saved."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.number = optimizer, 0

    def step(self) -> None:
        self.number += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 3e-3 / (1 + self.number)


def _scheduled() -> Any:
    """Dropout, momentum, a schedule, and gradients of four batches."""
    count, sgd = [0], descent("SGD", 0.1, momentum=0.9)

    def step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        value = loss(model(batch[0]), batch[1]) / 4
        value.backward()
        count[0] += 1
        if count[0] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value * 4

    model = nn.Sequential(nn.Dropout(0.2), toy_net())
    stairs = {"schedule": lambda o: lr_scheduler.StepLR(o, 2, 0.5)}
    return toy_training(model, optimizer=sgd, train_step=step, **stairs)


EXAMPLES: Rows = [
    ("TRAIN003", FAULT, "hardly a step", _steep("SGD", 1e-6)),
    ("TRAIN003", FAULT, "one unit", _linear_bottleneck),
    ("TRAIN003", TWIN, "a loss with a least value above 0", lambda: _variational(1)),
    ("TRAIN003", TWIN, "slow and steady", lambda: toy_regression(optimizer=descent("SGD", 1.5e-3))),
    ("TRAIN003", TWIN, "a decay to 0", lambda: toy_training(schedule=warm_up_and_decay)),
    ("TRAIN015", FAULT, "upwards", _steep("SGD", 0.05, maximize=True)),
    ("TRAIN015", FAULT, "hardly at all", _steep("SGD", 1e-7)),
    ("TRAIN015", FAULT, "a term with the wrong sign", lambda: toy_training(loss=_signed(-1.0))),
    ("TRAIN015", FAULT, "a term of several outputs", lambda: _variational(-1)),
    ("TRAIN015", TWIN, "a penalty of large outputs", lambda: toy_training(loss=_signed(1.0))),
    ("TRAIN015", TWIN, "a density above one", _density),
    ("TRAIN008", FAULT, "a generator without a seed", _noisy),
    ("TRAIN008", TWIN, "dropout", lambda: toy_training(nn.Sequential(nn.Dropout(0.3), toy_net()))),
    ("TRAIN032", FAULT, "a value beside the state", _counting),
    ("TRAIN032", FAULT, "a schedule without state", lambda: toy_training(schedule=_Halved)),
    ("TRAIN032", TWIN, "dropout, momentum and a schedule", _scheduled),
]
