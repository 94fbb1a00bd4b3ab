"""What a file says of its frames is stored, whatever it says, and counted without reading them."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, TiffImagePlugin

from audit.picture.decode import Limits
from audit.picture.header import MOST_PAGES
from audit.picture.measure import FileJob, Measurer


def measured(path: Path, data: bytes | bytearray) -> dict[str, Any]:
    path.write_bytes(data)
    (row,) = Measurer(Limits())([FileJob(path.name, "x", str(path))]).features.to_pylist()
    return dict(row)


def test_a_header_that_says_more_frames_than_a_column_holds_is_measured(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(2)]
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:])
    data = bytearray(buffer.getvalue())
    at = data.index(b"acTL")
    data[at + 4 : at + 8] = (1 << 31).to_bytes(4, "big")
    data[at + 12 : at + 16] = zlib.crc32(data[at : at + 12]).to_bytes(4, "big")
    row = measured(tmp_path / "x.png", data)
    assert (row["status"], row["frames"]) == ("ok", (1 << 31) - 1)


def pages(order: str, big: bool, count: int) -> bytearray:
    """Return a TIFF of so many grey pages, which share their pixels."""
    width, entry, head = ("Q", 20, 16) if big else ("I", 12, 8)
    tags = [(256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, head), (277, 1), (278, 8),
            (279, 64)]  # fmt: skip
    content = b"".join(struct.pack(f"{order}HH{width}{width}", tag, 16 if big else 4, 1, value)
                       for tag, value in tags)  # fmt: skip
    assert len(content) == entry * len(tags)
    content = struct.pack(f"{order}{'Q' if big else 'H'}", len(tags)) + content
    size = len(content) + struct.calcsize(width)
    start = head + 64
    mark = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}H", 43 if big else 42)
    mark += struct.pack(f"{order}HH", 8, 0) if big else b""
    data = bytearray(mark + struct.pack(order + width, start) + bytes(range(64)))
    for page in range(1, count + 1):
        after = start + page * size if page < count else 0
        data += content + struct.pack(order + width, after)
    return data


# Pillow takes BigTIFF of the other order for TIFF of this one, and finds nothing in it.
@pytest.mark.parametrize(("order", "big"), [("<", False), (">", False), ("<", True)])
def test_pages_are_counted_as_pillow_counts_them(tmp_path: Path, order: str, big: bool) -> None:
    data = pages(order, big, 3)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == 3
    row = measured(tmp_path / "x.tif", data)
    assert (row["status"], row["frames"], row["animated"]) == ("ok", 3, False)
    assert measured(tmp_path / "y.tif", data[:-30])["frames"] == 2  # the third is cut


def test_pages_of_a_chain_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    real = TiffImagePlugin.ImageFileDirectory_v2.load
    monkeypatch.setattr(
        TiffImagePlugin.ImageFileDirectory_v2, "load",
        lambda self, fp: (loads.append(1), real(self, fp))[1],
    )  # fmt: skip
    many = pages("<", False, 3000)
    row = measured(tmp_path / "x.tif", many)
    assert (row["status"], row["frames"], len(loads) < 20) == ("ok", 3000, True)
    many[-4:] = (8 + 64).to_bytes(4, "little")  # the last leads to the first again
    assert measured(tmp_path / "y.tif", many)["frames"] == 3000
    most = bytearray(many[: 8 + 64 + 114])
    most[-4:] = len(most).to_bytes(4, "little")
    size = len(most)
    for page in range(MOST_PAGES + 5):  # directories of nothing
        most += b"\0\0" + (size + 6 * (page + 1)).to_bytes(4, "little")
    assert measured(tmp_path / "z.tif", most)["frames"] == MOST_PAGES
