"""Scripts with several trainings: each is captured, and the last complete one is judged."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.checks.caught_torch import Caught
from pipeline_profiler.checks.check import Answer
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience
from tests.pipeline_profiler.checks.conftest import judged

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
    return F.kl_div(F.SOFTMAX(out / 2, 1), wanted, reduction="batchmean")
second = net()
fit(second, adam(second), 30, soften)
evaluate(second)
"""
LOADED = """
second = nn.Sequential(nn.Sequential(*net()), nn.Linear(3, 3))
state = {f"PREFIX{name}": value for name, value in first.state_dict().items()}
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
AVERAGED = """
second = net()
average = copy.deepcopy(second)
def follow():
    with torch.no_grad():
        for kept, now in zip(*(copied.NAMES for copied in (average, second))):
            kept.copy_(now)
fit(second, adam(second), 8, after=follow)
evaluate(average)
"""
FROZEN = """
others = DataLoader(TensorDataset(x[:192] + 1, y[:192]), 8, shuffle=True)
first.requires_grad_(False)
first.add_module("head", nn.Linear(3, 3))
for epoch in range(30):
    first.train()
    # MODE
    for a, b in others:
        first.head.zero_grad()
        F.cross_entropy(first(a), b).backward()
        head.step()
    evaluate(first)
""".replace("for epoch", "head = torch.optim.SGD(first.head.parameters(), 0.1)\nfor epoch")
FAULTS = {
    "frozen statistics of an earlier training": ("TRAIN046", FROZEN),
    "probabilities into kl_div": ("TRAIN020", DISTILLED.replace("SOFTMAX", "softmax")),
    "another prefix": ("TRAIN042", LOADED.replace("PREFIX", "encoder.")),
    "unfrozen outside the optimizer": ("TRAIN005", UNFROZEN),
    "an average without buffers": ("TRAIN025", AVERAGED.replace("NAMES", "parameters()")),
}
TWINS = {
    "frozen and in eval mode": ("TRAIN046", FROZEN.replace("# MODE", "first[1].eval()")),
    "log-probabilities into kl_div": ("TRAIN020", DISTILLED.replace("SOFTMAX", "log_softmax")),
    "the same prefix": ("TRAIN042", LOADED.replace("PREFIX", "0.")),
    "added to the optimizer": (
        "TRAIN005",
        UNFROZEN.replace("# ADD", "optimizer.add_param_group({'params': second[:2].parameters()})"),
    ),
    "an average with buffers": (
        "TRAIN025",
        AVERAGED.replace("NAMES", "state_dict().values()"),
    ),
}


class EndedError(BaseException):
    """The end of a captured script."""


def captured(text: str, folder: Path) -> tuple[Caught, dict[str, Any]]:
    """(judged training, variables) of a script that runs in this process."""
    found: list[Caught] = []

    def end(training: Caught) -> None:
        found.append(training)
        raise EndedError

    file, variables = folder / "train.py", {"__name__": "script"}
    file.write_text(text)
    hooks = Caught(Patience(60.0, 120.0), end)
    with torch.random.fork_rng():
        hooks.hook(torch)
        try:
            exec(compile(text, str(file), "exec"), variables)
            hooks.end()
        except EndedError:
            pass
        finally:
            hooks.unhook()
            hooks.mode.__exit__(None, None, None)
    return found[0], variables


def answer(code: str, text: str, folder: Path) -> Answer:
    made, _ = captured(text, folder)
    return judged(code, TrainingSubject(made.training, caught=not made.loaded)).answer


@pytest.mark.parametrize(("code", "text"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_a_later_training_fails(code: str, text: str, tmp_path: Path) -> None:
    found = answer(code, SCRIPT + text, tmp_path)
    assert found.judgement == "failed", found.sentence


@pytest.mark.parametrize(("code", "text"), TWINS.values(), ids=TWINS)
def test_a_later_training_that_looks_alike_does_not_fail(
    code: str, text: str, tmp_path: Path
) -> None:
    found = answer(code, SCRIPT + text, tmp_path)
    assert found.judgement != "failed", found.sentence


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


@pytest.mark.parametrize("clipped", [True, False])
def test_the_steps_of_a_check_clip_as_the_script_does(clipped: bool, tmp_path: Path) -> None:
    text = (
        CLIPPED
        if clipped
        else CLIPPED.replace("nn.utils.clip_grad_norm_", "print and (lambda *_: 0)")
    )
    training = captured(SCRIPT + text, tmp_path)[0].training()
    assert (training.clip is not None) is clipped
    subject = TrainingSubject(lambda: training)
    before = [p.detach().clone() for p in training.model.parameters()]
    subject.step(training, subject.batches[0])
    moved = torch.cat(
        [(p - q).flatten() for p, q in zip(training.model.parameters(), before, strict=True)]
    )
    assert (float(moved.detach().norm()) < 0.11) is clipped


def test_the_loader_that_a_training_evaluates_first_is_its_own(tmp_path: Path) -> None:
    text = """
evaluate(first)
second, own = net(), DataLoader(TensorDataset(x[192:], y[192:]), 8)
fit(second, adam(second), 30)
with torch.no_grad():
    sum(int((second.eval()(a).argmax(1) == b).sum()) for a, b in own)
evaluate(first)
"""
    made, variables = captured(SCRIPT + text, tmp_path)
    seen = made.loader_of("eval")
    assert seen is not None
    assert seen.loader is variables["own"]


def test_epochs_after_a_training_was_seen_are_cut_to_a_batch(tmp_path: Path) -> None:
    made, variables = captured(SCRIPT, tmp_path)
    assert len(made.trainings) == 1
    assert made.facts.epochs == 6
    assert variables["steps"] < 6 * 24 + 100


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
    made, variables = captured(SCRIPT + text, tmp_path)
    assert made.steps[0].call.module is variables["second"]
    assert [bool(training.steps) for training in made.trainings] == [True, True]


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


@pytest.mark.parametrize("after", [False, True])
def test_commands_and_connections_are_refused_after_a_training(after: bool, tmp_path: Path) -> None:
    text = SCRIPT + OUTSIDE if after else SCRIPT.replace("first = net()", f"{OUTSIDE}first = net()")
    _, variables = captured(text, tmp_path)
    assert variables["refused"] == ([True, True] if after else [False])
    assert os.system("true") == 0


def test_the_alarm_of_a_script_is_its_own_again_after_the_run(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGALRM)
    captured(SCRIPT, tmp_path)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
