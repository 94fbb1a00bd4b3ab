"""What is known of a training: its parts, its batches, its loss; unusual losses are not failed."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from pipeline_profiler.checks.check import Judgement, select_checks
from pipeline_profiler.checks.runner import run_checks
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_training import Training, made_from
from tests.pipeline_profiler.checks.conftest import judged
from tests.pipeline_profiler.checks.examples.training.loss import single_output
from tests.pipeline_profiler.checks.toys import (
    ToyImages,
    ToyRows,
    descent,
    toy_around,
    toy_loader,
    toy_training,
)

pytestmark = pytest.mark.slow
PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE


def rows(*targets: Any) -> Any:
    """64 rows of five numbers, of three classes unless targets are given."""
    inputs = np.random.default_rng(0).normal(0, 1, (64, 5)).astype(np.float32)
    return toy_loader(ToyRows(inputs, *(targets or (np.arange(64) % 3,))))


# ---- parts and batches ----


def test_a_fresh_training_starts_where_the_first_one_did() -> None:
    subject = TrainingSubject(toy_training)
    one, two = subject.fresh(), subject.fresh()
    subject.step(one, subject.batches[0])
    three = subject.fresh()
    for a, b in zip(two.model.parameters(), three.model.parameters(), strict=True):
        assert torch.equal(a, b)
    held = {id(p) for group in three.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in three.model.parameters()}


def factories(**changes: Any) -> dict[str, Any]:
    functions: dict[str, Any] = {
        "make_loader": lambda augment=True: toy_loader(ToyImages(64, augment)),
        "make_model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 4)),
        "make_loss": nn.CrossEntropyLoss,
        "make_optimizer": lambda params: torch.optim.SGD(params, lr=0.1),
    }
    found = functions | changes
    return {name: function for name, function in found.items() if function is not None}


def test_factories_make_a_training_without_augmentation() -> None:
    subject = TrainingSubject(made_from(factories()))
    assert subject.task.kind == "classes"
    assert subject.step(subject.fresh(), subject.batches[0]) > 0
    assert not subject.settings.loader.dataset.augment


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"make_model": lambda: 3}, "The model is of type int"),
    ({"make_model": lambda: None}, "make_model() returned None"),
    ({"make_loss": lambda: 3.0}, "The loss cannot be called"),
    ({"make_loss": lambda a, b: a}, "make_loss() takes the argument a, b"),
    ({"make_loss": lambda: lambda o, t: 1.0}, "The loss returned float"),
    ({"make_loss": lambda: lambda o, t: o}, "take its mean"),
    ({"make_optimizer": lambda: 3}, "The optimizer is a int"),
    ({"make_training": lambda: {"model": 1}}, "gave no loader, loss, optimizer"),
    ({"make_loss": None, "make_optimizer": None}, "gave no loss, optimizer"),
    ({"make_loader": lambda: torch.utils.data.DataLoader([], 4)}, "is the dataset empty"),
    ({"make_model": lambda: nn.Linear(7, 4)}, "does not fit the model"),
    ({"make_model": lambda: toy_around(lambda net, x: net(x) + torch.empty(2**58)[0])},
     "take a smaller batch"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), WRONG, ids=[row[1] for row in WRONG])
def test_bad_input_is_one_sentence_and_the_other_checks_still_run(
    changes: dict[str, Any], sentence: str
) -> None:
    checks = select_checks("TRAIN", ["TRAIN001", "TRAIN014"])
    report = run_checks(checks, TrainingSubject(made_from(factories(**changes))), 60)
    assert [r.check.code for r in report.results] == ["TRAIN014", "TRAIN001"]
    assert not report.broken
    assert sentence in report.results[1].answer.sentence


@pytest.mark.parametrize("value", [{"loss": 0.5}, (0.5, 3), 0.5], ids=["dict", "tuple", "number"])
def test_a_step_may_return_its_loss_in_several_ways(value: Any) -> None:
    subject = TrainingSubject(lambda: toy_training(train_step=lambda model, batch: value))
    assert subject.step(subject.fresh(), subject.batches[0]) == 0.5


def test_a_machine_that_is_busy_does_not_cut_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, clock = TrainingSubject(toy_training), iter(range(0, 10**6, 5))
    whole = len(subject.whole_batches)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))  # five seconds between two looks
    assert len(subject.batches) == whole
    assert not subject.notes


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [(0.4, [17, 18, 17, 18] * 2 + [15] * 4), (5.0, [17, 18, 17, 18])],
    ids=["long: no sample is lost", "very long"],
)
def test_batches_of_a_long_step_come_in_parts(
    seconds: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingSubject, "_seconds_a_step", lambda *_: seconds)
    loader = toy_loader(ToyImages(200), batch_size=70, shuffle=False)
    subject = TrainingSubject(lambda: toy_training(loader=loader))
    assert [len(batch[1]) for batch in subject.batches] == sizes
    found, whole = (torch.cat([b[2] for b in p]) for p in (subject.batches, subject.whole_batches))
    assert torch.equal(found, whole[: sum(sizes)])
    assert f"the checks use {len(sizes)} batches of 17" in subject.notes[0]


def bytes_on_the_device(**changes: Any) -> Any:
    """A loader of bytes, and a step that turns them into numbers."""
    images = ToyImages()
    pixels = torch.as_tensor(np.clip(images.pixels * 40 + 128, 0, 255).astype(np.uint8))
    data = torch.utils.data.TensorDataset(pixels, torch.as_tensor(images.labels))

    def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model((x.float() - 128) / 40), y)
        value.backward()
        optimizer.step()
        return value

    parts = {"loader": toy_loader(data), "train_step": train_step} | changes
    return dataclasses.replace(toy_training(), **parts)


def test_what_enters_the_model_is_examined_where_the_step_turns_bytes_into_numbers() -> None:
    subject = TrainingSubject(bytes_on_the_device)
    raw, inputs, _ = subject.batches[0]
    assert (raw[0].dtype, inputs.dtype) == (torch.uint8, torch.float32)
    report = run_checks(select_checks("TRAIN"), subject, 60.0)
    assert not report.failed
    assert sum(r.answer.judgement is PASS for r in report.results) >= 15
    assert subject.notes == ["The checks use what enters the model in your train_step."]
    bare = TrainingSubject(lambda: bytes_on_the_device(train_step=None))
    sentence = judged("TRAIN001", bare).answer.sentence
    assert "the loader gives bytes: give train_step, or split_batch" in sentence


@pytest.mark.parametrize(
    ("kind", "named", "counts"),
    [
        ("StepLR", {"step_size": 1, "gamma": 0.7}, False),
        ("ReduceLROnPlateau", {}, False),
        ("OneCycleLR", {"max_lr": 0.1, "total_steps": 60}, True),
        ("CosineAnnealingLR", {"T_max": 300}, True),
    ],
)
def test_a_schedule_of_epochs_does_not_end_the_trainings_of_the_checks(
    kind: str, named: dict[str, Any], counts: bool
) -> None:
    make = getattr(torch.optim.lr_scheduler, kind)
    subject = TrainingSubject(lambda: toy_training(schedule=lambda o: make(o, **named)))
    assert subject.counts_batches is counts
    if kind == "OneCycleLR":
        assert subject.held(5).optimizer.param_groups[0]["initial_lr"] == pytest.approx(0.1)


# ---- steps and losses that users have ----


def stepping(generator: bool) -> Training:
    """A rate too small to lower the loss; `generator`: the step trains another model as well."""
    model = nn.Linear(5, 3)
    model.maker = nn.Linear(5, 5)

    def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model(x), y)
        (value - model(model.maker(x)).mean() if generator else value).backward()
        optimizer.step()
        return value

    return toy_training(model, loader=rows(), optimizer=descent("SGD", 1e-9), train_step=train_step)


def denoising() -> Training:
    """The targets are noise that the step draws; the rate is too small to learn it."""

    def train_step(model: Any, x: Any, loss: Any, optimizer: Any) -> Any:
        noise = torch.randn_like(x)
        optimizer.zero_grad()
        value = loss(model(x + noise), noise)
        value.backward()
        optimizer.step()
        return value

    parts = {"optimizer": descent("SGD", 1e-9), "train_step": train_step}
    loader = toy_loader(ToyRows(*[np.random.default_rng(0).normal(size=(64, 5)).astype("f")] * 2))
    return toy_training(nn.Linear(5, 5), nn.MSELoss(), loader=loader, **parts)


def test_a_step_with_targets_of_its_own_need_not_lower_the_loss() -> None:
    answer = judged("TRAIN015", TrainingSubject(denoising)).answer
    assert answer.judgement is INCONCLUSIVE, answer.sentence
    assert "your train_step reports" in answer.sentence


@pytest.mark.parametrize(("generator", "judgement"), [(True, INCONCLUSIVE), (False, FAIL)])
def test_a_step_with_another_objective_need_not_lower_the_loss(
    generator: bool, judgement: Judgement
) -> None:
    answer = judged("TRAIN015", TrainingSubject(lambda: stepping(generator))).answer
    assert answer.judgement is judgement, answer.sentence
    assert ("made by 3 calls of models" in answer.sentence) is generator


def proxied(learned: bool, drawn: bool = True) -> Training:
    """A loss with weights of its own; `drawn`: they start at random."""

    class Proxies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 4) if drawn else torch.eye(4)[:3])

        def forward(self, outputs: Any, targets: Any) -> Any:
            return functional.cross_entropy(outputs @ self.weight.T, targets)

    model, loss = nn.Linear(5, 4), Proxies()
    parameters = [*model.parameters(), *(loss.parameters() if learned else ())]
    return Training(model, rows(), loss, torch.optim.Adam(parameters, 0.01))


def two_outputs() -> Training:
    heads = nn.ModuleDict({"one": nn.Linear(5, 3), "two": nn.Linear(5, 1)})
    model = toy_around(lambda net, x: {name: head(x) for name, head in net.items()}, heads)
    return toy_training(model, lambda o, t: functional.cross_entropy(o["one"], t), loader=rows())


def reading_its_model() -> Training:
    def forward(net: Any, x: Any) -> Any:
        net.last = net(x)
        return net.last

    def loss(outputs: Any, targets: Any) -> Any:
        return functional.cross_entropy(outputs, targets) + 1e-3 * (model.net.last**2).mean()

    model = toy_around(forward, nn.Linear(5, 3))
    return toy_training(model, loss, loader=rows())


def no_number() -> Training:
    return toy_training(nn.Linear(5, 3), lambda o, _: (-o.abs()).log().mean(), loader=rows())


def sigmoid() -> Training:
    return single_output(nn.Sigmoid())  # BCELoss raises for numbers beyond 0 and 1


UNUSUAL: list[tuple[str, Any, Judgement]] = [
    ("TRAIN015", two_outputs, PASS),
    ("TRAIN001", reading_its_model, PASS),
    ("TRAIN020", reading_its_model, PASS),
    ("TRAIN003", no_number, FAIL),
    ("TRAIN020", sigmoid, PASS),
    ("TRAIN041", sigmoid, INCONCLUSIVE),
    ("TRAIN005", lambda: proxied(True), PASS),
    ("TRAIN005", lambda: proxied(False), FAIL),
    ("TRAIN005", lambda: proxied(False, False), PASS),  # as a pretrained network inside the loss
    ("TRAIN020", lambda: proxied(True), INCONCLUSIVE),
]


@pytest.mark.parametrize(("code", "make", "judgement"), UNUSUAL)
def test_unusual_trainings_are_judged_as_they_are(
    code: str, make: Any, judgement: Judgement
) -> None:
    result = judged(code, TrainingSubject(make))
    assert result.answer.judgement is judgement, result.answer.sentence
    assert not result.users, result.answer.sentence


class Stateful(list[Any]):
    """A loader that saves its position, or (broken) forgets it."""

    at, broken = 0, False

    def __iter__(self) -> Any:
        while self.at < len(self):
            self.at += 1
            yield self[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = 0 if self.broken else state["at"]


@pytest.mark.parametrize(("broken", "judgement"), [(False, PASS), (True, FAIL)])
def test_a_loader_with_a_position_is_resumed(broken: bool, judgement: Judgement) -> None:
    loader = Stateful(toy_loader(ToyImages(64)))
    loader.broken = broken
    subject = TrainingSubject(lambda: toy_training(loader=loader))
    assert judged("TRAIN032", subject).answer.judgement is judgement


def floats(values: Any) -> Any:
    return np.asarray(values, np.float32)


def shares(x: Any, _: Any) -> Any:
    made = np.exp(2 * x[:, :4])
    return floats(made / made.sum(1, keepdims=True))


def times(x: Any, rng: Any) -> Any:
    return floats(rng.gamma(4, np.exp(1 + 0.5 * x[:, :1]) / 4))


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
    "Poisson": (lambda x, rng: floats(rng.poisson(np.exp(2 + x[:, :1] / 2))), [1],
                nn.PoissonNLLLoss()),
    "KLDiv": (shares, [4, nn.LogSoftmax(1)], nn.KLDivLoss(reduction="batchmean")),
    "gamma": (times, [1, nn.Softplus()], lambda o, t: (o.log() + t / o).mean()),
    "spread beside the mean": (
        times, [2], lambda o, t: functional.gaussian_nll_loss(o[:, :1], t, o[:, 1:].exp())),
    "contrast": (lambda x, rng: floats(x + 0.1 * rng.normal(size=x.shape)), [6], contrast),
    "survival": (times, [1], survival),
    "hardest triplets": (lambda x, rng: rng.integers(0, 5, len(x)), [4], hardest),
}  # fmt: skip


def subject_of(name: str, batch_size: int = 16) -> TrainingSubject:
    targets, last, loss = LOSSES[name]

    def make() -> Training:
        rng = np.random.default_rng(1)
        inputs = floats(rng.normal(0, 1, (96, 6)))
        loader = toy_loader(ToyRows(inputs, targets(inputs, rng)), batch_size=batch_size)
        model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, last[0]), *last[1:])
        return toy_training(model, loss, loader=loader, optimizer=descent("Adam", 0.01))

    return TrainingSubject(make)


@pytest.mark.parametrize("name", LOSSES)
def test_a_right_loss_is_never_failed(name: str) -> None:
    subject = subject_of(name)
    for code in ("TRAIN001", "TRAIN003", "TRAIN020"):
        answer = judged(code, subject).answer
        assert answer.judgement is not FAIL, (code, answer.sentence)


@pytest.mark.parametrize(
    ("name", "form", "best"),
    [
        ("KLDiv", "log", lambda t: t.clamp(min=1e-9).log()),
        ("gamma", "positive", lambda t: t),
        ("Poisson", "", lambda t: t.clamp(min=1e-9).log()),
    ],
)
def test_the_least_loss_is_that_of_the_targets_themselves(name: str, form: str, best: Any) -> None:
    subject = subject_of(name, batch_size=64)
    assert subject.loss_alone.form == form
    for batch in (subject.batches[0], subject.small):
        alone = subject.loss_alone if batch is subject.batches[0] else subject.small_alone
        least = float(subject.settings.loss(best(batch[2]), batch[2]))
        assert alone.best_outputs[0] == pytest.approx(least, abs=0.02)
