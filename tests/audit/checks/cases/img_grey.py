"""Cases of IMG007."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import odd_image

GREY = {"channels_equal": True, "channel_spread": 0.0, "saturation": 0.0}


def img007() -> Iterator[Case]:
    yield Case("all in colour", [{}] * 30)
    yield Case("all grey", [GREY] * 30)
    yield Case("half grey", [GREY] * 15 + [{}] * 15)
    yield Case("a class that is grey by nature", [{}] * 300 + [{**GREY, "label": "x-ray"}] * 25)
    yield Case("a dark image has little spread",
         [{}] * 30 + [{"channel_spread": 0.02, "brightness_p99": 0.05}])  # fmt: skip
    chart = {"entropy": 1.5}
    yield Case("a chart in black among charts in blue", [chart] * 30 + [{**GREY, **chart}])
    yield Case("one colour: IMG004", [{}] * 30 + [{**GREY, "contrast": 0.0}])
    colour = [{}] * 30
    yield odd_image("a sketch among photographs", colour, **GREY, **chart)
    yield odd_image("grey stored as RGB", colour, **GREY)
    yield odd_image("grey but for JPEG's rounding", colour, channel_spread=0.012, saturation=0.01)
    half = [*colour, *[{**GREY, "label": "x-ray"}] * 30]
    yield odd_image("grey in a colour class of a set that is half grey", half, **GREY)
    yield odd_image("a small class is compared with the dataset", colour, label="owl", **GREY)
