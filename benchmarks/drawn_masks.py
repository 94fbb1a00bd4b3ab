"""Drawn pictures with masks, and a network that learns them, for `subset_objects.py segmented`.

Pictures of 128 px hold one to four shapes of six classes, each with colours of its own. The network
is a U-Net of eight channels, trained here in under a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Things = list[tuple[int, Array]]  # of one picture: class from 1, mask
SIDE, KINDS = 128, 6


def draw_pictures(count: int, rng: np.random.Generator) -> tuple[Array, list[Things]]:
    """Return pictures (n, 3, 128, 128), and the class and mask of what each shows."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] + 0.5
    pictures = np.empty((count, 3, SIDE, SIDE), np.float32)
    things = list[Things]()
    for picture in pictures:
        blocks = np.kron(rng.normal(0, 0.15, (3, 8, 8)), np.ones((1, 16, 16)))
        picture[:] = rng.uniform(0.2, 0.8, (3, 1, 1)) + blocks
        own: Things = []
        for _ in range(rng.integers(1, 5)):
            kind, (w, h), turn = (
                int(rng.integers(KINDS)),
                rng.uniform(18, 56, 2),
                rng.normal(0, 0.2),
            )
            dx, dy = x - rng.uniform(12, SIDE - 12), y - rng.uniform(12, SIDE - 12)
            u = (np.cos(turn) * dx + np.sin(turn) * dy) / w * 2
            v = (np.cos(turn) * dy - np.sin(turn) * dx) / h * 2
            r, inside = np.hypot(u, v), (abs(u) < 1) & (abs(v) < 1)
            mask = (
                inside, r < 1, inside & (abs(u) < (v + 1) / 2),
                inside & ((abs(u) < 0.35) | (abs(v) < 0.35)), (r < 1) & (r > 0.45),
                abs(u) + abs(v) < 1,
            )[kind]  # fmt: skip
            if mask.sum() < 60 or any((mask & m).sum() > 0.25 * min(mask.sum(), m.sum())
                                      for _, m in own):  # fmt: skip
                continue
            hue = np.cos(2 * np.pi * (kind / KINDS + np.arange(3) / 3)) + rng.normal(0, 0.4, 3)
            shade = rng.uniform(0.2, 0.5) * hue
            picture[:, mask] += shade[:, None]
            own = [(c, m & ~mask) for c, m in own] + [(kind + 1, mask)]
        picture += rng.normal(0, 0.08, picture.shape)
        things.append([(c, m) for c, m in own if m.any()])
    return pictures, things


def class_map(own: Things) -> Array:
    """Return the class of each pixel, 0 for background."""
    found = np.zeros((SIDE, SIDE), np.uint8)
    for c, mask in own:
        found[mask] = c
    return found


def make_network() -> Any:
    """Return the untrained U-Net: (n, 3, side, side) to (n, classes + 1, side, side)."""
    import torch
    from torch import nn
    from torch.nn import functional

    def block(taken: int, given: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for n in (taken, given):
            layers += [nn.Conv2d(n, given, 3, 1, 1), nn.BatchNorm2d(given), nn.ReLU()]
        return nn.Sequential(*layers)

    class Net(nn.Module):
        def __init__(self, c: int = 8) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, c, 5, 2, 2)
            self.down = nn.ModuleList([block(c, c), block(c, 2 * c), block(2 * c, 4 * c),
                                       block(4 * c, 4 * c)])  # fmt: skip
            self.up = nn.ModuleList([block(8 * c, 2 * c), block(4 * c, c), block(2 * c, c)])
            self.last = nn.Conv2d(c, KINDS + 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def twice(y: torch.Tensor) -> torch.Tensor:
                return functional.interpolate(y, scale_factor=2, mode="bilinear")

            seen = [self.down[0](self.first(x))]
            for layer in list(self.down)[1:]:
                seen.append(layer(functional.max_pool2d(seen[-1], 2)))
            y = seen.pop()
            for layer in self.up:
                y = layer(torch.cat([twice(y), seen.pop()], 1))
            return twice(self.last(y))

    return Net()


def train(pictures: Array, masks: Array, rounds: int, each: Callable[[int, Any], None]) -> Any:
    """Return the network after `rounds` over the pictures; `each` is told the round and it."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = make_network()
    x, y = torch.from_numpy(pictures) - 0.5, torch.from_numpy(masks.astype(np.int64))
    steps = torch.optim.Adam(net.parameters(), 5e-3)
    slower = torch.optim.lr_scheduler.OneCycleLR(steps, 8e-3, rounds * (len(x) // 8))
    for number in range(rounds):
        for batch in torch.randperm(len(x))[: len(x) // 8 * 8].split(8):
            loss = torch.nn.functional.cross_entropy(net(x[batch]), y[batch])
            steps.zero_grad()
            loss.backward()
            steps.step()
            slower.step()
        each(number + 1, net.eval())
        net.train()
    return net.eval()


def predict(net: Any, pictures: Array) -> Array:
    """Return the probabilities of classes (n, classes + 1, side, side), half precision."""
    import torch

    with torch.no_grad():
        parts = [
            torch.softmax(net(torch.from_numpy(pictures[i : i + 32]) - 0.5), 1).numpy()
            for i in range(0, len(pictures), 32)
        ]
    return np.concatenate(parts).astype(np.float16)
