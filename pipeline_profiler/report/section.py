"""A section: what every format renders, and how its figures are written.

Figures carry their unit; what was not measured is "n/a", never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FILE_LINE = re.compile(r"([^\s`'\"(<]+\.\w+):(\d+)\b")  # `loader.py:61`


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
    """'12.3% (95% CI 10.1 to 14.8)' from a share with its interval, which ends at 100%."""
    value, low, high = share.get("share"), share.get("low"), share.get("high")
    if value is None:
        return "n/a"
    if tells_nothing(share):
        return "inconclusive: the repeats differ too much"
    if low is None or high is None:
        return f"{value:.1%} (interval unknown)"
    return f"{value:.1%} (95% CI {100 * low:.1f} to {100 * min(high, 1.0):.1f})"


def name_files_once(sentence: str) -> str:
    """Return a sentence in which 'loader.py:70' after 'loader.py:61' is 'line 70'."""
    seen: set[str] = set()

    def name(found: re.Match[str]) -> str:
        first = found[1] not in seen
        seen.add(found[1])
        return found[0] if first else f"line {found[2]}"

    return FILE_LINE.sub(name, sentence)


def in_ms(ns: float) -> str:
    """Nanoseconds as milliseconds: '12.34 ms'."""
    return f"{ns / 1e6:.2f} ms"
