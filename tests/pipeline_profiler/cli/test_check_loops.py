"""`check -- train.py`: ranks and open files of a running loop."""

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


def of_file(rows: str) -> str:
    loader = ("DataLoader(data, 32", "DataLoader(Rows(), 32, num_workers=2")
    return changed(("sampler", rows), loader)


def of_ranks(*more: tuple[str, str]) -> str:
    text = changed(("model = nn.Sequential(", RANKS), *more)
    return text.replace(", DistributedSampler", "").replace("# SAMPLER", "")


OPENED = '        self.file = open("rows.bin", "rb")\n'
SEEK = "        self.file.seek"
LAZY_FILE = FILE.replace(OPENED, "").replace(SEEK, f"        {LAZY}{SEEK}")
FAULTS = {
    "LOAD004": (of_ranks(), "Each rank reads all 512 samples, unsplit."),
    "LOAD028": (of_file(FILE), "dataset.file is open before they are forked."),
}
TWINS = {
    "LOAD004": of_ranks(("sampler = None", f"rank = 0\n{DEALT}\nsampler = None")),
    "LOAD028": of_file(LAZY_FILE),
}


def answer(folder: Path, text: str, code: str) -> dict[str, str]:
    _, out, err = run(folder, text, "--only", code)
    assert out, err
    (check,) = json.loads(out)["checks"]
    return check


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_of_the_loader_is_named_and_its_twin_is_not(folder: Path, code: str) -> None:
    text, sentence = FAULTS[code]
    check = answer(folder, text, code)
    assert check["verdict"] == "failed", check
    assert sentence in check["sentence"]
    assert "DataLoader(" in text.splitlines()[int(check["place"].removeprefix("train.py:")) - 1]
    assert answer(folder, TWINS[code], code)["verdict"] != "failed"


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
