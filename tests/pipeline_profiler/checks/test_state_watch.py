"""Buffers and modes of a script's loop: planted faults, and healthy loops that look alike."""

import contextlib
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
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

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

def follow(copied, model):
    with torch.no_grad():
        for kept, now in zip(copied.parameters(), model.parameters()):
            kept.lerp_(now, 0.1)

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
    """The end of a caught script."""


def caught(text: str, folder: Path) -> Caught:
    """What is caught of a script that runs in this process."""

    def end(made: Caught) -> None:
        raise EndedError

    file = folder / "train.py"
    file.write_text(text)
    made = Caught(Patience(60.0, 120.0), end)
    with torch.random.fork_rng():
        made.hook(torch)
        try:
            with contextlib.suppress(EndedError):
                exec(compile(text, str(file), "exec"), {"__name__": "script"})
                made.end()
        finally:
            made.unhook()
            made.mode.__exit__(None, None, None)
    return made


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
    made = caught(text, folder)
    return judged(code, TrainingSubject(made.training, caught=True)).answer


FROZEN = {"MODEL": "pretrained(model)[0].requires_grad_(False)"}
TEACHER = """
teacher = pretrained(net()).requires_grad_(False)
"""
ASKED = "with torch.no_grad(): teacher(a)"
LATER = {
    "EPOCH": "model[0].requires_grad_(epoch == 0)",
    "zero_grad()": "zero_grad(set_to_none=False)",
    "lr=0.1)": "lr=0.1, momentum=0.9)",
}
EMA = {"SETUP": "ema = copy.deepcopy(model)", "STEP": "follow(ema, model)",
       "    evaluate(model)\n": "    evaluate(ema)\n"}  # fmt: skip
OF_EMA = {"    evaluate(model)\n": "    evaluate(ema)\n"}
FULL = "        return sum("
NO_GRAD = {"    with torch.no_grad():\n        return": "    if True:\n        return"}
ATTACK = """def evaluate(model):
    model.eval()
    right = 0
    for a, b in val:
        a.requires_grad_()
        F.cross_entropy(model(a), b).backward()
        attacked = a.detach() + 0.1 * a.grad.sign()
        right += int((model(attacked).argmax(1) == b).sum())
    return right
"""
SALIENCY = """def evaluate(model):
    model.eval()
    for a, b in val:
        a = a + 0
        hidden = model[0](a)
        torch.autograd.grad(model(a).sum(), list(model.parameters()))
"""
PLAIN = SCRIPT[SCRIPT.index("def evaluate") : SCRIPT.index("model = net()")]
HEADS = """optimizer = torch.optim.SGD(model[4].parameters(), lr=0.1)
body, head = model[:4], model[4]"""

FAULTS = [
    ("TRAIN046", "a frozen backbone in train mode", FROZEN),
    ("TRAIN046", "a backbone without gradients",
     {"MODEL": "pretrained(model)",
      "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)": HEADS,
      "loss = F.cross_entropy(model(a), b)":
      "with torch.no_grad(): hidden = body(a)\nloss = F.cross_entropy(head(hidden), b)"}),
    ("TRAIN046", "a teacher in train mode", {"SETUP": TEACHER, "BATCH": ASKED}),
    ("TRAIN046", "a teacher that is asked after the model",
     {"SETUP": TEACHER, "loss.backward()": f"{ASKED}\nloss.backward()"}),
    ("TRAIN046", "momentum after freezing", LATER),
    ("TRAIN046", "weight decay after freezing",
     LATER | {"lr=0.1)": "lr=0.1, weight_decay=0.1)"}),
    ("TRAIN025", "an average of parameters()", EMA),
    ("TRAIN025", "an average of a pretrained model", EMA | {"MODEL": "pretrained(model)"}),
    ("TRAIN025", "another model for the evaluation",
     {"SETUP": "other = net()", "    evaluate(model)\n":
      "    follow(other, model)\n    [p.data.copy_(q) for p, q in "
      "zip(other.parameters(), model.parameters())]\n    evaluate(other)\n"}),
    ("TRAIN025", "a state without buffers",
     {"SETUP": "other = net()", "    evaluate(model)\n":
      "    other.load_state_dict(dict(model.named_parameters()), strict=False)\n"
      "    evaluate(other)\n"}),
    ("TRAIN025", "statistics reset", {"    model.eval()\n":
      "    model.eval()\n    model[0][1].reset_running_stats()\n"}),
    ("TRAIN025", "buffers of a functional call",
     {"F.cross_entropy(model(a), b)": "F.cross_entropy(torch.func.functional_call(model, "
      "{k: v.clone() for k, v in model.named_buffers()}, (a,)), b)"}),
    ("TRAIN016", "cleared before the step",
     {"loss.backward()": "loss.backward()\noptimizer.zero_grad()"}),
    ("TRAIN049", "no no_grad", NO_GRAD),
    ("TRAIN049", "no_grad after the forward pass",
     {PLAIN: "def evaluate(model):\n    model.eval()\n    for a, b in val:\n"
      "        out = model(a)\n        with torch.no_grad(): out.argmax(1)\n\n"}),
    ("TRAIN049", "every third step", {"STEP":
      "if torch.rand(()) < 0.5:\n    model.eval()\n    for c, d in val: model(c)\n"
      "    model.train()"}),
    ("TRAIN009", "never back to train mode, with gradients",
     NO_GRAD | {"    model.train()\n": "    pass\n"}),
]  # fmt: skip

TWINS = [
    ("TRAIN046", "eval() on the frozen part", FROZEN | {"EPOCH": "model[0].eval()"}),
    ("TRAIN046", "gradients removed by freezing",
     LATER | {"zero_grad()": "zero_grad(set_to_none=True)"}),
    ("TRAIN046", "frozen without momentum", LATER | {"lr=0.1)": "lr=0.1, nesterov=False)"}),
    ("TRAIN046", "a random body", {"MODEL": "model[0].requires_grad_(False)"}),
    ("TRAIN046", "only the convolution is frozen",
     {"MODEL": "pretrained(model)[0][0].requires_grad_(False)"}),
    ("TRAIN046", "a teacher in eval mode",
     {"SETUP": TEACHER + "teacher.eval()", "BATCH": ASKED}),
    ("TRAIN046", "a mean teacher",
     {"SETUP": TEACHER, "BATCH": ASKED, "STEP": "follow(teacher, model)"}),
    ("TRAIN046", "a part that rests in the first epoch", FROZEN | {
      "EPOCH": "model.requires_grad_(epoch > 0)\nmodel[4].requires_grad_(True)"}),
    ("TRAIN046", "statistics that are estimated anew",
     {"MODEL": "pretrained(model)",
      "EPOCH": "with torch.no_grad():\n    for a, b in train: model(a)"}),
    ("TRAIN046", "inputs that are attacked",
     FROZEN | {"BATCH": "a.requires_grad_()"}),
    ("TRAIN025", "an average that copies buffers", EMA | {"STEP":
      "follow(ema, model)\nfor c, d in zip(ema.buffers(), model.buffers()): c.copy_(d)"}),
    ("TRAIN025", "an average of the state", EMA | {"STEP":
      "for c, d in zip(ema.state_dict().values(), model.state_dict().values()):\n"
      "    c.copy_(0.9 * c + 0.1 * d)"}),
    ("TRAIN025", "AveragedModel with buffers", EMA | {
      "SETUP": "ema = AveragedModel(model, use_buffers=True)",
      "STEP": "ema.update_parameters(model)"}),
    ("TRAIN025", "AveragedModel as it comes", EMA | {
      "SETUP": "ema = AveragedModel(model)", "STEP": "ema.update_parameters(model)"}),
    ("TRAIN025", "update_bn", EMA | {"    evaluate(model)\n":
      "    update_bn(train, ema)\n    evaluate(ema)\n"}),
    ("TRAIN025", "an average of a model with frozen norms",
     EMA | {"MODEL": "pretrained(model)", "EPOCH": "model[0][1].eval()"}),
    ("TRAIN025", "frozen norms at 0 and 1", {"EPOCH": "model[0][1].eval()"}),
    ("TRAIN025", "the model of the start as a reference",
     {"SETUP": "start = copy.deepcopy(model)", "    evaluate(model)\n":
      "    evaluate(start)\n    evaluate(model)\n"}),
    ("TRAIN025", "an evaluation at the start", {"SETUP": "evaluate(model)"}),
    ("TRAIN025", "without buffers", {"nn.BatchNorm2d(8)": "nn.GroupNorm(2, 8)"}),
    ("TRAIN025", "without statistics",
     {"nn.BatchNorm2d(8)": "nn.BatchNorm2d(8, track_running_stats=False)", "MODEL": ""}),
    ("TRAIN015", "a warm-up by hand",
     {"SETUP": "seen = []", "BATCH":
      "optimizer.param_groups[0]['lr'] = 0.005 * len(seen)\nseen.append(0)"}),
    ("TRAIN003", "a warm-up by hand of two groups",
     {"optimizer = torch.optim.SGD(model.parameters(), lr=0.1)":
      "seen, parts = [], (model[0], model[4])\noptimizer = torch.optim.SGD("
      "[{'params': part.parameters()} for part in parts], lr=0.1)", "BATCH":
      "for group in optimizer.param_groups:\n    group['lr'] = 0.01 * len(seen)\nseen.append(0)"}),
    ("TRAIN003", "a long warm-up by hand",
     {"SETUP": "seen = []", "BATCH":
      "optimizer.param_groups[0]['lr'] = 1e-6 * len(seen)\nseen.append(0)"}),
    ("TRAIN016", "two optimizers by turns",
     {"SETUP": "second = torch.optim.SGD(model[4].parameters(), lr=0.1)", "STEP": "second.step()"}),
    ("TRAIN016", "adversarial training",
     {"BATCH": "model.eval()\na.requires_grad_()\nF.cross_entropy(model(a), b).backward()\n"
      "a = a.detach() + 0.1 * a.grad.sign()\nmodel.train()"}),
    ("TRAIN049", "under no_grad", {}),
    ("TRAIN049", "adversarial examples", {PLAIN: ATTACK + "\n"}),
    ("TRAIN049", "saliency maps", {PLAIN: SALIENCY + "\n"}),
    ("TRAIN009", "with gradients, then train()", NO_GRAD),
    ("TRAIN009", "adversarial examples, then train()", {PLAIN: ATTACK + "\n"}),
    ("TRAIN009", "Monte Carlo dropout", {"    model.eval()\n":
      "    model.eval()\n    [m.train() for m in model.modules() if isinstance(m, nn.Dropout)]\n"}),
    ("TRAIN009", "test-time adaptation", {"    model.eval()\n":
      "    model.eval()\n    model[0][1].train()\n"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "name", "changes"), FAULTS, ids=[f"{code} {name}" for code, name, _ in FAULTS]
)
def test_a_planted_fault_of_a_loop_fails(
    code: str, name: str, changes: dict[str, str], tmp_path: Path
) -> None:
    found = answer(code, script(changes), tmp_path)
    assert found.judgement == "failed", found.sentence
    assert found.causes
    assert found.sentence.endswith(".")


@pytest.mark.parametrize(
    ("code", "name", "changes"), TWINS, ids=[f"{code} {name}" for code, name, _ in TWINS]
)
def test_a_loop_that_looks_alike_does_not_fail(
    code: str, name: str, changes: dict[str, str], tmp_path: Path
) -> None:
    found = answer(code, script(changes), tmp_path)
    assert found.judgement != "failed", found.sentence


def test_an_evaluation_with_gradients_is_an_evaluation(tmp_path: Path) -> None:
    made = caught(script(NO_GRAD), tmp_path)
    seen = made.loader_of("eval")
    assert seen is not None
    assert made.facts.evaluations >= 4
    assert made.facts.after_evaluation
    assert len(made.judged) >= 4
    assert made.facts.answers["TRAIN049"].evidence["megabytes"] > 0


@pytest.mark.parametrize(
    ("teacher", "failed"),
    [
        ("nn.Sequential(net(), nn.Linear(4, 4))", True),
        ("nn.Sequential(net(), nn.Linear(4, 4)).eval()", False),
        ("copy.deepcopy(model)", False),
    ],
    ids=["train mode", "eval mode", "a copy of the model"],
)
def test_a_teacher_in_train_mode_fails(teacher: str, failed: bool, tmp_path: Path) -> None:
    changes = {"SETUP": f"teacher = {teacher}", "BATCH": "with torch.no_grad():\n    teacher(a)"}
    found = answer("TRAIN009", script(changes), tmp_path)
    assert (found.judgement == "failed") is failed, found.sentence


@pytest.mark.parametrize(("place", "failed"), [("EPOCH", True), ("SETUP", False)])
def test_a_seed_in_each_epoch_fails(place: str, failed: bool, tmp_path: Path) -> None:
    found = answer("TRAIN038", script({place: "torch.manual_seed(0)"}), tmp_path)
    assert (found.judgement == "failed") is failed, found.sentence


SAVED = "state = torch.optim.SGD(model.parameters(), lr=RATE).state_dict()\n"
LOADED = f"{SAVED}optimizer.load_state_dict(state)"


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"SETUP": LOADED.replace("RATE", "1e-5")}, True),
        ({"SETUP": LOADED.replace("RATE", "0.1")}, False),
        ({"SETUP": LOADED.replace("RATE", "1e-5"),
          "EPOCH": "optimizer.param_groups[0]['lr'] = 0.1"}, False),
        ({"SETUP": LOADED.replace("RATE", "1e-5")
          + "\nschedule = torch.optim.lr_scheduler.StepLR(optimizer, 9)"}, False),
    ],
    ids=["another rate", "the same rate", "set by hand", "a schedule"],
)  # fmt: skip
def test_a_learning_rate_that_a_load_replaces_fails(
    changes: Mapping[str, str], failed: bool, tmp_path: Path
) -> None:
    found = answer("TRAIN014", script(changes), tmp_path)
    assert ("load_state_dict() of the optimizer" in found.sentence) is failed, found.sentence


@pytest.mark.parametrize(("held", "failed"), [("[]", True), ("margin.parameters()", False)])
def test_a_loss_whose_parameters_no_optimizer_holds_fails(
    held: str, failed: bool, tmp_path: Path
) -> None:
    text = script(
        {
            "SETUP": "class Margin(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(4, 4))\n"
            "    def forward(self, out, target):\n"
            "        return F.cross_entropy(out @ self.weight, target)\n"
            "margin = Margin()\n"
            f"optimizer = torch.optim.SGD([*model.parameters(), *{held}], lr=0.1)",
            "F.cross_entropy(model(a), b)": "margin(model(a), b)",
        }
    )
    facts = caught(text, tmp_path).facts
    assert (facts.unheld is not None) is failed
    assert not failed or facts.unheld[0] == "Margin"


@pytest.mark.parametrize(("drop", "dropped"), [("True", (24, 64)), ("False", None)])
def test_samples_that_an_evaluation_drops_are_counted(
    drop: str, dropped: tuple[int, int] | None, tmp_path: Path
) -> None:
    made = caught(
        script({"y[128:]), 16)": f"y[128:]), 40, drop_last={drop})"}), tmp_path
    )  # fmt: skip
    assert (made.facts.dropped and made.facts.dropped[:2]) == dropped


@pytest.mark.parametrize(("kept", "stale"), [("True", "width"), ("False", None)])
def test_a_dataset_that_persistent_workers_hold_as_it_was(
    kept: str, stale: str | None, tmp_path: Path
) -> None:
    text = script(
        {
            "16, shuffle=True)": f"16, shuffle=True, num_workers=1, persistent_workers={kept})",
            "EPOCH": "train.dataset.width = epoch",
        }
    )
    found = caught(text, tmp_path).facts.stale
    assert (found and found[0]) == stale


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
        model.train()
        for a, b in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(a), b).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            [model(a) for a, b in val]
"""


@pytest.mark.parametrize(("made", "folded"), [("False", True), ("True", False)])
def test_folds_of_one_model_are_found(made: str, folded: bool, tmp_path: Path) -> None:
    trainings = caught(FOLDS.replace("MADE", made), tmp_path).trainings
    assert any(training.facts.folded for training in trainings) is folded


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


@pytest.mark.parametrize(("clear", "kept"), [("pass", True), ("first.zero_grad()", False)])
def test_gradients_of_one_of_two_optimizers_that_are_never_cleared(
    clear: str, kept: bool, tmp_path: Path
) -> None:
    made = caught(ADVERSARIES.replace("CLEAR", clear), tmp_path)
    assert any(t.facts.kept >= t.facts.steps - 1 > 3 for t in made.trainings) is kept
