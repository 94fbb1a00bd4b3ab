"""Small pieces of wording that several sentences share."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], shown: int = 8) -> str:
    """Return names joined by commas, the rest counted: `a, b and 3 more`."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
