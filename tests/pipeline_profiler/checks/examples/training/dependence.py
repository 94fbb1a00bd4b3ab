"""Planted faults and healthy twins for `training/dependence.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import nn, torch
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import (
    ToyRows,
    toy_around,
    toy_language,
    toy_loader,
    toy_training,
)


def _masked(turned: bool) -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.attend = nn.Embedding(30, 16), nn.MultiheadAttention(16, 2, 0.0)
            self.first, self.head = nn.Parameter(torch.zeros(1, 1, 16)), nn.Linear(16, 3)

        def forward(self, tokens: Any) -> Any:
            row = torch.cat([tokens.new_zeros(len(tokens), 1), tokens], 1)
            hidden = torch.cat([self.first.expand(len(row), -1, -1), self.embed(tokens)], 1)
            mask = (row != 0) if turned else (row == 0)
            mask[:, 0], hidden = False, hidden.transpose(0, 1)
            return self.head(self.attend(hidden, hidden, hidden, key_padding_mask=mask)[0][0])

    rng = np.random.default_rng(0)
    tokens = np.where(
        np.arange(12) < rng.integers(4, 12, 256)[:, None], rng.integers(1, 30, (256, 12)), 0
    )
    rows = ToyRows(tokens, tokens[:, 0] % 3)
    return toy_training(Net(), loader=toy_loader(rows))


def _over_batch() -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        outputs = net(pixels)
        return outputs - outputs.mean(0, keepdim=True)

    return toy_training(toy_around(forward))


def _recurrent(batch_first: bool) -> Any:
    """Rows of pixels, one after the other; an example takes the place of time where wrong."""

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(24, 16, batch_first=batch_first)
            self.head = nn.Linear(16, 4)

        def forward(self, pixels: Any) -> Any:
            rows = pixels.permute(0, 2, 1, 3).flatten(2)
            return self.head(self.lstm(rows)[0][:, -1])

    return toy_training(Rows())


def _sampling() -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        found = net(pixels)
        return found + 0.1 * found.new_empty(found.shape).normal_()

    return toy_training(toy_around(forward))


EXAMPLES = {
    "TRAIN002": Examples(
        planted=(
            ("a mask turned round", lambda: _masked(True)),
            (
                "multiplied by zero",
                lambda: toy_training(toy_around(lambda net, pixels: net(pixels * 0))),
            ),
        ),
        healthy=(("a mask of the padding", lambda: _masked(False)),),
    ),
    "TRAIN004": Examples(
        planted=(
            ("a mean over the batch", lambda: _over_batch()),
            ("an LSTM without batch_first", lambda: _recurrent(False)),
        ),
        healthy=(("an LSTM with batch_first", lambda: _recurrent(True)),),
    ),
    "TRAIN011": Examples(
        planted=(
            (
                "squeeze without an axis",
                lambda: toy_training(toy_around(lambda net, pixels: net(pixels).squeeze())),
            ),
        ),
        healthy=(("a model that samples", lambda: _sampling()),),
    ),
    "TRAIN022": Examples(
        planted=(
            ("no mask", lambda: toy_language(causal=False)),
            ("labels shifted twice", lambda: toy_language(ahead=2)),
            ("labels not shifted", lambda: toy_language(ahead=0)),
        ),
        healthy=(("a class for each place, by all places", lambda: toy_language(False, ahead=0)),),
    ),
}
