"""What checks know of a training: known losses, tasks, and the sentences for what cannot be one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checking.check import select_checks
from pipeline_profiler.checking.runner import run_checks
from pipeline_profiler.checking.tasks import read_task
from pipeline_profiler.checking.toy_trainings import toy_regression, toy_training
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import UsersError
from pipeline_profiler.checking.user_training import made_from

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")


def imbalanced() -> Any:
    dataset = ToyImages()
    dataset.labels = np.where(np.arange(256) % 8 == 0, 1, 0)
    return toy_training(loader=toy_loader(dataset, batch_size=256))


def test_zero_outputs_and_the_best_constant_have_their_known_losses() -> None:
    subject = TrainingSubject(imbalanced)
    assert subject.uniform_loss == pytest.approx(math.log(4))
    prior = -(7 / 8 * math.log(7 / 8) + 1 / 8 * math.log(1 / 8))
    assert subject.constant_loss == pytest.approx(prior, abs=0.005)


@pytest.mark.parametrize("kind", ["MSELoss", "HuberLoss", "L1Loss"])
def test_the_best_constant_of_numbers_is_mean_or_median(kind: str) -> None:
    loss = getattr(torch.nn, kind)()
    subject = TrainingSubject(lambda: toy_regression(loss=loss))
    targets = subject.batches[0][2]
    grid = torch.linspace(float(targets.min()), float(targets.max()), 4001)
    least = min(float(loss(torch.full_like(targets, c), targets)) for c in grid.tolist())
    assert subject.constant_loss == pytest.approx(least, rel=0.01)


def test_label_smoothing_has_a_least_loss_above_zero() -> None:
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    subject = TrainingSubject(lambda: toy_training(loss=loss))
    least, outputs = subject.best_outputs
    shares = np.array([0.925, 0.025, 0.025, 0.025])
    assert least == pytest.approx(float(-(shares * np.log(shares)).sum()), abs=0.01)
    assert bool((outputs.argmax(1) == subject.batches[0][2]).all())


def test_log_probabilities_have_the_same_known_losses() -> None:
    def make() -> Any:
        made = imbalanced()
        made.model.append(torch.nn.LogSoftmax(1))
        made.loss = torch.nn.NLLLoss()
        return made

    subject = TrainingSubject(make)
    assert subject.form == "log"
    assert subject.uniform_loss == pytest.approx(math.log(4), abs=1e-5)
    assert subject.constant_loss == pytest.approx(
        TrainingSubject(imbalanced).constant_loss, abs=0.01
    )


def test_tasks_are_read_from_shapes_and_types() -> None:
    whole = torch.zeros(8, dtype=torch.long)
    assert read_task(torch.zeros(8, 5), whole).kind == "classes"
    assert read_task(torch.zeros(8, 5), whole)[1:] == (5, 1)
    assert read_task(torch.zeros(8, 7, 5), torch.zeros(8, 7, dtype=torch.long)).axis == 2
    assert read_task(torch.zeros(8, 5, 4, 4), torch.zeros(8, 4, 4, dtype=torch.long)).axis == 1
    assert read_task(torch.zeros(8, 1), torch.ones(8, 1)).kind == "binary"
    assert read_task(torch.zeros(8, 1), torch.rand(8)).kind == "regression"
    assert read_task(torch.zeros(8, 3), torch.rand(8)).kind == "unknown"


def test_a_fresh_training_starts_where_the_first_one_did() -> None:
    subject = TrainingSubject(toy_training)
    one, two = subject.fresh(), subject.fresh()
    subject.step(one, subject.batches[0])
    three = subject.fresh()
    for a, b in zip(two.model.parameters(), three.model.parameters(), strict=True):
        assert torch.equal(a, b)
    held = {id(p) for group in three.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in three.model.parameters()}


def parts(**changes: Any) -> dict[str, Any]:
    made = toy_training()
    functions: dict[str, Any] = {
        "make_loader": lambda: made.loader,
        "make_model": lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)),
        "make_loss": torch.nn.CrossEntropyLoss,
        "make_optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    }
    return functions | changes


def test_a_loader_that_can_is_made_without_augmentation() -> None:
    asked = []

    def make_loader(augment: bool = True) -> Any:
        asked.append(augment)
        return toy_training().loader

    _ = TrainingSubject(made_from(parts(make_loader=make_loader))).settings
    assert asked == [False]


def test_a_training_is_made_from_single_functions() -> None:
    subject = TrainingSubject(made_from(parts()))
    assert subject.task.kind == "classes"
    assert subject.step(subject.fresh(), subject.batches[0]) > 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"make_model": lambda: 3}, "The model is of type int"),
        ({"make_model": lambda: None}, r"make_model\(\) returned None"),
        ({"make_optimizer": lambda model: None}, r"make_optimizer\(\) returned None"),
        ({"make_loss": lambda: 3.0}, "The loss cannot be called"),
        ({"make_loss": lambda a, b: a}, r"make_loss\(\) takes the argument a, b"),
        ({"make_training": lambda: {"model": 1}}, "gave no loader, loss, optimizer"),
    ],
)
def test_what_is_no_training_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsersError, match=sentence):
        TrainingSubject(made_from(parts(**changes))).fresh()


def test_a_loss_that_is_no_tensor_or_no_number_is_a_sentence() -> None:
    for loss, sentence in ((lambda o, t: 1.0, "returned float"), (lambda o, t: o, "take its mean")):
        subject = TrainingSubject(made_from(parts(make_loss=lambda loss=loss: loss)))
        with pytest.raises(UsersError, match=sentence):
            subject.step(subject.fresh(), subject.batches[0])


def test_an_empty_loader_and_a_wrong_shape_are_sentences() -> None:
    empty = torch.utils.data.DataLoader([], 4)
    with pytest.raises(UsersError, match="gives no batch"):
        _ = TrainingSubject(made_from(parts(make_loader=lambda: empty))).batches
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(7, 4))
    with pytest.raises(UsersError, match="does not fit the model's first linear layer"):
        _ = TrainingSubject(made_from(parts(make_model=lambda: model))).task


@pytest.mark.parametrize("said", [{"loss": 0.5}, (0.5, 3), 0.5], ids=["dict", "tuple", "number"])
def test_a_step_may_return_its_loss_in_several_ways(said: Any) -> None:
    subject = TrainingSubject(lambda: toy_training(train_step=lambda model, batch: said))
    assert subject.step(subject.fresh(), subject.batches[0]) == 0.5


def test_a_machine_that_is_busy_does_not_cut_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, clock = TrainingSubject(toy_training), iter(range(0, 10**6, 5))
    whole = len(subject.whole_batches)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))  # five seconds between two looks
    assert len(subject.batches) == whole
    assert not subject.notes


def test_a_missing_loss_is_a_sentence_for_torch() -> None:
    functions = parts()
    del functions["make_loss"], functions["make_optimizer"]
    with pytest.raises(UsersError, match="no make_loss and no make_optimizer"):
        TrainingSubject(made_from(functions)).fresh()


class Huge(torch.nn.Linear):
    """Asks for more memory than there is when it is called."""

    def __init__(self) -> None:
        super().__init__(192, 4)

    def forward(self, pixels: Any) -> Any:
        return super().forward(pixels.flatten(1)) + torch.empty(2**58)[0]


def on_a_gpu() -> Any:
    return torch.nn.Linear(192, 4).cuda()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"make_model": on_a_gpu}, "choose the device by torch.cuda.is_available()"),
        ({"make_model": Huge}, "take a smaller batch"),
        ({"make_loader": lambda: torch.utils.data.DataLoader([], 4)}, "is the dataset empty"),
        ({"make_loader": lambda root: root}, "takes the argument root"),
        ({"make_model": lambda: torch.nn.Linear(7, 4)}, "does not fit the model's first linear"),
    ],
    ids=["GPU", "memory", "no batch", "argument", "shape"],
)
def test_bad_input_is_one_sentence_and_the_other_checks_still_run(
    changes: dict[str, Any], fix: str
) -> None:
    checks = select_checks("TRAIN", ["TRAIN001", "TRAIN014"])
    report = run_checks(checks, TrainingSubject(made_from(parts(**changes))), 60)
    assert [r.check.code for r in report.results] == ["TRAIN014", "TRAIN001"]
    assert not report.broken
    assert fix in report.results[1].answer.sentence


def test_a_loss_that_is_no_number_at_the_first_step_fails_with_its_causes() -> None:
    functions = parts(make_loss=lambda: lambda o, t: (o.sum() * 0).log() * 0)
    report = run_checks(
        select_checks("TRAIN", ["TRAIN001"]), TrainingSubject(made_from(functions)), 60
    )
    assert "The first loss is nan" in report.results[0].answer.sentence
    assert report.failed


def test_batches_of_a_long_step_come_in_parts_and_lose_no_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline_profiler.checking.training_subject.LONG_STEP_S", 1e-9)
    loader = toy_loader(ToyImages(200), batch_size=70, shuffle=False)
    subject = TrainingSubject(lambda: toy_training(loader=loader))
    assert [len(batch[1]) for batch in subject.batches] == [17, 18, 17, 18] * 2 + [15] * 4
    assert torch.equal(
        torch.cat([batch[2] for batch in subject.batches]),
        torch.cat([batch[2] for batch in subject.whole_batches]),
    )
    assert "in 4 parts" in subject.notes[0]
