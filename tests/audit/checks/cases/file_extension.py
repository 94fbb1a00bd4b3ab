"""Cases of FILE004."""

from collections.abc import Iterator

from audit.testing import Case
from tests.audit.checks.case_tables import odd_image


def file004() -> Iterator[Case]:
    yield Case("every spelling of JPEG", [{"extension": e} for e in ("jpg", "jpeg", "jpe", "jfif")])
    yield Case("a camera's multi-picture JPEG", [{"format": "MPO", "extension": "jpg"}])
    yield Case("TIFF by either name", [{"format": "TIFF", "extension": e} for e in ("tif", "tiff")])
    yield Case("a format without an entry", [{"format": "SPIDER", "extension": "spider"}])
    yield Case("not an image: FILE001", [{"status": "unreadable", "extension": "png"}])
    yield Case("a row of a table has no name", [{"uri": "pack+parquet:///a#0", "extension": ""}])
    yield Case("an id is no name", [{"id": "17", "uri": "/d/a.jpg", "extension": ""}])
    repeat = {"id": "a.jpg#2", "uri": "/d/a.jpg", "extension": "jpg#2"}
    yield Case("a repeat's id", [repeat])
    stored = f"/runs/x/pictures/{'ab'}/{'0c' * 15}.img"
    yield Case("bytes stored here", [{"id": "17", "uri": stored, "extension": ""}])
    numbered = {"id": "17", "uri": "/d/a.jpg", "extension": ""}
    yield odd_image("a PNG named .jpg, by its number", [{}], **numbered, format="PNG")
    yield Case("a PNG named .jpg", [{"id": "a.jpg", "format": "PNG"}, {}], ["a.jpg"])
    yield Case("no extension", [{"id": "photo", "extension": ""}, {}], ["photo"])
    yield Case("a web page's name", [{"id": "a.php", "extension": "php"}, {}], ["a.php"])
    yield Case(
        "a whole dataset of PNGs named .jpg is reported once",
        [{"format": "PNG"}] * 20 + [{"id": "a.gif", "extension": "gif"}],
        ["a.gif", "dataset:PNG-as-jpg"],
    )
