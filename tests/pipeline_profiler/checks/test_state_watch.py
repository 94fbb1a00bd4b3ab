"""Faults of a script's loop, each with a healthy loop that looks alike."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline_profiler.checks.caught_torch import Caught
from pipeline_profiler.checks.check import Answer
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience
from tests.pipeline_profiler.checks.conftest import judged

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

SCRIPT = """
import copy, torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(192, 3, 8, 8) + 1, torch.arange(192) % 4
x[torch.arange(192), 0, y, y] += 3
train = DataLoader(TensorDataset(x[:128], y[:128]), 16, shuffle=True)
val = DataLoader(TensorDataset(x[128:], y[128:]), 16)

def net():
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        nn.Dropout(0.1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))

def pretrained(model):
    model[0][1].running_mean.fill_(0.2)
    model[0][1].running_var.fill_(2.0)
    return model

def follow(copied, model, rate=0.1, parts="parameters"):
    with torch.no_grad():
        for own, now in zip(getattr(copied, parts)(), getattr(model, parts)()):
            own.copy_((1 - rate) * own + rate * now)

def evaluate(model):
    model.eval()
    with torch.no_grad():
        return sum(int((model(a).argmax(1) == b).sum()) for a, b in val)

model = net()
# MODEL
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# SETUP
for epoch in range(4):
    model.train()
    # EPOCH
    for a, b in train:
        # BATCH
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
        # STEP
    evaluate(model)
"""


class EndedError(BaseException):
    """The end of a script."""


def recorded(text: str, folder: Path, variables: dict[str, object] | None = None) -> Caught:
    """Return what was recorded of a script that runs in this process, with its variables."""

    def end(caught: Caught) -> None:
        raise EndedError

    file, variables = folder / "train.py", {} if variables is None else variables
    file.write_text(text)
    caught = Caught(Patience(60.0, 120.0), end)
    with torch.random.fork_rng():
        caught.hook(torch)
        try:
            variables["__name__"] = "script"
            exec(compile(text, str(file), "exec"), variables)
            caught.end()
        except EndedError:
            pass
        finally:
            caught.unhook()
            caught.mode.__exit__(None, None, None)
    return caught


def script(changes: Mapping[str, str]) -> str:
    """The script with lines in place of its comments, and with other text in place of text."""
    text = SCRIPT
    for old, new in changes.items():
        old = f"# {old}" if old.isupper() else old
        assert text.count(old) == 1, old
        if not old.startswith(" "):
            column = text.index(old) - text.rindex("\n", 0, text.index(old)) - 1
            new = new.replace("\n", "\n" + " " * column)
        text = text.replace(old, new)
    return text


def answer(code: str, text: str, folder: Path) -> Answer:
    """Return the answer of a check; of several trainings a failure counts."""
    caught = recorded(text, folder)
    others = [t for t in caught.trainings if t.steps and t is not caught.record]
    answers = [
        judged(code, TrainingSubject(t.training, caught=not t.loaded, facts=t.facts)).answer
        for t in (caught.record, *others)
    ]
    return next((a for a in answers if a.judgement == "failed"), answers[0])


FROZEN = {"MODEL": "pretrained(model)[0].requires_grad_(False)"}
LATER = {
    "EPOCH": "model[0].requires_grad_(epoch == 0)",
    "zero_grad()": "zero_grad(set_to_none=False)",
    "lr=0.1)": "lr=0.1, momentum=0.9)",
}
EVAL, EVALUATED = "    model.eval()\n", "    evaluate(model)\n"
EMA = {
    "SETUP": "ema = copy.deepcopy(model)",
    "STEP": "follow(ema, model)",
    EVALUATED: "    evaluate(ema)\n",
}
NO_GRAD = {"    with torch.no_grad():\n        return": "    if True:\n        return"}
NO_TRAIN = {"    model.train()\n": "    pass\n"}
PLAIN = SCRIPT[SCRIPT.index("def evaluate") : SCRIPT.index("model = net()")]
ATTACK = {
    PLAIN: """def evaluate(model):
    model.eval()
    for a, b in val:
        a.requires_grad_()
        F.cross_entropy(model(a), b).backward()
        model(a.detach() + 0.1 * a.grad.sign())

"""
}
ADVERSARIAL = (
    "model.eval()\na.requires_grad_()\nF.cross_entropy(model(a), b).backward()\n"
    "a = a.detach() + 0.1 * a.grad.sign()\nmodel.train()"
)
STEADY = "pretrained(net()).requires_grad_(False)"
TEACHER = "nn.Sequential(net(), nn.Linear(4, 4))"
LOADED = """state = torch.optim.SGD(model.parameters(), lr=1e-5).state_dict()
optimizer.load_state_dict(state)"""
HAND = "group['lr'] = 0.005 * len(seen)\nseen.append(0)"
WARM = {"SETUP": "seen = []", "BATCH": f"for group in optimizer.param_groups: {HAND}"}
MARGIN = """class Margin(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
    def forward(self, out, target):
        return F.cross_entropy(out @ self.weight, target)
margin = Margin()
optimizer = torch.optim.SGD([*model.parameters(), *HELD], lr=0.1)"""
SCORED = "F.cross_entropy(model(a), b)"
WORKERS = "16, shuffle=True, num_workers=1, persistent_workers="
SLOW = EMA | {
    "SETUP": f"{EMA['SETUP']}\nschedule = CosineAnnealingLR(optimizer, 9)",
    "STEP": "follow(ema, model, RATE)",
    EVALUATED: "    schedule.step()\n    evaluate(ema)\n",
}
SUMMED = {
    "SETUP": "count = 0",
    "optimizer.zero_grad()": "count += 1",
    "loss.backward()": "DIVIDED",
    "optimizer.step()": "if count % 4 == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
}
SCALED = {
    "SETUP": "scaler = torch.amp.GradScaler('cpu')",
    "loss.backward()": "scaler.scale(loss).backward()\nUNSCALE",
    "optimizer.step()": "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    "scaler.step(optimizer)\nscaler.update()",
}
APPENDED = {"SETUP": "losses = []", "STEP": "losses.append(loss)"}
WITH_GRAPHS = {
    "[128:]), 16": "[128:]), 8",
    PLAIN: """def evaluate(model):
    model.eval()
    total = 0
    for a, b in val: total += F.cross_entropy(model(a), b)

""",
}
SCALER = {
    "SETUP": "scaler = torch.amp.GradScaler('cpu', init_scale=2.0**127)",
    "loss.backward()": "scaler.scale(100 * loss).backward()",
    "lr=0.1)": "lr=0.1, fused=True)",
    "optimizer.step()": "scaler.step(optimizer)\nscaler.update()",
}
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
SAMPLER = {"16, shuffle=True)": "16, sampler=DistributedSampler(range(128), 1, 0))"}
LOAD = {"MODEL": "model.load_state_dict({f'KEY': v for k, v in model.state_dict().items()}, False)"}
PLATEAU = {
    "SETUP": "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'MODE')",
    EVALUATED: "    plateau.step(100 * evaluate(model) / 64)\n",
}


def asked(teacher: str) -> dict[str, str]:
    return {"SETUP": f"teacher = {teacher}", "BATCH": "with torch.no_grad(): teacher(a)"}


def changed(old: str, new: str, changes: Mapping[str, str]) -> dict[str, str]:
    return {key: text.replace(old, new) for key, text in changes.items()}


def with_margin(held: str) -> dict[str, str]:
    return {"SETUP": MARGIN.replace("HELD", held), SCORED: "margin(model(a), b)"}


def with_workers(persistent: str) -> dict[str, str]:
    return {"16, shuffle=True": WORKERS + persistent, "EPOCH": "train.dataset.width = epoch"}


PAIRS = [  # (code, changes of the fault, changes of its twin)
    ("TRAIN046", FROZEN, FROZEN | {"EPOCH": "model[0].eval()"}),
    ("TRAIN046", asked(STEADY), asked(f"{STEADY}.eval()")),
    ("TRAIN046", LATER, LATER | {"zero_grad()": "zero_grad(set_to_none=True)"}),
    ("TRAIN025", EMA, EMA | {"STEP": "follow(ema, model)\nfollow(ema, model, 0.1, 'buffers')"}),
    ("TRAIN025", {EVAL: f"{EVAL}    model[0][1].reset_running_stats()\n"},
     {"EPOCH": "model[0][1].eval()"}),
    ("TRAIN016", {"loss.backward()": "loss.backward()\noptimizer.zero_grad()"},
     {"BATCH": ADVERSARIAL}),
    ("TRAIN016", changed("DIVIDED", "loss.backward()", SUMMED),
     changed("DIVIDED", "(loss / 4).backward()", SUMMED)),
    ("TRAIN039", changed("UNSCALE", "pass", SCALED),
     changed("UNSCALE", "scaler.unscale_(optimizer)", SCALED)),
    ("TRAIN047", changed("RATE", "1e-4", SLOW), changed("RATE", "0.1", SLOW)),
    ("TRAIN049", NO_GRAD, ATTACK),
    ("TRAIN009", {EVAL: ""}, {}),
    ("TRAIN020", {"model(a), b)": "model(a).softmax(1), b)"}, {}),
    ("TRAIN039", {"STEP": CLIP}, {"optimizer.step()": f"{CLIP}\noptimizer.step()"}),
    ("TRAIN038", SAMPLER, SAMPLER | {"EPOCH": "train.sampler.set_epoch(epoch)"}),
    ("TRAIN042", changed("KEY", "module.{k}", LOAD), changed("KEY", "{k}", LOAD)),
    ("TRAIN043", {EVALUATED: f"{EVALUATED}    best = model.state_dict()\n"},
     {EVALUATED: f"{EVALUATED}    best = copy.deepcopy(model.state_dict())\n"}),
    ("TRAIN044", changed("MODE", "min", PLATEAU), changed("MODE", "max", PLATEAU)),
    ("TRAIN046", {"SETUP": "model[0].require_grad = False"},
     {"SETUP": "model[0].requires_grad_(False)"}),
    ("TRAIN056", APPENDED, APPENDED | {"STEP": "losses.append(loss.item())"}),
    ("TRAIN056", APPENDED | {"STEP": "losses += [0]\nlosses[0] += loss"},
     APPENDED | {"STEP": "losses = losses[-1:]; losses.append(loss)"}),
    ("TRAIN056", WITH_GRAPHS, NO_GRAD),
    ("TRAIN009", NO_GRAD | NO_TRAIN, NO_GRAD),
    ("TRAIN009", asked(TEACHER), asked(f"{TEACHER}.eval()")),
    ("TRAIN038", {"EPOCH": "torch.manual_seed(0)"}, {"SETUP": "torch.manual_seed(0)"}),
    ("TRAIN038", with_workers("True"), with_workers("False")),
    ("TRAIN014", {"SETUP": LOADED}, {"SETUP": LOADED.replace("1e-5", "0.1")}),
    ("TRAIN005", with_margin("[]"), with_margin("margin.parameters()")),
    ("TRAIN024", {"[128:]), 16": "[128:]), 40, drop_last=True"}, {"[128:]), 16": "[128:]), 40"}),
]  # fmt: skip
TWINS = [
    ("TRAIN046", FROZEN | {"BATCH": "a.requires_grad_()"}),
    ("TRAIN046", {"MODEL": "pretrained(model)",
                  "EPOCH": "with torch.no_grad():\n    for a, b in train: model(a)"}),
    ("TRAIN046", {"MODEL": "model[0].requires_grad_(False)"}),
    ("TRAIN025", EMA | {EVALUATED: "    update_bn(train, ema)\n    evaluate(ema)\n"}),
    ("TRAIN025", EMA | {"SETUP": "ema = AveragedModel(model)",
                        "STEP": "ema.update_parameters(model)"}),
    ("TRAIN025", {"SETUP": "start = copy.deepcopy(model)\nevaluate(model)",
                  EVALUATED: f"    evaluate(start)\n{EVALUATED}"}),
    ("TRAIN015", WARM),
    ("TRAIN003", WARM),
    ("TRAIN016", {"SETUP": "second = torch.optim.SGD(model[4].parameters(), lr=0.1)",
                  "STEP": "second.step()"}),
    ("TRAIN009", ATTACK),
    ("TRAIN009", asked("copy.deepcopy(model)")),
    ("TRAIN009", SCALER),
    ("TRAIN016", changed("DIVIDED", f"{SCORED[:-1]}, reduction='sum').backward()", SUMMED)),
    ("TRAIN016", changed("DIVIDED", "(loss / 4 * torch.tensor(64.0)).backward()", SUMMED)),
    ("TRAIN047", changed("copy.deepcopy(model)", "net()", changed("RATE", "1e-4", SLOW))),
    ("TRAIN009", {EVAL: f"{EVAL}    model[1].train()\n"}),
]  # fmt: skip

FOLDS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(96, 6), torch.arange(96) % 3
model, optimizer = None, None
for fold in range(3):
    if model is None or MADE:
        model = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = torch.arange(96) % 3 == fold
    train = DataLoader(TensorDataset(x[~held], y[~held]), 16, shuffle=True)
    val = DataLoader(TensorDataset(x[held], y[held]), 16)
    for epoch in range(2):
        for a, b in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(a), b).backward()
            optimizer.step()
        with torch.no_grad():
            [model(a) for a, b in val]
"""
ADVERSARIES = """
import torch
from torch import nn
from torch.nn.functional import softplus

torch.manual_seed(0)
maker, critic = nn.Linear(2, 2), nn.Linear(2, 1)
first = torch.optim.Adam(critic.parameters())
second = torch.optim.Adam(maker.parameters())
for step in range(40):
    real, made = torch.randn(16, 2) + 3, maker(torch.randn(16, 2))
    CLEAR
    (softplus(-critic(real)) + softplus(critic(made.detach()))).mean().backward()
    first.step()
    second.zero_grad()
    softplus(-critic(made)).mean().backward()
    second.step()
"""
CASES = [
    *((code, script(fault), script(twin)) for code, fault, twin in PAIRS),
    ("TRAIN058", FOLDS.replace("MADE", "False"), FOLDS.replace("MADE", "True")),
    ("TRAIN016", ADVERSARIES.replace("CLEAR", "pass"),
     ADVERSARIES.replace("CLEAR", "first.zero_grad()")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "fault", "twin"), CASES)
def test_a_fault_of_a_loop_fails_and_its_twin_does_not(
    code: str, fault: str, twin: str, tmp_path: Path
) -> None:
    found = answer(code, fault, tmp_path)
    assert found.judgement == "failed", found.sentence
    assert found.causes
    healthy = answer(code, twin, tmp_path)
    assert healthy.judgement != "failed", healthy.sentence


@pytest.mark.parametrize(("code", "changes"), TWINS)
def test_a_loop_that_looks_alike_does_not_fail(
    code: str, changes: dict[str, str], tmp_path: Path
) -> None:
    found = answer(code, script(changes), tmp_path)
    assert found.judgement != "failed", found.sentence
