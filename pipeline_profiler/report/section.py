"""A section: what every format renders, and how its figures are written.

Figures carry their unit; what was not measured is "n/a", never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """A heading, sentences, a table and a chart; any of them may be empty."""

    title: str
    lines: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    chart: Callable[[], str] = str  # makes markup, for a page alone: it needs more than numpy
    wide: bool = False  # sentences in the cells: on a terminal one block per row, not a table


def tells_nothing(share: Mapping[str, Any]) -> bool:
    """Whether the interval of a share is so wide that the share could be anything."""
    low, high = share.get("low"), share.get("high")
    return low is not None and high is not None and (high - low > 1 or low < -0.5 or high > 1.5)


def share_text(share: Mapping[str, Any]) -> str:
    """'12.3 % (10.1 to 14.2)' from a share with its interval."""
    value, low, high = share.get("share"), share.get("low"), share.get("high")
    if value is None:
        return "n/a"
    if tells_nothing(share):
        return "inconclusive: the repeats differ too much"
    if low is None or high is None:
        return f"{value:.1%} (interval unknown)"
    return f"{value:.1%} ({low:.1%} to {high:.1%})"


def in_ms(ns: float) -> str:
    """Nanoseconds as milliseconds: '12.34 ms'."""
    return f"{ns / 1e6:.2f} ms"
