"""The commands check and explain, as a user calls them."""

import json
from pathlib import Path

import pytest

from pipeline_profiler.cli.main import command_line
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


LOADERS = """
import torch
from torch.utils.data import DataLoader
from tests.pipeline_profiler.checks.toys import ToyImages

def make_loader():
    return DataLoader(ToyImages(), 16, shuffle=True)

def make_unshuffled():
    return DataLoader(ToyImages(), 16)

def needs_argument(root):
    return DataLoader(root, 16)

def raising():
    raise FileNotFoundError("/no/such/folder")

def make_model():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4), *END)

make_loss = torch.nn.CrossEntropyLoss
make_optimizer = lambda model: torch.optim.Adam(model.parameters(), lr=0.01)
END = []
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / f"{tmp_path.name}.py"  # a name of its own: modules stay imported
    path.write_text(LOADERS)
    return str(path)


def test_a_healthy_loader_ends_with_0_and_files(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, mine = tmp_path / "grid.png", tmp_path / "thesis.json"
    mine.write_text('{"mine": 1}')
    call = ["check", f"{script}:make_loader", "--only", "LOAD008", "-o", str(mine)]
    assert command_line(call) == 2
    assert mine.read_text() == '{"mine": 1}'  # a foreign file is not replaced
    mine.unlink()
    for _ in range(2):  # the second replaces the first
        assert command_line([*call, "--images", str(grid)]) == 0
    assert "Checks of loader " in capsys.readouterr().out
    assert grid.read_bytes().startswith(b"\x89PNG")
    assert json.loads(mine.read_text())["schema"] == "checks/1"


def test_a_failed_check_ends_with_1_and_one_document(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["check", f"{script}:make_unshuffled", "--json", "--only", "LOAD002,LOAD003"]
    assert command_line(call) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["LOAD002"]
    assert command_line([*call[:2], "--only", "LOAD002", "--evaluation"]) == 0


def test_a_factory_that_cannot_be_called_is_a_sentence(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, sentence in (
        ("needs_argument", "takes the argument root"),
        ("raising", "failed with FileNotFoundError: /no/such/folder"),
    ):
        assert command_line(["check", f"{script}:{name}", "--quick"]) == 2
        assert sentence in " ".join(capsys.readouterr().out.split())


def test_a_training_from_single_functions(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["check", script, "--only", "TRAIN001,TRAIN005,TRAIN020"]) == 0
    twice = Path(script).with_name("twice.py")
    twice.write_text(LOADERS.replace("END = []", "END = [torch.nn.Softmax(1)]"))
    capsys.readouterr()
    assert command_line(["check", str(twice), "--only", "TRAIN020", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["TRAIN020"]


def test_what_the_users_code_prints_is_no_part_of_the_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talkative_loader.py"
    path.write_text(
        "import os, numpy as np\nprint('at import')\ndef make_loader():\n"
        "    os.system('echo by a program')\n    print('{')\n"
        "    return [(np.random.rand(16, 3, 8, 8), np.arange(16) % 4)]\n"
    )
    assert command_line(["check", f"{path}:make_loader", "--json", "--only", "LOAD008"]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["checks"][0]["place"] == "talkative_loader.py:3"
    assert "at import" in printed.err
    assert "by a program" in printed.err


def test_explain_prints_the_page_of_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["explain", "load001"]) == 0
    assert "## How it decides" in capsys.readouterr().out
    assert command_line(["explain", "TRAIN"]) == 0
    assert "TRAIN020" in capsys.readouterr().out
    assert command_line(["explain", "PIPE001"]) == 2


def test_the_training_on_the_sample_images_passes(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "sample_data" / "training.py")
    call = ["check", path, "--only", "TRAIN001,TRAIN005,TRAIN020", "--seconds", "60"]
    assert command_line(call) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("deviation", "code"), [(0.5, 0), (0.229, 1)])
def test_the_numbers_of_a_checkpoint_are_compared(
    tmp_path: Path, deviation: float, code: int
) -> None:
    path, declared = tmp_path / f"scaled_{code}.py", tmp_path / "numbers.json"
    path.write_text(
        "import numpy as np\n"
        "def make_loader():\n"
        "    pixels = np.random.default_rng(0).integers(0, 256, (64, 3, 8, 8)) / 255\n"
        "    return [(((pixels - 0.5) / 0.5).astype(np.float32), np.arange(64) % 4)]\n"
    )
    declared.write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [deviation] * 3}))
    options = ("--only", "LOAD008", "--set", f"check.pretrained={declared}")
    assert command_line(["check", f"{path}:make_loader", *options]) == code
