"""Cases of BOX023."""

from collections.abc import Iterator, Mapping

import numpy as np

from audit.checking.boxes import Rows
from audit.testing import Case
from tests.audit.checks.case_tables import boxed


def _many(n: int, **last: float) -> Mapping[str, Rows]:
    """Return tables of n boxes that vary; `last` changes the last one."""
    rng = np.random.default_rng(5)
    rows: list[dict[str, object]] = []
    for i in range(n):
        w, h = np.exp(rng.normal(4.6, 0.3, 2)).round(1)
        x, y = rng.uniform(0, 640 - w), rng.uniform(0, 480 - h)
        rows.append({"sample_id": f"{i:04d}.jpg", "x": x, "y": y, "width": w, "height": h})
    return boxed(*rows[:-1], {**rows[-1], **last})


def box023() -> Iterator[Case]:
    yield Case("boxes that vary", [{}] * 200, tables=_many(200))
    yield Case("too few to tell", [{}] * 50, tables=_many(50, width=600.0, height=2.0))
    yield Case("a sliver", [{}] * 200, ["0199.jpg"], tables=_many(200, width=600.0, height=2.0))
    yield Case("a dot", [{}] * 200, ["0199.jpg"], tables=_many(200, width=1.5, height=1.5))

    crowded = [{"sample_id": "0007.jpg", "x": 7.0 * (i % 60), "label": "abcdefghijkl"[i % 12]}
               for i in range(600)]  # fmt: skip
    few = [{"sample_id": f"{i % 64:04d}.jpg", "x": 3.0 * i, "label": "abcdefghijkl"[i % 12]}
           for i in range(300)]  # fmt: skip
    yield Case("five boxes an image", [{}] * 64, tables=boxed(*few))
    yield Case("600 boxes in one image, of 12 classes", [{}] * 64, ["0007.jpg"],
         tables=boxed(*few, *crowded))  # fmt: skip
