"""Cases of IMG001, IMG002, IMG004."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import Cases, odd_image


def img002() -> Iterator[Case]:
    yield Case("a product on white", [{"brightness": 0.9, "brightness_p1": 0.2}])
    yield Case("a page of text", [{"brightness": 0.95, "brightness_p1": 0.1, "brightness_p5": 0.9}])
    yield Case("thin black lines on white", [{"brightness_p1": 1.0, "contrast": 0.07}])
    yield Case("one white: IMG004", [{"brightness_p1": 1.0, "contrast": 0.0}])
    yield Case("transparent, shown on white", [{"brightness_p1": 0.95, "transparent": 0.97}])
    yield Case(
        "a pale van before a pale sky",
        [{"brightness_p1": 0.8, "brightness_p99": 0.97, "contrast": 0.04}],
    )
    washed = {"brightness_p1": 0.86, "brightness_p99": 1.0, "contrast": 0.03, "saturation": 0.1}
    yield Case("a pale sprite, white where it is transparent", [{**washed, "transparent": 0.3}])
    yield Case("yellow and cyan", [{**washed, "saturation": 0.17}])
    white = {f"border_{c}": 0.996 for c in ("red", "green", "blue")}
    yield Case("a pale cup on plain white", [{**washed, **white, "border_spread": 0.002}])
    yield Case("washed out", [{**washed, "id": "a.jpg"}], ["a.jpg"])
    yield Case(
        "bright in most of the dataset is still bright",
        [{**washed, "id": i, "brightness_p1": 0.8} for i in "abc"] + [{}],
        ["a", "b", "c"],
    )
    yield Case("street maps are reported once", [washed] * 20 + [{}] * 15, ["dataset"])


DARK = {"brightness_p99": 0.1, "contrast": 0.02}
FLAT = {"entropy": 0.0, "contrast": 0.0, "edge_density": 0.0}

CASES: Cases = {
    "IMG001": [
        Case("a night scene with one lamp", [{"brightness": 0.05, "brightness_p99": 0.4}]),
        Case("transparent, dark underneath", [{"brightness_p99": 0.0, "transparent": 0.9}]),
        Case("thin white lines on black", [{"brightness_p99": 0.0, "contrast": 0.07}]),
        Case("one black: IMG004", [{"brightness_p99": 0.0, "contrast": 0.0}]),
        Case("a damaged file: FILE002", [{"brightness_p99": 0.06, "status": "damaged"}]),
        Case("a lens cap", [{"id": "a.jpg", "brightness_p99": 0.06, "contrast": 0.01}], ["a.jpg"]),
        Case(
            "dark in most of the dataset is still dark",
            [{**DARK, "id": i} for i in "abc"] + [{}],
            ["a", "b", "c"],
        ),
        Case("night scenes are reported once", [DARK] * 20 + [{}] * 15, ["dataset"]),
    ],
    "IMG004": [
        Case("a handwritten digit", [{"entropy": 1.2, "contrast": 0.3, "edge_density": 0.1}]),
        Case("a foggy scene", [{"entropy": 5.0, "contrast": 0.03, "edge_density": 0.001}]),
        Case("a dark frame with shapes in it", [{"entropy": 3.0, "contrast": 0.015}]),
        Case("a logo on a transparent background", [{"transparent": 0.9, "has_alpha": True}]),
        Case("damaged: FILE002", [{"status": "damaged", "entropy": 0.0, "contrast": 0.0}]),
        Case(
            "white, black and grey",
            [
                {**FLAT, "id": f"{light}.png", "brightness": light, "sharpness": None}
                for light in (0.0, 0.5, 1.0)
            ],
            ["0.0.png", "0.5.png", "1.0.png"],
        ),
        odd_image("one colour, saved as JPEG", [], contrast=0.003, entropy=1.4, edge_density=0.0),
        Case("fully transparent", [{"id": "a.png", "transparent": 1.0}], ["a.png"]),
        Case("an export that failed is reported once", [FLAT] * 20 + [{}] * 15, ["dataset"]),
    ],
}
