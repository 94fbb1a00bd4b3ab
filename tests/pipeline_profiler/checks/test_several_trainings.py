"""Scripts with several trainings: each is recorded, and the last complete training is judged."""

import signal
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.checks.training_subject import TrainingSubject
from tests.pipeline_profiler.checks.test_state_watch import answer, recorded

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

SCRIPT = """
import copy, itertools, torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(256, 6), torch.arange(256) % 3
x[torch.arange(256), y] += 3
train = DataLoader(TensorDataset(x[:192], y[:192]), 8, shuffle=True)
test = DataLoader(TensorDataset(x[192:], y[192:]), 16)
steps = 0

def net():
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

def fit(model, optimizer, epochs, loss=F.cross_entropy, after=lambda: None):
    global steps
    for _ in range(epochs):
        model.train()
        for a, b in train:
            optimizer.zero_grad()
            loss(model(a), b).backward()
            optimizer.step()
            after()
            steps += 1

def evaluate(model):
    model.eval()
    with torch.no_grad():
        return sum(int((model(a).argmax(1) == b).sum()) for a, b in test)

def adam(model):
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)

first = net()
fit(first, adam(first), 100)
"""
DISTILLED = """
def soften(out, b):
    with torch.no_grad():
        wanted = first(x[:len(b)]).softmax(1)
    return F.kl_div(F.softmax(out / 2, 1), wanted, reduction="batchmean")
second = net()
fit(second, adam(second), 30, soften)
evaluate(second)
"""
LOADED = """
second = nn.Sequential(nn.Sequential(*net()), nn.Linear(3, 3))
state = {f"encoder.{name}": value for name, value in first.state_dict().items()}
second.load_state_dict(state, strict=False)
second[0].requires_grad_(False)
fit(second, adam(second), 30)
"""
UNFROZEN = """
third = net()
fit(third, adam(third), 4)
evaluate(third)
second = net()
second[:2].requires_grad_(False)
optimizer = adam(second)
for epoch in range(30):
    if epoch == 8:
        second[:2].requires_grad_(True)
        # ADD
    fit(second, optimizer, 1)
    evaluate(second)
"""
FROZEN = """
others = DataLoader(TensorDataset(x[:192] + 1, y[:192]), 8, shuffle=True)
first.requires_grad_(False)
first.add_module("head", nn.Linear(3, 3))
head = torch.optim.SGD(first.head.parameters(), 0.1)
for epoch in range(30):
    first.train()
    # MODE
    for a, b in others:
        first.head.zero_grad()
        F.cross_entropy(first(a), b).backward()
        head.step()
    evaluate(first)
"""
ADDED = "optimizer.add_param_group({'params': second[:2].parameters()})"
PAIRS = {  # (code, script, text of the fault, text of its twin)
    "frozen statistics of an earlier training": ("TRAIN046", FROZEN, "# MODE", "first[1].eval()"),
    "probabilities into kl_div": ("TRAIN020", DISTILLED, "softmax(out", "log_softmax(out"),
    "another prefix": ("TRAIN042", LOADED, "encoder.", "0."),
    "unfrozen outside the optimizer": ("TRAIN005", UNFROZEN, "# ADD", ADDED),
}


@pytest.mark.parametrize(("code", "text", "fault", "healthy"), PAIRS.values(), ids=PAIRS)
def test_a_fault_of_a_later_training_fails_and_its_twin_does_not(
    code: str, text: str, fault: str, healthy: str, tmp_path: Path
) -> None:
    found = answer(code, SCRIPT + text, tmp_path)
    assert found.judgement == "failed", found.sentence
    assert fault in text
    twin = answer(code, SCRIPT + text.replace(fault, healthy), tmp_path)
    assert twin.judgement != "failed", twin.sentence


CLIPPED = """
deep = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
with torch.no_grad():
    deep[2].weight *= 30
optimizer = torch.optim.SGD(deep.parameters(), 2.0)
for epoch in range(30):
    for a, b in train:
        optimizer.zero_grad()
        F.cross_entropy(deep(a), b).backward()
        nn.utils.clip_grad_norm_(deep.parameters(), 0.05)
        optimizer.step()
    evaluate(deep)
"""


def test_the_steps_of_a_check_clip_as_the_script_does(tmp_path: Path) -> None:
    training = recorded(SCRIPT + CLIPPED, tmp_path).record.training()
    before = [p.detach().clone() for p in training.model.parameters()]
    subject = TrainingSubject(lambda: training)
    subject.step(training, subject.batches[0])
    pairs = zip(training.model.parameters(), before, strict=True)
    assert float(torch.cat([(p.detach() - q).flatten() for p, q in pairs]).norm()) < 0.11


def test_the_loader_that_a_training_evaluates_first_is_its_own(tmp_path: Path) -> None:
    text = """
evaluate(first)
second, own = net(), DataLoader(TensorDataset(x[192:], y[192:]), 8)
fit(second, adam(second), 30)
with torch.no_grad():
    sum(int((second.eval()(a).argmax(1) == b).sum()) for a, b in own)
evaluate(first)
"""
    variables = dict[str, Any]()
    seen = recorded(SCRIPT + text, tmp_path, variables).record.loader_of("eval")
    assert seen is not None
    assert seen.loader is variables["own"]


def test_an_optimizer_that_joins_later_begins_no_training(tmp_path: Path) -> None:
    text = """
second, head = net(), nn.Linear(3, 3)
one, two = adam(second), adam(head)
for epoch in range(30):
    for a, b in train:
        if epoch > 5:
            F.cross_entropy(head(second(a).detach()), b).backward()
            two.step()
        one.zero_grad()
        F.cross_entropy(second(a), b).backward()
        one.step()
    evaluate(second)
"""
    variables = dict[str, Any]()
    caught = recorded(SCRIPT + text, tmp_path, variables)
    assert caught.record.model is variables["second"]
    assert [bool(training.steps) for training in caught.trainings] == [True, True]


OUTSIDE = """
import os, socket
refused = []
with socket.socket() as local:
    for act in (lambda: os.system("true"), lambda: local.connect(("0.0.0.0", 1))):
        try:
            act()
        except OSError as error:
            refused += ["refuses" in str(error)]
"""


def test_after_a_training_epochs_are_short_and_commands_are_refused(tmp_path: Path) -> None:
    before, variables = signal.getsignal(signal.SIGALRM), dict[str, Any]()
    caught = recorded(SCRIPT + OUTSIDE, tmp_path, variables)
    assert variables["refused"] == [True, True]
    assert len(caught.trainings) == 1
    assert caught.record.facts.epochs == 6
    assert variables["steps"] < 6 * 24 + 100
    recorded(SCRIPT.replace("first = net()", f"{OUTSIDE}first = net()"), tmp_path, variables)
    assert variables["refused"] == [False]
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_training_whose_steps_cannot_be_read_gives_its_optimizer_to_no_other(
    tmp_path: Path,
) -> None:
    text = """
body, turns = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 2)
optimizer = adam(nn.ModuleList([body, turns]))
for epoch in range(4):
    for a, _ in train:
        optimizer.zero_grad()
        sign = torch.randint(0, 2, (len(a),))
        F.cross_entropy(turns(body(a * (2 * sign - 1)[:, None])), sign).backward()
        optimizer.step()
second = nn.Sequential(body.requires_grad_(False), nn.Linear(16, 3))
fit(second, adam(second), 30)
evaluate(second)
"""
    start = SCRIPT.replace("fit(first, adam(first), 100)", "")
    found = answer("TRAIN005", start + text, tmp_path)
    assert found.judgement != "failed", found.sentence


def test_parameters_that_the_loss_of_a_script_uses_beside_the_outputs_are_trained(
    tmp_path: Path,
) -> None:
    text = """
class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.log_var = nn.Parameter(torch.zeros(1))
    def forward(self, a):
        return self.body(a)
    def loss(self, out, b):
        return torch.exp(-self.log_var[0]) * F.cross_entropy(out, b) + self.log_var[0]
second = Weighted()
optimizer = adam(second)
for epoch in range(4):
    second.train()
    for a, b in train:
        loss = second.loss(second(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    evaluate(second)
"""
    start = SCRIPT.replace("fit(first, adam(first), 100)", "")
    found = answer("TRAIN005", start + text, tmp_path)
    assert found.judgement != "failed", found.sentence
