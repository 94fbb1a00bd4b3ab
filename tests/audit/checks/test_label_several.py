"""The sentence on images of which one label is probably wrong."""

from __future__ import annotations

import pytest

from audit.checks.label_several import SuspectSeveral


@pytest.mark.parametrize(
    ("chance", "shown"), [(0.657, "66%"), (0.99, "99%"), (0.997, "over 99%"), (1.0, "over 99%")]
)
def test_the_chance_of_an_error_is_named_and_never_certain(chance: float, shown: str) -> None:
    row = {"lacking": "owl", "wrong": "", "error_chance": chance, "predicted": "owl 0.99"}
    assert SuspectSeveral().said(row, None) == (
        f"This picture probably lacks owl (highest error probability {shown}; predicted "
        "probability: owl 0.99)."
    )
