"""Documents: nested plain data that JSON can hold."""

from __future__ import annotations

import math
from typing import Any


def plain_data(value: Any) -> Any:
    """Return nested data with lists for tuples and null for NaN and infinity, for JSON."""
    if isinstance(value, dict):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
