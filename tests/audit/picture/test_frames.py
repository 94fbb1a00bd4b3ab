"""What a header says of frames is stored, whatever it says."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

from PIL import Image

from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer


def test_a_header_that_says_more_frames_than_a_column_holds_is_measured(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(2)]
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:])
    data = bytearray(buffer.getvalue())
    at = data.index(b"acTL")
    data[at + 4 : at + 8] = (1 << 31).to_bytes(4, "big")
    data[at + 12 : at + 16] = zlib.crc32(data[at : at + 12]).to_bytes(4, "big")
    path = tmp_path / "x.png"
    path.write_bytes(data)
    (row,) = Measurer(Limits())([FileJob("x.png", "x", str(path))]).features.to_pylist()
    assert (row["status"], row["frames"]) == ("ok", (1 << 31) - 1)
