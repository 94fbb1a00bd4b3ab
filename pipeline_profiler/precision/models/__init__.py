"""The shipped models by the name the command line takes: small to read, real enough to time.

In comes a number of classes; out comes a fresh torch module with random weights from the global
seed, so that the same seed gives the same weights at every precision. torch is imported when a
model is built, never before; importing this room costs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline_profiler.precision.models.dpn import dpn26, dpn92
from pipeline_profiler.precision.models.resnet import resnet18

if TYPE_CHECKING:
    from torch import nn

SHIPPED: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": lambda classes: resnet18(classes, stem="cifar"),
    "dpn26": lambda classes: dpn26(classes),
    "dpn92": lambda classes: dpn92(classes, stem="cifar"),
}

__all__ = ["SHIPPED", "dpn26", "dpn92", "resnet18"]
