"""The shipped models by their name on the command line.

Each makes a torch module for (B, 3, 32, 32) images with random weights from the global seed.
Modules are built inside functions, because torch is optional.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
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


@cache
def block_class() -> Callable[[nn.Module, nn.Module, int], nn.Module]:
    """Return the block of all networks, made once torch is there."""
    import torch
    from torch import nn

    class Block(nn.Module):
        """Adds the first `width` channels of its body to the shortcut, and appends the others."""

        def __init__(self, shortcut: nn.Module, body: nn.Module, width: int) -> None:
            super().__init__()
            self.shortcut, self.body, self.width = shortcut, body, width

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(B, C, H, W) -> (B, C', H', W')."""
            old, new, w = self.shortcut(x), self.body(x), self.width
            if new.shape[1] == w:
                return torch.relu_(old + new)
            added = old[:, :w] + new[:, :w]
            return torch.relu_(torch.cat([added, old[:, w:], new[:, w:]], dim=1))

    return Block


STEM = 64


def resnet18(classes: int) -> nn.Module:
    """Return ResNet-18 for 32x32 images: 11,173,962 parameters at 10 classes.

    He et al. 2015 (arXiv 1512.03385), with the CIFAR stem (one 3x3 convolution).
    """
    from torch import nn

    blocks: list[nn.Module] = []
    channels = STEM
    for width in (64, 128, 256, 512):
        for stride in (1 if width == STEM else 2, 1):
            first = _unit(channels, width, 3, stride)
            body = nn.Sequential(first, _unit(width, width, 3, relu=False))
            alike = stride == 1
            shortcut = nn.Identity() if alike else _unit(channels, width, 1, stride, relu=False)
            blocks.append(block_class()(shortcut, body, width))
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


def dual_path(channels: int, stage: int, first: bool) -> nn.Module:
    """Return a block of a stage for this number of channels; the first one projects both paths."""
    from torch import nn

    inner, width = INNER[stage], WIDTHS[stage]
    made, stride = width + GROWTH[stage], 2 if stage and first else 1
    shortcut = _unit(channels, made, 1, stride, relu=False) if first else nn.Identity()
    body = nn.Sequential(  # 1x1 down, grouped 3x3, 1x1 up to both paths' channels
        _unit(channels, inner, 1),
        _unit(inner, inner, 3, stride, GROUPS),
        _unit(inner, made, 1, relu=False),
    )
    return block_class()(shortcut, body, width)


def _dpn(blocks: tuple[int, ...], classes: int) -> nn.Module:
    stages: list[nn.Module] = []
    channels = STEM
    for stage, count in enumerate(blocks):
        for index in range(count):
            stages.append(dual_path(channels, stage, index == 0))
            # the first projects to one growth and appends another
            channels = channels + GROWTH[stage] if index else WIDTHS[stage] + 2 * GROWTH[stage]
    return _network(stages, channels, classes)


SHIPPED: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": resnet18,
    "dpn26": partial(_dpn, (2, 2, 2, 2)),
    "dpn92": partial(_dpn, (3, 4, 20, 3)),
}
