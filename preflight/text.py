"""Validation of text from the command line or from JSON.

The system passes bytes that are no UTF-8 as lone surrogates, and JSON can spell them. File names
may hold them; databases, documents and answers cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def text_fault(values: object) -> str | None:
    """Return a sentence about the first text in `values` that is not valid Unicode, else None."""
    for name, text in _texts("", values):
        try:
            text.encode()
        except UnicodeEncodeError:
            where = f"{name}: " if name else ""
            return f"{where}{text!r} is not valid UTF-8 text: write it with valid characters."
    return None


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield every text with the name of its outermost key, at any depth."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, Mapping):
            waiting += [("", key) for key in value]
            waiting += [(name or str(key), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(name, inner) for inner in value]
