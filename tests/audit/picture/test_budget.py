"""The memory that decoding takes, measured in a process of its own, against what was foretold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from audit.picture.decode import Limits, decode_picture
from audit.picture.header import decode_memory
from tests.conftest import ROOT, picture

WIDTH, HEIGHT = 3000, 2000
# Prints by how much the resident memory grew at its peak while each file was measured, one a line.
# A process that has loaded and compiled everything forks for each: what one frees serves no other.
MEASURE = """
import os, sys
import cv2
from pathlib import Path
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer, warm_up
cv2.setNumThreads(1)  # as in a worker, and a thread does not outlive a fork
warm_up()  # what is loaded and compiled once is no cost of a file
work, (first, *paths) = Measurer(Limits()), sys.argv[1:]
def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
for path in paths:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, path
        continue
    work([FileJob("first", "", first)])
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    row = work([FileJob("a", "", path)]).features.to_pylist()[0]
    assert row["status"] == "ok", row
    print(status("VmHWM") - before - os.path.getsize(path), flush=True)
    os._exit(0)
"""
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "jpeg": ("JPEG", "RGB", {"quality": 85}),
    "progressive": ("JPEG", "RGB", {"progressive": True}),
    "turned": ("JPEG", "RGB", {"orientation": 6}),
    "png": ("PNG", "RGBA", {}),
    "tiff-float": ("TIFF", "F", {}),
    "webp": ("WEBP", "RGBA", {"method": 0}),
    "avif": ("AVIF", "RGBA", {"speed": 10}),
    "jpeg2000": ("JPEG2000", "RGBA", {}),
    "gif": ("GIF", "P", {}),
}


def write_picture(path: Path, form: str, mode: str, options: dict[str, Any]) -> Path:
    image = Image.fromarray(picture(1, WIDTH // 8, HEIGHT // 8)).resize((WIDTH, HEIGHT))
    if "orientation" in options:
        exif = Image.Exif()
        exif[0x0112] = options["orientation"]
        options = {"exif": exif}
    if mode == "RGBA":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    elif mode == "F":
        image = image.convert("L").convert("F")
    else:
        image = image.convert(mode)
    image.save(path, form, **options)
    return path


@pytest.mark.slow
def test_no_kind_of_file_takes_more_than_was_foretold(tmp_path: Path) -> None:
    paths = [write_picture(tmp_path / kind, *options) for kind, options in KINDS.items()]
    small = tmp_path / "small.png"
    Image.fromarray(picture(2)).save(small)
    command = [sys.executable, "-c", MEASURE, str(small), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    for path, grown in zip(paths, map(int, done.stdout.split()), strict=True):
        with Image.open(path) as image:
            foretold = decode_memory(image)
        assert 0.2 * foretold < grown <= foretold, path.name


def test_a_file_that_would_take_too_much_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.webp"
    Image.fromarray(picture(3, 300, 200)).save(path)
    columns, shown = decode_picture(path.read_bytes(), "a.webp", Limits(max_memory=1_000_000))
    assert shown is None
    assert (columns["status"], columns["error_kind"]) == ("unreadable", "memory")
    assert "max_memory is 0.0 GB" in columns["error"]
    assert decode_picture(path.read_bytes(), "a.webp", Limits(max_memory=1_400_000))[1] is not None
