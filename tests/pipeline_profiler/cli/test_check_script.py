"""`check -- train.py`: unmodified scripts are run, caught, checked; nothing changes."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

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
SAMPLER = ("sampler = None  # SAMPLER", "sampler = DistributedSampler(data, 1, 0)")
CLIPPING = "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"


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
    ("late", "said"),
    [
        ("", "Your script sets no seed with torch.manual_seed: "),
        (SEED, "Your script draws random numbers before it sets a seed (at train.py:"),
    ],
    ids=["no seed", "seeded late"],
)
def test_a_script_without_a_seed_is_no_deterministic_one(
    folder: Path, late: str, said: str
) -> None:
    text = SCRIPT.replace(SEED, "").replace("model = nn.S", f"{late}model = nn.S")
    text = text.replace('wandb.log({"right": right})', 'print("accuracy", right / 128)')
    code, out, err = run(folder, text, "--only", "LOAD006,TRAIN008")
    assert code == 0, out + err
    for check in json.loads(out)["checks"]:
        assert check["verdict"] == "inconclusive", check
        assert check["sentence"].startswith(said)
    assert said in err
    before, _, after = err.partition("not a document")
    assert "Figures that your code prints come from shortened runs" in before
    assert "accuracy" in after


LOOP = "LOAD002,LOAD006,TRAIN001,TRAIN005,TRAIN008,TRAIN009,TRAIN014,TRAIN016,TRAIN020"
LOOP += ",TRAIN024,TRAIN039,TRAIN043"


def test_a_healthy_script_passes_and_nothing_on_disk_changes(folder: Path) -> None:
    before = state(folder)
    code, out, err = run(folder, SCRIPT, "--only", LOOP)
    assert code == 0, out + err
    found = json.loads(out)
    told = {check["code"]: check["verdict"] for check in found["checks"]}
    assert told.pop("TRAIN024") == "skipped"
    assert set(told.values()) == {"passed"}, found["checks"]
    assert not found["unreached"]
    assert state(folder) == before
    assert "not a document" in err
    if sys.platform == "linux":
        for change in ("- precious.txt", "+ by_program.txt", "- output/of_last_week.pt"):
            assert change in err
    (check,) = (check for check in found["checks"] if check["code"] == "TRAIN024")
    said = "Your evaluation was not called: add evaluate(model, loader)"
    assert check["sentence"].startswith(said)
    line = 1 + SCRIPT.partition("right = sum(")[0].count("\n")
    assert check["place"] == f"train.py:{line}"


PREFIX = """model.load_state_dict(
    {f"module.{k}": v for k, v in model.state_dict().items()}, strict=False)
optimizer = """
PLATEAU = """
    plateau = globals().get("plateau") or torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    plateau.step(100 * right / 128)
"""
DEFECTS = {
    "train() once": ("for epoch in range(args.epochs):\n    model.train()\n",
                     "for epoch in range(args.epochs):\n", "TRAIN009"),
    "eval() never": ("    model.eval()\n", "", "TRAIN009"),
    "clipped late": (f"{CLIPPING}        optimizer.step()\n",
                     f"        optimizer.step()\n{CLIPPING}", "TRAIN039"),
    "gradients kept": ("        optimizer.zero_grad()\n", "", "TRAIN016"),
    "softmax twice": ("output = model(x)", "output = model(x).softmax(1)", "TRAIN020"),
    "weights live": ('    torch.save(model.state_dict(), "output/best.pt")\n',
                     "    best = model.state_dict()\n", "TRAIN043"),
    "plateau turned": ('\n    wandb.log({"right": right})\n', PLATEAU, "TRAIN044"),
    "not loaded": ("optimizer = ", PREFIX, "TRAIN042"),
    "not frozen": ("optimizer = ", "for p in model[0].parameters(): p.require_grad = False\n"
                   "optimizer = ", "TRAIN046"),
    "no shuffle": ("shuffle=sampler is None", "shuffle=False", "LOAD002"),
    "epoch not told": (*SAMPLER, "TRAIN038"),
}  # fmt: skip

MARKED = {
    "TRAIN009": "model(x)", "TRAIN039": "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "TRAIN020": "F.cross_entropy(output, y)", "TRAIN016": "loss.backward()",
    "TRAIN043": "model.state_dict()", "TRAIN044": "plateau.step(100 * right / 128)",
    "LOAD002": "DataLoader(data, 32, sampler=sampler, shuffle=False)",
}  # fmt: skip


@pytest.mark.parametrize(
    "planted",
    [
        (
            "train() once",
            "clipped late",
            "softmax twice",
            "no shuffle",
            "weights live",
            "not frozen",
        ),
        ("eval() never", "gradients kept", "epoch not told", "plateau turned", "not loaded"),
    ],
    ids=lambda names: names[0],
)
def test_defects_of_the_loop_are_named_with_their_lines(
    folder: Path, planted: tuple[str, ...]
) -> None:
    text, codes = SCRIPT, [DEFECTS[name][2] for name in planted]
    for old, new, _ in (DEFECTS[name] for name in planted):
        assert old in text
        text = text.replace(old, new)
    if "no shuffle" in planted:
        text = text.replace("if True else", "if False else").replace("% 4", "// 160")
    _, out, err = run(folder, text, "--only", ",".join(codes))
    assert out, err
    found = json.loads(out)
    assert sorted(found["failed"]) == sorted(codes), found["checks"]
    assert all(check["place"].startswith("train.py:") for check in found["checks"])
    lines = text.splitlines()
    for check in found["checks"]:
        if check["code"] in MARKED:
            at = check["location"]
            line = lines[at["lineno"] - 1]
            assert at["path"] == "train.py"
            assert line[at["col_offset"] : at["end_col_offset"]] == MARKED[check["code"]], check


FIXED = ("train() once", "gradients kept", "softmax twice", "no shuffle", "weights live")


def test_a_script_passes_once_the_printed_diff_is_applied(folder: Path) -> None:
    text, codes = SCRIPT.replace("sampler=sampler, shuffle=sampler is None", ""), set[str]()
    text = text.replace("if True else", "if False else").replace("% 4", "// 160")
    for old, new, code in (DEFECTS[name] for name in FIXED):
        text = text.replace(old, new)
        codes.add(code)
    only = ("--only", ",".join(codes))
    code, diff, err = run(folder, text, *only, "--diff", json_wanted=False)
    assert code == 1, diff + err
    assert "  Next: Set shuffle=True, or enlarge the buffer; --evaluation if it is for" in err
    assert "loss.backward()\n     | " + " " * 8 + "^" * 15 in err
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=folder, check=True)
    code, out, err = run(folder, (folder / "train.py").read_text(), *only)
    assert code == 0, diff + out + err
    assert json.loads(out)["summary"]["failed"] == 0


MODE = (
    "for epoch in range(args.epochs):\n    model.train()\n",
    "for epoch in range(args.epochs):\n",
)


@pytest.mark.parametrize(
    "change",
    [
        ("DataLoader(data, 32,", "DataLoader(data, 2,"),
        ("    with torch.no_grad():\n", "    if True:\n"),
        ("for x, y in val)", "for x, y in train)"),
    ],
    ids=["more batches than are kept", "with gradients", "of the training data"],
)
def test_a_loop_that_never_returns_to_train_fails_however_it_evaluates(
    folder: Path, change: tuple[str, str]
) -> None:
    assert MODE[0] in SCRIPT
    assert change[0] in SCRIPT
    text = SCRIPT.replace(*MODE).replace(*change)
    _, out, err = run(folder, text, "--only", "TRAIN009")
    assert json.loads(out)["failed"] == ["TRAIN009"], out + err


AVERAGE = """        optimizer.step()
        with torch.no_grad():
            for kept, now in zip(average.parameters(), model.parameters()):
                kept.lerp_(now, 1 - DECAY)
"""


SCALED = (("loss.backward()", "scaler.scale(100 * loss).backward()"),
          ("optimizer.step()", "scaler.step(optimizer)\n        scaler.update()"),
          ("momentum=0.9", "momentum=0.9, fused=True"), SAMPLER,
          ("# EPOCH", "sampler.set_epoch(epoch)"))  # fmt: skip


@pytest.mark.parametrize(
    ("decay", "begun", "scale", "told"),
    [
        (0.9999, "", 1.0, {"TRAIN047": "failed"}),
        (0.9, "", 2.0**127, {"TRAIN047": "passed"}),
        (
            0.9999,
            ".apply(drawn_anew)",
            1.0,
            {"TRAIN047": "not applicable", "TRAIN009": "inconclusive"},
        ),
    ],
)
def test_an_average_that_is_evaluated_and_a_scaled_fused_step_with_its_epochs_told(
    folder: Path, decay: float, begun: str, scale: float, told: dict[str, str]
) -> None:
    text = SCRIPT.replace("        optimizer.step()\n", AVERAGE.replace("DECAY", str(decay)))
    text = text.replace("StepLR(optimizer, 7, 0.1)", "CosineAnnealingLR(optimizer, 9)")
    text = text.replace("model.eval()", "average.eval()").replace("int((model(", "int((average(")
    drawn = "lambda part: getattr(part, 'reset_parameters', int)()"  # another model of its form
    made = f"import copy\ndrawn_anew = {drawn}\naverage = copy.deepcopy(model){begun}\n"
    made += f"scaler = torch.amp.GradScaler('cpu', init_scale={scale})\noptimizer = "
    text = text.replace("optimizer = ", made, 1)
    for old, new in SCALED:
        text = text.replace(old, new)
    told = {"TRAIN009": "passed", "TRAIN038": "passed"} | told
    _, out, err = run(folder, text, "--only", ",".join(told))
    found = json.loads(out)
    assert {check["code"]: check["verdict"] for check in found["checks"]} == told, out + err
    assert bool(found["unreached"]) == bool(begun)


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
LABELS = (
    "F.cross_entropy(output, y)",
    "F.cross_entropy(output, (y[torch.arange(len(y))] + 1) % 4)",
)


def test_the_second_training_is_judged_and_facts_of_the_first_are_named(folder: Path) -> None:
    taught = "        optimizer.zero_grad()\n        with torch.no_grad(): teacher(x)\n"
    text = SCRIPT.replace("        optimizer.zero_grad()\n", taught)
    text = text.replace("model = nn.Sequential(", TEACHER).replace(*LABELS)
    _, out, err = run(folder, text, "--only", "TRAIN005,TRAIN009,TRAIN016,TRAIN020,TRAIN039")
    found = json.loads(out)
    told = {check["code"]: check for check in found["checks"]}
    late = 1 + text.partition("nn.utils.clip_grad_norm_(teacher")[0].count("\n")
    assert told.pop("TRAIN039")["place"] == f"train.py:{late}", out + err
    assert {check["verdict"] for check in told.values()} == {"passed"}, found["checks"]
    line = 1 + text.partition("output = model(x)")[0].count("\n")
    assert found["ended"] == f"Judged: training 2 of 2, train.py:{line}."
    assert not found["unreached"]


INSIDE = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Embedding(9, 16), nn.Linear(16, 9)
    def forward(self, tokens, targets=None):
        logits = self.head(self.body(tokens))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, 9), targets.view(-1))

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
def draw():
    start = torch.randint(9, (32, 1))
    row = (start + torch.arange(6 + int(torch.randint(4, ())))) % 9
    return row[:, :-1].contiguous(), row[:, 1:].contiguous()
for number in range(1000):
    if number % 5 == 0:
        model.eval()
        with torch.no_grad():
            model(*draw())
        model.train()
    logits, loss = model(*draw())
    optimizer.zero_grad()
    (loss / 2).backward()
    optimizer.step()
"""


def test_a_loss_inside_the_model_and_batches_without_a_loader(folder: Path) -> None:
    code, out, err = run(folder, INSIDE, "--only", "TRAIN001,TRAIN003,TRAIN009,TRAIN020,TRAIN004")
    found = json.loads(out)
    told = {check["code"]: check["verdict"] for check in found["checks"]}
    assert set(told.values()) == {"passed"}, found["checks"]
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


PICTURES = """
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
labels = rng.integers(0, 2, 256)
pixels = rng.integers(0, 100, (256, 8, 8, 3)) + 150 * (np.arange(8) // 4 == labels[:, None])[
    :, None, :, None]
train = tf.data.Dataset.from_tensor_slices((pixels.astype("float32"), labels))
train = train.shuffle(256).batch(32).map(
    lambda x, y: (tf.image.random_flip_up_down(x), y), num_parallel_calls=2)
model = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(),
                          keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(train, epochs=500, validation_data=train)
"""


@needs_keras
def test_keras_scales_in_the_model_and_has_one_output_for_two_classes(folder: Path) -> None:
    options = ("--only", "LOAD002,LOAD006,LOAD008,TRAIN001,TRAIN020")
    code, out, err = run(folder, PICTURES, *options)
    assert code == 0, out + err
    verdicts = {check["code"]: check["verdict"] for check in json.loads(out)["checks"]}
    assert verdicts["LOAD008"] == verdicts["LOAD006"] == "inconclusive"
    assert verdicts["LOAD002"] == verdicts["TRAIN001"] == verdicts["TRAIN020"] == "passed"


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
from pipeline_profiler.checks.held_by_hooks import hold
hold(sys.argv[1] + "/held/scratch")
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


def test_hooks_of_python_hold_back_what_python_writes(tmp_path: Path) -> None:
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
