"""The model of a training: its structure and weights, and what outputs depend on."""

from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import nn, torch
from pipeline_profiler.checks.loop_facts import LoopFacts
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import (
    ToyRows,
    toy_around,
    toy_language,
    toy_loader,
    toy_net,
    toy_regression,
    toy_training,
)


def _parts(forward: Any, *parts: Any, **options: Any) -> Any:
    """A training of `forward(parts, inputs)`."""
    return toy_training(toy_around(forward, nn.ModuleList(parts)), **options)


def _stack(shared: bool, parallel: bool = False) -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        body, blocks, head = net
        hidden = body(pixels)
        if parallel:
            return head(sum(b(hidden * n) for n, b in enumerate(blocks, 1)))
        for block in blocks:
            hidden = block(hidden).relu()
        return head(hidden)

    block = nn.Linear(32, 32)
    blocks = [block] * 3 if shared else [nn.Linear(32, 32) for _ in range(3)]
    return _parts(forward, toy_net(classes=32), nn.ModuleList(blocks), nn.Linear(32, 4))


def _misspelt(name: str, of_module: bool = False) -> Any:
    training = toy_training()
    for part in [training.model[0]] if of_module else training.model[0].parameters():
        setattr(part, name, False)
    return training


def _net(cut: bool) -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        features = net[0](pixels)
        features = features.detach() if cut else features
        return net[1](features) + net[2][0] * net[1](features.tanh())

    scale = nn.ParameterList([torch.zeros(1)])
    return _parts(forward, toy_net(classes=16), nn.Linear(16, 4), scale)


def _rows(tokens: Any, labels: Any) -> Any:
    return {"loader": toy_loader(ToyRows(tokens, labels))}


TOKENS = np.where(
    np.arange(12) < np.random.default_rng(0).integers(4, 12, 256)[:, None],
    np.random.default_rng(1).integers(1, 30, (256, 12)),
    0,
)


def _padding_masked(turned: bool) -> Any:
    def forward(net: Any, tokens: Any) -> Any:
        embed, attend, head, first = net
        row = torch.cat([tokens.new_zeros(len(tokens), 1), tokens], 1)
        hidden = torch.cat([first[0].expand(len(row), -1, -1), embed(tokens)], 1).transpose(0, 1)
        mask = (row != 0) if turned else (row == 0)
        mask[:, 0] = False
        return head(attend(hidden, hidden, hidden, key_padding_mask=mask)[0][0])

    parts = nn.Embedding(30, 16), nn.MultiheadAttention(16, 2, 0.0), nn.Linear(16, 3)
    first = nn.ParameterList([torch.zeros(1, 1, 16)])
    return _parts(forward, *parts, first, **_rows(TOKENS, TOKENS[:, 0] % 3))


def _recurrent(batch_first: bool) -> Any:
    """Rows of pixels, one after the other; an example takes the place of time where wrong."""

    def forward(net: Any, pixels: Any) -> Any:
        return net[1](net[0](pixels.permute(0, 2, 1, 3).flatten(2))[0][:, -1])

    return _parts(forward, nn.LSTM(24, 16, batch_first=batch_first), nn.Linear(16, 4))


def _graph(sparse: bool) -> Any:
    """All nodes of one graph in each step."""
    links = (torch.rand(60, 60) < 0.1).float()
    links = ((links + links.T) > 0).float()
    batch = ((torch.randn(60, 8), links.to_sparse() if sparse else links), torch.arange(60) % 4)

    class Convolved(nn.Linear):
        def forward(self, features: Any, adjacency: Any) -> Any:
            return adjacency @ super().forward(features)

    return toy_training(Convolved(8, 4), loader=[batch] * 4)


def _sentences() -> Any:
    """A loop over sentences without a loader: an LSTM of (time, features)."""
    rows = [(torch.randn(length, 8), torch.arange(length) % 4) for length in (9, 12, 7, 10)]
    options = {"loader": rows, "loop": LoopFacts(steps=6, epochs=2)}
    return _parts(lambda net, x: net[1](net[0](x)[0]), nn.LSTM(8, 16), nn.Linear(16, 4), **options)


def _packed(trimmed: bool) -> Any:
    """Padded rows of tokens, tagged by an LSTM that ends with the longest row of a batch."""

    def forward(net: Any, tokens: Any) -> Any:
        lengths, options = (tokens > 0).sum(1).clamp(min=1), {"batch_first": True}
        rows = nn.utils.rnn.pack_padded_sequence(
            net[0](tokens), lengths, enforce_sorted=False, **options
        )
        hidden = nn.utils.rnn.pad_packed_sequence(net[1](rows)[0], **options)[0]
        return net[2](hidden if trimmed else hidden - hidden.mean(0, keepdim=True))

    def loss(outputs: Any, tokens: Any) -> Any:
        wanted = tokens[:, : outputs.shape[1]] % 4
        return nn.functional.cross_entropy(outputs.transpose(1, 2), wanted)

    parts = nn.Embedding(30, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)
    return _parts(forward, *parts, loss=loss, **_rows(TOKENS, TOKENS))


def _flat_outputs() -> Any:
    return toy_regression(flat=True, model=nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)))


def _around(forward: Any) -> Any:
    return lambda: toy_training(toy_around(forward))


def _packed(trimmed: bool) -> Any:
    """Padded rows of tokens, tagged by an LSTM that ends with the longest row of a batch."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.tag = nn.Embedding(30, 8), nn.Linear(16, 4)
            self.lstm = nn.LSTM(8, 16, batch_first=True)

        def forward(self, tokens: Any) -> Any:
            lengths = (tokens > 0).sum(1).clamp(min=1)
            rows = nn.utils.rnn.pack_padded_sequence(
                self.embed(tokens), lengths, batch_first=True, enforce_sorted=False
            )
            hidden = nn.utils.rnn.pad_packed_sequence(self.lstm(rows)[0], batch_first=True)[0]
            return self.tag(hidden if trimmed else hidden - hidden.mean(0, keepdim=True))

    def loss(outputs: Any, tokens: Any) -> Any:
        wanted = tokens[:, : outputs.shape[1]] % 4
        return nn.functional.cross_entropy(outputs.transpose(1, 2), wanted)

    rng = np.random.default_rng(0)
    ends = rng.integers(4, 12, 256)[:, None]
    tokens = np.where(np.arange(12) < ends, rng.integers(1, 30, (256, 12)), 0)
    return toy_training(Tagger(), loss, loader=toy_loader(ToyRows(tokens, tokens)))


EXAMPLES: Rows = [
    ("TRAIN005", FAULT, "[layer] * 3", lambda: _stack(True)),
    ("TRAIN005", TWIN, "three layers", lambda: _stack(False)),
    ("TRAIN005", TWIN, "one head on several inputs", lambda: _stack(True, parallel=True)),
    ("TRAIN005", FAULT, "detach in forward", lambda: _net(True)),
    ("TRAIN005", TWIN, "a branch that starts at zero", lambda: _net(False)),
    ("TRAIN046", FAULT, "param.require_grad", lambda: _misspelt("require_grad")),
    ("TRAIN046", FAULT, "module.requires_grad", lambda: _misspelt("requires_grad", of_module=True)),
    ("TRAIN046", TWIN, "param.requires_grad", lambda: _misspelt("requires_grad")),
    ("TRAIN003", TWIN, "a sparse graph", lambda: _graph(True)),
    ("TRAIN004", FAULT, "a mask turned round", lambda: _padding_masked(True)),
    ("TRAIN004", FAULT, "multiplied by zero", _around(lambda net, pixels: net(pixels * 0))),
    ("TRAIN004", TWIN, "a mask of the padding", lambda: _padding_masked(False)),
    ("TRAIN004", FAULT, "an LSTM without batch_first", lambda: _recurrent(False)),
    ("TRAIN004", TWIN, "an LSTM with batch_first", lambda: _recurrent(True)),
    ("TRAIN004", TWIN, "a graph", lambda: _graph(False)),
    ("TRAIN004", TWIN, "a sparse graph", lambda: _graph(True)),
    ("TRAIN004", TWIN, "a number for each sample", _flat_outputs),
    ("TRAIN004", TWIN, "rows as long as their batch", lambda: _packed(True)),
    ("TRAIN004", FAULT, "rows less their mean", lambda: _packed(False)),
    ("TRAIN004", TWIN, "time first, without a loader", _sentences),
    ("TRAIN004", FAULT, "squeeze()", _around(lambda net, pixels: net(pixels).squeeze())),
    ("TRAIN004", TWIN, "a model that samples", _around(lambda net, x: torch.normal(net(x), 0.1))),
    ("TRAIN004", FAULT, "no mask", lambda: toy_language(causal=False)),
    ("TRAIN004", FAULT, "labels shifted twice", lambda: toy_language(ahead=2)),
    ("TRAIN004", FAULT, "labels not shifted", lambda: toy_language(ahead=0)),
    ("TRAIN004", TWIN, "a class for each place", lambda: toy_language(False, ahead=0)),
]
