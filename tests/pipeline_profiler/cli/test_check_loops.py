"""`check -- train.py`: sums of gradients, graphs, ranks and open files of a running loop."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipeline_profiler.cli.test_check_script import SCRIPT, folder, run

pytestmark = pytest.mark.slow
__all__ = ["folder"]  # a fixture

STEP = SCRIPT[SCRIPT.index("        optimizer.zero_grad()\n") : SCRIPT.index("    schedule.step()")]
GATHERED = """        loss = F.cross_entropy(model(x), y)DIVIDED
        loss.backward()
        count = globals().get("count", 0) + 1
        if count % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
EVALUATION = "        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in val)\n"
EVALUATED = """    right = 0.0
    for x, y in DataLoader(TensorDataset(inputs[512:], labels[512:]), 16):
        right += F.cross_entropy(model(x), y)
"""
RANKS = """import torch.distributed as dist
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
dist.init_process_group("gloo", rank=0, world_size=1)
rank = dist.get_rank()
model = (nn.parallel.DistributedDataParallel if dist.get_world_size() > 1 else nn.Identity)()
model = nn.Sequential("""
DEALT = "data = torch.utils.data.Subset(data, range(rank, 512, 1))"
FILE = """class Rows(torch.utils.data.Dataset):
    def __init__(self):
        inputs[:512].repeat(1, 1000).numpy().tofile("rows.bin")
        self.file = open("rows.bin", "rb")
    def __len__(self):
        return 512
    def __getitem__(self, i):
        self.file.seek(48_000 * i)
        read = bytearray(self.file.read(48_000))
        return torch.frombuffer(read, dtype=torch.float)[:12], labels[i]
sampler"""
LAZY = 'if not hasattr(self, "file"):\n            self.file = open("rows.bin", "rb")\n'


def changed(*pairs: tuple[str, str]) -> str:
    text = SCRIPT
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def appended(line: str) -> str:
    last = "        optimizer.step()\n"
    return changed(
        (last, f"{last}        {line}\n"), ("for epoch", "losses, total = [], 0\nfor epoch")
    )


def gathered(divided: str) -> str:
    return changed((STEP, GATHERED.replace("DIVIDED", divided)))


def of_file(lazy: bool) -> str:
    rows = FILE
    if lazy:
        rows = rows.replace('        self.file = open("rows.bin", "rb")\n', "")
        rows = rows.replace("        self.file.seek", f"        {LAZY}        self.file.seek")
    return changed(
        ("sampler", rows), ("DataLoader(data, 32", "DataLoader(Rows(), 32, num_workers=2")
    )


def of_ranks(*more: tuple[str, str]) -> str:
    return (
        changed(("model = nn.Sequential(", RANKS), *more)
        .replace(", DistributedSampler", "")
        .replace("# SAMPLER", "")
    )


EVALUATED_WITH_GRAPHS = changed((f"    with torch.no_grad():\n{EVALUATION}", EVALUATED))
SENTENCES = {
    "eight summed": (
        gathered(""),
        "TRAIN016",
        "8 times the mean gradient of 8 batches: their sum.",
    ),
    "losses": (appended("losses.append(loss)"), "TRAIN056", "losses keeps the graphs of "),
    "a total": (appended("total += loss"), "TRAIN056", "total keeps the graphs of "),
    "evaluated": (EVALUATED_WITH_GRAPHS, "TRAIN056", "right keeps the graphs of "),
    "ranks": (of_ranks(), "LOAD004", "Each rank reads all 512 samples, unsplit."),
    "a file": (of_file(False), "LOAD028", "dataset.file is open before they are forked."),
}
HEALTHY = {
    "eight averaged": (gathered(" / 8"), "TRAIN016"),
    "eight in place": (gathered("\n        loss *= 0.125"), "TRAIN016"),
    "eight by hand": (
        gathered("").replace(
            "8 == 0:\n", "8 == 0:\n            [p.grad.div_(8) for p in model.parameters()]\n"
        ),
        "TRAIN016",
    ),
    "eight sums": (
        gathered("").replace("(model(x), y)", "(model(x), y, reduction='sum')"),
        "TRAIN016",
    ),
    "numbers": (appended("losses.append(loss.item())"), "TRAIN056"),
    "the last one": (appended("losses = losses[-1:]; losses.append(loss)"), "TRAIN056"),
    "dealt to ranks": (
        of_ranks(("sampler = None", f"rank = 0\n{DEALT}\nsampler = None")),
        "LOAD004",
    ),
    "a file by worker": (of_file(True), "LOAD028"),
}


def answer(folder: Path, text: str, code: str) -> tuple[dict[str, str], str]:
    _, out, err = run(folder, text, "--only", code)
    assert out, err
    (check,) = json.loads(out)["checks"]
    return check, err


@pytest.mark.parametrize("name", SENTENCES)
def test_a_fault_of_the_loop_is_named(folder: Path, name: str) -> None:
    text, code, sentence = SENTENCES[name]
    check, err = answer(folder, text, code)
    assert check["verdict"] == "failed", f"{check} {err}"
    assert sentence in check["sentence"]
    line = int(check["place"].removeprefix("train.py:"))
    added = "append" if name == "losses" else "+="
    meant = {"TRAIN016": "backward", "TRAIN056": added}.get(code, "DataLoader(")
    assert meant in text.splitlines()[line - 1]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_loop_is_not_accused(folder: Path, name: str) -> None:
    check, err = answer(folder, *HEALTHY[name])
    assert check["verdict"] != "failed", f"{check} {err}"


TWO_RANKS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(512, 6), torch.arange(512) % 3)
sampler = DistributedSampler(data)
loader = DataLoader(data, 16, sampler=sampler)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 3))
model = nn.parallel.DistributedDataParallel(net)
torch.manual_seed(SEED)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(6):
    sampler.set_epoch(epoch)
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
    ("seed", "writer", "failed"),
    [("1 + rank", "rank == 0", set()), ("1", "True", {"TRAIN033", "TRAIN035"})],
)
def test_two_ranks_in_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, writer: str, failed: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TWO_RANKS.replace("SEED", seed).replace("WRITER", writer))
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py"]
    codes = "LOAD004,TRAIN025,TRAIN033,TRAIN035,TRAIN038"
    command = [sys.executable, "-m", "pipeline_profiler", "check", "--json", "--yes", "--only"]
    done = subprocess.run(
        [*command, codes, "--", *launch], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found = {check["code"]: check for check in json.loads(done.stdout)["checks"]}
    assert {code for code, c in found.items() if c["verdict"] == "failed"} == failed, done.stderr
    assert found["LOAD004"]["sentence"].startswith("2 ranks: disjoint"), found
    assert found["TRAIN025"]["verdict"] == "inconclusive", found  # statistics of rank 0 alone
