"""Cases of DIST007."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from audit.testing import Case
from tests.audit.checks.case_tables import object_case, object_tables


def _split(split: str, n: int, seed: int, shift: float = 0.0, **fixed: Any) -> list[dict[str, Any]]:
    """Return pictures of one class whose light is spread, brighter by `shift`."""
    rng = np.random.default_rng(seed)
    return [
        {
            "split": split, "brightness": float(rng.uniform(0.3, 0.5)) + shift,
            "contrast": float(rng.uniform(0.15, 0.25)), "noise": float(rng.uniform(0.01, 0.02)),
            "saturation": float(rng.uniform(0.2, 0.5)), **fixed,
        }
        for _ in range(n)
    ]  # fmt: skip


def dist007() -> Iterator[Case]:
    yield Case("all alike", [{"split": s} for s in ("train", "test") for _ in range(60)])
    yield Case("spread in the same way", _split("train", 200, 1) + _split("test", 100, 2))
    yield Case(
        "another class mix only: DIST006",
        _split("train", 150, 1, label="a")
        + _split("train", 50, 2, 0.3, label="b")
        + _split("test", 40, 3, label="a")
        + _split("test", 120, 4, 0.3, label="b"),
    )
    rng, mean = np.random.default_rng(5), {"train": 0.02, "test": 0.022}
    yield Case(
        "one property moved, by which no image is told for certain",
        [
            {**row, "noise": float(rng.normal(mean[row["split"]], 0.004))}
            for row in _split("train", 200, 1) + _split("test", 50, 2)
        ],
    )
    yield Case("too few", _split("train", 200, 1) + _split("test", 9, 2, 0.4))
    yield Case("one split", _split("train", 200, 1))
    yield Case("a brighter test split", _split("train", 200, 1) + _split("test", 100, 2, 0.15),
         ["split:test"])  # fmt: skip
    yield Case(
        "another format",
        _split("train", 200, 1)
        + _split("val", 100, 3)
        + _split("test", 60, 2)
        + _split("test", 40, 4, format="PNG"),
        ["split:test"],
    )

    train, more = [("train", {"car": 2})] * 60, [("val", {"car": 5})] * 40
    yield object_case("objects alike", *train, *[("val", {"car": 2})] * 40)
    yield object_case("more objects an image", *train, *more, expect=["object:split:val"])
    images, tables = object_tables(*train, *more)
    far = [{**r, "side": 3.0 + (i >= 60) * 0.5 + i % 7 / 10} for i, r in
           enumerate(tables["object_labels"])]  # fmt: skip
    yield Case("larger objects", images, ["object:split:val"],
         tables={"object_labels": [{**r, "n": 1} for r in far]})  # fmt: skip
