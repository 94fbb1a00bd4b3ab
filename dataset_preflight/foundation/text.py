"""Validation of text from the command line or from JSON; counts that agree with their nouns.

Bytes that are no UTF-8 become lone surrogates, which file names may hold and databases may not.
"""

from __future__ import annotations

import re
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


# Nouns that follow a count, and verbs that agree with them: plural -> singular.
NOUNS = {
    **{f"{noun}s": noun for noun in (
        "annotation", "byte", "check", "column", "fault", "file", "finding", "group", "image",
        "item", "label", "line", "mask", "number", "object", "pair", "pixel", "point", "row",
        "sample", "split", "unit", "value",
    )},
    "boxes": "box", "classes": "class", "copies": "copy", "entries": "entry",
}  # fmt: skip
VERBS = {"are": "is", "have": "has", "were": "was", "do": "does", "fit": "fits", "show": "shows",
         "repeat": "repeats", "belong": "belongs", "differ": "differs"}  # fmt: skip
_COUNTED = re.compile(
    rf"(?<![\w.,/-])(?P<all>[Aa]ll )?1 (?:(?P<kind>\w+(?:ed|able) )?(?P<noun>{'|'.join(NOUNS)})"
    r"|(?P<of>of (?:its |the )?[\d,]+ \w+))"
    rf"(?: (?P<verb>{'|'.join(VERBS)}))?\b(?![-/]|\.\w)"  # not within the name of a file
)


def agreed(text: str) -> str:
    """Return a sentence whose counts of 1 agree: `1 files are` is `1 file is`."""

    def singular(found: re.Match[str]) -> str:
        counted = (found["kind"] or "") + NOUNS[found["noun"]] if found["noun"] else found["of"]
        head = {"All ": "The ", "all ": "the "}.get(found["all"] or "", "")
        verb = found["verb"] or ""
        # "keypoints of 1 object are": the verb belongs to another noun
        alone = not text[: found.start()].endswith(("of ", "in ", "from ", "with ", "and ", "or "))
        return f"{head}1 {counted} {VERBS[verb] if verb and alone else verb}".rstrip()

    return _COUNTED.sub(singular, text)


def format_number(value: float) -> str:
    """Return three figures below 100, whole numbers above."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
