"""Losses that users have beside cross-entropy and squared error: right ones are never failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checking.check import Judgement, all_checks
from pipeline_profiler.checking.runner import run_check
from pipeline_profiler.checking.toys import toy_loader
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_training import Training

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

CODES = ("TRAIN001", "TRAIN003", "TRAIN010", "TRAIN013", "TRAIN018", "TRAIN020")
COUNT, CLASSES = 96, 4


class Columns:
    """Inputs and the targets that a loss asks for."""

    def __init__(self, targets: Any) -> None:
        rng = np.random.default_rng(1)
        self.inputs = rng.normal(0, 1, (COUNT, 6)).astype(np.float32)
        self.targets = targets(self.inputs, rng)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.inputs[index], self.targets[index]


def floats(values: Any) -> Any:
    return np.asarray(values, np.float32)


def counts(level: float) -> Callable[..., Any]:
    return lambda x, rng: floats(rng.poisson(np.exp(level + 0.6 * x[:, :1] - 0.4 * x[:, 1:2])))


def classes(x: Any, rng: Any) -> Any:
    return x[:, :CLASSES].argmax(1)


def shares(x: Any, rng: Any) -> Any:
    made = np.exp(2 * x[:, :CLASSES])
    return floats(made / made.sum(1, keepdims=True))


def one_hot(x: Any, rng: Any) -> Any:
    return np.eye(CLASSES, dtype=np.float32)[classes(x, rng)]


def rare(x: Any, rng: Any) -> Any:
    return floats(x[:, :1] > 1.3)


def signs(x: Any, rng: Any) -> Any:
    return floats(np.sign(x[:, :1]))


def times(x: Any, rng: Any) -> Any:
    return floats(rng.gamma(4, np.exp(1 + 0.5 * x[:, :1]) / 4))


def vectors(x: Any, rng: Any) -> Any:
    return floats(x + 0.1 * rng.normal(size=x.shape))


def fourth(rows: Any, rng: Any) -> Any:
    return rng.integers(0, 5, COUNT)


def focal(outputs: Any, targets: Any) -> Any:
    logs = functional.log_softmax(outputs, 1).gather(1, targets[:, None])
    return (-((1 - logs.exp()) ** 2) * logs).mean()


def contrast(outputs: Any, targets: Any) -> Any:
    near = functional.normalize(outputs) @ functional.normalize(targets).T
    return functional.cross_entropy(near / 0.1, torch.arange(len(near)))


def survival(outputs: Any, targets: Any) -> Any:
    risk = outputs[:, 0][targets[:, 0].argsort(descending=True)]
    return (risk.logcumsumexp(0) - risk).mean()


def hardest(outputs: Any, targets: Any) -> Any:
    apart, same = torch.cdist(outputs, outputs), targets[:, None] == targets[None]
    return (apart * same).amax(1).sub((apart + 1e6 * same).amin(1)).add(0.3).relu().mean()


LOSSES: dict[str, tuple[Any, Any, Any]] = {  # (targets, last modules, loss)
    "Poisson, few": (counts(0.0), [1], nn.PoissonNLLLoss()),
    "Poisson, some": (counts(2.0), [1], nn.PoissonNLLLoss()),
    "Poisson of rates": (counts(1.0), [1, nn.Softplus()], nn.PoissonNLLLoss(log_input=False)),
    "NLLLoss": (classes, [CLASSES, nn.LogSoftmax(1)], nn.NLLLoss()),
    "NLL by hand": (one_hot, [CLASSES, nn.LogSoftmax(1)], lambda o, t: -(o * t).sum(1).mean()),
    "weights and smoothing": (
        classes, [CLASSES],
        nn.CrossEntropyLoss(torch.tensor([0.5, 1, 2, 4]), label_smoothing=0.2),
    ),
    "focal": (classes, [CLASSES], focal),
    "margins": (classes, [CLASSES], nn.MultiMarginLoss()),
    "soft labels": (shares, [CLASSES], nn.CrossEntropyLoss()),
    "KLDiv": (shares, [CLASSES, nn.LogSoftmax(1)], nn.KLDivLoss(reduction="batchmean")),
    "squared error of shares": (one_hot, [CLASSES, nn.Softmax(1)], nn.MSELoss()),
    "one of several by itself": (one_hot, [CLASSES, nn.Softmax(1)], nn.BCELoss()),
    "pos_weight": (rare, [1], nn.BCEWithLogitsLoss(pos_weight=torch.tensor([20.0]))),
    "signs": (signs, [1], nn.SoftMarginLoss()),
    "gamma": (times, [1, nn.Softplus()], lambda o, t: (o.log() + t / o).mean()),
    "rates of times": (times, [1, nn.Softplus()], lambda o, t: (o * t - o.log()).mean()),
    "logarithms of both": (times, [1, nn.Softplus()], lambda o, t: ((o / t).log() ** 2).mean()),
    "spread beside the mean": (
        times, [2], lambda o, t: functional.gaussian_nll_loss(o[:, :1], t, o[:, 1:].exp()),
    ),
    "cosine": (vectors, [6], lambda o, t: 1 - functional.cosine_similarity(o, t).mean()),
    "contrast": (vectors, [6], contrast),
    "survival": (times, [1], survival),
    "hardest triplets": (fourth, [CLASSES], hardest),
}  # fmt: skip


def subject_of(name: str) -> TrainingSubject:
    targets, last, loss = LOSSES[name]

    def make() -> Training:
        model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, last[0]), *last[1:])
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        return Training(model, toy_loader(Columns(targets)), loss, optimizer)

    return TrainingSubject(make)


@pytest.mark.parametrize("name", LOSSES)
def test_a_right_loss_is_never_failed(name: str) -> None:
    subject = subject_of(name)
    for code in CODES:
        result = run_check(all_checks("TRAIN")[code], subject)
        assert not result.broken, result.broken
        assert result.answer.judgement is not Judgement.FAIL, (code, result.answer.sentence)


@pytest.mark.parametrize(
    ("name", "form", "least"),
    [("KLDiv", "log", 0.0), ("gamma", "positive", None), ("Poisson, some", "", None)],
)
def test_the_least_loss_is_that_of_the_targets_themselves(
    name: str, form: str, least: float | None
) -> None:
    subject = subject_of(name)
    targets = subject.batches[0][2]
    if least is None:  # both are least where the mean is the target
        outputs = targets.clamp(min=1e-9)
        best = outputs.log() if name.startswith("Poisson") else outputs
        least = float(subject.settings.loss(best, targets))
    assert subject.form == form
    assert subject.best_outputs[0] == pytest.approx(least, abs=0.02)


def test_the_least_loss_of_the_small_batch_is_of_its_own_targets() -> None:
    targets, last, loss = LOSSES["Poisson, some"]
    model = nn.Linear(6, *last)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader = toy_loader(Columns(targets), batch_size=64)
    subject = TrainingSubject(lambda: Training(model, loader, loss, optimizer))
    wanted = subject.small[2]
    least = float(loss(wanted.clamp(min=1e-9).log(), wanted))
    assert len(wanted) == 16
    assert subject.small_alone.best_outputs[0] == pytest.approx(least, abs=0.02)
