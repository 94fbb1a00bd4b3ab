"""Examples for every check of loaders, trainings and logs: what it must fail, and healthy twins.

Each file here has `EXAMPLES`: rows of a code, FAULT or TWIN, a name, and what makes the example.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

FAULT, TWIN = "planted", "healthy"
Make = Callable[[], Any]
Rows = Sequence[tuple[str, str, str, Make]]
Made = Sequence[tuple[str, Make]]
"""Names of examples, and what makes each."""


@dataclass(frozen=True)
class Examples:
    """What a check must fail, and what looks alike and must not fail."""

    planted: list[tuple[str, Make]] = field(default_factory=list)
    healthy: list[tuple[str, Make]] = field(default_factory=list)


@cache
def all_examples() -> Mapping[str, Examples]:
    """The examples of every check, by code."""
    found: dict[str, Examples] = {}
    for path in sorted(Path(__file__).parent.glob("*/[!_]*.py")):
        module = import_module(f"{__name__}.{path.parent.name}.{path.stem}")
        for code, kind, name, make in module.EXAMPLES:
            getattr(found.setdefault(code, Examples()), kind).append((name, make))
    return found
