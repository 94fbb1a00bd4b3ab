"""Small trainings for the examples of checks: a network of a few units on learnable pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline_profiler.checking.toys import CLASSES, ToyImages, toy_loader
from pipeline_profiler.checking.user_training import Training


def toy_net(*last: Any, width: int = 24, classes: int = CLASSES) -> Any:
    """Convolution, batch norm, ReLU, linear; `last` are modules after the outputs."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
        *last,
    )


def toy_training(model: Any = None, loss: Any = None, **parts: Any) -> Training:
    """Adam at 0.003 on shuffled toy pictures; `optimizer` may be a function of the model."""
    import torch
    from torch import nn

    model = model if model is not None else toy_net()
    make_optimizer: Callable[..., Any] = parts.pop(
        "optimizer", lambda m: torch.optim.Adam(m.parameters(), lr=3e-3)
    )
    loader = parts.pop("loader", None) or toy_loader(ToyImages())
    optimizer = make_optimizer(model)
    schedule = parts.pop("schedule", lambda o: None)(optimizer)
    return Training(
        model, loader, loss or nn.CrossEntropyLoss(), optimizer, schedule=schedule, **parts
    )


class ToyNumbers:
    """Eight numbers and a target that is nearly linear in them: (8,) floats, (1,) or () target."""

    def __init__(
        self, count: int = 256, flat: bool = False, scale: float = 1.0, mean: float = 0.0
    ) -> None:
        """`flat`: targets without an axis; `scale` and `mean` of the targets."""
        rng = np.random.default_rng(0)
        self.inputs = rng.normal(0, 1, (count, 8)).astype(np.float32)
        target = self.inputs[:, :2].sum(axis=1) + 0.1 * rng.normal(0, 1, count)
        target = target * scale + mean * 1.4
        self.targets = target.astype(np.float32).reshape((count,) if flat else (count, 1))

    def __len__(self) -> int:
        """Examples."""
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """(inputs, target)."""
        return self.inputs[index], self.targets[index]


def toy_regression(
    flat: bool = False, scale: float = 1.0, mean: float = 0.0, **parts: Any
) -> Training:
    """A regression with squared error."""
    from torch import nn

    model = parts.pop("model", None) or nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    loader = toy_loader(ToyNumbers(flat=flat, scale=scale, mean=mean))
    return toy_training(model, parts.pop("loss", None) or nn.MSELoss(), loader=loader, **parts)


class ToyTokens:
    """Rows of tokens; the target of each place is the next token, padded with 0 at the end."""

    def __init__(self, count: int = 256, length: int = 12, vocabulary: int = 9) -> None:
        """Tokens count upwards from a random start, modulo the vocabulary."""
        rng = np.random.default_rng(0)
        start, stop = rng.integers(0, vocabulary - 1, count), rng.integers(5, length + 1, count)
        rows = (start[:, None] + np.arange(length + 1)) % (vocabulary - 1) + 1
        self.inputs = rows[:, :-1].astype(np.int64)
        self.targets = rows[:, 1:].astype(np.int64)
        places = np.arange(length)
        self.inputs[places >= stop[:, None]] = 0
        self.targets[places >= stop[:, None]] = 0

    def __len__(self) -> int:
        """Rows."""
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """(tokens, next tokens)."""
        return self.inputs[index], self.targets[index]


def toy_language(causal: bool = True, ignore: bool = True, **parts: Any) -> Training:
    """A one-layer transformer over such rows; outputs (batch, place, token)."""
    from torch import nn
    from torch.nn import functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 16)
            self.place = nn.Embedding(12, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
            self.head = nn.Linear(16, 9)

        def forward(self, tokens: Any) -> Any:
            import torch

            length = tokens.shape[1]
            mask = nn.Transformer.generate_square_subsequent_mask(length) if causal else None
            places = torch.arange(length, device=tokens.device)
            return self.head(self.layer(self.embed(tokens) + self.place(places), src_mask=mask))

    def loss(outputs: Any, targets: Any) -> Any:
        ignored = 0 if ignore else -100
        flat = outputs.reshape(-1, outputs.shape[-1])
        return functional.cross_entropy(flat, targets.reshape(-1), ignore_index=ignored)

    return toy_training(
        parts.pop("model", None) or Net(),
        parts.pop("loss", None) or loss,
        loader=toy_loader(ToyTokens()),
        **parts,
    )
