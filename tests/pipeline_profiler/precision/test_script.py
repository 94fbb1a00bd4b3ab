"""`precision -- train.py`: blocks of steps of unmodified scripts run at other precisions."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from pipeline_profiler.checks.caught_run import CheckOrder
from pipeline_profiler.precision.script import ScriptBlocks
from tests.conftest import ROOT
from tests.pipeline_profiler.conftest import TRAINERS, UNRECORDED
from tests.warm import warm_line

HEAD = """
import os, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 4)
    def forward(self, x, labels=None):
        out = self.layer(x)
        print("forward", out.dtype, self.layer.weight.flatten()[0].item())
        return out if labels is None else (nn.functional.cross_entropy(out, labels), out)

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 12), torch.randint(4, (64,)))
open("written.txt", "w").close()
os.remove("precious.txt")
"""
LOOP = """
net, loader = Net(), DataLoader(data, 8)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""
LIGHTNING = """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, number):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu").fit(Module(), DataLoader(data, 8))
"""
TRAINER = """
from transformers import Trainer, TrainingArguments

rows = [{"x": x, "labels": y} for x, y in data]
arguments = TrainingArguments("out", num_train_epochs=EPOCHS, report_to=[], use_cpu=True)
Trainer(Net(), arguments, train_dataset=rows).train()
"""


def measure(folder: Path, text: str, *options: str, **environment: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the command on a script."""
    (folder / "train.py").write_text(HEAD + text.replace("EPOCHS", "5000"))
    (folder / "precious.txt").write_text("mine")
    command = [*warm_line("pipeline_profiler"), "precision", *UNRECORDED, "--seconds", "3"]
    given = {"PYTHONPATH": f"{ROOT}{os.pathsep}{TRAINERS}", **environment}
    done = subprocess.run(
        [*command, *options, "--", "train.py"], cwd=folder, capture_output=True, text=True,
        check=False, env={**os.environ, **given},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("trainers")
@pytest.mark.parametrize("loop", [LOOP, LIGHTNING, TRAINER], ids=["plain", "lightning", "trainer"])
def test_an_unmodified_script_is_measured(loop: str, tmp_path: Path) -> None:
    code, out, err = measure(tmp_path, loop)
    assert code == 0, err
    forwards = [line.split()[1:] for line in err.splitlines() if line.startswith("forward")]
    assert {dtype for dtype, _ in forwards} == {"torch.float32", "torch.bfloat16"}
    assert len({weight for _, weight in forwards[:60]}) > 50, "a step at each precision trains"
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"train.py", "precious.txt", "precision.json"}
    lines = out.splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(("BF16 (autocast) ", "Inconclusive: "))
    assert {"precision", "FP32", "BF16", "FP16"} <= {line.split()[0] for line in lines[1:]}
    found = json.loads((tmp_path / "precision.json").read_text())
    own, bf16 = found["precision-script"]["kinds"]
    assert len(own["step_ms"]) >= 3
    assert len(own["step_ms"].keys() ^ bf16["step_ms"].keys()) <= 1, "the time may end in a round"
    assert min(own["peak_bytes"], bf16["peak_bytes"]) > 0
    report = [*warm_line("pipeline_profiler"), "report", "precision.json"]
    shown = subprocess.run(report, cwd=tmp_path, text=True, capture_output=True, check=True)
    assert "Precision of the script" in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("", "", "no step of a torch optimizer was seen"),
        (LOOP.replace("EPOCHS", "1"), "", "train.py ended after 8 steps: let it train more"),
        (LOOP, "--precisions tf32", "--precisions takes fp32, fp16, bf16."),
        (LOOP, "--workers 2", "Leave workers out: a script brings its own."),
        (LOOP.replace("net(x)", "net(x[:, :5])"), "", "no step of a torch optimizer was seen"),
        (LOOP.replace("step()", "step(1 / (epoch - 2) and None)"), "", "ZeroDivisionError"),
        (LOOP, "WORLD_SIZE=2 RANK=0", "start one process, on one device."),
    ],
    ids=["no-step", "short", "nothing", "option", "first-step", "later-step", "ranks"],
)
def test_what_cannot_be_measured_is_one_sentence(
    text: str, words: str, sentence: str, tmp_path: Path
) -> None:
    options = [word for word in words.split() if "=" not in word]
    ranks = dict(word.split("=") for word in words.split() if "=" in word)
    code, out, err = measure(tmp_path, text, *options, **ranks)
    ours = [line for line in err.splitlines() if line.startswith("pipeline-profiler: ")]
    assert (code, out, len(ours)) == (2, "", 1), err
    assert sentence in ours[0]


RATE, FLOAT, HALF = 0.1, torch.float32, torch.bfloat16


class Loop:
    """A training in this process, measured; `seen`: (precision, autocast, dtype) of forwards."""

    def __init__(self, *only: str) -> None:
        torch.manual_seed(0)
        self.net: Any = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
        self.net.register_forward_hook(lambda net, args, out: self._see(out))
        self.optimizer = torch.optim.SGD(self.net.parameters(), RATE)
        self.seen: set[tuple[str, bool, torch.dtype]] = set()
        self.told: dict[str, Any] = {}
        order = CheckOrder("", "", 1.0, only=only)
        self.blocks = ScriptBlocks(order, lambda _, told: self.told.update(told))

    def _see(self, out: torch.Tensor) -> None:
        self.seen.add((self.blocks.kind.name, torch.is_autocast_enabled("cpu"), out.dtype))

    def backward(self, x: torch.Tensor, y: torch.Tensor, factor: float = 1.0) -> None:
        self.optimizer.zero_grad()
        out = self.net(x)
        assert out.dtype is FLOAT, "the loss is computed in FP32"
        (factor * cross_entropy(out, y)).backward()

    def train(self, step: Callable[..., Any]) -> dict[str, Any]:
        """Train until the measurement ends; the table, or what the problem is."""
        data = TensorDataset(torch.randn(64, 12), torch.randint(4, (64,)))
        self.blocks.hook(torch)
        try:
            while not self.told:
                for x, y in DataLoader(data, 8):
                    if not self.told:
                        step(x, y)
        finally:
            self.blocks.unhook()
        table: dict[str, Any] = self.told["results"].get("precision-script") or self.told
        return table


def test_autocast_is_on_in_the_blocks_of_bf16_alone() -> None:
    loop = Loop()
    table = loop.train(lambda x, y: (loop.backward(x, y), loop.optimizer.step()))
    assert loop.seen == {("own", False, FLOAT), ("bf16", True, HALF)}
    assert (table["own"], table["samples"], table["block_steps"]) == ("FP32", 8, 9)
    assert table["left_out"] == ["FP16 is left out: a CPU has no arithmetic for it."]


@pytest.mark.parametrize("around_all", [True, False], ids=["loop", "forward"])
def test_a_script_with_autocast_is_compared_with_fp32(around_all: bool) -> None:
    loop = Loop()
    if not around_all:
        loop.net[2].forward = torch.autocast("cpu", HALF)(loop.net[2].forward)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        with torch.autocast("cpu", HALF, enabled=around_all):
            out = loop.net(x)
        loop.optimizer.zero_grad()
        cross_entropy(out.float(), y).backward()
        loop.optimizer.step()

    table = loop.train(step)
    assert loop.seen == {("own", around_all, HALF), ("fp32", False, FLOAT)}
    assert (table["own"], table["casts"]) == ("BF16", True)


@pytest.mark.parametrize("closure", [False, True])
def test_the_gradients_of_fp16_are_scaled_in_backward_alone(closure: bool) -> None:
    loop, scales = Loop("fp16"), set[tuple[str, int]]()
    weights = list(loop.net.parameters())

    def backward(x: torch.Tensor, y: torch.Tensor) -> None:
        loop.backward(x, y)
        raw = torch.stack([weight.grad.norm() for weight in weights]).norm()
        scale = float(raw / nn.utils.clip_grad_norm_(weights, 1e6))
        scales.add((loop.blocks.kind.name, round(scale)))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        before = [weight.detach().clone() for weight in weights]
        loop.optimizer.step((lambda: backward(x, y)) if closure else backward(x, y))
        for weight, old in zip(weights, before, strict=True):
            torch.testing.assert_close(weight.detach(), old - RATE * weight.grad)

    loop.train(step)
    assert loop.seen == {("own", False, FLOAT), ("fp16", True, torch.float16)}
    assert scales == {("own", 1), ("fp16", 2**16)}


def test_a_step_of_fp16_that_overflows_is_skipped() -> None:
    loop, counts = Loop("fp16"), Counter[str]()

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        kind = loop.blocks.kind.name
        counts[kind] += 1
        overflows = kind == "fp16" and counts[kind] % 5 == 0
        loop.backward(x, y, 1e36 if overflows else 1.0)
        before = loop.net[0].weight.detach().clone()
        loop.optimizer.step()
        assert torch.equal(loop.net[0].weight, before) or not overflows

    table = loop.train(step)
    assert table["kinds"][1]["skipped"] > 0
    assert any("steps skipped by the GradScaler" in line for line in table["lines"])


@pytest.mark.filterwarnings("ignore")  # of torch, which imports its compiler
@pytest.mark.parametrize("dtype", [HALF, torch.float64])
def test_weights_that_are_not_fp32_are_refused(dtype: torch.dtype) -> None:
    loop = Loop()
    loop.net.to(dtype)
    told = loop.train(lambda x, y: (loop.net(x.to(dtype)).sum().backward(), loop.optimizer.step()))
    assert told["problem"].startswith(f"The weights are {dtype}: load them in FP32")


@pytest.mark.filterwarnings("ignore")  # of torch, which imports its compiler
def test_compiled_models_are_refused() -> None:
    loop = Loop()
    told = loop.train(
        lambda x, y: (torch.compile(loop.net), loop.backward(x, y), loop.optimizer.step())
    )
    assert "calls torch.compile, but steps run uncompiled here" in told["problem"]
