"""Hooks see reading, decoding and transforming, and leave no trace behind."""

import builtins
import gc
import http.server
import io
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.profiling.record import stage_hooks
from pipeline_profiler.profiling.record.stage_hooks import NetworkFiles, network_mounts
from pipeline_profiler.profiling.record.stages import StageTimer, activate


@pytest.fixture(autouse=True)
def nothing_is_hooked() -> None:
    """An epoch that an error ended takes its hooks off when its frames are collected."""
    gc.collect()


@pytest.fixture
def timer() -> Iterator[StageTimer]:
    made = StageTimer()
    undo = stage_hooks.install()
    activate(made)
    yield made
    activate(None)
    undo()


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, x: Any) -> Any:
        for step in self.transforms:
            x = step(x)
        return x


class Crop:
    size = 3

    def __call__(self, x: int) -> int:
        return x + 1


class Pictures:
    def __init__(self) -> None:
        self.transform = Compose([Crop(), abs])


def names(timer: StageTimer) -> set[str]:
    return {name for name, *_ in timer.collect()}


def test_local_files_are_read_through_real_readers(timer: StageTimer, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(5))
    timer.collect()
    with open(path, "rb") as file:
        assert isinstance(file, io.BufferedReader)
        assert file.fileno() > 0
        content = file.read()
    assert content == path.read_bytes()
    assert timer.received == 2 * len(content)
    assert np.load(path).tolist() == [0, 1, 2, 3, 4]
    assert np.fromfile(path, np.uint8).tobytes() == content
    with open(path.with_suffix(".txt"), "w") as text:
        text.write("a")
    assert {"read:open", "read:data"} <= names(timer)


def test_pictures_are_decoded_lazily_and_counted_as_decoding(
    timer: StageTimer, tmp_path: Path
) -> None:
    from PIL import Image

    path = tmp_path / "x.png"
    Image.new("RGB", (8, 8)).save(path)
    undo = stage_hooks.install()  # PIL may have been imported after the first install
    timer.collect()
    with Image.open(path) as picture:
        picture.load()
    undo()
    assert {"decode", "read:data"} <= names(timer)


def test_a_compose_is_opened_up_and_put_back(timer: StageTimer) -> None:
    dataset = Pictures()
    compose, steps = dataset.transform, list(dataset.transform.transforms)
    undo = stage_hooks.hook_dataset(dataset)
    assert dataset.transform(-5) == 4
    assert dataset.transform.transforms[0].size == 3  # attributes read through
    assert names(timer) == {"transform", "transform:Crop", "transform:abs"}
    undo()
    assert dataset.transform is compose
    assert compose.transforms == steps


@pytest.mark.slow
def test_remote_reading_splits_into_latency_and_data(timer: StageTimer) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "7")
            self.end_headers()
            self.wfile.write(b"1234567")

        def log_message(self, *args: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/x") as answer:
            assert answer.read() == b"1234567"
        server.shutdown()
    assert timer.received == 7
    assert {"read:remote latency", "read:remote data"} <= names(timer)


def mounted(tmp_path: Path, kind: str) -> Path:
    """A table of mounts in which the folder lies on a file system of this kind."""
    device = os.stat(tmp_path).st_dev
    table = tmp_path / "mountinfo"
    table.write_text(
        f"26 1 {os.major(device)}:{os.minor(device)} / /data rw shared:2 - {kind} host:/data rw\n"
        "27 1 0:999 / /proc rw - proc proc rw\n"
    )
    return table


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        ("nfs4", {"read:remote latency", "read:remote data"}),
        ("fuse.sshfs", {"read:remote latency", "read:remote data"}),
        ("fuse.mergerfs", {"read:open", "read:data"}),
        ("ext4", {"read:open", "read:data"}),
    ],
)
def test_a_file_of_a_network_mount_is_a_remote_one(
    tmp_path: Path, kind: str, stages: set[str]
) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"12345")
    made = StageTimer()
    undo = stage_hooks.install(mounted(tmp_path, kind))
    activate(made)
    try:
        with open(path, "rb") as file:
            assert file.read() == b"12345"
    finally:
        activate(None)
        undo()
    assert names(made) == stages


def test_a_system_without_a_table_of_mounts_knows_no_network_file(tmp_path: Path) -> None:
    assert network_mounts(tmp_path / "none") == {}
    assert not NetworkFiles(tmp_path / "none").has(tmp_path / "x")


def test_everything_is_as_before_after_undo() -> None:
    before = (builtins.open, io.open)
    stage_hooks.install()()
    assert (builtins.open, io.open) == before


def test_pil_is_hooked_before_it_has_imported_its_decoders() -> None:
    code = (
        "from PIL import Image; from pipeline_profiler.profiling.record import stage_hooks; "
        "print([stage for _, _, stage in stage_hooks._library_hooks()])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "decode" in said.stdout
