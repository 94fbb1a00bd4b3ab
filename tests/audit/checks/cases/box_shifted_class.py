"""Cases of BOX015."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import box_case, box_found, file_found


def _box(n: int, x: float, label: str = "cat") -> dict[str, object]:
    """Return box n of a row of cases: all sizes and heights differ."""
    return {"x": x, "y": 20.0 + 3 * n, "width": 150.0 + 2 * n, "height": 90.0 + n, "label": label}


def box015() -> Iterator[Case]:
    yield box_case("spread", *(_box(n, 7.0 * n) for n in range(40)))
    yield box_case("cut by the edge", *(_box(n, 0.0) for n in range(40)))
    yield box_case(
        "outside on both sides: BOX001", *(_box(n, -9.0 if n % 2 else 500.0) for n in range(40))
    )
    fit = {"file": "boxes.json", "boxes": 60, "units": 60, "share": 0.6, "gain_z": 5.0,
           "elsewhere": "mirrored"}  # fmt: skip
    yield box_case("fit as they lie", {}, box_fits=[{**fit, "gain_z": 3.0}])
    larger = {**fit, "elsewhere": "twice as large"}
    yield box_case("some fit better twice as large", {}, box_fits=[larger])
    most = {**larger, "share": 0.8}
    yield file_found("most fit better twice as large", "/fit", {}, box_fits=[most])
    yield file_found("fit better mirrored", "/fit", {}, box_fits=[fit])
    yield box_found(
        "over the right edge, never over the left",
        *(_box(n, 300.0 + 6 * n) for n in range(40)),
        expect="class:cat/right",
    )
    yield box_found(
        "none nearer than 12 px, other classes touch",
        *(_box(n, 12.0 if n % 3 == 0 else 12.5 + 7 * n) for n in range(40)),
        *(_box(n, 0.0 if n % 3 == 0 else 7.0 * n, "dog") for n in range(40)),
        expect="class:cat/left",
    )
