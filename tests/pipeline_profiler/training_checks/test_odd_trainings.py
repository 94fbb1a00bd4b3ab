"""Trainings that are odd and right: sparse gradients, several outputs, CTC, a second objective."""

from __future__ import annotations

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


class Rows:
    """Rows of arrays."""

    def __init__(self, *columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(column[index] for column in self.columns)


def said(code: str, subject: TrainingSubject) -> Any:
    result = run_check(all_checks("TRAIN")[code], subject)
    assert not result.broken, result.broken
    return result


def sparse() -> Training:
    rng = np.random.default_rng(0)
    words, targets = rng.integers(0, 20, 64), rng.normal(0, 1, (64, 3)).astype(np.float32)
    model = torch.nn.Embedding(20, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), 0.01)
    return Training(model, toy_loader(Rows(words, targets)), torch.nn.MSELoss(), optimizer)


@pytest.mark.parametrize("code", ["TRAIN005", "TRAIN012", "TRAIN028"])
def test_sparse_gradients_are_read(code: str) -> None:
    result = said(code, TrainingSubject(sparse))
    assert result.answer.judgement is Judgement.PASS, result.answer.sentence


def two_outputs() -> Training:
    class Heads(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(5, 3), torch.nn.Linear(5, 1)

        def forward(self, x: Any) -> dict[str, Any]:
            return {"one": self.one(x), "two": self.two(x)}

    def loss(outputs: Any, targets: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs["one"], targets)

    rng = np.random.default_rng(0)
    loader = toy_loader(Rows(rng.normal(0, 1, (64, 5)).astype(np.float32), np.arange(64) % 3))
    model = Heads()
    return Training(model, loader, loss, torch.optim.Adam(model.parameters(), 0.01))


@pytest.mark.parametrize("code", ["TRAIN030", "TRAIN031"])
def test_a_loss_of_several_outputs_is_never_asked_for_one(code: str) -> None:
    assert not said(code, TrainingSubject(two_outputs)).users


def letters() -> Training:
    """Two letters in eight places, read by CTC: outputs (place, example, letter)."""

    class Reader(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Conv1d(4, 4, 3, padding=1)

        def forward(self, strip: Any) -> Any:
            return self.net(strip).permute(2, 0, 1).log_softmax(-1)

    def loss(outputs: Any, targets: Any) -> Any:
        places, count = outputs.shape[:2]
        lengths = torch.full((count,), places), torch.full((count,), 2)
        return torch.nn.functional.ctc_loss(outputs, targets, *lengths)

    rng = np.random.default_rng(0)
    wanted = rng.integers(1, 4, (64, 2))
    strip = np.zeros((64, 4, 8), np.float32)
    for place in range(2):
        strip[np.arange(64), wanted[:, place], 4 * place + 1] = 2
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    return Training(model, toy_loader(Rows(strip, wanted)), loss, optimizer)


def test_outputs_of_ctc_stay_logarithms_of_probabilities() -> None:
    subject = TrainingSubject(letters)
    assert subject.form == "log"
    assert subject.best_outputs[0] >= 0  # free numbers would be below any probability
    answer = said("TRAIN003", subject).answer
    assert answer.judgement is Judgement.PASS, answer.sentence


def game(beside: bool) -> Training:
    """A critic that the loss reaches; `beside`: the step trains a generator too."""

    class Game(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.critic, self.maker = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
            self.maker.requires_grad_(beside)

        def forward(self, points: Any) -> Any:
            return self.critic(points)

    model = Game()

    def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model(x), y)
        (value - model(model.maker(x)).mean() if beside else value).backward()
        optimizer.step()
        return value

    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(0, 1, (64, 2)).astype(np.float32), np.ones((64, 1), np.float32))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-9)
    return Training(model, toy_loader(rows), torch.nn.MSELoss(), optimizer, train_step=train_step)


def test_a_step_with_a_second_objective_need_not_lower_the_loss() -> None:
    two, one = (TrainingSubject(lambda beside=b: game(beside)) for b in (True, False))
    assert "(maker.bias, maker.weight)" in two.other_objective
    assert one.other_objective == ""
    assert said("TRAIN015", two).answer.judgement is Judgement.CANNOT_TELL
    assert said("TRAIN015", one).answer.judgement is Judgement.FAIL


def numbers() -> Any:
    rng = np.random.default_rng(0)
    inputs = rng.normal(0, 1, (64, 5)).astype(np.float32)
    return toy_loader(Rows(inputs, np.arange(64) % 3))


def proxied(learned: bool, drawn: bool = True) -> Training:
    """A loss with places of classes of its own; `drawn`: they start at random."""

    class Proxies(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            start = torch.randn(3, 4) if drawn else torch.eye(4)[:3]
            self.places = torch.nn.Parameter(start)

        def forward(self, outputs: Any, targets: Any) -> Any:
            return torch.nn.functional.cross_entropy(outputs @ self.places.T, targets)

    model, loss = torch.nn.Linear(5, 4), Proxies()
    parameters = [*model.parameters(), *(loss.parameters() if learned else ())]
    return Training(model, numbers(), loss, torch.optim.Adam(parameters, 0.01))


@pytest.mark.parametrize(
    ("learned", "drawn", "judgement"),
    [
        (True, True, Judgement.PASS),
        (False, True, Judgement.FAIL),
        (False, False, Judgement.PASS),  # as a pretrained network inside the loss
    ],
    ids=["learned", "forgotten", "fixed"],
)
def test_parameters_of_the_loss_are_trained_too(
    learned: bool, drawn: bool, judgement: Judgement
) -> None:
    subject = TrainingSubject(lambda: proxied(learned, drawn))
    answer = said("TRAIN006", subject).answer
    assert answer.judgement is judgement, answer.sentence
    assert said("TRAIN020", subject).answer.judgement is Judgement.CANNOT_TELL


def reading_its_model() -> Training:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            outputs = self.net(x)
            self.size = (outputs**2).mean()
            return outputs

    model = Model()
    entropy = torch.nn.CrossEntropyLoss()

    def loss(outputs: Any, targets: Any) -> Any:
        return entropy(outputs, targets) + 1e-3 * model.size

    return Training(model, numbers(), loss, torch.optim.Adam(model.parameters(), 0.01))


@pytest.mark.parametrize("code", ["TRAIN001", "TRAIN020"])
def test_a_loss_may_read_what_its_model_kept(code: str) -> None:
    result = said(code, TrainingSubject(reading_its_model))
    assert not result.users, result.answer.sentence


def stepping(noise: float, factor: float = 1.0) -> Training:
    """A step whose loss has targets of its own, with `noise`, times a factor."""
    model = torch.nn.Linear(5, 3)

    def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        value = factor * loss(model(x), y) + noise * (model(x) - torch.randn(3)).pow(2).mean()
        value.backward()
        optimizer.step()
        return value

    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    return Training(model, numbers(), torch.nn.CrossEntropyLoss(), optimizer, train_step=train_step)


def test_a_step_that_minimises_something_else_is_known_by_its_loss() -> None:
    other, scaled = (TrainingSubject(lambda m=m: stepping(*m)) for m in ((5.0,), (0.0, 0.25)))
    assert other.other_objective.startswith("reports")
    assert scaled.other_objective == ""
    assert said("TRAIN015", other).answer.judgement is Judgement.CANNOT_TELL
    assert said("TRAIN015", scaled).answer.judgement is Judgement.FAIL


def test_a_loss_that_is_no_number_is_not_learned() -> None:
    def make() -> Training:
        made = stepping(0.0)
        made.train_step, made.loss = None, lambda outputs, _: (-outputs.abs()).log().mean()
        return made

    assert said("TRAIN003", TrainingSubject(make)).answer.judgement is Judgement.FAIL


def test_gradients_that_are_no_numbers_are_not_missing() -> None:
    def make() -> Training:
        made = stepping(0.0)
        made.train_step, made.loss = None, lambda outputs, _: ((-outputs.abs()).log() ** 2).mean()
        return made

    answer = said("TRAIN005", TrainingSubject(make)).answer
    assert answer.judgement is Judgement.PASS, answer.sentence
