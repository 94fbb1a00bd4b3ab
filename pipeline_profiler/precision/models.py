"""The shipped models by their name on the command line.

Each makes a torch module for (B, 3, 32, 32) images with random weights from the global seed.
Modules are built inside functions, because torch is optional.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn


def _unit(
    channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Module:
    """A convolution, its normalisation and, unless something is added first, ReLU."""
    from torch import nn

    conv = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), *[nn.ReLU(inplace=True)] * relu)


def _network(blocks: list[nn.Module], channels: int, classes: int) -> nn.Module:
    """The blocks between the stem, one 3x3 convolution, and the head."""
    from torch import nn

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(_unit(3, STEM, 3), *blocks, *head)


STEM = 64

# ResNet-18: two 3x3 convolutions per block and a shortcut around them.
# He et al. 2015 (arXiv 1512.03385), with the CIFAR stem (one 3x3 convolution): 11,173,962
# parameters at 10 classes.

RESNET_WIDTHS = (64, 128, 256, 512)


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


def resnet18(classes: int = 10) -> nn.Module:
    """ResNet-18 for 32x32 pictures."""
    from torch import nn

    blocks: list[nn.Module] = []
    channels = STEM
    for width in RESNET_WIDTHS:
        for stride in (1 if width == STEM else 2, 1):
            first = _unit(channels, width, 3, stride)
            body = nn.Sequential(first, _unit(width, width, 3, relu=False))
            alike = stride == 1
            shortcut = nn.Identity() if alike else _unit(channels, width, 1, stride, relu=False)
            blocks.append(residual_class()(body, shortcut))
            channels = width
    return _network(blocks, channels, classes)


# Dual path networks: every block adds to one path and appends to the other.
# Chen et al. 2017 (arXiv 1707.01629). A block (1x1, grouped 3x3, 1x1) makes `width + growth`
# channels: `width` are added to the residual path, `growth` appended to the dense path. CIFAR form,
# 10 classes: DPN-92 (32x3d; 3, 4, 20, 3 blocks) has 34,236,634 parameters, DPN-26 11,574,842.

GROUPS = 32
WIDTHS = (256, 512, 1024, 2048)  # residual path
INNER = (96, 192, 384, 768)  # grouped 3x3
GROWTH = (16, 32, 24, 128)  # dense path, per block


@cache
def dual_path_class() -> Callable[[int, int, bool], nn.Module]:
    """The block, made once torch is there."""
    import torch
    from torch import nn

    class DualPath(nn.Module):
        """Adds the first `width` channels of its body, appends the rest."""

        def __init__(self, channels: int, stage: int, first: bool) -> None:
            """A block of a stage for so many channels; the first one projects both paths."""
            super().__init__()
            inner, self.width = INNER[stage], WIDTHS[stage]
            made, stride = self.width + GROWTH[stage], 2 if stage and first else 1
            self.projection: nn.Module = nn.Identity()
            if first:
                self.projection = _unit(channels, made, 1, stride, relu=False)
            self.body = nn.Sequential(  # 1x1 down, grouped 3x3, 1x1 up to both paths' channels
                _unit(channels, inner, 1),
                _unit(inner, inner, 3, stride, GROUPS),
                _unit(inner, made, 1, relu=False),
            )
            self.last = nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(B, C, H, W) -> (B, C + growth, H', W')."""
            old, new, w = self.projection(x), self.body(x), self.width
            added = old[:, :w] + new[:, :w]
            joined: torch.Tensor = self.last(torch.cat([added, old[:, w:], new[:, w:]], dim=1))
            return joined

    return DualPath


def _dpn(blocks: tuple[int, ...], classes: int) -> nn.Module:
    stages: list[nn.Module] = []
    channels = STEM
    for stage, count in enumerate(blocks):
        for index in range(count):
            stages.append(dual_path_class()(channels, stage, index == 0))
            # the first projects to one growth and appends another
            channels = channels + GROWTH[stage] if index else WIDTHS[stage] + 2 * GROWTH[stage]
    return _network(stages, channels, classes)


def dpn26(classes: int = 10) -> nn.Module:
    """DPN-26: two blocks a stage."""
    return _dpn((2, 2, 2, 2), classes)


def dpn92(classes: int = 10) -> nn.Module:
    """DPN-92 (32x3d)."""
    return _dpn((3, 4, 20, 3), classes)


SHIPPED: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": resnet18,
    "dpn26": dpn26,
    "dpn92": dpn92,
}
