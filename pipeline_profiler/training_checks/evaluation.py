"""TRAIN024: an evaluation that changes the model, or averages batches of different size."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

from pipeline_profiler.checking.batch_parts import inputs_and_targets
from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.nested_batches import as_tensors
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import UsersError, users_code
from pipeline_profiler.checking.user_training import Training, call_evaluate

MOST_BATCHES = 8
ANSWERED, ORDERS, SURE, SECONDS = 2, 39, 10.0, 10.0


class Evaluation(Check):
    """Your evaluate(model, loader), run twice and on batches of another size.

    ## What it does
    Runs your evaluation twice on the same first batches, then on the same examples in batches of
    other sizes, and compares metrics and the model's weights and buffers before and after. Then it
    puts the targets of two batches in the place of the model's outputs, as a perfect model would
    answer, and the same answers in 39 other orders.

    ## Why is this bad
    A metric that depends on how examples are put into batches is not that of the dataset; an
    evaluation that trains has seen the test set.

    ## How it decides
    Fails where a parameter or buffer has changed, two runs differ, or the metric changes by more
    than a millionth when one batch is split into parts of different size. Exact up to rounding,
    which stays below a millionth for metrics of size 1. Fails where no number that you return is
    at its best or worst for perfect answers, with most of the other orders on the same side: of a
    metric that reads the answers this is always so, of another one by chance.

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
        return _beside_perfect(subject, training, batches[:ANSWERED]) or _in_other_batches(
            training, batches, metrics[0]
        )

    @staticmethod
    def _evaluated(whole: bool, axis: int = 1) -> Any:
        import torch

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

    PLANTED = (
        Example("a mean over batches", lambda: Evaluation._evaluated(False)),
        Example("the best of the batch", lambda: Evaluation._evaluated(True, 0)),
    )
    HEALTHY = (
        Example("a sum over the dataset", lambda: Evaluation._evaluated(True)),
        Example("none", toy_training),
    )


def _metric(training: Training, batches: Any) -> float | None:
    return next(iter(_numbers(call_evaluate(training, batches))), None)


def _numbers(value: Any) -> list[float]:
    """The numbers that an evaluation returned, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    parts = value if isinstance(value, tuple | list) else [value]
    found = []
    for part in parts:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            found.append(float(part))
    return found


def _near(one: float, two: float) -> bool:
    return math.isclose(one, two, rel_tol=1e-5, abs_tol=1e-6)


# ---- answers of a perfect model ----


def _beside_perfect(
    subject: TrainingSubject, training: Training, batches: list[Any]
) -> Answer | None:
    """A failure where perfect answers score no better than the same in any other order."""
    import torch

    split = [inputs_and_targets(batch, training.split_batch)[1] for batch in batches]
    targets = [part for part in split if isinstance(part, torch.Tensor) and part.ndim]
    if len(targets) < len(batches) or subject.task.kind == "unknown" or not subject.takes_tensor:
        return None
    both = torch.cat(targets) if len({t.shape[1:] for t in targets}) == 1 else targets[0][:0]
    if bool((both == both[:1]).all()):
        return None
    generator, start = torch.Generator().manual_seed(subject.seed), time.monotonic()
    sizes, scores = [len(t) for t in targets], []
    for number in range(ORDERS + 1):
        order = torch.randperm(len(both), generator=generator) if number else slice(None)
        score = _scored(subject, training, batches, torch.split(both[order], sizes))
        slow = (time.monotonic() - start) * ORDERS > min(SECONDS, subject.time_left() / 3)
        if score is None or (not number and slow):
            return None
        scores.append(score)
    perfect, *others = scores
    if any(len(row) != len(perfect) for row in others):
        return None
    columns = list(zip(*others, strict=True))
    if any(reads_answers(p, column) for p, column in zip(perfect, columns, strict=True)):
        return None
    return _failed(
        f"Perfect answers score {perfect[0]:.4g}, and the same answers in other orders "
        f"{min(columns[0]):.4g} to {max(columns[0]):.4g}: the metric does not tell them apart.",
        "the maximum is taken over another axis, or the labels are those of other examples",
        {"perfect": perfect, "others": [list(column) for column in columns]},
    )


def reads_answers(perfect: float, others: tuple[float, ...]) -> bool:
    """Whether a number is at its best for perfect answers; true of what is no number."""
    if not all(map(math.isfinite, (perfect, *others))):
        return True
    lower, higher = (sum(sign * (o - perfect) > 0 for o in others) for sign in (-1, 1))
    return min(lower, higher) == 0 and max(lower, higher) > len(others) / 2


def _scored(
    subject: TrainingSubject, training: Training, batches: list[Any], answers: Any
) -> list[float] | None:
    """What evaluate() returns where the model gives these answers; None: they cannot be given."""
    given: list[bool] = []

    def answer(_model: Any, _inputs: Any, outputs: Any) -> Any:
        made = (
            _perfect(subject, outputs, answers[len(given)]) if len(given) < len(answers) else None
        )
        given.append(made is not None)
        return made

    hook = training.model.register_forward_hook(answer)
    try:
        numbers = _numbers(call_evaluate(training, batches))
    except UsersError:  # the user's evaluation wants more of an output than we can say
        return None
    finally:
        hook.remove()
    return numbers if numbers and given == [True] * len(batches) else None


def _perfect(subject: TrainingSubject, outputs: Any, targets: Any) -> Any:
    """Outputs of this form that say what the targets are, or None."""
    import torch
    from torch.nn import functional

    task = subject.task
    if not isinstance(outputs, torch.Tensor) or len(outputs) != len(targets):
        return None
    if task.kind == "classes" and outputs.ndim == targets.ndim + 1:
        inside = targets.clamp(0, outputs.shape[task.axis] - 1)
        made = functional.one_hot(inside.long(), outputs.shape[task.axis]).movedim(-1, task.axis)
        return subject.formed(SURE * made.to(outputs.dtype))
    if task.kind == "classes" or outputs.numel() != targets.numel():
        return None
    made = targets.reshape(outputs.shape).to(outputs.dtype)
    return subject.formed(SURE * (2 * made - 1)) if task.kind == "binary" else made


# ---- the same examples in other batches ----


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
