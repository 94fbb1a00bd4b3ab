"""The command end to end, on a model and a loader of the user's own; structure only, no times."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli import main
from pipeline_profiler.precision.image_data import (
    make_torch_loader,
    read_image_folder,
)
from pipeline_profiler.profiling.record.session import ProfileError, Session

pytestmark = pytest.mark.slow

TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.randn(48, 3, 4, 4), torch.arange(48) % 3)

def make_model():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))

def make_loader(batch_size):
    return DataLoader(DATA, batch_size)

def make_step():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(batch, precision):
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step

def make_training():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return model, DataLoader(DATA, 6), torch.nn.functional.cross_entropy, optimizer
"""
QUICK = [
    *("--batch-sizes", "4,8", "--set", "measure.steps=2", "--set", "measure.repeats=3"),
    *("--set", "measure.parity_steps=2"),
]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"precision_train_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return str(tmp_path / f"{name}.py")


def run_command(*args: str) -> int:
    return main.command_line(["precision", *args, "--device", "cpu"])


def test_a_model_and_a_loader_of_ones_own(train: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(f"{train}:make_model", "--loader", f"{train}:make_loader", *QUICK, "--json")
    out = capsys.readouterr().out
    assert code == 0
    document = json.loads(out)
    assert document["verdict"] == "precision"
    rows = document["precision"]["rows"]
    assert [(r["model"], r["batch_size"], r["precision"]) for r in rows] == [
        *[("make_model", 4, "fp32"), ("make_model", 4, "bf16")],
        *[("make_model", 8, "fp32"), ("make_model", 8, "bf16")],
    ]
    assert all(row["status"] == "ok" for row in rows)
    assert Session.load("precision.json").results["precision"]["rows"] == rows


def test_a_step_of_ones_own(train: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--step", f"{train}:make_step", "--loader", f"{train}:make_loader"]
    short = ["--batch-sizes", "4", "--precisions", "fp32", "--set", "measure.repeats=3"]
    assert run_command(*own, *short, "--json") == 0
    row = json.loads(capsys.readouterr().out)["precision"]["rows"][0]
    assert (row["model"], row["status"], row["step_ms"]["n"]) == ("make_step", "ok", 3)
    assert run_command("--step", f"{train}:make_training", *short[2:], "--json") == 0
    row = json.loads(capsys.readouterr().out)["precision"]["rows"][0]
    assert (row["batch_size"], row["status"]) == (6, "ok")  # of the loader that it brings


def test_the_screen_is_short_and_full_prints_every_row(
    train: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--batch-sizes", "2,4,6,8,12", "--precisions", "fp32,bf16", *QUICK[2:]]
    model = [f"{train}:make_model", "--loader", f"{train}:make_loader", *sizes]
    assert run_command(*model, "--workers", "0,1") == 0
    lines = capsys.readouterr().out.splitlines()
    report = [line for line in lines if not line.startswith("saved:")]
    assert len(report) <= 20
    assert max(map(len, report)) <= 100
    assert any("BF16" in line and "samples" not in line for line in report)
    document = Session.load("precision.json").results["precision"]
    assert {row["num_workers"] for row in document["loaders"]} == {0, 1}
    assert run_command(*model, "--full") == 0
    full = capsys.readouterr().out
    assert full.count("make_model") > 10
    assert run_command(*model, "--workers", "4,x") == 2
    assert "--workers takes whole numbers" in capsys.readouterr().err


def test_a_folder_of_images_is_read_with_its_damaged_files_left_out(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "train" / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing")
    found = read_image_folder(tree / "train", side=8)
    assert found.classes == 3
    assert len(found) == 15
    assert "15 images in 3 classes of train, 8x8" in found.notes[0]
    assert "1 files were left out: undecodable" in found.notes[1]
    image, label = found[0]
    assert image.shape == (3, 8, 8)
    assert image.dtype == "float32"
    assert -1 <= image.min() < image.max() <= 1
    assert {found[i][1] for i in range(15)} == {0, 1, 2}
    assert label == 0
    # an epoch holds four times the batches in flight: 4 x 2 workers x 2 batches of 3
    assert len(make_torch_loader(found, 3, 2, pin=False).dataset) == 60  # type: ignore[arg-type]
    assert len(make_torch_loader(found, 3, 0, pin=False).dataset) == 15  # type: ignore[arg-type]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="No images in the class folders"):
        read_image_folder(tmp_path)
    with pytest.raises(ProfileError, match="No folder"):
        read_image_folder(tmp_path / "none")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["vgg"], "'vgg' is no shipped model (resnet18, dpn26, dpn92)"),
        (["--batch-sizes", "a,b"], "--batch-sizes takes whole numbers"),
        (["--loss-scale", "much"], "--loss-scale takes 'dynamic' or numbers"),
        (["--loader", "x.py:f", "--data", "here"], "Give --loader or --data, not both."),
        (["--data", "nowhere"], "No folder nowhere"),
        (["vgg", "--step", "x.py:f"], "--step brings its own model"),
        (["--memory-limit", "much"], "--memory-limit takes a size such as 21GiB"),
        (["nowhere.py:f"], "is not FILE.py:FUNCTION of an existing file"),
    ],
)
def test_usage_errors_are_one_sentence(
    args: list[str], said: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(*args) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
