"""Known values of checks on a training, and losses that users have: right ones are never failed."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from pipeline_profiler.checks.check import Judgement
from pipeline_profiler.checks.loader.two_loaders import LabelNumbers
from pipeline_profiler.checks.training.loss import _ranks
from pipeline_profiler.checks.training.own_functions import reads_answers
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_training import Training
from tests.pipeline_profiler.checks.conftest import judged
from tests.pipeline_profiler.checks.examples import all_examples
from tests.pipeline_profiler.checks.examples.loader.data import last_held_out
from tests.pipeline_profiler.checks.toys import ToyRows, descent, toy_loader, toy_training

pytestmark = pytest.mark.slow


def test_ranks_and_shares_of_classes_have_their_known_values() -> None:
    values = np.random.default_rng(0).integers(0, 9, 40).astype(np.float64)
    assert np.array_equal(_ranks(values), rankdata(values))  # of scipy, with ties
    answer = LabelNumbers().run(last_held_out(False, kept=1))
    assert answer.sentence.startswith("The class shares of training and evaluation overlap by ")
    assert "classes in common" not in answer.sentence


def test_what_a_resumed_run_has_lost_is_named() -> None:
    planted = dict(all_examples()["TRAIN032"].planted)
    beside = judged("TRAIN032", TrainingSubject(planted["a value beside the state"])).answer
    assert "model.level" in beside.sentence
    schedule = judged("TRAIN032", TrainingSubject(planted["a schedule without state"])).answer
    assert "schedule.number" in schedule.sentence


class Stateful:
    """A loader that knows its place, or (broken) forgets it."""

    def __init__(self, broken: bool) -> None:
        self.broken, self.at = broken, 0
        pixels = torch.linspace(-1, 1, 4 * 16 * 192).reshape(4, 16, 3, 8, 8)
        self.batches = [(p, torch.arange(16) % 4) for p in pixels]

    def __iter__(self) -> Any:
        for number in range(self.at, 4):
            self.at = number + 1
            yield self.batches[number]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = 0 if self.broken else state["at"]


@pytest.mark.parametrize("broken", [False, True])
def test_a_loader_that_knows_its_place_is_resumed(broken: bool) -> None:
    subject = TrainingSubject(lambda: toy_training(loader=Stateful(broken)))
    answer = judged("TRAIN032", subject).answer
    assert (answer.judgement is Judgement.FAIL) is broken, answer.sentence
    assert math.isfinite(answer.evidence["apart"])


def test_a_metric_that_reads_the_answers_is_at_its_best_for_perfect_ones() -> None:
    assert reads_answers(1.0, (1.0, 0.5, 0.2))  # one other order may be right by chance
    assert reads_answers(0.0, (0.4, 0.5, 0.2))  # a loss
    assert reads_answers(math.nan, (0.4, 0.5, 0.2))
    assert not reads_answers(0.3, (0.4, 0.5, 0.2))
    assert not reads_answers(0.3, (0.3, 0.3, 0.3))


nn, functional = torch.nn, torch.nn.functional

CODES = ("TRAIN001", "TRAIN003", "TRAIN020")
COUNT, CLASSES = 96, 4


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
    "Poisson, some": (counts(2.0), [1], nn.PoissonNLLLoss()),
    "Poisson of rates": (counts(1.0), [1, nn.Softplus()], nn.PoissonNLLLoss(log_input=False)),
    "NLLLoss": (classes, [CLASSES, nn.LogSoftmax(1)], nn.NLLLoss()),
    "weights and smoothing": (
        classes, [CLASSES],
        nn.CrossEntropyLoss(torch.tensor([0.5, 1, 2, 4]), label_smoothing=0.2),
    ),
    "focal": (classes, [CLASSES], focal),
    "KLDiv": (shares, [CLASSES, nn.LogSoftmax(1)], nn.KLDivLoss(reduction="batchmean")),
    "one of several by itself": (one_hot, [CLASSES, nn.Softmax(1)], nn.BCELoss()),
    "pos_weight": (rare, [1], nn.BCEWithLogitsLoss(pos_weight=torch.tensor([20.0]))),
    "gamma": (times, [1, nn.Softplus()], lambda o, t: (o.log() + t / o).mean()),
    "rates of times": (times, [1, nn.Softplus()], lambda o, t: (o * t - o.log()).mean()),
    "spread beside the mean": (
        times, [2], lambda o, t: functional.gaussian_nll_loss(o[:, :1], t, o[:, 1:].exp()),
    ),
    "cosine": (vectors, [6], lambda o, t: 1 - functional.cosine_similarity(o, t).mean()),
    "contrast": (vectors, [6], contrast),
    "survival": (times, [1], survival),
    "hardest triplets": (fourth, [CLASSES], hardest),
}  # fmt: skip


def subject_of(name: str, batch_size: int = 16) -> TrainingSubject:
    targets, last, loss = LOSSES[name]

    def make() -> Training:
        rng = np.random.default_rng(1)
        inputs = floats(rng.normal(0, 1, (COUNT, 6)))
        loader = toy_loader(ToyRows(inputs, targets(inputs, rng)), batch_size=batch_size)
        model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, last[0]), *last[1:])
        return toy_training(model, loss, loader=loader, optimizer=descent("Adam", 0.01))

    return TrainingSubject(make)


@pytest.mark.parametrize("name", LOSSES)
def test_a_right_loss_is_never_failed(name: str) -> None:
    subject = subject_of(name)
    for code in CODES:
        answer = judged(code, subject).answer
        assert answer.judgement is not Judgement.FAIL, (code, answer.sentence)


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
    assert subject.loss_alone.form == form
    assert subject.loss_alone.best_outputs[0] == pytest.approx(least, abs=0.02)


def test_the_least_loss_of_the_small_batch_is_of_its_own_targets() -> None:
    subject = subject_of("Poisson, some", batch_size=64)
    wanted = subject.small[2]
    least = float(subject.settings.loss(wanted.clamp(min=1e-9).log(), wanted))
    assert len(wanted) == 16
    assert subject.small_alone.best_outputs[0] == pytest.approx(least, abs=0.02)
