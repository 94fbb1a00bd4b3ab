"""The loop of a training: its step, its evaluation, its settings."""

import contextlib
import itertools
from dataclasses import replace
from typing import Any

from pipeline_profiler.checks.check import wrong
from pipeline_profiler.checks.lazy import functional, lr_scheduler, nn, torch
from pipeline_profiler.checks.loop_facts import LoopFacts, RankFacts
from pipeline_profiler.checks.training.loop import ROWS
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import (
    ToyImages,
    loop_seen,
    toy_around,
    toy_loader,
    toy_net,
    toy_step,
    toy_training,
    toy_weighted,
)


def _step(clear: bool, every: int = 1, early: bool = False) -> Any:
    steps = itertools.count(1)

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        if early:
            optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1]) / every
        value.backward()
        if next(steps) % every == 0:
            optimizer.step()
            if clear:
                optimizer.zero_grad()
        return value

    return toy_training(train_step=train_step)


def _own_metric(whole: bool, axis: int = 1, context: Any = torch.no_grad) -> Any:
    def evaluate(model: Any, loader: Any) -> float:
        model.eval()
        hits, count, means = 0.0, 0, []
        with context():
            for x, y in loader:
                best = model(x).argmax(axis)
                right = (best == y[: len(best)]).float()
                hits, count = hits + float(right.sum()), count + len(y)
                means.append(float(right.mean()))
        model.train()
        return hits / count if whole else sum(means) / len(means)

    return toy_training(evaluate=evaluate, eval_loader=_small(90))


def _small(count: int, **options: Any) -> Any:
    return toy_loader(ToyImages(count), **options)


def _optimized(kind: str) -> Any:
    model: Any = toy_net()
    if kind == "later":  # a second head has a training of its own
        model.later = nn.Linear(4, 4)
        model.forward = lambda pixels: nn.Sequential(*[*model][:6])(pixels)
    {"frozen": model[5:], "body": model[:3]}.get(kind, model[:0]).requires_grad_(False)
    chosen = {"part": model[:3], "other": toy_net(), "body": model[5], "later": model[:6]}
    parameters = [*chosen.get(kind, model).parameters()]
    return toy_training(model, optimizer=lambda m: torch.optim.SGD(parameters, lr=0.1))


def _loose() -> Any:
    model: Any = toy_net()
    model.shift = torch.zeros(4).requires_grad_()
    return toy_training(model)


def _lambda(function: Any) -> Any:
    return toy_training(schedule=lambda o: lr_scheduler.LambdaLR(o, function))


def _restarted(place: int | None) -> Any:
    class Restarts(lr_scheduler.CosineAnnealingWarmRestarts):
        def step(self, epoch: Any = place) -> None:
            super().step(epoch)

    return toy_training(schedule=lambda o: Restarts(o, 10))


def _hidden(batches: int) -> Any:
    """A schedule in the user's own step, moved on after so many batches."""
    training, steps = toy_training(), itertools.count(1)
    schedule = lr_scheduler.StepLR(training.optimizer, 3, gamma=0.1)

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        value = toy_step(model, batch, loss, optimizer)
        if next(steps) % batches == 0:
            schedule.step()
        return value

    return replace(training, train_step=train_step)


def _by_unit(unit: str, kind: str, *options: Any) -> Any:
    """A schedule that a script of 20 batches an epoch steps by this unit."""
    loop = LoopFacts(scheduled=unit, epoch_steps=20, epochs=2)
    return toy_training(schedule=lambda o: getattr(lr_scheduler, kind)(o, *options), loop=loop)


def _norm(**attributes: float) -> Any:
    model = toy_net()
    vars(model[1]).update(attributes)
    return toy_training(model)


def _function(follows: bool) -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        return net(functional.dropout(pixels, 0.2, net.training if follows else True))

    return toy_training(toy_around(forward))


AT = "train.py:3"
SAME, BY_RANK = [(AT, False)], [(AT, False), ("train.py:9", True)]
REDUCED: dict[str, Any] = {"collectives": ["all_reduce"]}
FACTS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("TRAIN005", FAULT, "a loss of its own", {"unheld": ("ArcFace", AT)}),
    ("TRAIN009", FAULT, "trained in eval mode", {"modes": 2, "asleep": True}),
    ("TRAIN009", FAULT, "eval() never", {"modes": 1, "evaluated_in_train_mode": ("1",)}),
    ("TRAIN009", FAULT, "trained on in eval mode", {"modes": 2, "unmoded": ("1", "3")}),
    ("TRAIN009", FAULT, "a teacher", {"modes": 1, "teacher": (("1",), AT)}),
    ("TRAIN009", TWIN, "a loop with both", {"modes": 2}),
    ("TRAIN014", FAULT, "a loaded rate", {"loaded_rate": (1e-5, 1e-3, AT)}),
    ("TRAIN016", FAULT, "one of two optimizers", {"kept": 5, "optimizers": 2}),
    ("TRAIN016", FAULT, "four batches summed", {"summed": (4, 4.0)}),
    ("TRAIN016", TWIN, "four batches averaged", {"summed": (4, 1.0)}),
    ("TRAIN016", TWIN, "sums of four batches", {"summed": (4, 0.0)}),
    ("TRAIN016", TWIN, "two optimizers by turns", {"lost": 18, "optimizers": 2}),
    ("TRAIN024", FAULT, "the test set", {"dropped": (51, 307, AT)}),
    ("TRAIN025", FAULT, "watched", {"answers": {"TRAIN025": wrong("Old statistics.", [AT], AT)}}),
    ("TRAIN038", FAULT, "never set", {"sampler_epochs": [0, 0]}),
    ("TRAIN038", FAULT, "a seed in each epoch", {"repeated": AT}),
    ("TRAIN038", FAULT, "workers with an old copy", {"stale": ("size", AT)}),
    ("TRAIN038", TWIN, "set", {"sampler_epochs": [0, 1]}),
    ("TRAIN039", FAULT, "after the step", {"clipped": (0, 5)}),
    ("TRAIN039", TWIN, "before it", {"clipped": (5, 0)}),
    ("TRAIN042", FAULT, "a prefix", {"loaded": (0, 12, 10)}),
    ("TRAIN042", TWIN, "a new head", {"loaded": (10, 12, 0)}),
    ("TRAIN043", FAULT, "kept without a copy", {"weights_kept": (1, 1)}),
    ("TRAIN043", FAULT, "the worst", {"best_reversed": ("acc < best_acc", AT)}),
    ("TRAIN043", TWIN, "saved", {"weights_kept": (2, 0)}),
    ("TRAIN044", FAULT, "accuracy in mode min", {"plateau": ("min", 0.8, True)}),
    ("TRAIN044", TWIN, "accuracy in mode max", {"plateau": ("max", 0.8, True)}),
    ("TRAIN047", FAULT, "0.9999 for 200 steps", {"average": (8, 4e-4), "run_steps": 200}),
    ("TRAIN047", TWIN, "0.9999 for long", {"average": (8, 4e-4), "run_steps": 100_000}),
    ("TRAIN047", TWIN, "a reference", {"average": (8, 0.0), "run_steps": 200}),
    ("TRAIN047", TWIN, "one that is warmed up", {"average": (8, 0.8), "run_steps": 200}),
    ("TRAIN056", FAULT, "losses with their graphs", {"graphs": (5, "losses", 0.1, AT)}),
    ("TRAIN057", FAULT, "no logarithm", {"argument": ("The input has values.", AT)}),
    ("TRAIN058", FAULT, "folds of one model", {"folded": AT}),
    ("TRAIN033", FAULT, "one seed and dropout", {"ranks": RankFacts(seeded=SAME, drawn=True)}),
    ("TRAIN033", FAULT, "model.module is called", {"ranks": RankFacts(bypassed=AT)}),
    ("TRAIN033", FAULT, "weights by rank", {"ranks": RankFacts(seeded=BY_RANK, **REDUCED)}),
    ("TRAIN033", TWIN, "a seed by rank", {"ranks": RankFacts(seeded=BY_RANK, drawn=True)}),
    ("TRAIN035", FAULT, "each rank saves", {"ranks": RankFacts(written=[(AT, "a.pt", False)])}),
    ("TRAIN035", TWIN, "rank 0 saves", {"ranks": RankFacts(written=[(AT, "a.pt", True)])}),
]
EXAMPLES: Rows = [
    *((row.code, TWIN, "nothing of the kind", loop_seen()) for row in ROWS),
    *((code, kind, name, loop_seen(**facts)) for code, kind, name, facts in FACTS),
    ("TRAIN009", FAULT, "a function that is always on", lambda: _function(False)),
    ("TRAIN009", TWIN, "a function that follows the mode", lambda: _function(True)),
    ("TRAIN016", FAULT, "no zero_grad", lambda: _step(False)),
    ("TRAIN016", FAULT, "cleared before all are gathered", lambda: _step(True, 4, True)),
    ("TRAIN016", TWIN, "accumulated over four", lambda: _step(True, 4)),
    ("TRAIN024", FAULT, "a mean over batches", lambda: _own_metric(False)),
    ("TRAIN024", FAULT, "the best of the batch", lambda: _own_metric(True, 0)),
    ("TRAIN024", TWIN, "a sum over the dataset", lambda: _own_metric(True)),
    ("TRAIN024", FAULT, "drop_last", lambda: toy_training(eval_loader=_small(90, drop_last=True))),
    ("TRAIN024", FAULT, "drawn with replacement", lambda: toy_training(eval_loader=toy_weighted())),
    ("TRAIN024", TWIN, "all of them, shuffled", lambda: toy_training(eval_loader=_small(90))),
    ("TRAIN005", FAULT, "the head is missing", lambda: _optimized("part")),
    ("TRAIN005", FAULT, "another model", lambda: _optimized("other")),
    ("TRAIN005", FAULT, "a plain tensor", _loose),
    ("TRAIN005", FAULT, "a frozen head", lambda: _optimized("frozen")),
    ("TRAIN005", TWIN, "a head for a later training", lambda: _optimized("later")),
    ("TRAIN005", TWIN, "a frozen body on purpose", lambda: _optimized("body")),
    ("TRAIN014", FAULT, "an epoch's stairs by the batch", lambda: _hidden(1)),
    ("TRAIN014", FAULT, "restarts that stand still", lambda: _restarted(0)),
    ("TRAIN014", FAULT, "zero for long", lambda: _lambda(lambda step: max(0, step - 500) / 1000)),
    ("TRAIN014", FAULT, "gone at once", lambda: _lambda(lambda step: 0.1**step)),
    ("TRAIN014", FAULT, "rates for factors", lambda: _lambda(lambda step: 3e-3 * 0.99**step)),
    ("TRAIN014", FAULT, "12 batches", lambda: _by_unit("step", "CosineAnnealingLR", 12)),
    ("TRAIN014", FAULT, "stairs by the batch", lambda: _by_unit("step", "StepLR", 2, 0.2)),
    ("TRAIN014", FAULT, "4 drops an epoch", lambda: _by_unit("step", "StepLR", 5, 0.1)),
    ("TRAIN014", FAULT, "3 drops in it", lambda: _by_unit("step", "MultiStepLR", [3, 6, 9, 40])),
    ("TRAIN014", TWIN, "a slow decay", lambda: _by_unit("step", "ExponentialLR", 0.999)),
    ("TRAIN014", FAULT, "a cycle by epochs", lambda: _by_unit("epoch", "OneCycleLR", 0.1, 200)),
    ("TRAIN014", TWIN, "12 epochs", lambda: _by_unit("epoch", "CosineAnnealingLR", 12)),
    ("TRAIN014", TWIN, "50 epochs", lambda: _by_unit("epoch", "LinearLR", 0.1, 1.0, 50)),
    ("TRAIN014", TWIN, "a cycle by batches", lambda: _by_unit("step", "OneCycleLR", 0.1, 200)),
    ("TRAIN014", TWIN, "a warm-up", lambda: _lambda(lambda step: min(1, step / 500))),
    ("TRAIN014", TWIN, "an epoch's stairs", lambda: _hidden(16)),
    ("TRAIN014", TWIN, "stairs that count epochs", lambda: _lambda(lambda step: 0.7**step)),
    ("TRAIN014", TWIN, "restarts", lambda: _restarted(None)),
    ("TRAIN014", TWIN, "a rate for long", lambda: _lambda(lambda step: 1.0)),
    ("TRAIN025", FAULT, "a ghost batch of 64", lambda: _norm(virtual_batch_size=64)),
    ("TRAIN025", FAULT, "momentum 0.99", lambda: _norm(momentum=0.99)),
    ("TRAIN025", FAULT, "two samples", lambda: toy_training(loader=_small(256, batch_size=2))),
    ("TRAIN025", TWIN, "a ghost batch of 8", lambda: _norm(virtual_batch_size=8)),
    ("TRAIN025", TWIN, "a short last batch", lambda: toy_training(loader=[*_small(50)] * 2)),
    ("TRAIN049", FAULT, "with gradients", lambda: _own_metric(True, 1, contextlib.nullcontext)),
    ("TRAIN049", TWIN, "under no_grad", lambda: _own_metric(True)),
]
