"""Cases of DIST008, DIST009."""

from collections.abc import Iterator
from typing import Any

from audit.testing import Case
from tests.audit.checks.case_tables import metadata, object_tables, sized


def _weather(**counts: int) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return images of class and weather (`cat_rain=3`), and the manifest's column of these."""
    pairs = [key.split("_") for key, n in counts.items() for _ in range(n)]
    images = [{"id": f"{i:04d}.jpg", "label": label} for i, (label, _) in enumerate(pairs)]
    return images, metadata("weather", [weather for _, weather in pairs])


def dist008() -> Iterator[Case]:
    even, even_table = _weather(cat_sun=30, cat_rain=25, dog_sun=30, dog_rain=35)
    night, night_table = _weather(
        cat_sun=60, cat_rain=60, cat_night=3, dog_sun=60, dog_rain=60, dog_night=4
    )
    small, small_table = _weather(
        cat_sun=60, cat_rain=60, cat_fog=60, dog_sun=60, dog_rain=60, dog_fog=60, hen_sun=8,
        hen_rain=7, hen_fog=1,
    )  # fmt: skip
    cell, cell_table = _weather(cat_sun=60, cat_rain=60, dog_sun=60, dog_rain=3)
    yield Case("no manifest", [{"label": x} for x in "ab" for _ in range(30)])
    yield Case("even values", even, tables=even_table)
    yield Case("a small class has small cells", small, tables=small_table)
    rows = sized("train", a=60, b=3)
    yield Case("a column that names the class", rows, tables=metadata("code", [0] * 60 + [1] * 3))
    yield Case("a value that is rare in all classes", night, ["dataset/column:weather"],
         tables=night_table)  # fmt: skip
    yield Case("a class that is rare under one value", cell, ["dataset/column:weather"],
         tables=cell_table)  # fmt: skip


def _lit(*lights: float, n: int = 40, **fixed: Any) -> list[dict[str, Any]]:
    """Return `n` pictures in each light, a little apart."""
    return [{"brightness": x + 0.001 * i, **fixed} for x in lights for i in range(n)]


def dist009() -> Iterator[Case]:
    cats, dogs = _lit(0.2, 0.4, 0.6, label="cat"), _lit(0.2, 0.4, 0.6, label="dog")
    hens = [*_lit(0.45, 0.6, n=58, label="hen"), *_lit(0.2, n=4, label="hen")]
    yield Case("every class in every light", [*cats, *dogs])
    yield Case("few dark images, of all classes alike",
         [*_lit(0.4, 0.6, label="cat"), *_lit(0.4, 0.6, label="dog"),
          *_lit(0.1, n=2, label="cat"), *_lit(0.1, n=2, label="dog")])  # fmt: skip
    yield Case(
        "too few to tell from chance",
        [*_lit(0.2, 0.4, 0.6, n=4, label="cat"), *_lit(0.4, 0.6, n=6, label="hen")],
    )
    yield Case("in the training split alone",
         [*cats, *hens, *({**row, "split": "test"} for row in [*cats, *dogs])])  # fmt: skip
    yield Case(
        "a camera of its own for each image",
        [{**row, "exif_camera": f"Camera {i}"} for i, row in enumerate([*cats, *dogs])],
    )
    yield Case("hardly a dark hen", [*cats, *dogs, *hens], ["dataset/attribute:light"])
    yield Case("a class of one camera",
         [*_lit(0.4, n=80, label="cat", exif_camera="A"), *_lit(0.4, n=80, label="cat",
          exif_camera="B"), *_lit(0.4, n=80, label="hen", exif_camera="B")],
         ["dataset/attribute:camera"])  # fmt: skip

    images, tables = object_tables(
        *[(None, {"car": 1})] * 160, *[(None, {"car": 1, "bus": 1})] * 80
    )
    cameras = [{**row, "exif_camera": "AB"[i % 2 or i >= 160]} for i, row in enumerate(images)]
    yield Case("objects of a class before one camera", cameras,
         ["object:dataset/attribute:camera"], tables=tables)  # fmt: skip
