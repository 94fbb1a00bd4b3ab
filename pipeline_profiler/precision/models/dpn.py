"""Dual path networks in torch: every block adds to one path and appends to the other.

Chen et al. 2017, "Dual Path Networks" (arXiv 1707.01629). A block (1x1, grouped 3x3, 1x1) makes
`width + growth` channels: the first `width` are added to the residual path, the rest are appended
to the dense path, so the channels grow by `growth` per block. DPN-92 (32x3d) has 3, 4,
20, 3 blocks.

Two published forms differ in where the normalisation stands. The paper's ImageNet network
normalises before each convolution and has 37.67 M parameters (its Table 1 says 37.8 M). The usual
CIFAR adaptation normalises after it, as ResNet does, and has a 3x3 stem: 34,236,634 parameters
for DPN-92 and 11,574,842 for its short form DPN-26 (2 blocks a stage) at 10 classes.
Grouped convolutions are cheap in parameters and expensive in memory traffic: a hard case for AMP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pipeline_profiler.precision.models.resnet import stem_layers

if TYPE_CHECKING:
    import torch
    from torch import nn

GROUPS, STEM = 32, 64
WIDTHS = (256, 512, 1024, 2048)  # residual path
INNER = (96, 192, 384, 768)  # grouped 3x3
GROWTH = (16, 32, 24, 128)  # dense path, per block


@dataclass(frozen=True)
class Shape:
    """Channels of one block; `first` opens a stage and projects both paths."""

    channels: int
    inner: int
    width: int
    growth: int
    stride: int
    first: bool
    before: bool  # normalisation before the convolution (paper) or after it (CIFAR)

    @property
    def projected(self) -> int:
        """Channels of the projection: the paper starts a stage with two growths, CIFAR with one."""
        return self.width + (2 if self.before else 1) * self.growth


@cache
def dual_path_class() -> Callable[[Shape], nn.Module]:
    """The block, made once torch is there."""
    import torch
    from torch import nn

    class DualPath(nn.Module):
        """Adds the first `width` channels of its body, appends the rest."""

        def __init__(self, shape: Shape) -> None:
            """Build body and, where a stage starts, the projection."""
            super().__init__()
            s = shape
            self.width = s.width
            self.projection: nn.Module = nn.Identity()
            if s.first:
                self.projection = _unit(s.channels, s.projected, 1, s.stride, 1, s.before, False)
            self.body = _three_units(s)
            self.last: nn.Module = nn.Identity() if s.before else nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(B, C, H, W) -> (B, C + growth, H', W')."""
            old, new, w = self.projection(x), self.body(x), self.width
            added = old[:, :w] + new[:, :w]
            joined: torch.Tensor = self.last(torch.cat([added, old[:, w:], new[:, w:]], dim=1))
            return joined

    return DualPath


def _three_units(s: Shape) -> nn.Module:
    """1x1 down, grouped 3x3, 1x1 up to both paths' channels."""
    from torch import nn

    return nn.Sequential(
        _unit(s.channels, s.inner, 1, 1, 1, s.before, True),
        _unit(s.inner, s.inner, 3, s.stride, GROUPS, s.before, True),
        _unit(s.inner, s.width + s.growth, 1, 1, 1, s.before, False),
    )


def _unit(
    channels: int, out: int, kernel: int, stride: int, groups: int, before: bool, relu: bool
) -> nn.Module:
    """One convolution with its normalisation; `relu` counts only where it stands after."""
    from torch import nn

    conv = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    if before:
        return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=False), conv)
    after = [nn.ReLU(inplace=True)] if relu else []
    return nn.Sequential(conv, nn.BatchNorm2d(out), *after)


def build_dpn(blocks: tuple[int, ...], classes: int, stem: str, before: bool) -> nn.Module:
    """A dual path network mapping (B, 3, H, W) to (B, classes)."""
    from torch import nn

    stages: list[nn.Module] = []
    channels = STEM
    for level, count in enumerate(blocks):
        for index in range(count):
            first = index == 0
            stride = 2 if first and level else 1
            shape = Shape(
                channels, INNER[level], WIDTHS[level], GROWTH[level], stride, first, before
            )
            stages.append(dual_path_class()(shape))
            channels = (shape.projected if first else channels) + shape.growth
    last = [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)] if before else []
    head = [*last, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*stem_layers(stem, STEM), *stages, *head)


def dpn26(classes: int = 10) -> nn.Module:
    """DPN-26 for 32x32 pictures: two blocks a stage, normalisation after the convolutions."""
    return build_dpn((2, 2, 2, 2), classes, "cifar", before=False)


def dpn92(classes: int = 10, stem: str = "cifar") -> nn.Module:
    """DPN-92 (32x3d): the CIFAR adaptation, or with stem="imagenet" the paper's own network."""
    return build_dpn((3, 4, 20, 3), classes, stem, before=stem == "imagenet")
