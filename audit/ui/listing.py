"""A table whose rows open something when clicked: findings, codes, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from audit.printable import visible
from audit.ui.gallery import component


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column: `kind` is text, code, number, severity, dot, chip or bar; `width` is in CSS."""

    key: str
    label: str
    kind: str = "text"
    width: str = ""


@dataclass(frozen=True, slots=True)
class ListRow:
    """A row: what its click tells, its cells by column, and whether nothing is left to do."""

    id: str
    cells: Mapping[str, Any]
    settled: bool = False


def show_listing(
    key: str,
    columns: Sequence[ListColumn],
    lines: Sequence[ListRow],
    on_open: Callable[[str], None],
    current: str | None = None,
) -> None:
    """Show the rows; `on_open` gets the id of the row that was clicked."""

    def row_opened() -> None:
        value = st.session_state[key].get("opened")
        if isinstance(value, str):
            on_open(value)

    # A column of marks that no row has would only take room from the others.
    columns = [c for c in columns if c.kind != "chip" or any(r.cells[c.key] for r in lines)]
    component("listing")(
        key=key,
        data={
            "columns": [
                {"key": c.key, "label": c.label, "kind": c.kind, "width": c.width} for c in columns
            ],
            "rows": [
                {
                    "id": line.id,
                    "cells": {k: _safe(v) for k, v in line.cells.items()},
                    "settled": line.settled,
                }
                for line in lines
            ],
            "current": current,
        },
        on_opened_change=row_opened,
    )


def _safe(value: Any) -> Any:
    return visible(value) if isinstance(value, str) else value
