"""Cases of FILE003."""

from audit.testing import Case
from tests.audit.checks.case_tables import Cases, odd_image

CASES: Cases = {
    "FILE003": [
        Case("an intact photograph", [{}]),
        Case("one block row of a thumbnail", [{"height": 32, "width": 32, "grey_tail": 0.25}]),
        Case("already reported as cut", [{"status": "damaged", "grey_tail": 0.5}]),
        Case("grey all over: IMG004", [{"grey_tail": 1.0, "contrast": 0.0, "entropy": 0.0}]),
        Case(
            "a few bytes of padding allowed",
            [{"trailing_bytes": 4}],
            params={"min_trailing_bytes": 64},
        ),
        odd_image("the lower half is grey", [], grey_tail=0.48),
        odd_image("trailing bytes alone", [], trailing_bytes=4096),
        odd_image("both in one file make one finding", [], grey_tail=0.1, trailing_bytes=12),
    ],
}
