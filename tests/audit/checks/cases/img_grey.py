"""Cases of IMG007."""

from __future__ import annotations

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import Cases

GREY = {"channels_equal": True, "channel_spread": 0.0, "saturation": 0.0}


def _grey_among_colour() -> Iterator[Case]:
    yield Case("all in colour", [{}] * 30)
    yield Case("all grey", [GREY] * 30)
    yield Case("half grey", [GREY] * 15 + [{}] * 15)
    yield Case("a class that is grey by nature", [{}] * 300 + [{**GREY, "label": "x-ray"}] * 25)
    yield Case("a dark picture has little spread",
         [{}] * 30 + [{"channel_spread": 0.02, "brightness_p99": 0.05}])  # fmt: skip
    chart = {"entropy": 1.5}
    yield Case("a chart in black among charts in blue", [chart] * 30 + [{**GREY, **chart}])
    yield Case("one colour: IMG004", [{}] * 30 + [{**GREY, "contrast": 0.0}])
    yield Case("a sketch among photographs",
         [{}] * 30 + [{"id": "s.png", **GREY, **chart}], ["s.png"])  # fmt: skip
    yield Case("grey stored as RGB", [{}] * 30 + [{"id": "g.jpg", **GREY}], ["g.jpg"])
    yield Case(
        "grey but for JPEG's rounding",
        [{}] * 30 + [{"id": "g.jpg", "channel_spread": 0.012, "saturation": 0.01}],
        ["g.jpg"],
    )
    yield Case(
        "grey in a colour class of a set that is half grey",
        [{}] * 30 + [{"id": "g.jpg", **GREY}] + [{**GREY, "label": "x-ray"}] * 30,
        ["g.jpg"],
    )
    yield Case("a small class is compared with the dataset",
         [{}] * 30 + [{"id": "g.jpg", "label": "owl", **GREY}], ["g.jpg"])  # fmt: skip


CASES: Cases = {
    "IMG007": list(_grey_among_colour()),
}
