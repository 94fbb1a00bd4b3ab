"""Texts in CSV that a spreadsheet neither runs nor changes, and that read back to the letter.

A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@`; CSV itself cannot tell an empty
text from none, and readers strip blanks. So a text that begins so, is empty, has blanks at its
ends, or begins with an apostrophe itself, is written after one more apostrophe. A table with such a
text has one more column, empty, whose name is `MARK`: where it is in the header, and only there, a
leading apostrophe is taken off again, and nothing is stripped. A user's own class `'=x` in a table
without that column is therefore never touched, and escaping it twice cannot happen.
"""

from __future__ import annotations

import re

# It begins with an apostrophe and goes on with a letter, so that no escaped name can be equal.
MARK = "'a leading apostrophe is no part of a text (audit-export/1)"
_BLANK = r"[\s\x1c-\x1f\x85]"
# For polars as for `re`; numbers are safe in a spreadsheet, and a signed one begins so.
ESCAPED = rf"^(?:['=+\-@]|{_BLANK})|{_BLANK}\z|^\z"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\z"
_ESCAPED = re.compile(ESCAPED.replace(r"\z", r"\Z"))
_NUMBER = re.compile(NUMBER.replace(r"\z", r"\Z"))


def escaped_text(text: str) -> str:
    """Return a text as a table with `MARK` holds it."""
    return f"'{text}" if _ESCAPED.search(text) and not _NUMBER.search(text) else text


def original_text(cell: str) -> str | None:
    """Return what a cell of a table with `MARK` stands for: None if empty."""
    return (cell[1:] if cell[0] == "'" else cell) if cell else None
