"""Planted faults and healthy twins for `training/structure.py`."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checks.lazy import nn
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import toy_net, toy_training


def _stack(shared: bool, parallel: bool = False) -> Any:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            block = nn.Linear(32, 32)
            self.body = toy_net(classes=32)
            more = [block] * 3 if shared else [nn.Linear(32, 32) for _ in range(3)]
            self.blocks, self.head = nn.ModuleList(more), nn.Linear(32, 4)

        def forward(self, pixels: Any) -> Any:
            hidden = self.body(pixels)
            if parallel:
                return self.head(sum(b(hidden * n) for n, b in enumerate(self.blocks, 1)))
            for block in self.blocks:
                hidden = block(hidden).relu()
            return self.head(hidden)

    return toy_training(Stack())


def _made(name: str, of_module: bool = False) -> Any:
    training = toy_training()
    for part in [training.model[0]] if of_module else training.model[0].parameters():
        setattr(part, name, False)
    return training


EXAMPLES = {
    "TRAIN045": Examples(
        planted=(("[layer] * 3", lambda: _stack(True)),),
        healthy=(
            ("three layers", lambda: _stack(False)),
            ("one head on several inputs", lambda: _stack(True, parallel=True)),
        ),
    ),
    "TRAIN046": Examples(
        planted=(
            ("param.require_grad", lambda: _made("require_grad")),
            ("module.requires_grad", lambda: _made("requires_grad", of_module=True)),
        ),
        healthy=(("param.requires_grad", lambda: _made("requires_grad")),),
    ),
}
