"""The shipped models by the name the command line takes: small to read, real enough to time.

Each builder returns a fresh torch module with random weights from the global seed, so the same
seed gives the same weights at every precision. torch is imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline_profiler.precision.models.dpn import dpn26, dpn92
from pipeline_profiler.precision.models.resnet import resnet18

SHIPPED: dict[str, Callable[[int], Any]] = {
    "resnet18": lambda classes: resnet18(classes, stem="cifar"),
    "dpn26": lambda classes: dpn26(classes),
    "dpn92": lambda classes: dpn92(classes, stem="cifar"),
}

__all__ = ["SHIPPED", "dpn26", "dpn92", "resnet18"]
