"""Planted faults and healthy twins for `training/own_functions.py`."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checks.lazy import torch
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import (
    ToyImages,
    loop_seen,
    toy_loader,
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


def _frozen_norm() -> Any:
    def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
        model.train()
        model[1].eval()
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

    return toy_training(evaluate=evaluate, eval_loader=toy_loader(ToyImages(90)))


def _evaluated_by(**options: Any) -> Any:
    return toy_training(eval_loader=toy_loader(ToyImages(90), **options))


EXAMPLES = {
    "TRAIN009": Examples(
        planted=(
            ("evaluated in train mode", lambda: _mode_kept(False)),
            ("trained in eval mode", lambda: _trained()),
            ("trained on in eval mode", loop_seen(modes=2, unmoded=("1", "3"))),
            ("eval() never", loop_seen(modes=1, evaluated_in_train_mode=("1",))),
        ),
        healthy=(
            ("evaluated in eval mode", lambda: _mode_kept(True)),
            ("a frozen batch norm", lambda: _frozen_norm()),
            ("a loop with both", loop_seen(modes=2)),
            ("a loop without evaluation", loop_seen(evaluations=0)),
        ),
    ),
    "TRAIN016": Examples(
        planted=(
            ("no zero_grad", lambda: _step(False)),
            ("cleared before all are gathered", lambda: _step(True, 4, True)),
            ("the same in a loop", loop_seen(lost=18, optimizers=1)),
            ("never cleared in a loop", loop_seen(kept=5)),
        ),
        healthy=(
            ("accumulated over four", lambda: _step(True, 4)),
            ("two optimizers by turns", loop_seen(lost=18, optimizers=2)),
            ("gathered at first", loop_seen(kept=1)),
        ),
    ),
    "TRAIN024": Examples(
        planted=(
            ("a mean over batches", lambda: _own_metric(False)),
            ("the best of the batch", lambda: _own_metric(True, 0)),
        ),
        healthy=(("a sum over the dataset", lambda: _own_metric(True)),),
    ),
    "TRAIN029": Examples(
        planted=(
            ("drop_last", lambda: _evaluated_by(drop_last=True)),
            ("a draw with replacement", lambda: toy_training(eval_loader=toy_weighted())),
        ),
        healthy=(("all of them, shuffled", lambda: _evaluated_by()),),
    ),
}
