"""What the machine lacks is never told of a file; what a file does, is."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from audit.checking.config import Config
from audit.errors import MachineError
from audit.picture.decode import Limits, decode_picture
from audit.picture.reading import read_bytes
from audit.run.generations import open_run
from audit.scanning.scanning import scan
from audit.sources import open_source
from tests.conftest import ROOT, picture


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
