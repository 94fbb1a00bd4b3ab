"""The memory that decoding takes, and what the machine lacks: never told of a file."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from audit.checking.config import Config
from audit.errors import MachineError
from audit.picture.decode import Limits, decode_picture
from audit.picture.header import decode_memory
from audit.picture.reading import read_bytes
from audit.run.generations import open_run
from audit.scanning.scanning import scan
from audit.sources import open_source
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
    work([FileJob("first", "", first)]).features  # loads polars, which no worker does
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    row = work([FileJob("a", "", path)]).features.to_pylist()[0]
    assert row["status"] == "ok", row
    print(status("VmHWM") - before - os.path.getsize(path), flush=True)
    os._exit(0)
"""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpeg": ("RGB", {"quality": 85}),
    "progressive.jpeg": ("RGB", {"progressive": True}),
    "turned.jpeg": ("RGB", {"orientation": 6}),
    "png": ("RGBA", {}),
    "tiff": ("F", {}),
    "webp": ("RGBA", {"method": 0}),
    "avif": ("RGBA", {"speed": 10}),
    "jpeg2000": ("RGBA", {}),
    "gif": ("P", {}),
}


def write_picture(path: Path, mode: str, options: dict[str, Any]) -> Path:
    image = Image.fromarray(picture(1, WIDTH // 8, HEIGHT // 8)).resize((WIDTH, HEIGHT))
    if "orientation" in options:
        exif = Image.Exif()
        exif[0x0112] = options["orientation"]
        options = {"exif": exif}
    if mode == "RGBA":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    else:
        image = image.convert("L" if mode == "F" else mode).convert(mode)
    image.save(path, path.name.split(".")[-1].upper(), **options)
    return path


IMPORTED = """
import sys
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer, warm_up
warm_up()
measured = Measurer(Limits())([FileJob("a", "", sys.argv[1]), FileJob("b", "", "absent.jpg")])
print(sorted({"polars", "pyarrow", "duckdb", "pandas"} & sys.modules.keys()))
print(measured.features["status"].to_pylist(), measured.signatures.num_rows)
"""


def test_a_worker_measures_without_libraries_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(picture(2)).save(path)
    command = [sys.executable, "-c", IMPORTED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.splitlines() == ["[]", "['ok', 'unreadable'] 1"], done.stderr


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


def tiff() -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(1)).save(file, "TIFF", compression="tiff_lzw")
    return file.getvalue()


def many_scans(scans: int, side: int = 2000) -> bytes:
    """A progressive JPEG whose last scan is repeated: little to read, hours to decode."""
    file = io.BytesIO()
    Image.new("L", (side, side), 90).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


@contextlib.contextmanager
def no_file_more() -> Iterator[None]:
    """Not one file more may be opened in here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_open_files_are_no_verdict(tmp_path: Path) -> None:
    data = tiff()
    with no_file_more(), pytest.raises(MachineError, match="too many files are open"):
        read_bytes(str(tmp_path / "a.tif"), Limits())
    with no_file_more(), pytest.raises(MachineError, match="too many files are open"):
        decode_picture(data, "a.tif", Limits())


@pytest.mark.slow
def test_sound_files_stay_sound_without_a_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "a.tif").write_bytes(tiff())
    nowhere = tmp_path / "nowhere"
    script = "import tempfile; tempfile.tempdir = sys.argv[1]; command_line()"
    command = f"import sys; from audit.cli.main import command_line; {script}"
    # both ways: no folder is writable, and the one that is named does not exist
    scanned = ["scan", str(tmp_path / "pets"), "--out", str(tmp_path / "r")]
    done = subprocess.run(
        [sys.executable, "-c", command, *scanned],
        env={**os.environ, "TMPDIR": str(nowhere), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with open_run(tmp_path / "r") as store:
        assert store.rows("SELECT status FROM images") == [{"status": "ok"}]


@pytest.mark.slow
def test_a_file_that_decodes_for_hours_ends_at_its_time_limit(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(many_scans(8000))
    (folder / "b.tif").write_bytes(tiff())
    scan(
        open_source([str(folder)]), tmp_path / "run", config=Config(timeout_s=6.0), jobs=1,
        checks=["FILE"],
    )  # fmt: skip
    with open_run(tmp_path / "run") as store:
        rows = store.query("SELECT id, error_kind FROM images ORDER BY id").rows()
    assert rows == [("a.jpg", "timeout"), ("b.tif", None)]


def test_closed_streams_do_not_change_a_verdict() -> None:
    saved = os.dup(2)
    os.close(2)
    try:
        columns, shown = decode_picture(tiff(), "a.tif", Limits())
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert columns["status"] == "ok"
    assert shown is not None
