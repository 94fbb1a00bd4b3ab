"""Numbers that scripts report after an evaluation: wrong formulas, and right ones."""

import contextlib
from pathlib import Path
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

def mean(values):
    return sum(rows := list(values)) / len(rows)

def hits(out, want):
    return (out.argmax(1) == want).sum().item()

def acc(out, want):
    return hits(out, want) / len(want)

def auc(scores, want):
    gaps = scores[want > 0.5][:, None] - scores[want < 0.5]
    return ((gaps > 0).double() + 0.5 * (gaps == 0)).mean().item()

def iou(found, want):
    return mean(((found == c) & (want == c)).sum() / max(((found == c) | (want == c)).sum(), 1)
                for c in range(3)).item()

def evaluate(model, val):
    model.eval()
    outs, wants, costs = [], [], []
    with torch.no_grad():
        for inputs, targets in val:
            outs.append(model(inputs))
            wants.append(targets)
            costs.append(loss_function(outs[-1], targets).item())
            # IN LOOP
    out, want, pairs = torch.cat(outs), torch.cat(wants), list(zip(outs, wants))
    return float(VALUE)

for epoch in range(9):
    model.train()
    running = 0.0
    for inputs, targets in train:
        loss = loss_function(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
    train_loss = running / len(train)
    REPORT
"""
PRINT = 'print(f"epoch {epoch} train_loss {train_loss:.4f} LABEL {evaluate(model, val):.4f}")'


class EndedError(Exception):
    """The run was seen."""


def answer(folder: Path, value: str, report: str, *changes: tuple[str, str]) -> Any:
    """The answer of TRAIN024 for the script that reports a value, printed with a label or so."""
    report = report if "evaluate" in report else PRINT.replace("LABEL", report)
    text = SCRIPT
    for before, after in (("VALUE", value), ("REPORT", report), *changes):
        assert before in text
        text = text.replace(before, after)

    def end(_caught: Any) -> None:
        raise EndedError

    found = Caught(Patience(60.0, 60.0), end)
    with kept_state():
        found.hook(torch)
        with contextlib.suppress(EndedError):
            exec(compile(text, str(folder / "train.py"), "exec"), {"__name__": "__main__"})
        found.unhook()
        found.mode.__exit__(None, None, None)
    return judged("TRAIN024", TrainingSubject(found.record.training, caught=True)).answer


BATCHES, ROOTS = "mean(acc(*pair) for pair in pairs)", "((o - w) ** 2).mean().sqrt()"
SUBSET = ("val = DataLoader(held, 64)", "val = DataLoader(TensorDataset(x, y), 64, "
          "sampler=SubsetRandomSampler(range(400, 534)))")  # fmt: skip
BINARY = (("y = torch.randint(0, 3, (700,))", "y = torch.randint(0, 2, (700,))"),
          ("TensorDataset(x[:400], y[:400])", "TensorDataset(x[:400], y[:400].float())"),
          ("held = TensorDataset(x[400:534], y[400:534])",
           "held = TensorDataset(x[400:534], y[400:534].float())"),
          ("nn.Linear(16, 3)", "nn.Linear(16, 1), nn.Flatten(0)"),
          ("nn.CrossEntropyLoss()", "nn.BCEWithLogitsLoss()"))  # fmt: skip
REGRESSION = (("y = torch.randint(0, 3, (700,))", "y = torch.randint(0, 3, (700,)); c = y.float()"),
              ("x[:400], y[:400]", "x[:400], c[:400] ** 3"),
              ("x[400:534], y[400:534]", "x[400:534], c[400:534] ** 3"),
              ("nn.Linear(16, 3)", "nn.Linear(16, 1), nn.Flatten(0)"), ("lr=0.3", "lr=0.01"),
              ("nn.CrossEntropyLoss()", "nn.MSELoss()"))  # fmt: skip
IGNORED = (
    ("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(ignore_index=-100)"),
    ("x[400:534], y[400:534]", "x[400:534], y[400:534].where(x[400:534, 0] > 0, -100)"),
)
HITS = "(out.argmax(-1) == want)"
TOKENS = (
    ("y = torch.randint(0, 3, (700,))", "x = torch.randint(1, 20, (700, 10))"),
    (
        "x = torch.randn(700, 6) + 1.2 * F.one_hot(y, 6).float()",
        "x *= torch.arange(10) < torch.randint(3, 11, (700, 1))\n"
        "y = x % 3 * (torch.rand(x.shape) < 0.8)",
    ),
    ("nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1)", "nn.Embedding(20, 16)"),
    ("nn.CrossEntropyLoss()", "lambda o, w: F.cross_entropy(o.flatten(0, 1), w.flatten())"),
)
THREE = (
    ("x[:400], y[:400]", "x[:400], x[:400], y[:400]"),
    ("x[400:534], y[400:534]", "x[400:534], x[400:534], y[400:534]"),
    ("inputs, targets in", "inputs, _, targets in"),
)
THREE_DIGITS = 'print(f"val acc {evaluate(model, val):.3f}")'
FAULTS = {
    "batches of three tensors": ("hits(out, want) / len(data)", "val_acc", *THREE),
    "area of classes": ("auc((out > 0).float(), want)", "val_auc", *BINARY),
    "mean of IoU": ("mean(iou(o.argmax(1), w) for o, w in pairs)", "val_iou"),
    "mean of batches": (BATCHES, "val_acc"),
    "training set in a dict": (
        "hits(out, want) / len(data)", "metrics = {'val_acc': evaluate(model, val)}"
    ),
    "whole dataset": ("hits(out, want) / len(val.dataset)", "val_acc", SUBSET),
    "last batch": ("acc(*pairs[-1])", "val_acc", ("400:534], y[400:534", "400:560], y[400:560")),
    "softmax over the batch": (
        "sum(hits(o.softmax(0), w) for o, w in pairs) / len(want)", "val_acc"
    ),
    "logits above 0.5": ("((out > 0.5) == want).float().mean()", "val_acc", *BINARY),
    "logits above 0.5, in three digits": (
        "((out > 0.5) == want).float().mean()", THREE_DIGITS, *BINARY
    ),
    "training loader": ("acc(out, want)", "print(f'val_acc {evaluate(model, train):.4f}')"),
    "batch losses by samples": ("sum(costs) / len(val.dataset)", "val loss:"),
    "batches of the training": ("sum(costs) / len(train)", "test_loss = evaluate(model, val)"),
    "logger": ("hits(out, want) / len(data)",
               "logging.warning('Test Accuracy: %.2f%%', 100 * evaluate(model, val))"),
    "mean of roots": (f"mean({ROOTS} for o, w in pairs)", "val_rmse", *REGRESSION),
    "ignored positions": ("acc(out, want)", "val_acc", *IGNORED),
    "padded tokens": (f"{HITS}.float().mean()", "val_acc", *TOKENS),
}  # fmt: skip
PROGRESS = ("# IN LOOP", "print(f'val acc of the batch {acc(outs[-1], targets):.4f}')")
BOTH = 'print(f"train acc {evaluate(model, train):.4f} test acc {evaluate(model, val):.4f}")'
OF_CLASSES = "mean(acc(out[want == c], want[want == c]) for c in range(3))"
HEALTHY = {
    "area": (PASS, "auc(out.sigmoid(), want)", "val_auc", *BINARY),
    "F1 of all decisions": (INCONCLUSIVE, "acc(out, want)", "val_f1"),
    "even batches": (PASS, BATCHES, "val_acc", ("400:534], y[400:534", "400:528], y[400:528")),
    "both loaders": (PASS, "acc(out, want)", BOTH),
    "progress": (PASS, "acc(out, want)", "val_acc", PROGRESS),
    "logits above 0, in three digits": (
        PASS, "((out > 0) == want).float().mean()", THREE_DIGITS, *BINARY
    ),
    "macro recall in three digits": (INCONCLUSIVE, OF_CLASSES, THREE_DIGITS),
    "logits above 0": (PASS, "((out > 0) == want).float().mean()", "val_acc", *BINARY),
    "root of the mean": (PASS, ROOTS.replace("o - w", "out - want"), "val_rmse", *REGRESSION),
    "positions that count": (PASS, "hits(out, want) / (want >= 0).sum()", "val_acc", *IGNORED),
    "tokens without padding": (PASS, f"{HITS}[held.tensors[0][:len(want)] > 0].float().mean()",
                               "val_acc", *TOKENS),
    "macro recall": (INCONCLUSIVE, OF_CLASSES, "val_acc"),
    "last batch as a variable": (
        INCONCLUSIVE, "acc(*pairs[-1])", "val_acc = evaluate(model, val)"
    ),
    "mean of batch losses": (PASS, "mean(costs)", "val loss:"),
}  # fmt: skip


@pytest.mark.parametrize("parts", FAULTS.values(), ids=FAULTS)
def test_a_number_of_a_wrong_formula_fails(parts: Any, tmp_path: Path) -> None:
    found = answer(tmp_path, *parts)
    assert found.judgement is FAIL, found.sentence


@pytest.mark.parametrize("parts", HEALTHY.values(), ids=HEALTHY)
def test_no_other_number_fails(parts: Any, tmp_path: Path) -> None:
    judgement, *arguments = parts
    found = answer(tmp_path, *arguments)
    assert found.judgement is judgement, found.sentence


def test_rows_of_tokens_may_have_another_length_in_each_batch() -> None:
    made = Pass(None, 1, sizes=[2, 2])
    for length in (3, 5):
        found = torch.arange(2 * length).reshape(2, length) % 3
        made.labels.append((None, found, found.roll(1, 1)))
    values = formulas_of("F1", made, None)
    assert values
    assert formulas_of("AUC", made, None) == []


@pytest.mark.parametrize(
    ("test", "value", "found"),
    [
        ("acc < best_acc", "acc", True), ("best_loss <= val_loss", "val_loss", True),
        ("acc > best_acc", "acc", False), ("score < best_score", "score", False),
    ],
)  # fmt: skip
def test_a_condition_that_keeps_the_worst_is_found(test: str, value: str, found: bool) -> None:
    best = next(word for word in test.split() if "best" in word)
    row = reversed_best({"/a/train.py": f"if {test}:\n    {best} = {value}\n"})
    assert (row and row[0]) == (test if found else None)
