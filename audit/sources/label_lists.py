"""Cells of a label column that hold several labels: `a;b`, lists in JSON or as Python prints them.

A cell is split only where that is sure: it is a list, the user named the separator, or each of its
parts is the whole label of another row. How a column was read is reported.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SEPARATORS = (";", "|", ",", " ")
MIN_BY_BLANK = 3  # different cells, and parts: `red`, `car` and `red car` may be three classes


@dataclass(frozen=True, slots=True)
class LabelLists:
    """Cells that are no single label, each with its labels (no repeats); and how that was read."""

    lists: Mapping[str, tuple[str, ...]]
    reading: str = ""


def read_lists(cells: Iterable[str], stated: str | None = None) -> LabelLists:
    """Return what the different cells of a column hold; `stated`: the user's separator."""
    known = set(cells)
    lists, reading = _bracketed(known)
    if lists:
        return LabelLists(lists, reading)
    for separator in SEPARATORS if stated is None else (stated,):
        holding = {cell for cell in known if separator in cell}
        split = {cell: _parts(cell.split(separator)) for cell in holding}
        parts = {part for labels in split.values() for part in labels}
        if not holding:
            continue
        if stated is not None:
            return LabelLists(split, f"split at {separator!r} by [scan] label_separator")
        if separator == " " and min(len(holding), len(parts)) < MIN_BY_BLANK:
            continue
        if parts <= known - holding:
            return LabelLists(split, f"split at {separator!r}: all parts are also single labels")
        # commas and blanks are in many names, and parts that never come again are no classes
        if separator in ";|" and len(parts) < len(holding) + len(known - holding):
            reading = (
                f"not split at {separator!r}: {min(parts - known)!r} is not a label on its own; "
                f"--set scan.label_separator={separator!r} splits"
            )
            return LabelLists({}, reading)
    return LabelLists({})


def _bracketed(known: set[str]) -> tuple[dict[str, tuple[str, ...]], str]:
    lists: dict[str, tuple[str, ...]] = {}
    for cell in known:
        if cell[:1] == "[" and cell[-1:] == "]":
            values = _listed(cell)
            if values is None:
                return {}, ""  # names in brackets
            lists[cell] = values
    return lists, "lists"


def _listed(cell: str) -> tuple[str, ...] | None:
    for load in (json.loads, ast.literal_eval):
        try:
            values = load(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if all(isinstance(value, str | int | float) for value in values):
            return _parts(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
    return None


def _parts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for value in values if (part := value.strip())))
