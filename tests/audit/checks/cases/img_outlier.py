"""Cases of IMG008."""

from collections.abc import Iterator
from typing import Any

from audit.testing import Case
from tests.audit.checks.case_tables import odd_image


def _varied(n: int, **fixed: Any) -> list[dict[str, Any]]:
    # Images whose properties are spread without gaps, as those of a healthy class are.
    at = [(i + 0.5) / n for i in range(n)]
    return [
        {
            "brightness": 0.3 + 0.4 * u, "contrast": 0.15 + 0.1 * ((7 * u) % 1),
            "saturation": 0.2 + 0.3 * ((11 * u) % 1), "noise": 0.008 + 0.006 * ((3 * u) % 1),
            "edge_density": 0.2 + 0.2 * ((5 * u) % 1), "entropy": 6.6 + ((13 * u) % 1),
            "n_bytes": int(50_000 + 20_000 * ((17 * u) % 1)), **fixed,
        }
        for u in at
    ]  # fmt: skip


def img008() -> Iterator[Case]:
    middle = _varied(230)[50]
    yield Case("no outlier", _varied(60))
    yield Case("two modes", _varied(60) + _varied(60, brightness=0.85, n_bytes=300_000))
    yield Case("all alike", [{}] * 60)
    files = [{**row, "n_bytes": 50_000 + 40 * i} for i, row in enumerate(_varied(60))]
    yield Case("a file that is a tenth smaller is none",
         [*files, {**middle, "n_bytes": 45_000}])  # fmt: skip
    yield Case("too few to compare", [*_varied(20), {"noise": 0.4}])
    yield Case(
        "what other classes have is not odd",
        _varied(60)
        + [{**_varied(60)[30], "saturation": 0.0}]
        + [
            {**row, "label": f"class {i % 5}"}
            for i, row in enumerate(_varied(300, saturation=0.0) + _varied(300))
        ],
    )
    yield Case("six grey images are a kind of subject",
         _varied(230) + [{**_varied(230)[50], "saturation": 0.0}] * 6)  # fmt: skip
    yield Case("pages have hardly any noise", [{**row, "noise": 0.0002} for row in _varied(230)]
         + [{**middle, "noise": 0.001 + 0.0005 * i} for i in range(6)])  # fmt: skip
    page = {**middle, "entropy": 2.0}
    yield Case("dense text is no noise", [{**row, "noise": 0.0007} for row in _varied(190)]
         + [{**page, "noise": 0.009 + 0.0002 * i} for i in range(7)])  # fmt: skip
    digits = [{**row, "noise": 0.0003 + 1e-6 * i} for i, row in enumerate(_varied(230))]
    yield Case("the noisiest of digits has noise that nobody sees",
         [*digits, {**middle, "noise": 0.005}])  # fmt: skip
    yield Case("a flat or dark image is reported elsewhere",
         [*_varied(60), {"contrast": 0.0, "entropy": 0.0}, {"brightness_p99": 0.1,
          "brightness": 0.001}])  # fmt: skip
    noisy = {**_varied(60)[30], "id": "x.jpg", "noise": 0.4}
    loud = [{**middle, "id": f"{i}.jpg", "noise": 0.11 + 0.002 * i} for i in range(6)]
    yield Case("an image of noise", [*_varied(60), noisy], ["x.jpg"])
    burst = [{**middle, "pixel_hash": "f" * 32, "noise": 0.11 + 0.002 * i} for i in range(6)]
    yield Case("six copies of sand are one image", [*_varied(230), *(
         {**row, "id": f"{i}.jpg"} for i, row in enumerate(burst))], ["0.jpg"])  # fmt: skip
    yield Case("between two modes",
         [{**r, "brightness": r["brightness"] / 10} for r in _varied(60)]
         + [{**r, "brightness": 1 - r["brightness"] / 10} for r in _varied(60)]
         + [{**_varied(60)[30], "id": "x.jpg", "brightness": 0.5}], ["x.jpg"])  # fmt: skip
    owl = {**_varied(60)[30], "label": "owl", "n_bytes": 9_000_000}
    yield odd_image("an outlier of a small class stands out of the dataset", _varied(60), **owl)
    yield Case("two outliers together",
         _varied(100) + [{**_varied(100)[50], "id": f"{i}.jpg", "noise": 0.4} for i in "xy"],
         ["x.jpg", "y.jpg"])  # fmt: skip
    grass = [{**row, "noise_floor": 0.03 + 0.0002 * i} for i, row in enumerate(_varied(230))]
    yield Case("large images of texture, and none of noise", grass)
    yield Case("hundreds are as noisy: they are made so",
         [{**row, "noise_floor": 0.09} for row in _varied(230)])  # fmt: skip
    yield Case("three large images of noise", [{"noise_floor": None}, *grass, *(
         {**middle, "id": f"{i}.jpg", "noise_floor": 0.1} for i in "xyz")],
         ["x.jpg", "y.jpg", "z.jpg"])  # fmt: skip
    yield Case(
        "six images of noise among 230",
        [{**row, "label": "ab"[i % 2]} for i, row in enumerate([*_varied(230), *loud])],
        [f"{i}.jpg" for i in range(6)],
    )
