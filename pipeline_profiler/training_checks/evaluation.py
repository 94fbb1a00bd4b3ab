"""TRAIN024: an evaluation that changes the model, or averages batches of different size."""

from __future__ import annotations

import math
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.nested_batches import as_tensors
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import users_code
from pipeline_profiler.checking.user_training import Training, call_evaluate

MOST_BATCHES = 8


class Evaluation(Check):
    """Your evaluate(model, loader), run twice and on batches of another size.

    ## What it does
    Runs your evaluation twice on the same first batches, then on the same examples in batches of
    other sizes, and compares metrics and the model's weights and buffers before and after.

    ## Why is this bad
    A metric that depends on how examples are put into batches is not that of the dataset; an
    evaluation that trains has seen the test set.

    ## How it decides
    Fails where a parameter or buffer has changed, two runs differ, or the metric changes by more
    than a millionth when one batch is split into parts of different size. Exact up to rounding,
    which stays below a millionth for metrics of size 1.

    ## What to do
    torch.no_grad() and eval(); add up sums and counts over the dataset, divide once.

    ## Limits
    Needs `evaluate` in your file, and a metric that is a number (or a tuple or dict of them). It
    must take any iterable of batches as its loader.
    """

    code = "TRAIN024"
    name = "evaluation"
    torch_only = "Keras sums its metrics over examples by itself"

    def run(self, subject: TrainingSubject) -> Answer:
        """Twice, then in other batches."""
        training = subject.fresh()
        if training.evaluate is None:
            return unclear("There is no evaluate of yours.")
        loader = training.eval_loader if training.eval_loader is not None else training.loader
        with users_code("The loader for evaluation"):
            batches = [
                as_tensors(batch) for batch, _ in zip(loader, range(MOST_BATCHES), strict=False)
            ]
        before = {n: v.detach().clone() for n, v in training.model.state_dict().items()}
        metrics = [_metric(training, batches) for _ in range(2)]
        changed = [
            n for n, v in training.model.state_dict().items() if not bool((v == before[n]).all())
        ]
        if changed:
            return _failed(
                f"The evaluation changed {len(changed)} parameters or buffers: "
                f"{', '.join(changed[:3])}.",
                "eval() is missing, or a step is made in it",
                {"changed": changed[:20]},
            )
        if metrics[0] is None or metrics[1] is None:
            return unclear("evaluate() returned no number.")
        if not _near(metrics[0], metrics[1]):
            return _failed(
                f"Two evaluations of the same batches give {metrics[0]:.6g} and {metrics[1]:.6g}.",
                "dropout or random numbers in the evaluation",
                {"metrics": metrics},
            )
        return _in_other_batches(training, batches, metrics[0])

    @staticmethod
    def _evaluated(whole: bool) -> Any:
        import torch

        def evaluate(model: Any, loader: Any) -> float:
            model.eval()
            hits, count, means = 0.0, 0, []
            with torch.no_grad():
                for x, y in loader:
                    right = (model(x).argmax(1) == y).float()
                    hits, count = hits + float(right.sum()), count + len(y)
                    means.append(float(right.mean()))
            model.train()
            return hits / count if whole else sum(means) / len(means)

        return toy_training(evaluate=evaluate, eval_loader=toy_loader(ToyImages(90)))

    PLANTED = (Example("a mean over batches", lambda: Evaluation._evaluated(False)),)
    HEALTHY = (
        Example("a sum over the dataset", lambda: Evaluation._evaluated(True)),
        Example("none", toy_training),
    )


def _metric(training: Training, batches: Any) -> float | None:
    value = call_evaluate(training, batches)
    if isinstance(value, dict):
        value = next(iter(value.values()), None)
    if isinstance(value, tuple | list):
        value = value[0] if value else None
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None


def _near(one: float, two: float) -> bool:
    return math.isclose(one, two, rel_tol=1e-5, abs_tol=1e-6)


def _in_other_batches(training: Training, batches: list[Any], metric: float) -> Answer:
    from pipeline_profiler.checking.nested_batches import batch_size, cut_batch

    size = batch_size(batches[0])
    if size < 4:
        return unclear(f"Batches of {size} cannot be split.")
    cuts = [(0, 1), (1, 3), (3, size)]
    parts = [cut_batch(batches[0], size, a, b) for a, b in cuts]
    other = _metric(training, [*parts, *batches[1:]])
    numbers = {"metric": metric, "in_other_batches": other}
    if other is None or not _near(metric, other):
        return _failed(
            f"The metric is {metric:.6g}, and {other:.6g} when the first batch is split "
            "into parts of different size.",
            "a mean over batches instead of examples",
            numbers,
        )
    return passed(f"The metric is {metric:.6g}, twice, and in batches of another size.", **numbers)


def _failed(text: str, cause: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text, [cause], "Use eval() and no_grad(); sum over all examples, divide once.", **numbers
    )
