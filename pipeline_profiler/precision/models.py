"""The shipped models by the name the command line takes: small to read, real enough to time.

In comes a number of classes; out comes a fresh torch module with random weights from the global
seed, so that the same seed gives the same weights at every precision. torch is imported when a
model is built, never before; importing this room costs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pipeline_profiler.profiling.record.errors import ProfileError

if TYPE_CHECKING:
    import torch
    from torch import nn

# ---- ResNet ----
# ResNet-18 in torch: two 3x3 convolutions per block and a shortcut around them.
#
# He, Zhang, Ren, Sun 2015, "Deep Residual Learning for Image Recognition" (arXiv 1512.03385).
# Table 1 gives the ImageNet network: 11,689,512 parameters at 1000 classes with the projection
# shortcuts of its option B. For 32x32 pictures the 7x7/2 stem and its pooling would leave nothing
# to look at, so the usual CIFAR stem is one 3x3 convolution: 11,173,962 parameters at 10 classes.
# Modules are built inside functions, because the profiler must be importable without torch.

RESNET_WIDTHS = (64, 128, 256, 512)
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
    channels = RESNET_WIDTHS[0]
    for level, width in enumerate(RESNET_WIDTHS):
        for index in range(BLOCKS):
            blocks.append(_block(channels, width, 2 if level and index == 0 else 1))
            channels = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*stem_layers(stem, RESNET_WIDTHS[0]), *blocks, *head)


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


# ---- DPN ----
# Dual path networks in torch: every block adds to one path and appends to the other.
#
# Chen et al. 2017, "Dual Path Networks" (arXiv 1707.01629). A block (1x1, grouped 3x3, 1x1) makes
# `width + growth` channels: the first `width` are added to the residual path, the rest are
# appended to the dense path, so the channels grow by `growth` per block. DPN-92 (32x3d) has 3, 4,
# 20, 3 blocks.
#
# Two published forms differ in where the normalisation stands. The paper's ImageNet network
# normalises before each convolution and has 37.67 M parameters (its Table 1 says 37.8 M). The
# usual CIFAR adaptation normalises after it, as ResNet does, and has a 3x3 stem: 34,236,634
# parameters for DPN-92 and 11,574,842 for its short form DPN-26 (2 blocks a stage) at 10 classes.
# Grouped convolutions are cheap in parameters and expensive in memory traffic: a hard case for
# AMP.

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
            super().__init__()
            s = shape
            self.width = s.width
            self.projection: nn.Module = nn.Identity()
            if s.first:
                self.projection = _unit(s.channels, s.projected, 1, s.stride, 1, s.before, False)
            self.body = nn.Sequential(  # 1x1 down, grouped 3x3, 1x1 up to both paths' channels
                _unit(s.channels, s.inner, 1, 1, 1, s.before, True),
                _unit(s.inner, s.inner, 3, s.stride, GROUPS, s.before, True),
                _unit(s.inner, s.width + s.growth, 1, 1, 1, s.before, False),
            )
            self.last: nn.Module = nn.Identity() if s.before else nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(B, C, H, W) -> (B, C + growth, H', W')."""
            old, new, w = self.projection(x), self.body(x), self.width
            added = old[:, :w] + new[:, :w]
            joined: torch.Tensor = self.last(torch.cat([added, old[:, w:], new[:, w:]], dim=1))
            return joined

    return DualPath


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


SHIPPED: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": resnet18,
    "dpn26": dpn26,
    "dpn92": dpn92,
}
