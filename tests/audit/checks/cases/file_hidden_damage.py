"""Cases of FILE003."""

from __future__ import annotations

from audit.testing import Case
from tests.audit.checks.case_tables import Cases

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
        Case("the lower half is grey", [{"id": "a.jpg", "grey_tail": 0.48}], ["a.jpg"]),
        Case("trailing bytes alone", [{"id": "a.jpg", "trailing_bytes": 4096}], ["a.jpg"]),
        Case(
            "both in one file make one finding",
            [{"id": "a.jpg", "grey_tail": 0.1, "trailing_bytes": 12}],
            ["a.jpg"],
        ),
    ],
}
