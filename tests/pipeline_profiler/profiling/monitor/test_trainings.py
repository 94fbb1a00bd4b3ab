"""Ordinary training scripts that measure their own wait: `watch` reports the same share."""

from pathlib import Path

import pytest

from pipeline_profiler.profiling.diagnose.disturbance import DISTURBED
from pipeline_profiler.profiling.diagnose.verdict import Verdict
from tests.pipeline_profiler.profiling.monitor.scripts import results_of, watch, write_script

pytestmark = pytest.mark.slow

HEAD = """
import queue, threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Images(Dataset):
    def __init__(self, length, load_s):
        self.length, self.load_s = length, load_s
    def __len__(self):
        return self.length
    def __getitem__(self, i):
        time.sleep(self.load_s)
        return torch.full((3, 32, 32), i / 1000), i % 10

class Background(threading.Thread):
    def __init__(self, batches, ahead=2):
        super().__init__(daemon=True)
        self.batches, self.queue = batches, queue.Queue(ahead)
        self.start()
    def run(self):
        for batch in self.batches:
            self.queue.put(batch)
        self.queue.put(None)
    def __iter__(self):
        return self
    def __next__(self):
        batch = self.queue.get()
        if batch is None:
            raise StopIteration
        return batch

class DataLoaderX(DataLoader):
    def __iter__(self):
        return Background(super().__iter__())

model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
    nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
WAIT_S, STEP_S = [], []

def waited(batches):
    asked, batches = time.perf_counter(), iter(batches)
    for batch in batches:
        got = time.perf_counter()
        yield batch
        WAIT_S.append(got - asked)
        STEP_S.append(time.perf_counter() - asked)
        asked = time.perf_counter()

def train(loader, step_s, every=1):
    model.train()
    for i, (x, y) in enumerate(waited(loader)):
        loss = nn.functional.cross_entropy(model(x), y) / every
        time.sleep(step_s)
        loss.backward()
        if (i + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()

def evaluate(loader):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in loader)

def main():
"""
TAIL = """
    print(sum(WAIT_S[5:]) / sum(STEP_S[5:]))

if __name__ == "__main__":
    main()
"""
PLAIN = """
    for epoch in range(2):
        train(DataLoader(Images(240, 0.001), 4, shuffle=True), 0.01)
"""
WORKERS = """
    loader = DataLoader(Images(400, 0.006), 4, shuffle=True, num_workers=1)
    train(loader, 0.005)
"""
EVALUATION = """
    loader, held_out = DataLoader(Images(160, 0.002), 4), DataLoader(Images(80, 0.002), 4)
    for epoch in range(3):
        train(loader, 0.01)
        evaluate(held_out)
"""
ACCUMULATION = """
    train(DataLoader(Images(480, 0.001), 4, shuffle=True), 0.008, every=4)
"""
THREAD = """
    loader, held_out = DataLoaderX(Images(80, LOAD_S), 2), DataLoaderX(Images(30, 0.002), 2)
    for epoch in range(3):
        train(loader, PACE_S)
        evaluate(held_out)
"""
TRAININGS = {
    "plain": PLAIN,
    "workers": WORKERS,
    "evaluation": EVALUATION,
    "accumulation": ACCUMULATION,
    "slow thread": "\n    LOAD_S, PACE_S = 0.008, 0.001" + THREAD,
    "healthy thread": "\n    LOAD_S, PACE_S = 0.001, 0.015" + THREAD,
}


@pytest.mark.parametrize("name", TRAININGS)
def test_the_stall_is_the_wait_that_the_script_measures(name: str, tmp_path: Path) -> None:
    ended = watch(tmp_path, "--", write_script(tmp_path, TRAININGS[name] + TAIL, HEAD))
    assert ended.returncode == 0, ended.stderr
    results = results_of(tmp_path / "profile.json")
    verdict = Verdict(str(results["verdict"]))
    # on a busy machine a moderate wait may be inconclusive
    assert results["stall"] or verdict == Verdict.INCONCLUSIVE, results["sentence"]
    if results["stall"]:
        assert results["stall"]["share"] == pytest.approx(float(ended.stdout), abs=0.05)
    if name == "slow thread":
        assert verdict == Verdict.HIGH
    if name == "healthy thread":
        assert not verdict.bound or results["machine"]["others"] >= DISTURBED
