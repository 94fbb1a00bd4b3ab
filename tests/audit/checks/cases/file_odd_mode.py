"""Cases of FILE007."""

from audit.testing import Case
from tests.audit.checks.case_tables import Cases, odd_image

CASES: Cases = {
    "FILE007": [
        Case("one mode", [{}] * 30),
        Case("half grey, half colour", [{"mode": "L"}] * 15 + [{}] * 15),
        Case("one grey of ten is not rare", [{"mode": "L"}] + [{}] * 9),
        Case("unreadable files have no mode", [{}] * 30 + [{"status": "unreadable", "mode": "1"}]),
        odd_image("one grey image of 31", [{}] * 30, mode="L"),
        odd_image("same mode, other depth", [{"format": "PNG"}] * 30, format="PNG", bit_depth=16),
        odd_image("colour among grey", [{"mode": "L"}] * 40),
    ],
}
