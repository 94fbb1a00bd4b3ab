"""Cases of BOX024."""

from tests.audit.checks.case_tables import Cases, box_case, box_found

DOT = {"width": 1.0, "height": 2.0}
LARGE = {"width": 2000.0, "height": 1500.0}
SPREAD = [{"x": 9.0 * n} for n in range(30)]


CASES: Cases = {
    "BOX024": [
        box_case("large enough", *SPREAD),
        box_case("all of the class are small", *[DOT] * 3),
        box_case("a box of ten times the size of the others", *SPREAD, LARGE),
        box_found(
            "a class of dots", *[{**DOT, "x": 9.0 * n} for n in range(30)], expect="class:cat"
        ),
        box_found("a click", {}, {}, {}, {}, {}, DOT),
    ],
}
