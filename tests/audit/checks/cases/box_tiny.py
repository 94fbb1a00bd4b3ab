"""Cases of BOX024."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.testing import Case
from tests.audit.checks.case_tables import box_case, box_found

DOT = {"width": 1.0, "height": 2.0}


CASES: Mapping[str, Sequence[Case]] = {
    "BOX024": [
        box_case("large enough", *[{"x": 9.0 * n} for n in range(30)]),
        box_case("all of the class are small", *[DOT] * 3),
        box_found(
            "a class of dots", *[{**DOT, "x": 9.0 * n} for n in range(30)], expect="class:cat"
        ),
        box_found("a click", {}, {}, {}, {}, {}, DOT),
    ],
}
