"""Text for a person: names, labels and messages come from strangers, and may hold anything.

On the ground floor, so that an error can be printed where nothing else can be imported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# C0 and C1 controls, bidirectional marks and embeddings, line separators, lone surrogates.
UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return the text with control and direction characters as escapes such as `\\x1b`."""
    return UNSAFE.sub(_escape, text)


def visible_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table for what draws text as it is: names and cells `visible`."""
    import polars as pl

    columns = [
        pl.Series(c.name, [None if v is None else visible(v) for v in c], pl.String)
        if c.dtype == pl.String
        else c
        for c in frame
    ]
    shown = pl.DataFrame(columns)
    names = list(map(visible, shown.columns))
    if len(set(names)) == len(names):  # else two columns would have one name
        shown.columns = names
    return shown


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
