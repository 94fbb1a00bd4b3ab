"""The rate of a phase, and how long it still takes."""

import pytest

from preflight.progress import Pace, left_text


def test_the_rate_counts_from_the_first_finished_items() -> None:
    pace = Pace(first=0)
    assert pace.advance(0, 100.0) == 0
    assert pace.advance(10, 130.0) == 0  # 30 s of starting up
    assert pace.advance(12, 130.1) == 0  # too short to tell
    assert pace.advance(30, 132.0) == pytest.approx(10)


@pytest.mark.parametrize(
    ("items", "rate", "text"),
    [
        (50, 10.0, ""), (0, 10.0, ""), (100, 0.0, ""), (-100, 10.0, ""),
        (120, 10.0, "about 12 s left"), (6_000, 10.0, "about 10 min left"),
    ],
)  # fmt: skip
def test_more_than_five_seconds_have_an_estimate(items: int, rate: float, text: str) -> None:
    assert left_text(items, rate) == text
