"""Control characters of strangers' texts, shown as escapes.

Names of loaders, files and stages, and error texts, come from other people's code and from session
files. A terminal obeys escape sequences in them, and direction marks make a name read as another
one; shown as `\\x1b` they do neither. Line ends and tabs stay: reports are made of them.
"""

from __future__ import annotations

import re

# C0 and C1 controls, bidirectional marks and embeddings, line separators, lone surrogates
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    r"\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    """The text with control and direction characters as escapes such as `\\x1b`."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
