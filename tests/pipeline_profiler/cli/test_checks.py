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

def make_loss():
    return torch.nn.CrossEntropyLoss()

def make_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)

END = []
"""


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    number = abs(hash(request.node.name)) % 10**9
    path = tmp_path / f"train_{number}.py"
    path.write_text(LOADERS)
    return str(path)


def test_a_healthy_loader_ends_with_0_and_a_grid(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, document = tmp_path / "grid.png", tmp_path / "checks.json"
    code = command_line(
        ["check", f"{script}:make_loader", "--images", str(grid), "-o", str(document)]
    )
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.startswith("Checks of loader ")
    assert grid.read_bytes().startswith(b"\x89PNG")
    assert json.loads(document.read_text())["schema"] == "checks/1"


def test_a_failed_check_ends_with_1_and_one_document(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["check", f"{script}:make_unshuffled", "--json", "--only", "LOAD002,LOAD003"]
    assert command_line(call) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["LOAD002"]
    assert command_line([*call[:2], "--only", "LOAD002", "--evaluation"]) == 0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("needs_argument", "takes the argument root"),
        ("raising", "failed with FileNotFoundError: /no/such/folder"),
    ],
)
def test_a_factory_that_cannot_be_called_is_a_sentence(
    script: str, name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["check", f"{script}:{name}", "--quick"]) == 2
    assert sentence in " ".join(capsys.readouterr().out.split())


def test_a_training_from_single_functions(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["check", script, "--only", "TRAIN001,TRAIN005,TRAIN020"]) == 0
    Path(script).with_name("twice.py").write_text(
        LOADERS.replace("END = []", "END = [torch.nn.Softmax(1)]")
    )
    twice = str(Path(script).with_name("twice.py"))
    capsys.readouterr()
    assert command_line(["check", twice, "--only", "TRAIN020", "--json"]) == 1
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
    said = capfd.readouterr()
    assert json.loads(said.out)["checks"][0]["place"] == "talkative_loader.py:3"
    assert "at import" in said.err
    assert "by a program" in said.err


def test_a_foreign_file_is_not_replaced(script: str, tmp_path: Path) -> None:
    mine = tmp_path / "thesis.json"
    mine.write_text('{"mine": 1}')
    call = ["check", f"{script}:make_loader", "--only", "LOAD008", "-o", str(mine)]
    assert command_line(call) == 2
    assert mine.read_text() == '{"mine": 1}'
    mine.unlink()
    for _ in range(2):  # the second replaces the first
        assert command_line(call) == 0


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


RANKED = """
import os
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from tests.pipeline_profiler.checks.toys import ToyImages

RANK = int(os.environ.get("RANK", "0"))  # read at import, as launched scripts do

def make_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.1), torch.nn.Linear(192, 4))
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
        model = DistributedDataParallel(model)
    torch.manual_seed(SEED)
    dataset = ToyImages(64)
    sampler = DistributedSampler(dataset, num_replicas=2, rank=RANK)
    log = os.path.join(os.path.dirname(__file__), "log.txt")

    def train_step(model, batch, loss, optimizer):
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        if WRITER:
            with open(log, "a") as file:
                file.write(f"{float(value)} ")
        return value

    return {"model": model, "loader": DataLoader(dataset, 16, sampler=sampler),
            "loss": torch.nn.CrossEntropyLoss(), "train_step": train_step,
            "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
"""


@pytest.mark.parametrize(
    ("seed", "writer", "failed"),
    [("1 + RANK", "RANK == 0", []), ("1", "True", ["TRAIN033", "TRAIN035"])],
    ids=["healthy", "planted"],
)
def test_ranks_of_a_script_are_examined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: str, writer: str, failed: list[str]
) -> None:
    script = RANKED.replace("SEED", seed).replace("WRITER", writer)
    path = tmp_path / f"ranked_{len(failed)}.py"
    path.write_text(script)
    command_line(["check", f"{path}:make_training", "--json", "--only", "TRAIN033,TRAIN035"])
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == failed, found["checks"]
    told = {check["code"]: check["verdict"] for check in found["checks"]}
    assert failed or told["TRAIN033"] == told["TRAIN035"] == "passed", found["checks"]


def test_the_numbers_of_a_checkpoint_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scaled_loader.py"
    path.write_text(
        "import numpy as np\n"
        "def make_loader():\n"
        "    pixels = np.random.default_rng(0).integers(0, 256, (64, 3, 8, 8)) / 255\n"
        "    return [(((pixels - 0.5) / 0.5).astype(np.float32), np.arange(64) % 4)]\n"
    )
    for deviation, code in ((0.5, 0), (0.229, 1)):
        declared = tmp_path / f"{code}.json"
        numbers = {"image_mean": [0.5] * 3, "image_std": [deviation] * 3}
        declared.write_text(json.dumps(numbers))
        argv = ["check", f"{path}:make_loader", "--only", "LOAD014", "--set"]
        assert command_line([*argv, f"check.pretrained={declared}"]) == code
        assert "preprocessor" not in capsys.readouterr().err
