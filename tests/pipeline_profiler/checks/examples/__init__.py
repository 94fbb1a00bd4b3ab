"""Examples for every check of loaders, trainings and logs: what it must fail, and healthy twins.

A file here has the name of the file of its checks (those of logs are in one file), and `EXAMPLES`,
the examples by code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

Made = Sequence[tuple[str, Callable[[], Any]]]
"""Names of examples, and what makes each."""


@dataclass(frozen=True)
class Examples:
    """What a check must fail, and what looks alike and must not fail."""

    planted: Made
    healthy: Made = ()


@cache
def all_examples() -> Mapping[str, Examples]:
    """The examples of every check, by code."""
    found: dict[str, Examples] = {}
    for path in sorted(Path(__file__).parent.glob("*/*.py")):
        if path.stem != "__init__":
            module = import_module(f"{__name__}.{path.parent.name}.{path.stem}")
            found |= module.EXAMPLES
    return found
