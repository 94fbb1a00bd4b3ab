"""Cases of FILE001, FILE002, FILE005."""

from collections.abc import Iterator, Mapping
from typing import Any

from audit.testing import Case
from tests.audit.checks.case_tables import Cases, odd_image


def _failed(error_kind: str | None, name: str = "0000.jpg", **more: Any) -> Mapping[str, Any]:
    """Return a file without a picture."""
    failed = {"id": name, "status": "unreadable", "format": None, "pixel_hash": None}
    return {**failed, "error_kind": error_kind, **more}


def file001() -> Iterator[Case]:
    gone = "h answered 404 Not Found: the image is gone"
    yield Case("an intact photograph", [{}])
    yield Case("a truncated file is left to FILE002", [_failed("truncated")])
    yield Case("a pixel bomb is left to FILE005", [_failed("bomb")])
    yield Case("too much memory is left to FILE005", [_failed("memory")])
    yield Case("damaged, but decoded in part", [{"status": "damaged", "error_kind": "corrupt"}])
    yield Case("an HTML page saved as .jpg", [_failed("not-an-image", "a", detected="HTML")],
         ["a"])  # fmt: skip
    yield Case(
        "zero bytes, and a block of zeros",
        [_failed("empty", "a", n_bytes=0), _failed("not-an-image", "b", detected="zeros")],
        ["a", "b"],
    )
    yield Case(
        "listed in a manifest but absent: no bytes, no hash",
        [_failed("missing", "a", n_bytes=-1, content_hash=None, detected=None)],
        ["a"],
    )
    yield Case(
        "gone from a store, and from an address in a manifest",
        [
            _failed("missing", name, uri=uri, error=gone, detected=None)
            for name, uri in (("a", "fetch+s3://b/a.jpg"), ("b", "https://x.org/b.jpg"))
        ],
        ["a", "b"],
    )
    yield Case(
        "not readable, crashing, unsupported, and an unknown failure",
        [
            _failed("permission", "a", content_hash=None),
            _failed("crashed", "b"),
            _failed("unsupported", "c", detected="JPEG XL"),
            _failed(None, "d", detected=None),
        ],
        ["a", "b", "c", "d"],
    )


CUT = {"status": "damaged", "error_kind": "truncated", "error_at": 0.5, "missing_end": True}
HUFFMAN = "Corrupt JPEG data: bad Huffman code"
TOO_LARGE = "decoding it takes about 3.0 GB; max_memory is 1.0 GB"
UNKNOWN = dict.fromkeys(("width", "height", "content_hash"))


CASES: Cases = {
    "FILE002": [
        Case("a sound photograph", [{}]),
        Case(
            "not an image at all: FILE001",
            [_failed("not-an-image", missing_end=None)],
        ),
        Case("a harmless warning about EXIF", [{"decoder_warnings": "Corrupt EXIF data."}]),
        Case("a format whose end is not known", [{"format": "BMP", "missing_end": None}]),
        Case("cut at half its rows", [{"id": "a.jpg", **CUT}], ["a.jpg"]),
        odd_image(
            "corrupt in the middle, although every row was decoded",
            [],
            status="damaged",
            error_kind="corrupt",
            error=HUFFMAN,
        ),
        Case(
            "no row was decoded",
            [_failed("truncated", "a.png", error_at=0.0, format="PNG")],
            ["a.png"],
        ),
        Case(
            "only the end marker is missing: one finding, not two",
            [{"id": "a.jpg", "missing_end": True}, {"id": "b.jpg", **CUT, "error_at": 0.999}],
            ["a.jpg", "b.jpg"],
        ),
    ],
    "FILE005": [
        Case("a large but decoded scan", [{"width": 12_000, "height": 9_000}]),
        Case("unreadable for another reason", [_failed("corrupt")]),
        Case(
            "50,000 x 50,000",
            [_failed("bomb", "a.png", width=50_000, height=50_000)],
            ["a.png"],
        ),
        Case(
            "too many bytes, no header read",
            [_failed("bomb", "b.tif", n_bytes=2_000_000_000, **UNKNOWN)],
            ["b.tif"],
        ),
        Case(
            "more memory than the scan may use",
            [_failed("memory", "c.webp", width=12_000, height=11_000, error=TOO_LARGE)],
            ["c.webp"],
        ),
    ],
}
