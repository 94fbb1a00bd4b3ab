"""Cases of IMG003."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.testing import Case
from tests.audit.checks.case_tables import odd_image


def img003() -> Iterator[Case]:
    spread: Sequence[Mapping[str, Any]] = [{"sharpness": 0.40 + 0.01 * (i % 20)} for i in range(40)]
    yield Case("a sharp set", spread)
    yield Case("a soft set, evenly so", [{"sharpness": 0.20 + 0.002 * (i % 20)} for i in range(40)])
    yield Case("a clear sky", [*spread, {"sharpness": 0.05, "contrast": 0.01}])
    yield Case("a flat image has no sharpness", [*spread, {"sharpness": None, "contrast": 0.0}])
    yield Case("the softest of a wide set", [{"sharpness": 0.15 * 1.05**i} for i in range(30)])
    yield Case(
        "strokes have no texture",
        [*spread, {"sharpness": 0.08, "contrast": 0.21, "entropy": 4.9}],
    )
    yield Case(
        "a class that is soft as a whole, in a sharp set",
        [*spread, *spread] + [{"label": "fog", "sharpness": 0.09 + 0.001 * i} for i in range(40)],
    )
    even = [{"sharpness": 0.20 + 0.001 * (i % 20)} for i in range(60)]
    yield Case("sharper than a soft set, evenly so", [*even, {"sharpness": 0.26}])
    yield Case("softer than a soft set, evenly so", [*even, {"sharpness": 0.05}], ["0060.jpg"])
    yield Case("two images tell no position", [{"sharpness": 0.2}, {"sharpness": 0.6}])
    yield odd_image("out of focus", spread, sharpness=0.14)
    yield odd_image("no detail at all, alone in its set", [{}, {}], sharpness=0.08)
    yield Case(
        "a third of a class is blurred",
        [*({"id": f"b{i}.jpg", "sharpness": 0.09} for i in range(20)), *spread],
        [f"b{i}.jpg" for i in range(20)],
    )
    soft = [{"label": "fog", "sharpness": 0.2 + 0.001 * (i % 20)} for i in range(40)]
    yield odd_image("a soft image in a sharp class of a set that is soft elsewhere",
         [*spread, *soft], sharpness=0.2)  # fmt: skip
    yield Case("an upscaled dataset is reported once",
         [{"sharpness": 0.08 + 0.001 * (i % 20)} for i in range(40)], ["dataset"])  # fmt: skip
