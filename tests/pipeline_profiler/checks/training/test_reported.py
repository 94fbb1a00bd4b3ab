"""Numbers that scripts report after an evaluation: wrong formulas, and right ones."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pipeline_profiler.checks.caught_torch import Caught  # noqa: E402
from pipeline_profiler.checks.check import Judgement  # noqa: E402
from pipeline_profiler.checks.reported import Pass, formulas_of, reversed_best  # noqa: E402
from pipeline_profiler.checks.training_subject import TrainingSubject  # noqa: E402
from pipeline_profiler.checks.user_code import Patience, kept_state  # noqa: E402
from tests.pipeline_profiler.checks.conftest import judged  # noqa: E402

PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE

SCRIPT = """
import logging
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

torch.manual_seed(1)
y = torch.randint(0, 3, (700,))
x = torch.randn(700, 6) + 1.2 * F.one_hot(y, 6).float()
data = TensorDataset(x[:400], y[:400])
held = TensorDataset(x[400:534], y[400:534])
train = DataLoader(data, 32, shuffle=True)
val = DataLoader(held, 64)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
# SETUP

def evaluate(model, val):
    model.eval()
    with torch.no_grad():
        EVALUATE


for epoch in range(9):
    model.train()
    running = hits = 0.0
    for inputs, targets in train:
        outputs = model(inputs)
        loss = loss_function(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        hits += (outputs.argmax(1) == targets).float().mean().item()
    train_loss, train_acc = running / len(train), hits / len(train)
    REPORT
"""


class EndedError(Exception):
    """The run was seen."""


def caught(text: str, folder: Path) -> Any:
    """What the hooks caught of a script."""

    def end(_caught: Any) -> None:
        raise EndedError

    found = Caught(Patience(60.0, 60.0), end)
    code = compile(text, str(folder / "train.py"), "exec")
    with kept_state():
        found.hook(torch)
        try:
            exec(code, {"__name__": "__main__"})
        except EndedError:
            pass
        finally:
            found.unhook()
            found.mode.__exit__(None, None, None)
    return found.record


def answer(folder: Path, evaluate: str, report: str, *changes: tuple[str, str]) -> Any:
    """The answer of TRAIN024 for the script with this evaluation and this report."""
    text = SCRIPT
    for before, after in (
        ("EVALUATE", indented(evaluate, 8)),
        ("REPORT", indented(report, 4)),
        *changes,
    ):
        assert before in text
        text = text.replace(before, after)
    found = caught(text, folder)
    return judged("TRAIN024", TrainingSubject(found.training, caught=True)).answer


def indented(text: str, depth: int) -> str:
    return text.strip().replace("\n", "\n" + " " * depth)


COUNTS = """
right = total = 0
for inputs, targets in val:
    right += (model(inputs).argmax(1) == targets).sum().item()
    total += len(targets)
return right / RIGHT
"""
BATCH_MEANS = """
rates = []
for inputs, targets in val:
    rates.append((model(inputs).argmax(1) == targets).float().mean().item())
return sum(rates) / len(rates)
"""
LOSSES = """
total = 0.0
for inputs, targets in val:
    total += loss_function(model(inputs), targets).item() TIMES
return total / COUNT
"""
PRINT = """
score = evaluate(model, val)
print(f"epoch {epoch} loss {train_loss:.4f} val_acc {score:.4f}")
"""
PRINT_LOSS = PRINT.replace("val_acc", "val loss:").replace("} loss", "} train_loss")


def counts(right: str) -> str:
    return COUNTS.replace("RIGHT", right)


def losses(count: str, times: str = "") -> str:
    return LOSSES.replace("COUNT", count).replace("TIMES", times)


LAST = """
for inputs, targets in val:
    acc = (model(inputs).argmax(1) == targets).float().mean().item()
return acc
"""
SOFTMAX = counts("total").replace("model(inputs)", "model(inputs).softmax(0)")
SUBSET = ("val = DataLoader(held, 64)", "val = DataLoader(TensorDataset(x, y), 64, "
          "sampler=SubsetRandomSampler(range(400, 534)))")  # fmt: skip
EVEN = ("x[400:534], y[400:534]", "x[400:528], y[400:528]")
INLINE = """
model.eval()
hits = n = 0
val_loss = 0.0
with torch.no_grad():
    for inputs, targets in val:
        out = model(inputs)
        loss = loss_function(out, targets)
        val_loss += loss.item() TIMES
        acc = (out.argmax(1) == targets).float().mean().item()
        hits += (out.argmax(1) == targets).sum().item()
        n += len(targets)
"""
LOG = """
print(f"[{epoch}] loss {train_loss:.3f} acc {train_acc:.3f} |", end=" ")
print(f"val loss {LOSS:.4f} val acc {ACC:.4f}")
"""


def inline(loss: str, acc: str, times: str = "* len(targets)") -> tuple[str, str]:
    return "return", INLINE.replace("TIMES", times) + LOG.replace("LOSS", loss).replace("ACC", acc)


BINARY = (("y = torch.randint(0, 3, (700,))", "y = torch.randint(0, 2, (700,))"),
          ("TensorDataset(x[:400], y[:400])", "TensorDataset(x[:400], y[:400].float())"),
          ("nn.Linear(16, 3)", "nn.Linear(16, 1), nn.Flatten(0)"),
          ("nn.CrossEntropyLoss()", "nn.BCEWithLogitsLoss()"),
          ("outputs.argmax(1) == targets", "(outputs > 0) == targets"))  # fmt: skip


def binary(said: str) -> str:
    return counts("total").replace("model(inputs).argmax(1)", said)


REGRESSION = (("y = torch.randint(0, 3, (700,))", "y = torch.randint(0, 3, (700,)); c = y.float()"),
              ("x[:400], y[:400]", "x[:400], c[:400] ** 3"),
              ("x[400:534], y[400:534]", "x[400:534], c[400:534] ** 3"),
              ("nn.Linear(16, 3)", "nn.Linear(16, 1), nn.Flatten(0)"), ("lr=0.3", "lr=0.01"),
              ("nn.CrossEntropyLoss()", "nn.MSELoss()"),
              ("(outputs.argmax(1) == targets)", "(outputs > 0)"))  # fmt: skip
MAE = """
means, total, n = [], 0.0, 0
for inputs, targets in val:
    apart = (model(inputs) - targets).abs()
    means.append(apart.mean().item())
    total, n = total + apart.sum().item(), n + len(targets)
return total / n
"""
ROOTS = """
roots, total, n = [], 0.0, 0
for inputs, targets in val:
    square = (model(inputs) - targets) ** 2
    roots.append(square.mean().sqrt().item())
    total, n = total + square.sum().item(), n + len(targets)
return VALUE
"""
PRINT_ROOT = PRINT.replace("val_acc", "val_rmse")
IGNORED = (
    ("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(ignore_index=-100)"),
    ("x[400:534], y[400:534]", "x[400:534], y[400:534].where(x[400:534, 0] > 0, -100)"),
)
AREA = """
def auc(scores, wanted):
    gaps = scores[wanted > 0.5][:, None] - scores[wanted < 0.5]
    return ((gaps > 0).double() + 0.5 * (gaps == 0)).mean().item()

def f1(found, wanted, average="macro"):
    rows = [((found == c) & (wanted == c), (found == c).sum() + (wanted == c).sum())
            for c in range(3)]
    each = torch.tensor([2 * both.sum() / max(count, 1) for both, count in rows])
    if average == "micro":
        return (found == wanted).float().mean().item()
    counts = torch.bincount(wanted, minlength=3) if average == "weighted" else torch.ones(3)
    return (each * counts).sum().item() / counts.sum().item()

def iou(found, wanted):
    return sum(((found == c) & (wanted == c)).sum() / max(((found == c) | (wanted == c)).sum(), 1)
               for c in range(3)).item() / 3

pairs = [(SCORES, targets) for inputs, targets in val]
found, wanted = map(torch.cat, zip(*pairs))
means = [METRIC(a, b) for a, b in pairs]
return VALUE
"""
WHOLE, MEAN = "METRIC(found, wanted)", "sum(means) / len(means)"
PRINT_IOU = PRINT.replace("val_acc", "val_iou")
PRINT_AUC, PRINT_F1 = PRINT.replace("val_acc", "val_auc"), PRINT.replace("val_acc", "val_f1")


def area(scores: str, value: str) -> str:
    return AREA.replace("VALUE", value).replace("METRIC", "auc").replace("SCORES", scores)


def f1(value: str, metric: str = "f1") -> str:
    text = AREA.replace("VALUE", value).replace("METRIC", metric)
    return text.replace("SCORES", "model(inputs).argmax(1)")


THREE = (
    ("x[:400], y[:400]", "x[:400], x[:400], y[:400]"),
    ("x[400:534], y[400:534]", "x[400:534], x[400:534], y[400:534]"),
    ("inputs, targets in train", "inputs, _, targets in train"),
)


FAULTS = {
    "batches of three tensors": (
        counts("len(data)").replace("inputs, targets", "inputs, _, targets"), PRINT, *THREE
    ),
    "area of classes": (area("(model(inputs) > 0).float()", WHOLE), PRINT_AUC, *BINARY),
    "mean of IoU": (f1(MEAN, "iou"), PRINT_IOU),
    "mean of batches": (BATCH_MEANS, PRINT),
    "batches times size": (counts("(len(val) * 64)"), PRINT),
    "training set in a dict": (counts("len(data)"), "metrics = {'val_acc': evaluate(model, val)}"),
    "whole dataset": (counts("len(val.dataset)"), PRINT, SUBSET),
    "last batch": (LAST, PRINT, ("400:534], y[400:534", "400:560], y[400:560")),
    "softmax over the batch": (SOFTMAX, PRINT),
    "logits above 0.5": (binary("(model(inputs) > 0.5)"), PRINT, *BINARY),
    "training loader": (counts("total"), PRINT.replace("model, val", "model, train")),
    "batch losses by samples": (losses("len(val.dataset)"), PRINT_LOSS),
    "one batch too few": (losses("(len(val) - 1)"), PRINT_LOSS),
    "batches of the training": (losses("len(train)"), "test_loss = evaluate(model, val)"),
    "inline": inline("val_loss / n", "hits / (len(val) * 64)"),
    "logger": (counts("len(data)"),
               "logging.warning('Test Accuracy: %.2f%%', 100 * evaluate(model, val))"),
    "mean of batch errors": (MAE.replace("total / n", "sum(means) / len(means)"),
                             PRINT.replace("acc", "mae"), *REGRESSION),
    "mean of roots": (ROOTS.replace("VALUE", "sum(roots) / len(roots)"), PRINT_ROOT, *REGRESSION),
    "ignored positions": (counts("total"), PRINT, *IGNORED),
    "counts as tensors": (counts("len(data)").replace(".item()", ""), "acc = evaluate(model, val)"),
}  # fmt: skip


@pytest.mark.parametrize("parts", FAULTS.values(), ids=FAULTS)
def test_a_number_of_a_wrong_formula_fails(parts: Any, tmp_path: Path) -> None:
    found = answer(tmp_path, *parts)
    assert found.judgement is FAIL, found.sentence


def test_the_length_of_a_loader_is_its_own_beside_an_imported_lightning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    found = answer(tmp_path, *FAULTS["batches of the training"])
    assert found.judgement is FAIL, found.sentence


PER_CLASS = """
hits, counts = torch.zeros(3), torch.zeros(3)
for inputs, targets in val:
    said = model(inputs).argmax(1)
    hits += torch.bincount(targets[said == targets], minlength=3)
    counts += torch.bincount(targets, minlength=3)
return (hits / counts).mean().item()
"""
PROGRESS = """
right = total = 0
for inputs, targets in val:
    out = model(inputs)
    now = (out.argmax(1) == targets).float().mean().item()
    print(f"val acc of the batch {now:.4f}")
    right += (out.argmax(1) == targets).sum().item()
    total += len(targets)
return right / total
"""
BOTH = 'print(f"train acc {evaluate(model, train):.4f} test acc {evaluate(model, val):.4f}")'
HEALTHY = {
    "area": (area("model(inputs).sigmoid()", WHOLE), PRINT_AUC, PASS, *BINARY),
    "F1 of all decisions": (f1("f1(found, wanted, 'micro')"), PRINT_F1, INCONCLUSIVE),
    "counts": (counts("total"), PRINT, PASS),
    "percent": (counts("total"), "print(f'Acc {evaluate(model, val) * 100:.1f}%')", PASS),
    "even batches": (BATCH_MEANS, PRINT, PASS, EVEN),
    "both loaders": (counts("total"), BOTH, PASS),
    "inline": (*inline("val_loss / n", "hits / n"), PASS),
    "progress": (PROGRESS, PRINT, PASS),
    "subset": (counts("len(val.sampler)"), PRINT, PASS, SUBSET),
    "logits above 0": (binary("(model(inputs) > 0)"), PRINT, PASS, *BINARY),
    "root of the mean": (
        ROOTS.replace("VALUE", "(total / n) ** 0.5"), PRINT_ROOT, PASS, *REGRESSION
    ),
    "positions that count": (
        counts("total").replace("len(targets)", "(targets >= 0).sum().item()"), PRINT, PASS,
        *IGNORED,
    ),
    "macro recall": (PER_CLASS, PRINT, INCONCLUSIVE),
    "last batch as a variable": (LAST, "val_acc = evaluate(model, val)", INCONCLUSIVE),
    "nothing reported": (counts("total"), "evaluate(model, val)", INCONCLUSIVE),
    "training numbers after the evaluation": (
        counts("total"),
        "evaluate(model, val)\nprint(f'loss {train_loss:.4f} acc {train_acc:.4f}')",
        INCONCLUSIVE,
    ),
    "mean of batch losses": (losses("len(val)"), PRINT_LOSS, PASS),
    "mean of errors": (MAE, PRINT.replace("acc", "mae"), PASS, *REGRESSION),
    "an average of weights": (
        counts("len(held)"), PRINT.replace("(model,", "(average,"), PASS,
        ("# SETUP", "import copy; average = copy.deepcopy(model)"),
        ("    train_loss,", "    average.load_state_dict(model.state_dict())\n    train_loss,"),
    ),
    "tensors without a loader": (
        "return (model(held[:][0]).argmax(1) == held[:][1]).float().mean().item()", PRINT,
        INCONCLUSIVE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("parts", HEALTHY.values(), ids=HEALTHY)
def test_no_other_number_fails(parts: Any, tmp_path: Path) -> None:
    evaluate, report, judgement, *changes = parts
    found = answer(tmp_path, evaluate, report, *changes)
    assert found.judgement is judgement, found.sentence


def test_rows_of_tokens_may_have_another_length_in_each_batch() -> None:
    made = Pass(None, 1, sizes=[2, 2])
    for length in (3, 5):
        found = torch.arange(2 * length).reshape(2, length) % 3
        made.labels.append((None, found, found.roll(1, 1)))
    values = formulas_of("F1", made, None)
    assert values
    assert formulas_of("AUC", made, None) == []


BEST = "if VALUE SIGN best_VALUE:\n    best_VALUE = VALUE\n"


@pytest.mark.parametrize(
    ("value", "sign", "found"),
    [("acc", "<", True), ("acc", ">", False), ("val_loss", ">", True), ("val_loss", "<=", False),
     ("score", "<", False)],
)  # fmt: skip
def test_a_condition_that_keeps_the_worst_is_found(value: str, sign: str, found: bool) -> None:
    text = BEST.replace("VALUE", value).replace("SIGN", sign)
    row = reversed_best({"/a/train.py": text})
    assert row == ((f"{value} {sign} best_{value}", row[1]) if found and row else None)
    assert (row is not None) is found
    turned = text.replace(f"{value} {sign} best_{value}", f"best_{value} {sign} {value}", 1)
    expected = not found if value != "score" else False
    assert (reversed_best({"/a/train.py": turned}) is not None) is expected
