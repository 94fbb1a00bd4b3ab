"""`check -- train.py`: unmodified scripts are run, caught, checked; nothing changes."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.checks import held_back, held_by_copy
from pipeline_profiler.cli.main import command_line
from tests.conftest import ROOT
from tests.pipeline_profiler.conftest import UNCOMPILED, UNRECORDED
from tests.warm import warm_line

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse, os, shutil, subprocess
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import wandb

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=50)
args = parser.parse_args()
print("not a document: {")
shutil.rmtree("output", ignore_errors=True)
os.makedirs("output")
subprocess.run("rm -f precious.txt; echo new > by_program.txt", shell=True, check=True)
wandb.init()
torch.manual_seed(0)
centres = 3 * torch.randn(4, 12)
labels = torch.arange(640) % 4
labels = labels[torch.randperm(640)] if True else labels  # ORDER
inputs = centres[labels] + torch.randn(640, 12)
inputs = (inputs - inputs.mean()) / inputs.std()
data = TensorDataset(inputs[:512], labels[:512])
sampler = None  # SAMPLER
train = DataLoader(data, 32, sampler=sampler, shuffle=sampler is None)
val = DataLoader(TensorDataset(inputs[512:], labels[512:]), 64)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.1)
for epoch in range(args.epochs):
    model.train()
    # EPOCH
    for x, y in train:
        optimizer.zero_grad()
        output = model(x)
        loss = F.cross_entropy(output, y) / 1
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in val)
    torch.save(model.state_dict(), "output/best.pt")
    wandb.log({"right": right})
"""
TRACKER = """
import os
assert os.environ["WANDB_MODE"] == "offline"
init = lambda: open("wandb.log", "w").close()
log = lambda row: None
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script's folder, with what it would delete."""
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "of_last_week.pt").write_text("weights")
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / "wandb.py").write_text(TRACKER)
    return tmp_path


def run(folder: Path, text: str, *options: str, json_wanted: bool = True) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the command on a script."""
    (folder / "train.py").write_text(text)
    command = [*warm_line("pipeline_profiler"), "check", *UNRECORDED]
    command += [*options, *(["--json"] if json_wanted else []), "--", "train.py", "--epochs", "9"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": UNCOMPILED},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def state(folder: Path) -> dict[str, str]:
    skipped = {"train.py", "checks.json", "made.py"}
    return {
        str(p.relative_to(folder)): p.read_text()
        for p in folder.rglob("*")
        if p.is_file() and p.name not in skipped and "__pycache__" not in p.parts
    }


SEED = "torch.manual_seed(0)\n"


@pytest.mark.parametrize(
    ("late", "start"),
    [
        ("", "Your script sets no seed with torch.manual_seed: "),
        (SEED, "Your script draws random numbers before it sets a seed (at train.py:"),
    ],
)
def test_a_script_without_a_seed_is_no_deterministic_one(
    folder: Path, late: str, start: str
) -> None:
    text = SCRIPT.replace(SEED, "").replace("model = nn.S", f"{late}model = nn.S")
    code, out, err = run(folder, text, "--only", "LOAD006,TRAIN008")
    assert code == 0, out + err
    for check in json.loads(out)["checks"]:
        assert check["verdict"] == "inconclusive", check
        assert check["sentence"].startswith(start)
    assert start in err
    assert "Figures that your code prints come from shortened runs" in err


LOOP = "LOAD002,LOAD006,TRAIN001,TRAIN005,TRAIN008,TRAIN009,TRAIN014,TRAIN016,TRAIN020"
LOOP += ",TRAIN024,TRAIN039,TRAIN043"


def test_a_healthy_script_passes_and_nothing_on_disk_changes(folder: Path) -> None:
    before = state(folder)
    code, out, err = run(folder, SCRIPT, "--only", LOOP)
    assert code == 0, out + err
    found = json.loads(out)
    checks = {check["code"]: check for check in found["checks"]}
    evaluation = checks.pop("TRAIN024")
    assert evaluation["verdict"] == "skipped"
    assert {check["verdict"] for check in checks.values()} == {"passed"}, found["checks"]
    assert not found["unreached"]
    assert state(folder) == before
    assert "not a document" in err
    if sys.platform == "linux":
        for change in ("- precious.txt", "+ by_program.txt", "- output/of_last_week.pt"):
            assert change in err
    line = 1 + SCRIPT.partition("right = sum(")[0].count("\n")
    assert evaluation["place"] == f"train.py:{line}"


def test_spawned_workers_of_a_script_start_again_in_the_checks(folder: Path) -> None:
    workers = "(data, 32, num_workers=1, multiprocessing_context='spawn', sampler"
    body = SCRIPT[SCRIPT.index("torch.manual_seed") :].replace("(data, 32, sampler", workers)
    lines = "\n".join(f"    {line}" for line in body.splitlines() if "wandb" not in line)
    imports = SCRIPT[: SCRIPT.index("import wandb")]
    own = "class Items(TensorDataset):\n    pass\n\nif __name__ == '__main__':\n"
    text = imports + own + lines.replace("TensorDataset(", "Items(").replace("args.epochs", "2")
    _, out, err = run(folder, text, "--only", "LOAD002")
    (check,) = json.loads(out)["checks"]
    assert check["verdict"] == "passed", check["sentence"] + err


FAULTS = [  # (text, text with the fault, code, expression that is marked)
    ("for epoch in range(args.epochs):\n    model.train()\n",
     "for epoch in range(args.epochs):\n", "TRAIN009", "model(x)"),
    ("        optimizer.zero_grad()\n", "", "TRAIN016", "loss.backward()"),
    ("output = model(x)", "output = model(x).softmax(1)", "TRAIN020", "F.cross_entropy(output, y)"),
    ('    torch.save(model.state_dict(), "output/best.pt")\n',
     "    best = model.state_dict()\n", "TRAIN043", "model.state_dict()"),
    (", sampler=sampler, shuffle=sampler is None", "", "LOAD002", "DataLoader(data, 32)"),
]  # fmt: skip


def test_faults_are_marked_and_the_script_passes_with_the_printed_diff(folder: Path) -> None:
    text = SCRIPT.replace("if True else", "if False else").replace("% 4", "// 160")
    for old, new, *_ in FAULTS:
        assert old in text
        text = text.replace(old, new)
    only = ("--only", ",".join(code for _, _, code, _ in FAULTS))
    _, out, err = run(folder, text, *only)
    checks = {check["code"]: check for check in json.loads(out)["checks"]}
    for _, _, code, expression in FAULTS:
        at = checks[code]["location"]
        line = text.splitlines()[at["lineno"] - 1]
        assert checks[code]["verdict"] == "failed", checks[code]
        assert line[at["col_offset"] : at["end_col_offset"]] == expression
    code, diff, err = run(folder, text, *only, "--diff", json_wanted=False)
    assert code == 1, diff + err
    assert "  Next: Set shuffle=True, or enlarge the buffer; --evaluation if it is for" in err
    assert "loss.backward()\n     | " + " " * 8 + "^" * 15 in err
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=folder, check=True)
    code, out, err = run(folder, (folder / "train.py").read_text(), *only)
    assert code == 0, diff + out + err


def test_a_run_that_ends_inside_an_evaluation_trains_in_the_checks(folder: Path) -> None:
    """The evaluation is slow, and runs without gradients: the time is over inside of it."""
    slow = "    with torch.no_grad():\n        for _ in range(10**9):\n            model(inputs)\n"
    text = SCRIPT.replace("    with torch.no_grad():\n", slow)
    code, out, err = run(folder, text, "--only", "TRAIN005", "--seconds", "12")
    assert out, err
    found = json.loads(out)
    assert code == 0, found["checks"]
    assert found["unreached"]


TEACHER = """
teacher = nn.Linear(12, 4)
first = torch.optim.SGD(teacher.parameters(), lr=0.1)
for x, y in train:
    first.zero_grad()
    F.cross_entropy(teacher(x), y).backward()
    first.step()
    nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
model = nn.Sequential("""


def test_the_second_training_is_judged_and_facts_of_the_first_are_named(folder: Path) -> None:
    text = SCRIPT.replace("model = nn.Sequential(", TEACHER)
    _, out, err = run(folder, text, "--only", "TRAIN005,TRAIN009,TRAIN039")
    found = json.loads(out)
    checks = {check["code"]: check for check in found["checks"]}
    late = 1 + text.partition("nn.utils.clip_grad_norm_(teacher")[0].count("\n")
    assert checks.pop("TRAIN039")["place"] == f"train.py:{late}", out + err
    assert {check["verdict"] for check in checks.values()} == {"passed"}, found["checks"]
    line = 1 + text.partition("output = model(x)")[0].count("\n")
    assert found["ended"] == f"Judged: training 2 of 2, train.py:{line}."


INSIDE = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Embedding(9, 16), nn.Linear(16, 9)
    def forward(self, tokens, targets):
        logits = self.head(self.body(tokens))
        return logits, F.cross_entropy(logits.view(-1, 9), targets.view(-1))

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for number in range(1000):
    row = (torch.randint(9, (32, 1)) + torch.arange(6 + int(torch.randint(4, ())))) % 9
    row, target = row[:, :-1].contiguous(), row[:, 1:].contiguous()
    if number % 5 == 0:
        model.eval()
        with torch.no_grad():
            model(row, target)
        model.train()
    logits, loss = model(row, target)
    optimizer.zero_grad()
    (loss / 2).backward()
    optimizer.step()
"""


def test_a_loss_inside_the_model_and_batches_without_a_loader(folder: Path) -> None:
    code, out, err = run(folder, INSIDE, "--only", "TRAIN001,TRAIN003,TRAIN009,TRAIN020,TRAIN004")
    found = json.loads(out)
    assert {check["verdict"] for check in found["checks"]} == {"passed"}, found["checks"]
    assert code == 0
    assert "no DataLoader" in err


needs_keras = pytest.mark.skipif(not find_spec("keras"), reason="needs Keras")
KERAS = """
import numpy as np
import keras

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
labels = rng.integers(0, 4, 512)
inputs = (rng.normal(0, 2, (4, 12))[labels] + rng.normal(0, 1, (512, 12))).astype("float32") / 3
model = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(4)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=False))
model.fit(inputs, labels, epochs=500, validation_split=0.25,
          callbacks=[keras.callbacks.ModelCheckpoint("best.keras")])
"""


@needs_keras
def test_a_fit_of_keras_is_caught(folder: Path) -> None:
    _, out, err = run(folder, KERAS, "--only", "TRAIN001,TRAIN020,LOAD002,LOAD003")
    assert out, err
    found = json.loads(out)
    assert found["failed"] == ["TRAIN020", "TRAIN001"], found["checks"]
    assert found["summary"]["passed"] >= 1, found["checks"]
    assert not (folder / "best.keras").exists()


def test_a_script_that_trains_nothing_is_a_sentence(folder: Path) -> None:
    code, out, err = run(folder, "import sys\nsys.exit(3)", json_wanted=False)
    assert (code, out) == (2, "")
    assert "ended with exit code 3, and no step of an optimizer" in err


def test_a_script_that_fails_before_its_step_says_so(folder: Path) -> None:
    text = SCRIPT.replace("loss.backward()", "raise ValueError('no such file')")
    code, out, err = run(folder, text, "--only", "TRAIN001", json_wanted=False)
    assert code == 2
    assert "Your script failed with ValueError: no such file (train.py:" in err
    assert "Not reached by the script: a step of an optimizer" in " ".join(out.split())


HELD = """
import os, pathlib, shutil, subprocess, sys
from pipeline_profiler.checks.held_by_copy import hold
hold(sys.argv[1] + "/held/scratch", sys.argv[1] + "/copy")
open("new.txt", "w").write("new")
assert open("new.txt").read() == "new" and os.path.exists("new.txt")
with open("kept.txt", "a") as file:
    file.write(" and more")
assert pathlib.Path("kept.txt").read_text() == "kept and more"
os.makedirs("made/deep")
pathlib.Path("made/deep/x").write_text("x")
os.remove("new.txt"); assert not os.path.exists("new.txt")
os.remove("gone.txt"); shutil.rmtree("folder"); os.rename("kept.txt", "moved.txt")
assert open("moved.txt").read() == "kept and more"
subprocess.run(["true", "by a program"])
"""


def test_redirected_writes_and_deletions_change_no_file(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    for name in ("kept", "gone", "folder/inside"):
        (work / f"{name}.txt").write_text("kept")
    before = state(work)
    subprocess.run([sys.executable, "-c", HELD, str(tmp_path)], cwd=work, check=True,
                   env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert state(work) == before
    assert not (work / "made").exists()
    log = (tmp_path / "held" / "scratch.log").read_text().splitlines()
    assert f"- {work}/gone.txt" in log
    assert "! true by a program" in log


OVERWRITES = """
import pathlib, torch
import helper
from PIL import Image
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
rows = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.arange(32) % 2)
for epoch in range(50):
    for x, y in torch.utils.data.DataLoader(rows, 8, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    for path in ("best.pt", "linked.pt", "FOLDER/output/best.pt"):
        torch.save(model.state_dict(), path)
        assert set(torch.load(path)) == {"weight", "bias"}
    Image.new("RGB", (4, 4)).save("FOLDER/picture.png")
    pathlib.Path("precious.txt").unlink(missing_ok=True)
"""


@pytest.mark.parametrize("overlays", [True, False])
def test_no_existing_checkpoint_is_overwritten(
    tmp_path: Path, monkeypatch: Any, capfd: Any, overlays: bool
) -> None:
    if not overlays:  # the exit code of a system without name spaces
        (tmp_path / "held.py").write_text(f"raise SystemExit({held_back.REFUSED})")
        monkeypatch.setattr(held_back, "__file__", str(tmp_path / "held.py"))
        monkeypatch.setattr(held_by_copy, "MOST_BYTES", 2000)  # linked.pt is larger
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (elsewhere / "output").mkdir(parents=True)
    project.mkdir()
    old = {"best.pt": "old", "linked.pt": "old" * 1000, "helper.py": "", "precious.txt": "mine"}
    for name, content in old.items():
        (project / name).write_text(content)
    for name in ("output/best.pt", "picture.png"):
        (elsewhere / name).write_text("old")
    (project / "train.py").write_text(OVERWRITES.replace("FOLDER", str(elsewhere)))
    monkeypatch.chdir(project)
    before = state(tmp_path)
    line = ["check", *UNRECORDED, "--only", "TRAIN001", "--", "train.py"]
    if not overlays:
        assert command_line(line) == 2  # two absolute paths, and no --yes
        err = capfd.readouterr().err
        assert f"{elsewhere}/output/best.pt (train.py:13)" in err
        assert f"{elsewhere}/picture.png (train.py:16)" in err
        assert "It was not run" in err
    assert command_line([line[0], "--yes", *line[1:]]) == 0
    out, err = capfd.readouterr()
    assert "0 failed, 1 passed" in out
    for change in ("- precious.txt", "+ best.pt", "+ linked.pt", f"{elsewhere}/output/best.pt"):
        assert change in err
    assert state(tmp_path) == before


@pytest.mark.parametrize("script", ["train.py", "train"])
@pytest.mark.parametrize("line", ["import parts.rows", "from parts import (rows, b)"])
def test_a_library_that_writes_by_itself_is_named_before_the_start(
    tmp_path: Path, script: str, line: str
) -> None:
    (tmp_path / "train.py").write_text(f"import torch\n{line}\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "rows.py").write_text("import os, sqlite3\nfrom pyarrow import csv\n")
    assert held_by_copy.uncovered(tmp_path, script) == [
        "sqlite3 writes by compiled code (rows.py:1)",
        "pyarrow writes by compiled code (rows.py:2)",
    ]


def test_a_file_that_cannot_be_read_is_a_link(tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "secret.txt").write_text("of another user")
    monkeypatch.setattr(held_by_copy.shutil, "copy2", refuse)
    held_by_copy.copy_folder(str(tmp_path / "project"), str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "secret.txt").is_symlink()


def test_a_copy_below_its_folder_does_not_hold_itself(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1")
    (tmp_path / "scratch").mkdir()
    held_by_copy.copy_folder(str(tmp_path), str(tmp_path / "scratch" / "copy"))
    assert [p.name for p in (tmp_path / "scratch" / "copy").iterdir()] == ["train.py"]


TWO_RANKS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(512, 6), torch.arange(512) % 3)
loader = DataLoader(data, 16, sampler=torch.utils.data.SAMPLER)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 3))
model = nn.parallel.DistributedDataParallel(net)
torch.manual_seed(SEED)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(6):
    getattr(loader.sampler, "set_epoch", int)(epoch)
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        [model(x) for x, _ in loader]
    if WRITER:
        torch.save(net.state_dict(), "net.pt")
"""


@pytest.mark.parametrize(
    ("seed", "writer", "sampler", "failed"),
    [
        ("1 + rank", "rank == 0", "DistributedSampler(data)", set()),
        ("1", "True", "RandomSampler(data)", {"LOAD004", "TRAIN033", "TRAIN035"}),
    ],
)
def test_two_ranks_in_two_processes(
    tmp_path: Path, seed: str, writer: str, sampler: str, failed: set[str]
) -> None:
    text = TWO_RANKS.replace("SEED", seed).replace("WRITER", writer).replace("SAMPLER", sampler)
    (tmp_path / "train.py").write_text(text)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py"]
    codes = "LOAD004,TRAIN025,TRAIN033,TRAIN035,TRAIN038"
    command = [sys.executable, "-m", "pipeline_profiler", "check", "--json", "--yes", "--only"]
    done = subprocess.run(
        [*command, codes, "--", *launch], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found = {check["code"]: check for check in json.loads(done.stdout)["checks"]}
    assert {code for code, c in found.items() if c["verdict"] == "failed"} == failed, done.stderr
    reads = "Each rank reads all 512 samples, unsplit." if failed else "2 ranks: disjoint"
    assert reads in found["LOAD004"]["sentence"], found
    # healthy: statistics of rank 0 alone
    assert failed or found["TRAIN025"]["verdict"] == "inconclusive", found
