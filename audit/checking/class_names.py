"""The key that all spellings of one class name share: case, accents, plural, separators."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Letters of other scripts that print like Latin ones: they arrive with copied text.
LOOKALIKES = str.maketrans("аеорсухіјѕԁһԛԝοαικνρτυ", "aeopcyxijsdhqwoaikvptu")
COPY_SUFFIX = re.compile(r"(?:[ _-]+copy)?(?: ?\(\d+\))?$", re.IGNORECASE)
SEPARATORS = re.compile(r"(?<=\d)[\s_\-.]+(?=\d)|[\s_\-.]+")
INTEGER = re.compile(r"0*(\d+)(?:\.0+)?")


@lru_cache(maxsize=10_000)
def fold_name(name: str) -> str:
    """Return the key that all spellings of one name share."""
    text = unicodedata.normalize("NFKC", name).strip()
    if len(text) == 1:
        return text
    if number := INTEGER.fullmatch(text):
        return number[1]
    if re.search("[a-z]", text, re.IGNORECASE):
        text = text.casefold().translate(LOOKALIKES)
    text = COPY_SUFFIX.sub("", text) or text
    # Combining marks of the Latin, Greek and Cyrillic scripts; vowel signs of others are letters.
    bare = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFD", text.casefold()))
    return _singular(SEPARATORS.sub(lambda m: " " if _between_digits(m) else "", bare))


def _between_digits(match: re.Match[str]) -> bool:
    text, start, end = match.string, match.start(), match.end()
    return start > 0 and end < len(text) and text[start - 1].isdigit() and text[end].isdigit()


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "xes", "sses", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    # `buses` has lost its s by now; so that it meets `bus`, `house` goes as `hous` too.
    return word[:-1] if len(word) > 3 and word.endswith("se") else word
