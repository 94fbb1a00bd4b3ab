"""Cases of IMG005, IMG006."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import odd_image


def img005() -> Iterator[Case]:
    # web photographs: side lengths spread over two octaves without a gap
    web = [{"width": 400 + 40 * i, "height": 300 + 30 * i} for i in range(40)]
    yield Case("sizes without a gap", web)
    yield Case("two sizes, half and half", [{"width": 32, "height": 32}] * 20 + [{}] * 20)
    yield Case("two sizes, nine to one", [{"width": 32, "height": 32}] * 4 + [{}] * 36)
    yield Case("turned by 90 degrees", [{}] * 30 + [{"width": 480, "height": 640}])
    yield Case("too few to say", [{"width": 32, "height": 32}] + [{}] * 5)
    yield Case("unreadable has no size", [{}] * 30 + [{"width": 9, "status": "unreadable"}])
    yield odd_image("an icon", web, width=32, height=32)
    yield odd_image("a huge scan in a set of one size", [{}] * 30, width=12_000, height=9_000)
    two_sizes = [*[{"width": 32, "height": 32}] * 20, *[{}] * 20]
    yield odd_image("odd in a set of two sizes", two_sizes, width=4, height=4)


def img006() -> Iterator[Case]:
    lines = [{"width": 400 + 25 * i, "height": 100} for i in range(40)]  # 4:1 to 14:1, no gap
    yield Case("landscape and one portrait", [{}] * 40 + [{"width": 480, "height": 640}])
    yield Case("squares and one 4:3", [{"width": 480}] * 40 + [{}])
    yield Case("two shapes, nine to one", [{"width": 2000}] * 4 + [{}] * 36)
    yield Case("lines of text of every length", lines)
    yield Case("too few to say", [{"width": 4000}] + [{}] * 5)
    yield odd_image("a panorama", [{}] * 40, width=3000, height=200)
    yield odd_image("a strip upright", [{}] * 40, width=100, height=900)
    yield odd_image("a square among long lines", lines, width=100, height=100)
