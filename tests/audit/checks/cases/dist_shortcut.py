"""Cases of DIST004."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from audit.testing import Case
from tests.audit.checks.case_tables import metadata

COLOURS = ("red", "green", "blue")


def _varied(n: int, label: str, shift: float = 0.0, **fixed: Any) -> list[dict[str, Any]]:
    """Return pictures of a class whose light is spread, brighter than others by `shift`."""
    rng = np.random.default_rng(sum(map(ord, label)))
    light = rng.uniform(0.3, 0.5, n) + shift
    at_border = light + rng.uniform(-0.02, 0.02, (3, n))
    return [
        {
            "label": label, "brightness": float(light[i]),
            **{f"border_{c}": float(at_border[k, i]) for k, c in enumerate(COLOURS)},
            "contrast": float(rng.uniform(0.15, 0.25)), "noise": float(rng.uniform(0.01, 0.02)),
            "sharpness": float(rng.uniform(0.3, 0.6)), **fixed,
        }
        for i in range(n)
    ]  # fmt: skip


def _both(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "split": ("train", "test")[i % 2]} for i, row in enumerate(rows)]


def _mark(label: str, scores: Sequence[float]) -> dict[str, list[dict[str, Any]]]:
    rows = [{"label": label, "place": "top left", "sample_id": f"{i:04d}.jpg", "score": float(s)}
            for i, s in enumerate(scores)]  # fmt: skip
    return {"class_marks": rows}


def dist004() -> Iterator[Case]:
    sites = _varied(60, "healthy") + _varied(50, "ill")
    yield Case("all alike", [{"label": x} for x in "abc" for _ in range(40)])
    yield Case("spread in the same way", [r for x in "abc" for r in _varied(60, x)])
    yield Case("a little brighter", _varied(60, "a") + _varied(60, "b") + _varied(60, "c", 0.05))
    yield Case("brighter in 89% of the pairs, which does not prove 85%",
         _varied(60, "a") + _varied(60, "b") + _varied(60, "c", 0.09))  # fmt: skip
    yield Case("too few to tell", _varied(60, "a") + _varied(60, "b") + _varied(8, "c", 0.4))
    yield Case("one image, copied sixty times", _varied(60, "a") + _varied(60, "b")
         + [{**r, "pixel_hash": "f" * 32} for r in _varied(1, "c", 0.4) * 60])  # fmt: skip
    yield Case("names that spell the class",
         [{**r, "id": f"{x}/{w}_{i}.jpg"} for x, w in (("a", "tabby"), ("b", "robin"),
          ("c", "trout")) for i, r in enumerate(_varied(40, x))])  # fmt: skip
    yield Case("a column that is a code of the class", sites, tables=metadata(
         "code", [len(row["label"]) for row in sites]))  # fmt: skip
    yield Case("ink is the subject: the border is alike",
         _varied(60, "seven") + _varied(60, "two")
         + [{**r, "brightness": r["brightness"] + 0.25, "contrast": r["contrast"] + 0.2}
            for r in _varied(60, "eight")])  # fmt: skip
    strokes = [{"sharpness": 0.05 * (i % 3), "noise": 0.0, "entropy": 2.0} for i in range(60)]
    yield Case("strokes have no blur", _varied(60, "two") + [
         {**r, **s} for r, s in zip(_varied(60, "one"), strokes, strict=True)])  # fmt: skip
    yield Case("a mark that half of the class would have by chance", _varied(60, "a")
         + _varied(60, "b"), tables=_mark("b", [i % 2 for i in range(120)]))  # fmt: skip
    yield Case("a date in the corner", _varied(60, "a") + _varied(60, "b"), ["class:b"],
         tables=_mark("b", [i + 30 * (i > 59) for i in range(120)]))  # fmt: skip
    yield Case("half of a class in a black frame", _varied(60, "a") + _varied(60, "b")
         + _varied(40, "c", frame=0.2) + _varied(40, "c"), ["class:c"])  # fmt: skip
    tinted = _varied(60, "a") + _varied(60, "b") + _varied(60, "c", cast_blue=-0.2)
    yield Case("the colours of a subject, which the border has not", tinted)
    yield Case("a tint over all of a class", [
         {**r, "border_blue": r["border_blue"] * (0.8 if r["label"] == "c" else 1)}
         for r in tinted], ["class:c"])  # fmt: skip
    yield Case("a hospital of its own", sites, ["class:ill"], tables=metadata(
         "site", [("north", "south")[(row["label"] == "ill") ^ (i % 20 == 0)]
                  for i, row in enumerate(sites)]))  # fmt: skip
    yield Case("a class photographed brighter", _both(_varied(60, "apple") + _varied(60, "boat")
         + _varied(60, "flower", 0.25)), ["class:flower"])  # fmt: skip
    soft = [{**r, "sharpness": r["sharpness"] / 3} for r in _varied(60, "flower")]
    yield Case("outlines are soft, and leave the grain as it is",
         _both(_varied(60, "apple") + _varied(60, "boat") + soft))  # fmt: skip
    yield Case("a class out of focus", _both(_varied(60, "apple") + _varied(60, "boat")
         + [{**r, "noise": r["noise"] / 3} for r in soft]), ["class:flower"])  # fmt: skip
    yield Case("a class saved as PNG", _varied(60, "apple") + _varied(60, "boat")
         + _varied(50, "tree", format="PNG") + _varied(10, "tree"), ["class:tree"])  # fmt: skip
    yield Case("a word of the file name", _varied(60, "apple") + _varied(60, "boat")
         + [{**r, "id": f"scan{i}.jpg"} for i, r in enumerate(_varied(60, "tree"))],
         ["class:tree"])  # fmt: skip
    yield Case("in the training split alone", _varied(60, "apple") + _varied(60, "boat")
         + _varied(60, "tree", 0.25)
         + [{**r, "split": "test"} for x in ("apple", "boat", "tree")
            for r in _varied(120, x)], ["class:tree"])  # fmt: skip
