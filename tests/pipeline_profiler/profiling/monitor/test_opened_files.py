"""`watch --seconds --files`: what each loader reads; the script is ended and changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline_profiler.profiling.record.opened_files import OpenedFiles, read_opened
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.profiling.monitor.scripts import watch, write_script

pytestmark = pytest.mark.slow

SCRIPT = """
import os, time
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
import numpy as np
READ = READER

class Files(Dataset):
    def __init__(self, folder):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        return torch.as_tensor(np.array(READ(self.paths[i]))).float(), i % 2

with open("images/classes.txt") as file:
    names = file.read()
train = DataLoader(Files("images/train"), 4, shuffle=True, num_workers=WORKERS)
val = DataLoader(Files("images/val"), 4, num_workers=WORKERS)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(EPOCHS):
    for x, y in train:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        time.sleep(0.01)
    with torch.no_grad():
        for x, y in val:
            model(x)
    torch.save(model.state_dict(), "weights.pt")
print("ended by itself")
"""
READERS = {"PIL": "Image.open", "cv2": "__import__('cv2').imread"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 6), ("unused", 3)):
        (tmp_path / "images" / split).mkdir(parents=True)
        for n in range(count):
            pixels = draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / split / f"{n}.png")
    (tmp_path / "images" / "classes.txt").write_text("a b")
    return tmp_path


def watched(folder: Path, body: str, seconds: int) -> tuple[OpenedFiles, str]:
    script = write_script(folder, body, head="")
    done = watch(
        folder, "--seconds", seconds, "--files", "opened.txt", "-o", "p.json", "--yes", "--", script
    )
    assert done.returncode == 0, done.stderr
    return read_opened(folder / "opened.txt"), done.stdout + done.stderr


def below(folder: Path, split: str) -> set[str]:
    return set(map(str, (folder / "images" / split).iterdir()))


@pytest.mark.parametrize(("reader", "workers"), [("PIL", 0), ("PIL", 2), ("cv2", 2)])
def test_files_are_recorded_by_the_loader_that_reads_them(
    folder: Path, reader: str, workers: int
) -> None:
    body = SCRIPT.replace("READER", READERS[reader]).replace("WORKERS", str(workers))
    opened, said = watched(folder, body.replace("EPOCHS", "2"), 60)
    assert "ended by itself" in said
    assert opened.train == below(folder, "train")
    assert opened.evaluation == below(folder, "val")
    assert str(folder / "images" / "classes.txt") in opened.other
    assert not opened.all & below(folder, "unused")
    assert opened.complete
    assert not (folder / "weights.pt").exists()
    assert len(Session.load(folder / "p.json").runs) == 1


def test_the_script_is_ended_after_its_time(folder: Path) -> None:
    body = SCRIPT.replace("READER", "Image.open").replace("WORKERS", "0")
    opened, said = watched(folder, body.replace("EPOCHS", "1000000"), 2)
    assert "ended by itself" not in said
    assert opened.complete
    assert Session.load(folder / "p.json").results["verdict"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "images", "opened.txt", "p.json", "project",
    ]  # fmt: skip


def test_an_epoch_that_was_cut_short_is_not_complete(folder: Path) -> None:
    body = SCRIPT.replace("READER", "Image.open").replace("WORKERS", "0").replace("EPOCHS", "1")
    opened, _ = watched(folder, body.replace("sleep(0.01)", "sleep(1.5)"), 1)
    assert not opened.complete


def test_rows_of_a_dataset_count_where_nothing_is_seen_to_open(tmp_path: Path) -> None:
    lines = ["?1\t/d/a.jpg", "?2\t/d/b.jpg", "2\t/d/c.jpg", "#1\ttrain\t1", "#2\tevaluation\t0"]
    (tmp_path / "opened").write_text("".join(f"{line}\n" for line in lines))
    opened = read_opened(tmp_path / "opened")
    assert (opened.train, opened.evaluation) == ({"/d/a.jpg"}, {"/d/c.jpg"})
    assert opened.complete
    assert read_opened(tmp_path / "nothing") == OpenedFiles()
