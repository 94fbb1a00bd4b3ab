"""Cases of FILE006."""

from audit.testing import Case
from tests.audit.checks.case_tables import Cases

CASES: Cases = {
    "FILE006": [
        Case("plain JPEGs and PNGs", [{}, {"format": "PNG", "extension": "png"}]),
        Case("grey", [{"mode": "L"}]),
        Case("progressive", [{"progressive": True}]),
        Case("a camera's multi-picture JPEG", [{"format": "MPO", "frames": 2}]),
        Case("an animated PNG shows its first frame everywhere", [{"format": "PNG", "frames": 3}]),
        Case("turned by EXIF", [{}, {"id": "t.jpg", "orientation": 6}], ["t.jpg"]),
        Case(
            "several kinds in one file make one finding",
            [{"id": "t.tif", "format": "TIFF", "mode": "CMYK", "frames": 3}, {}],
            ["t.tif"],
        ),
        Case(
            "16 bits, 1 bit, palette, animation",
            [
                {"id": "a.png", "format": "PNG", "mode": "I;16", "bit_depth": 16},
                {"id": "b.png", "format": "PNG", "mode": "1", "bit_depth": 1},
                {"id": "c.png", "format": "PNG", "mode": "P", "has_alpha": True},
                {"id": "d.gif", "format": "GIF", "mode": "P", "frames": 9, "animated": True},
                {},
            ],
            ["a.png", "b.png", "c.png", "d.gif"],
        ),
        Case(
            "PNGs with alpha are reported once, a second kind of one of them separately",
            [{"format": "PNG", "mode": "RGBA", "has_alpha": True}] * 20
            + [{"id": "t.png", "format": "PNG", "mode": "RGBA", "orientation": 3}],
            ["dataset:alpha", "t.png"],
        ),
    ],
}
