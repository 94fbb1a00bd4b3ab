"""The loop of a training: its step, its evaluation, its settings."""

import contextlib
import copy
from typing import Any

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


def _mode_kept(right: bool) -> Any:
    def evaluate(model: Any, loader: Any) -> float:
        if right:
            model.eval()
        with torch.no_grad():
            hits = [float((model(x).argmax(1) == y).float().mean()) for x, y in loader]
        model.train()
        return sum(hits) / len(hits)

    return toy_training(evaluate=evaluate)


def _trained() -> Any:
    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        model.eval()
        return toy_step(model, batch, loss, optimizer)

    return toy_training(train_step=train_step)


def _step(clear: bool, every: int = 1, early: bool = False) -> Any:
    calls = {"n": 0}

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        if early:
            optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1]) / every
        value.backward()
        calls["n"] += 1
        if calls["n"] % every == 0:
            optimizer.step()
            if clear:
                optimizer.zero_grad()
        return value

    return toy_training(train_step=train_step)


def _own_metric(whole: bool, axis: int = 1) -> Any:
    def evaluate(model: Any, loader: Any) -> float:
        model.eval()
        hits, count, means = 0.0, 0, []
        with torch.no_grad():
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
    model, other = toy_net(), toy_net()
    frozen = {"frozen": model[-1:], "body": model[:3]}.get(kind, model[:0])
    frozen.requires_grad_(False)
    chosen = {"part": model[:3], "other": other, "body": model[-1]}.get(kind, model)
    return toy_training(model, optimizer=lambda m: torch.optim.SGD(chosen.parameters(), lr=0.1))


def _staged() -> Any:
    """A second head has a training of its own, later."""
    model: Any = toy_net()
    model.later = nn.Linear(4, 4)
    model.forward = lambda pixels: nn.Sequential(*[*model][:6])(pixels)
    return toy_training(model, optimizer=lambda m: torch.optim.SGD(m[:6].parameters(), lr=0.1))


def _loose() -> Any:
    class Loose(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = toy_net()
            self.shift = torch.zeros(4).requires_grad_()

        def forward(self, pixels: Any) -> Any:
            return self.net(pixels) + self.shift

    return toy_training(Loose())


def _lambda(function: Any) -> Any:
    return toy_training(schedule=lambda o: lr_scheduler.LambdaLR(o, function))


def _restarted(place: int | None) -> Any:
    class Restarts(lr_scheduler.CosineAnnealingWarmRestarts):
        def step(self, epoch: Any = place) -> None:
            super().step(epoch)

    return toy_training(schedule=lambda o: Restarts(o, 10))


def _hidden(batches: int) -> Any:
    """A schedule in the user's own step, moved on after so many batches."""
    training, done = toy_training(), [0]
    schedule = lr_scheduler.StepLR(training.optimizer, 3, gamma=0.1)

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        value = toy_step(model, batch, loss, optimizer)
        done[0] += 1
        if done[0] % batches == 0:
            schedule.step()
        return value

    training.train_step = train_step
    return training


def _graph(context: Any, attack: bool = False) -> Any:
    """An evaluation in a context; `attack`: it wants gradients of the inputs."""

    def evaluate(model: Any, loader: Any) -> float:
        model.eval()
        right = 0
        for x, y in loader:
            with context():
                if attack:
                    x.requires_grad_()
                    model(x).sum().backward()
                right += int((model(x).argmax(1) == y).sum())
        model.train()
        return right / len(loader.dataset)

    return toy_training(evaluate=evaluate)


def _frozen(asleep: bool, statistics: float = 0.2) -> Any:
    """A frozen body with statistics of a checkpoint; `asleep`: the step calls eval() on it."""
    model = toy_net()
    model[1].running_mean.fill_(statistics)
    model[:3].requires_grad_(False)

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        model.train()
        model[1].train(not asleep)
        return toy_step(model, batch, loss, optimizer)

    return toy_training(model, train_step=train_step)


def _averaged(buffers: bool) -> Any:
    """An average of the weights that is evaluated, with or without the buffers of the model."""
    model = toy_net()
    average = copy.deepcopy(model)

    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        value = toy_step(model, batch, loss, optimizer)
        with torch.no_grad():
            for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(now, 0.1)
            if buffers:
                for kept, now in zip(average.buffers(), model.buffers(), strict=True):
                    kept.copy_(now)
        return value

    def evaluate(model: Any, loader: Any) -> float:
        average.eval()
        with torch.no_grad():
            return sum(float((average(x).argmax(1) == y).sum()) for x, y in loader)

    return toy_training(model, train_step=train_step, evaluate=evaluate)


def _norm(**attributes: float) -> Any:
    model = toy_net()
    vars(model[1]).update(attributes)
    return toy_training(model)


def _of_ranks() -> Any:
    made: Any = ToyImages()
    return toy_training(
        loader=toy_loader(made, sampler=torch.utils.data.DistributedSampler(made, 2, 0))
    )


def _function(follows: bool) -> Any:
    def forward(net: Any, pixels: Any) -> Any:
        return net(functional.dropout(pixels, 0.2, net.training if follows else True))

    return toy_training(toy_around(forward))


def _cosine(optimizer: Any) -> Any:
    return lr_scheduler.CosineAnnealingLR(optimizer, 12)


def _cycle(optimizer: Any) -> Any:
    return lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200)


def _rising(optimizer: Any) -> Any:
    return lr_scheduler.LinearLR(optimizer, 0.1, total_iters=50)


def _by_unit(schedule: Any, unit: str) -> Any:
    """A schedule that a script of 20 batches an epoch steps by this unit."""
    return toy_training(schedule=schedule, loop=LoopFacts(scheduled=unit, epoch_steps=20, epochs=2))


def _stairs(optimizer: Any) -> Any:
    return lr_scheduler.StepLR(optimizer, 2, 0.2)


SAME, BY_RANK = [("train.py:3", False)], [("train.py:3", False), ("train.py:9", True)]
REDUCED = ["all_reduce"]


def _rank(**facts: Any) -> Any:
    return loop_seen(ranks=RankFacts(**facts))


EXAMPLES: Rows = [
    *((row.code, TWIN, "nothing of the kind", loop_seen()) for row in ROWS),
    ("TRAIN033", FAULT, "one seed and dropout", _rank(seeded=SAME, drawn=True)),
    ("TRAIN033", FAULT, "model.module is called", _rank(bypassed="train.py:7")),
    ("TRAIN033", FAULT, "weights of their own", _rank(collectives=REDUCED)),
    ("TRAIN033", FAULT, "weights by rank", _rank(collectives=REDUCED, seeded=BY_RANK)),
    ("TRAIN033", TWIN, "a seed by rank", _rank(seeded=BY_RANK, drawn=True)),
    ("TRAIN033", TWIN, "no seed", _rank(wrapped=True, drawn=True)),
    ("TRAIN033", TWIN, "one seed, no noise", _rank(seeded=SAME)),
    ("TRAIN033", TWIN, "averaged by hand", _rank(collectives=[*REDUCED, "broadcast"])),
    ("TRAIN035", FAULT, "each rank saves", _rank(written=[("train.py:9", "a.pt", False)])),
    ("TRAIN035", TWIN, "rank 0 saves", _rank(written=[("train.py:9", "a.pt", True)])),
    ("TRAIN038", FAULT, "never set", loop_seen(sampler_epochs=[0, 0])),
    ("TRAIN038", FAULT, "a seed in each epoch", loop_seen(repeated="train.py:3")),
    ("TRAIN038", FAULT, "workers with an old copy", loop_seen(stale=("size", "train.py:3"))),
    ("TRAIN058", FAULT, "folds of one model", loop_seen(folded="train.py:3")),
    ("TRAIN024", FAULT, "the test set", loop_seen(dropped=(51, 307, "train.py:3"))),
    ("TRAIN014", FAULT, "a loaded rate", loop_seen(loaded_rate=(1e-5, 1e-3, "train.py:3"))),
    ("TRAIN005", FAULT, "a loss of its own", loop_seen(unheld=("ArcFace", "train.py:3"))),
    ("TRAIN038", TWIN, "set", loop_seen(sampler_epochs=[0, 1])),
    ("TRAIN039", FAULT, "after the step", loop_seen(clipped=(0, 5))),
    ("TRAIN039", TWIN, "before it", loop_seen(clipped=(5, 0))),
    ("TRAIN042", FAULT, "a prefix", loop_seen(loaded=(0, 12, 10))),
    ("TRAIN042", FAULT, "another model", loop_seen(loaded=(0, 12, 0))),
    ("TRAIN042", TWIN, "a new head", loop_seen(loaded=(10, 12, 0))),
    ("TRAIN043", FAULT, "kept without a copy", loop_seen(weights_kept=(1, 1))),
    ("TRAIN043", FAULT, "the worst", loop_seen(best_reversed=("acc < best_acc", "train.py:9"))),
    ("TRAIN043", TWIN, "saved", loop_seen(weights_kept=(2, 0))),
    ("TRAIN044", FAULT, "accuracy in mode min", loop_seen(plateau=("min", 0.8, True))),
    ("TRAIN044", TWIN, "accuracy in mode max", loop_seen(plateau=("max", 0.8, True))),
    ("TRAIN044", TWIN, "a loss", loop_seen(plateau=("min", 0.4, False))),
    ("TRAIN047", FAULT, "0.9999 for 200 steps", loop_seen(average=(8, 4e-4), run_steps=200)),
    ("TRAIN047", TWIN, "0.9999 for 100,000 steps", loop_seen(average=(8, 4e-4), run_steps=100_000)),
    ("TRAIN047", TWIN, "a reference", loop_seen(average=(8, 0.0), run_steps=200)),
    ("TRAIN047", TWIN, "one that is warmed up", loop_seen(average=(8, 0.8), run_steps=200)),
    ("TRAIN009", FAULT, "evaluated in train mode", lambda: _mode_kept(False)),
    ("TRAIN009", FAULT, "trained in eval mode", lambda: _trained()),
    ("TRAIN009", FAULT, "trained on in eval mode", loop_seen(modes=2, unmoded=("1", "3"))),
    ("TRAIN009", FAULT, "eval() never", loop_seen(modes=1, evaluated_in_train_mode=("1",))),
    ("TRAIN009", FAULT, "a teacher", loop_seen(modes=1, teacher=(("1",), "a.py:3"))),
    ("TRAIN009", TWIN, "evaluated in eval mode", lambda: _mode_kept(True)),
    ("TRAIN009", TWIN, "a frozen batch norm", lambda: _frozen(True)),
    ("TRAIN009", TWIN, "a loop with both", loop_seen(modes=2)),
    ("TRAIN016", FAULT, "no zero_grad", lambda: _step(False)),
    ("TRAIN016", FAULT, "cleared before all are gathered", lambda: _step(True, 4, True)),
    ("TRAIN016", FAULT, "the same in a loop", loop_seen(lost=18, optimizers=1)),
    ("TRAIN016", FAULT, "never cleared in a loop", loop_seen(kept=5)),
    ("TRAIN016", FAULT, "four batches summed", loop_seen(summed=(4, 4.0))),
    ("TRAIN016", TWIN, "four batches averaged", loop_seen(summed=(4, 1.0))),
    ("TRAIN016", TWIN, "sums of four batches", loop_seen(summed=(4, 0.0))),
    ("TRAIN057", FAULT, "no logarithm", loop_seen(argument=("The input has values.", "a.py:3"))),
    ("TRAIN056", FAULT, "losses with their graphs", loop_seen(graphs=(5, "losses", 0.1, "a.py:3"))),
    ("TRAIN016", TWIN, "accumulated over four", lambda: _step(True, 4)),
    ("TRAIN016", FAULT, "one of two optimizers", loop_seen(kept=5, optimizers=2)),
    ("TRAIN016", TWIN, "two optimizers by turns", loop_seen(lost=18, optimizers=2)),
    ("TRAIN016", TWIN, "gathered at first", loop_seen(kept=1)),
    ("TRAIN024", FAULT, "a mean over batches", lambda: _own_metric(False)),
    ("TRAIN024", FAULT, "the best of the batch", lambda: _own_metric(True, 0)),
    ("TRAIN024", TWIN, "a sum over the dataset", lambda: _own_metric(True)),
    ("TRAIN024", FAULT, "drop_last", lambda: toy_training(eval_loader=_small(90, drop_last=True))),
    ("TRAIN024", FAULT, "drawn with replacement", lambda: toy_training(eval_loader=toy_weighted())),
    ("TRAIN024", TWIN, "all of them, shuffled", lambda: toy_training(eval_loader=_small(90))),
    ("TRAIN005", FAULT, "the head is missing", lambda: _optimized("part")),
    ("TRAIN005", FAULT, "another model", lambda: _optimized("other")),
    ("TRAIN005", FAULT, "a plain tensor", lambda: _loose()),
    ("TRAIN005", FAULT, "a frozen head", lambda: _optimized("frozen")),
    ("TRAIN005", TWIN, "a head for a later training", _staged),
    ("TRAIN005", TWIN, "a head for a later training", _staged),
    ("TRAIN005", TWIN, "a frozen body on purpose", lambda: _optimized("body")),
    ("TRAIN014", FAULT, "an epoch's stairs by the batch", lambda: _hidden(1)),
    ("TRAIN014", FAULT, "restarts that stand still", lambda: _restarted(0)),
    ("TRAIN014", FAULT, "zero for long", lambda: _lambda(lambda step: max(0, step - 500) / 1000)),
    ("TRAIN014", FAULT, "gone at once", lambda: _lambda(lambda step: 0.1**step)),
    ("TRAIN014", FAULT, "rates for factors", lambda: _lambda(lambda step: 3e-3 * 0.99**step)),
    ("TRAIN014", FAULT, "a cosine of 12 batches", lambda: _by_unit(_cosine, "step")),
    ("TRAIN014", FAULT, "stairs of two epochs by the batch", lambda: _by_unit(_stairs, "step")),
    ("TRAIN014", TWIN, "stairs of two epochs", lambda: _by_unit(_stairs, "epoch")),
    ("TRAIN014", FAULT, "one cycle by epochs", lambda: _by_unit(_cycle, "epoch")),
    ("TRAIN014", TWIN, "a cosine of 12 epochs", lambda: _by_unit(_cosine, "epoch")),
    ("TRAIN014", TWIN, "a warm-up of 50 epochs", lambda: _by_unit(_rising, "epoch")),
    ("TRAIN014", TWIN, "one cycle by batches", lambda: _by_unit(_cycle, "step")),
    ("TRAIN014", TWIN, "a warm-up", lambda: _lambda(lambda step: min(1, step / 500))),
    ("TRAIN014", TWIN, "an epoch's stairs", lambda: _hidden(16)),
    ("TRAIN014", TWIN, "stairs that count epochs", lambda: _lambda(lambda step: 0.7**step)),
    ("TRAIN014", TWIN, "stairs of seven epochs", lambda: _lambda(lambda step: 0.1 ** (step // 7))),
    ("TRAIN014", TWIN, "restarts", lambda: _restarted(None)),
    ("TRAIN014", TWIN, "a rate for long", lambda: _lambda(lambda step: 1.0)),
    ("TRAIN025", FAULT, "a ghost batch of 64", lambda: _norm(virtual_batch_size=64)),
    ("TRAIN025", FAULT, "momentum 0.99", lambda: _norm(momentum=0.99)),
    ("TRAIN025", FAULT, "two samples", lambda: toy_training(loader=_small(256, batch_size=2))),
    ("TRAIN025", TWIN, "a ghost batch of 8", lambda: _norm(virtual_batch_size=8)),
    ("TRAIN025", TWIN, "a short last batch", lambda: toy_training(loader=[*_small(50)] * 2)),
    ("TRAIN025", TWIN, "two ranks", lambda: _of_ranks()),
    ("TRAIN025", FAULT, "an average without statistics", lambda: _averaged(False)),
    ("TRAIN025", TWIN, "an average with statistics", lambda: _averaged(True)),
    ("TRAIN046", FAULT, "a frozen body in train mode", lambda: _frozen(False)),
    ("TRAIN046", TWIN, "a frozen body in eval mode", lambda: _frozen(True)),
    ("TRAIN046", TWIN, "a random body in train mode", lambda: _frozen(False, 0.0)),
    ("TRAIN049", FAULT, "with gradients", lambda: _graph(contextlib.nullcontext)),
    ("TRAIN049", TWIN, "under no_grad", lambda: _graph(torch.no_grad)),
    ("TRAIN049", TWIN, "adversarial", lambda: _graph(contextlib.nullcontext, attack=True)),
    ("TRAIN009", FAULT, "a function that is always on", lambda: _function(False)),
    ("TRAIN009", TWIN, "a function that follows the mode", lambda: _function(True)),
]
