"""ResNet-18 in torch: two 3x3 convolutions per block and a shortcut around them.

He, Zhang, Ren, Sun 2015, "Deep Residual Learning for Image Recognition" (arXiv 1512.03385). Table 1
gives the ImageNet network: 11,689,512 parameters at 1000 classes with the projection shortcuts of
its option B. For 32x32 pictures the 7x7/2 stem and its pooling would leave nothing to look at, so
the usual CIFAR stem is one 3x3 convolution: 11,173,962 parameters at 10 classes. Modules are built
inside functions, because the profiler must be importable without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from pipeline_profiler.record.session import ProfileError

if TYPE_CHECKING:
    import torch
    from torch import nn

WIDTHS = (64, 128, 256, 512)
BLOCKS = 2


@cache
def residual_class() -> Callable[[nn.Module, nn.Module], nn.Module]:
    """The module `relu(body(x) + shortcut(x))`, made once torch is there."""
    from torch import nn

    class Residual(nn.Module):
        """A body and the shortcut around it."""

        def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
            """Both map (B, C, H, W) to the same shape."""
            super().__init__()
            self.body, self.shortcut = body, shortcut
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(B, C, H, W) -> (B, C', H', W')."""
            activated: torch.Tensor = self.relu(self.body(x) + self.shortcut(x))
            return activated

    return Residual


def resnet18(classes: int = 10, stem: str = "cifar") -> nn.Module:
    """ResNet-18 mapping (B, 3, H, W) to (B, classes); `stem` is "cifar" (32x32) or "imagenet"."""
    from torch import nn

    blocks: list[nn.Module] = []
    channels = WIDTHS[0]
    for level, width in enumerate(WIDTHS):
        for index in range(BLOCKS):
            stride = 2 if level and index == 0 else 1
            blocks.append(_block(channels, width, stride))
            channels = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*stem_layers(stem, WIDTHS[0]), *blocks, *head)


def stem_layers(stem: str, channels: int) -> list[nn.Module]:
    """Convolution, normalisation, ReLU; the ImageNet stem divides the side by four."""
    from torch import nn

    if stem == "cifar":
        first: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
        pool: list[nn.Module] = []
    elif stem == "imagenet":
        first = [nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)]
        pool = [nn.MaxPool2d(3, stride=2, padding=1)]
    else:
        raise ProfileError(f"No stem '{stem}': use 'cifar' or 'imagenet'.")
    return [*first, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), *pool]


def _block(channels: int, width: int, stride: int) -> nn.Module:
    from torch import nn

    body = nn.Sequential(
        nn.Conv2d(channels, width, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
    )
    shortcut: nn.Module = nn.Identity()
    if stride != 1 or channels != width:
        shortcut = nn.Sequential(
            nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
        )
    return residual_class()(body, shortcut)
