"""Text from outside: half a surrogate is found at any depth, in keys too."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.text import text_fault


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("\udcff", ""),
        ({"note": "\udcff"}, "note: "),
        ({"goal": {"by": ["a", "\ud800"]}}, "goal: "),
        ({"goal": {"\ud800": 1}}, ""),
        ([["\udc80"]], ""),
    ],
)
def test_half_a_surrogate_is_named(values: Any, named: str) -> None:
    fault = text_fault(values)
    assert fault is not None
    assert fault.startswith(f"{named}'")
    assert fault.isascii()


@pytest.mark.parametrize("values", ["caf\u00e9 \U0001f600", {"a": [1, None, {"b": ""}]}, None])
def test_other_text_has_no_fault(values: Any) -> None:
    assert text_fault(values) is None
