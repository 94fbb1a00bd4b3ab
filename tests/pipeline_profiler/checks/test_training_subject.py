"""What is known of a training: losses, tasks, odd ones, sentences for what cannot be one."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_profiler.checks.batches import links_examples
from pipeline_profiler.checks.check import Judgement, select_checks
from pipeline_profiler.checks.loss_alone import read_task
from pipeline_profiler.checks.runner import run_checks
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import UsersError
from pipeline_profiler.checks.user_training import Training, made_from
from tests.pipeline_profiler.checks.conftest import judged
from tests.pipeline_profiler.checks.examples.training.loss import single_output
from tests.pipeline_profiler.checks.toys import (
    ToyImages,
    ToyRows,
    descent,
    toy_around,
    toy_loader,
    toy_net,
    toy_regression,
    toy_training,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("form", "last", "loss"), [("", [], "CrossEntropyLoss"), ("log", [1], "NLLLoss")]
)
def test_zero_outputs_and_the_best_constant_have_their_known_losses(
    form: str, last: list[int], loss: str
) -> None:
    dataset = ToyImages()
    dataset.labels = np.where(np.arange(256) % 8 == 0, 1, 0)
    loader = toy_loader(dataset, batch_size=256)
    subject = TrainingSubject(
        lambda: toy_training(
            toy_net(*map(torch.nn.LogSoftmax, last)), getattr(torch.nn, loss)(), loader=loader
        )
    )
    assert subject.loss_alone.form == form
    assert subject.loss_alone.uniform == pytest.approx(math.log(4), abs=1e-5)
    prior = -(7 / 8 * math.log(7 / 8) + 1 / 8 * math.log(1 / 8))
    assert subject.loss_alone.constant == pytest.approx(prior, abs=0.005)


@pytest.mark.parametrize("kind", ["MSELoss", "HuberLoss", "L1Loss"])
def test_the_best_constant_of_numbers_is_mean_or_median(kind: str) -> None:
    loss = getattr(torch.nn, kind)()
    subject = TrainingSubject(lambda: toy_regression(loss=loss))
    targets = subject.batches[0][2]
    grid = torch.linspace(float(targets.min()), float(targets.max()), 4001)
    least = min(float(loss(torch.full_like(targets, c), targets)) for c in grid.tolist())
    assert subject.loss_alone.constant == pytest.approx(least, rel=0.01)


def test_label_smoothing_has_a_least_loss_above_zero() -> None:
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    subject = TrainingSubject(lambda: toy_training(loss=loss))
    least, outputs = subject.loss_alone.best_outputs
    shares = np.array([0.925, 0.025, 0.025, 0.025])
    assert least == pytest.approx(float(-(shares * np.log(shares)).sum()), abs=0.01)
    assert (outputs.argmax(1) == subject.batches[0][2].numpy()).all()


def test_tasks_are_read_from_shapes_and_types() -> None:
    whole = torch.zeros(8, dtype=torch.long)
    assert read_task(torch.zeros(8, 5), whole).kind == "classes"
    assert read_task(torch.zeros(8, 5), whole)[1:] == (5, 1)
    assert read_task(torch.zeros(8, 7, 5), torch.zeros(8, 7, dtype=torch.long)).axis == 2
    assert read_task(torch.zeros(8, 5, 4, 4), torch.zeros(8, 4, 4, dtype=torch.long)).axis == 1
    assert read_task(torch.zeros(8, 1), torch.ones(8, 1)).kind == "binary"
    masks = torch.ones(8, 4, 4, dtype=torch.long)
    assert read_task(torch.zeros(8, 1, 4, 4), masks).kind == "binary"
    assert read_task(torch.zeros(8, 1), torch.ones(8, dtype=torch.long)).kind == "binary"
    assert read_task(torch.zeros(8, 1), torch.arange(8)).classes == 1
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
    found = functions | changes
    return {name: function for name, function in found.items() if function is not None}


def test_single_functions_make_a_training_without_augmentation() -> None:
    asked = []

    def make_loader(augment: bool = True) -> Any:
        asked.append(augment)
        return toy_training().loader

    subject = TrainingSubject(made_from(parts(make_loader=make_loader)))
    assert subject.task.kind == "classes"
    assert subject.step(subject.fresh(), subject.batches[0]) > 0
    assert asked == [False]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"make_model": lambda: 3}, "The model is of type int"),
        ({"make_model": lambda: None}, r"make_model\(\) returned None"),
        ({"make_optimizer": lambda model: None}, r"make_optimizer\(\) returned None"),
        ({"make_loss": lambda: 3.0}, "The loss cannot be called"),
        ({"make_loss": lambda a, b: a}, r"make_loss\(\) takes the argument a, b"),
        ({"make_training": lambda: {"model": 1}}, "gave no loader, loss, optimizer"),
        ({"make_loss": None, "make_optimizer": None}, "no make_loss and no make_optimizer"),
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        (
            {"make_model": lambda: torch.nn.Linear(192, 4).cuda()},
            "choose the device by torch.cuda.is_available()",
        ),
        (
            {"make_model": lambda: toy_around(lambda net, x: net(x) + torch.empty(2**58)[0])},
            "take a smaller batch",
        ),
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


def test_batches_of_a_long_step_come_in_parts_and_lose_no_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline_profiler.checks.training_subject.LONG_STEP_S", 1e-9)
    loader = toy_loader(ToyImages(200), batch_size=70, shuffle=False)
    subject = TrainingSubject(lambda: toy_training(loader=loader))
    assert [len(batch[1]) for batch in subject.batches] == [17, 18, 17, 18] * 2 + [15] * 4
    assert torch.equal(
        torch.cat([batch[2] for batch in subject.batches]),
        torch.cat([batch[2] for batch in subject.whole_batches]),
    )
    assert "in 4 parts" in subject.notes[0]


@pytest.mark.parametrize("augment", [True, False])
def test_augmentation_that_stays_on_is_said(augment: bool) -> None:
    loader = toy_loader(ToyImages(64, augment=augment), batch_size=16)
    subject = TrainingSubject(lambda: toy_training(loader=loader))
    assert subject.given_batches
    assert any("could not be switched off" in note for note in subject.notes) == augment


def rows(*targets: Any) -> Any:
    """64 rows of five numbers, of three classes unless targets are given."""
    inputs = np.random.default_rng(0).normal(0, 1, (64, 5)).astype(np.float32)
    return toy_loader(ToyRows(inputs, *(targets or (np.arange(64) % 3,))))


def sparse() -> Training:
    rng = np.random.default_rng(0)
    words, targets = rng.integers(0, 20, 64), rng.normal(0, 1, (64, 3)).astype(np.float32)
    model = torch.nn.Embedding(20, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), 0.01)
    return Training(model, toy_loader(ToyRows(words, targets)), torch.nn.MSELoss(), optimizer)


def test_sparse_gradients_are_read() -> None:
    result = judged("TRAIN005", TrainingSubject(sparse))
    assert result.answer.judgement is Judgement.PASS, result.answer.sentence


def two_outputs() -> Training:
    heads = torch.nn.ModuleDict({"one": torch.nn.Linear(5, 3), "two": torch.nn.Linear(5, 1)})
    model = toy_around(lambda net, x: {name: head(x) for name, head in net.items()}, heads)
    return toy_training(
        model, lambda o, t: torch.nn.functional.cross_entropy(o["one"], t), loader=rows()
    )


def test_a_loss_of_several_outputs_is_never_asked_for_one() -> None:
    assert not judged("TRAIN015", TrainingSubject(two_outputs)).users


def letters() -> Training:
    """Two letters in eight places, read by CTC: outputs (place, example, letter)."""

    def loss(outputs: Any, targets: Any) -> Any:
        places, count = outputs.shape[:2]
        lengths = torch.full((count,), places), torch.full((count,), 2)
        return torch.nn.functional.ctc_loss(outputs, targets, *lengths)

    rng = np.random.default_rng(0)
    wanted = rng.integers(1, 4, (64, 2))
    strip = np.zeros((64, 4, 8), np.float32)
    for place in range(2):
        strip[np.arange(64), wanted[:, place], 4 * place + 1] = 2
    net = torch.nn.Conv1d(4, 4, 3, padding=1)
    model = toy_around(lambda net, strip: net(strip).permute(2, 0, 1).log_softmax(-1), net)
    loader = toy_loader(ToyRows(strip, wanted))
    return toy_training(model, loss, loader=loader, optimizer=descent("Adam", 0.05))


def test_outputs_of_ctc_stay_logarithms_of_probabilities() -> None:
    subject = TrainingSubject(letters)
    assert subject.loss_alone.form == "log"
    assert subject.loss_alone.best_outputs[0] >= 0  # free numbers would be below any probability
    answer = judged("TRAIN003", subject).answer
    assert answer.judgement is Judgement.PASS, answer.sentence


def game(beside: bool) -> Training:
    """A critic that the loss reaches; `beside`: the step trains a generator too."""

    critic, maker = torch.nn.Linear(5, 1), torch.nn.Linear(5, 5).requires_grad_(beside)
    model = toy_around(lambda net, x: net["critic"](x), torch.nn.ModuleDict({"critic": critic}))
    model.maker = maker

    def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model(x), y)
        (value - model(model.maker(x)).mean() if beside else value).backward()
        optimizer.step()
        return value

    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-9)
    loader = rows(np.ones((64, 1), np.float32))
    return Training(model, loader, torch.nn.MSELoss(), optimizer, train_step=train_step)


def test_a_step_with_a_second_objective_need_not_lower_the_loss() -> None:
    two, one = (TrainingSubject(lambda beside=b: game(beside)) for b in (True, False))
    assert "(maker.bias, maker.weight)" in two.other_objective
    assert one.other_objective == ""
    assert judged("TRAIN015", two).answer.judgement is Judgement.INCONCLUSIVE
    assert judged("TRAIN015", one).answer.judgement is Judgement.FAIL


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
    return Training(model, rows(), loss, torch.optim.Adam(parameters, 0.01))


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
    answer = judged("TRAIN005", subject).answer
    assert answer.judgement is judgement, answer.sentence
    assert judged("TRAIN020", subject).answer.judgement is not Judgement.FAIL


def reading_its_model() -> Training:
    def forward(net: Any, x: Any) -> Any:
        net.kept = net(x)
        return net.kept

    model = toy_around(forward, torch.nn.Linear(5, 3))
    entropy = torch.nn.CrossEntropyLoss()
    return toy_training(
        model, lambda o, t: entropy(o, t) + 1e-3 * (model.net.kept**2).mean(), loader=rows()
    )


@pytest.mark.parametrize("code", ["TRAIN001", "TRAIN020"])
def test_a_loss_may_read_what_its_model_kept(code: str) -> None:
    result = judged(code, TrainingSubject(reading_its_model))
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

    return toy_training(model, loader=rows(), optimizer=descent("SGD", 1e-9), train_step=train_step)


def test_a_step_that_minimises_something_else_is_known_by_its_loss() -> None:
    other, scaled = (TrainingSubject(lambda m=m: stepping(*m)) for m in ((5.0,), (0.0, 0.25)))
    assert other.other_objective.startswith("reports")
    assert scaled.other_objective == ""
    assert judged("TRAIN015", other).answer.judgement is Judgement.INCONCLUSIVE
    assert judged("TRAIN015", scaled).answer.judgement is Judgement.FAIL


@pytest.mark.parametrize(
    ("code", "loss", "judgement"),
    [
        ("TRAIN003", lambda outputs, _: (-outputs.abs()).log().mean(), Judgement.FAIL),
        ("TRAIN005", lambda outputs, _: ((-outputs.abs()).log() ** 2).mean(), Judgement.PASS),
    ],
    ids=["it is not learned", "its gradients are there"],
)
def test_a_loss_that_is_no_number(code: str, loss: Any, judgement: Judgement) -> None:
    def make() -> Training:
        made = stepping(0.0)
        made.train_step, made.loss = None, loss
        return made

    answer = judged(code, TrainingSubject(make)).answer
    assert answer.judgement is judgement, answer.sentence


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
    inputs = subject.batches[0][1]
    assert inputs.dtype == torch.float32
    assert abs(float(inputs.mean())) < 0.3
    assert subject.batches[0][0][0].dtype == torch.uint8
    report = run_checks(select_checks("TRAIN"), subject, 60.0)
    assert not report.failed
    assert sum(r.answer.judgement is Judgement.PASS for r in report.results) >= 15
    assert subject.notes == ["The checks use what enters the model in your train_step."]


def test_bytes_without_a_step_are_a_sentence_with_the_way_out() -> None:
    subject = TrainingSubject(lambda: bytes_on_the_device(train_step=None))
    said = judged("TRAIN001", subject).answer.sentence
    assert "the loader gives bytes: give train_step, or split_batch" in said


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


@pytest.mark.parametrize("code", ["TRAIN020", "TRAIN041"])
def test_a_loss_of_probabilities_is_given_nothing_else(code: str) -> None:
    made = single_output(torch.nn.Sigmoid())  # BCELoss raises for numbers beyond 0 and 1
    assert not judged(code, TrainingSubject(lambda: made)).users


@pytest.mark.parametrize(
    ("parts", "linked"),
    [
        ([(9, 4), (9, 9)], True),  # features and adjacency
        ([torch.ones(9, 4), torch.arange(20).view(2, 10) % 9], True),
        ([torch.ones(16, 16).long(), torch.ones(16, 16).long()], False),  # tokens and their mask
        ([(9, 4), (9, 2)], False),
        ([(9, 9)], False),
    ],
)
def test_a_graph_is_seen_in_the_inputs(parts: list[Any], linked: bool) -> None:
    made = tuple(torch.ones(p) if isinstance(p, tuple) else p for p in parts)
    assert links_examples(made) is linked
