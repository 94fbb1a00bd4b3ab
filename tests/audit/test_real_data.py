"""Real images: hostile files get a verdict, a killed scan of 500 files resumes exactly."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tarfile
import time
import warnings
from pathlib import Path

import pytest
from PIL import Image
from polars.testing import assert_frame_equal

from audit.picture.decode import DecodeError, Limits, decode_picture
from audit.picture.reading import read_bytes
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.sources import open_source

pytestmark = pytest.mark.slow

# Files of the hostile collection on which we and Pillow's full load disagree, and why we are right.
JUDGED = {
    "hopper_bad_exif.jpg": "1,214 stray bytes in the middle of the scan; Pillow drops the warning"
}


def verdict(path: Path) -> str:
    try:
        return str(
            decode_picture(read_bytes(str(path), Limits()), path.name, Limits())[0]["status"]
        )
    except DecodeError:
        return "unreadable"


def loads(path: Path) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            image.load()
    except Exception:  # noqa: BLE001 - any error counts
        return False
    return True


def test_hostile_files_are_ok_exactly_where_pillow_loads_them_but_for_those_judged(
    real_data: Path,
) -> None:
    paths = sorted(p for p in (real_data / "odd-images").rglob("*") if p.is_file())
    assert len(paths) == 544
    disagree = {p.name for p in paths if (verdict(p) == "ok") != loads(p)}
    # What runs another program or page-description code is refused although Pillow opens it.
    assert {n for n in disagree if not n.endswith((".eps", ".wmf", ".emf"))} == set(JUDGED)


def test_sound_photographs_are_sound(real_data: Path) -> None:
    photos = [p for p in (real_data / "photos").iterdir() if p.suffix.lower() in (".jpg", ".jpeg")]
    assert len(photos) == 200
    assert {verdict(p) for p in photos} == {"ok"}


@pytest.fixture(scope="module")
def cifar(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A twelfth of the pictures, 500 of ten classes in two splits."""
    target = tmp_path_factory.mktemp("cifar")
    with tarfile.open(real_data / "cifar10-mini.tar") as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        archive.extractall(target, files[::12], filter="data")
    return target / "cifar10-mini"


def test_kill_nine_at_random_moments_of_a_large_scan(cifar: Path, tmp_path: Path) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    started = time.monotonic()
    scanning.scan(open_source([str(cifar)]), undisturbed, jobs=2)
    whole = time.monotonic() - started
    words = ["scan", str(cifar), "--out", str(run), "--jobs", "2"]
    command = [sys.executable, "-m", "audit.cli.main", *words]
    moments, killed = random.Random(7), 0
    for _ in range(3):
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(timeout=moments.uniform(0.3, 0.6 * whole))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
    assert killed > 0
    scanning.scan(open_source([str(cifar)]), run, jobs=2)
    with open_run(run) as one, open_run(undisturbed) as two:
        for table in ("samples", "features", "declared_classes", "findings", "finding_samples"):
            question = f"SELECT * FROM {table} ORDER BY ALL"
            assert_frame_equal(one.query(question), two.query(question))
