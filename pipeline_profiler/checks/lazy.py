"""torch, where a function uses it: other commands should not wait seconds for its import."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.optim import lr_scheduler
else:

    class Lazy:
        """A module that is imported when one of its names is asked for."""

        def __init__(self, name: str) -> None:
            self._module = name

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._module), name)

    torch, nn, functional = Lazy("torch"), Lazy("torch.nn"), Lazy("torch.nn.functional")
    lr_scheduler = Lazy("torch.optim.lr_scheduler")

__all__ = ["functional", "lr_scheduler", "nn", "torch"]
