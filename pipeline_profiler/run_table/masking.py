"""Secrets out of command lines, notes and diffs, before they are written anywhere.

Masked are: values of options and assignments whose name says that they are secret, texts of the
known forms of tokens, passwords in addresses, and long mixed strings as only generators write
them. It errs on the side of masking: a row with `***` in it is still a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"
_NAME = r"(?:api[-_]?key|access[-_]?key|token|secret|passw(?:or)?d|pwd|credentials?|auth)"
_OPTION = re.compile(rf"^--?[\w-]*{_NAME}[\w-]*$", re.IGNORECASE)
# name=value, name: value, "name": "value"; and ?name=value in an address
_ASSIGNED = re.compile(
    rf"(?i)(\b[\w-]*{_NAME}[\w-]*[\"']?\s*[=:]\s*[\"']?)(?!\s)([^\s\"'&,;)\]}}]{{4,}})"
)
_ADDRESS = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"]+@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_KNOWN = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|pk-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|eyJ)"
    r"[A-Za-z0-9._-]{8,}"
)
_LONG = re.compile(r"(?<![A-Za-z0-9+=./_-])[A-Za-z0-9+=]{24,}(?![A-Za-z0-9+=./_-])")


def mask_secrets(text: str) -> str:
    """The text with `***` in the place of what looks like a secret."""
    text = _ADDRESS.sub(rf"\1{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _ASSIGNED.sub(rf"\1{MASK}", text)
    text = _KNOWN.sub(MASK, text)
    return _LONG.sub(lambda match: MASK if _is_mixed(match[0]) else match[0], text)


def mask_arguments(words: Sequence[str]) -> list[str]:
    """The words of a command line, also those that follow an option such as `--api-key`."""
    masked, secret = [], False
    for word in words:
        masked.append(MASK if secret and not word.startswith("-") else mask_secrets(word))
        secret = bool(_OPTION.match(word))
    return masked


def _is_mixed(word: str) -> bool:
    """Digits between letters, as in no word and no number: three changes of kind at least."""
    kinds = "".join("d" if c.isdigit() else "a" for c in word if c.isalnum())
    return len(re.findall("da|ad", kinds)) >= 3
