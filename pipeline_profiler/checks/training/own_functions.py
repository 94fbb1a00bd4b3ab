"""The user's own train_step, evaluate and eval_loader: modes, gradients, metrics, examples."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
import time
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import (
    FewBatches,
    as_tensors,
    batch_size,
    cut_batch,
    inputs_and_targets,
)
from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, skipped, unclear, wrong
from pipeline_profiler.checks.indexed import rows_of
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import functional, torch
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience, UsersError, batches_of, users_code
from pipeline_profiler.checks.user_training import Training, call_evaluate


class WrongMode(Check):
    """train() and eval() at the wrong position.

    ## What it does
    Reads the mode of dropout and batch norm in your train_step and evaluate. In a script, reads it
    before, during and after the first evaluation.

    ## Why is this bad
    Evaluation in train mode is noisy and depends on the batch. Training in eval mode disables
    dropout and freezes running statistics.

    ## How it decides
    Fails on any of these (exact):

    - A model with dropout or batch norm is evaluated in train mode.
    - Your training step runs the model in eval mode.
    - Your evaluate leaves eval mode on, and its file never calls train().
    - In a script, a module that trained at first does not train in a later step.
    - A model of another form that no optimizer trains is called in a step, in train mode.
    - In Keras, predictions change statistics, or differ.

    Passes if no module has a mode. Inconclusive if no evaluation, or no step after it, is reached.
    Frozen submodules are ignored.

    ## Limits
    Needs `check -- train.py`, or `train_step` or `evaluate` in your file. If evaluate leaves eval
    mode on and the file calls train(), the result is inconclusive. Intended dropout in evaluation
    (Monte Carlo) passes only after eval().
    """

    code = "TRAIN009"
    name = "wrong-mode"
    next_step = "Call model.train() at the head of each epoch, model.eval() before each evaluation."

    def run(self, subject: TrainingSubject) -> Answer:
        loop, made = subject.loop, subject.settings
        if loop is None:
            return skipped("No train_step and no evaluate of yours was seen.", INIT)
        if loop.unmoded and (made.evaluate is not None) and _calls_train(made):
            return unclear(
                "Your evaluate leaves the model in eval mode, and your train_step does not change "
                "it: whether the loop around them calls train() was not seen.",
                "Run the loop: `pipeline-profiler check -- train.py`.",
            )
        if made.train_step is not None and made.evaluate is None and not loop.asleep:
            return passed("Your train_step runs the model in train mode.")
        return _modes_of_loop(loop)

    def run_keras(self, subject: KerasSubject) -> Answer:
        training, inputs = subject.fresh(), subject.batches[0][1]
        before = subject.state(training)
        one, two = (subject.outputs(training, inputs) for _ in range(2))
        after = subject.state(training)
        changed = [path for path, value in before.items() if not np.array_equal(value, after[path])]
        if changed:
            return _always_training(f"A prediction changes {changed[0]}", "batch normalisation")
        if not np.allclose(one, two, rtol=1e-4, atol=1e-6):
            return _always_training("Two predictions of one batch differ", "dropout or noise")
        return passed("Predictions repeat and change no statistics: layers follow the mode.")


def _calls_train(training: Training) -> bool:
    """Whether a file calls train() beside its train_step; True where none can be read."""
    if training.train_step is None:
        return True
    functions = (training.train_step, training.evaluate)
    try:
        files = {inspect.getsourcefile(inspect.unwrap(function)) for function in functions}
        texts = [Path(file or "").read_text() for file in files]
    except (OSError, TypeError, ValueError):
        return True
    return any(re.search(r"^[^#\n]*\.train\(", text, re.MULTILINE) for text in texts)


def _modes_of_loop(loop: LoopFacts) -> Answer:
    left, awake = loop.unmoded, loop.evaluated_in_train_mode
    rows = (
        (loop.asleep, "model", f"The first training step runs the model in eval mode ({loop.modes} "
         "modules that have a mode do not train).",
         "model.eval() before the loop, and no model.train() in it"),
        (left, "model", f"{len(left)} of {loop.modes} modules ({', '.join(left[:3])}) train in the "
         "first step and are in eval mode in a later step: train() is not called again.",
         "model.train() is called once before the loop, and never after model.eval()"),
        (awake, "evaluation", f"While another loader is evaluated, {len(awake)} modules "
         f"({', '.join(awake[:3])}) are in train mode: eval() is not called.",
         "model.eval() is missing before the evaluation"),
        (loop.teacher, "teacher", "A model that no optimizer trains, and that is called without "
         f"gradients in each step, is in train mode ({', '.join((loop.teacher or ((),))[0][:3])}).",
         "eval() of the teacher or feature extractor is missing"),
    )  # fmt: skip
    for found, part, sentence, cause in rows:
        if found:
            text = "train() at the head of each epoch"
            text = text if part == "model" else "eval() before each evaluation"
            text = "eval() once, where it is made" if part == "teacher" else text
            place = loop.teacher[1] if loop.teacher and part == "teacher" else ""
            place = place or loop.places.get(part, "")
            return wrong(sentence, [cause], f"Call model.{text}.", place=place)
    if loop.steps and not loop.modes:
        return passed("The model has no module that behaves differently by mode.")
    if not loop.evaluations or not loop.after_evaluation:
        return unclear("The run did not reach a training step after an evaluation.")
    return passed(
        f"{loop.modes} modules train in the steps before and after the first evaluation, and not "
        "in it."
    )


def _gradients_of_loop(loop: LoopFacts) -> Answer:
    if loop.optimizers == 1 and loop.lost >= max(LEAST_LOST, loop.steps - 1):
        return StaleGradients.failed(
            f"Over {loop.steps} steps of your loop, gradients were cleared {loop.lost} times "
            "unused.",
            "zero_grad() between backward() and step()",
            "zero_grad() in every batch, and a step only in every n-th",
            lost=loop.lost,
            steps=loop.steps,
            place=loop.places.get("backward", ""),
        )
    count, factor = loop.summed
    if factor > 0.75 * count > 1:
        said = f"A step takes {factor:.3g} times the mean gradient of {count} batches: their sum."
        causes = ["the loss is not divided by the number of batches that are gathered"]
        at = loop.places.get("backward", "")
        return wrong(said, causes, f"Call (loss / {count}).backward().", place=at)
    if count > 1 and abs(factor - 1) > 0.25:
        return unclear(f"A step gathers {count} batches: the scale of their losses is not seen.")
    if loop.steps < 4:
        return unclear(f"Only {loop.steps} steps of your loop were seen.")
    if loop.kept >= loop.steps - 1:
        return StaleGradients.failed(
            f"{loop.kept} steps of an optimizer, of {loop.steps}, add to the gradients of its step "
            "before: they are never cleared.",
            "optimizer.zero_grad() is missing",
            place=loop.places.get("backward", ""),
        )
    if loop.lost:
        return unclear(
            f"In {loop.steps} steps of your loop gradients were cleared {loop.lost} times unused: "
            "right where optimizers take turns."
        )
    return passed(f"Gradients are cleared between {loop.steps} steps of your loop.", kept=loop.kept)


def _always_training(text: str, layer: str) -> Answer:
    return wrong(
        f"{text} although training=False.",
        [f"training=True is fixed in the call of a layer ({layer})"],
        "Call the layer without training=True: Keras passes the mode on.",
    )


LEAST_LOST = 3


class StaleGradients(Check):
    """A training step that adds its gradients to those of earlier steps.

    ## What it does
    Marks the gradients with NaN in a copy after each optimizer step. Looks for the mark at the next
    step. In a script, reads the gradients at the first backward() after a step.

    ## Why is this bad
    Without zero_grad, each update is the sum of all gradients so far.

    ## How it decides
    Fails if the mark reaches a later optimizer step, or a call without a step loses its gradients.
    Accumulation passes if gradients are cleared after each step. A script fails if it sums them for
    a mean loss, or if every backward() after a step, at least three, starts with old gradients.

    ## Limits
    Needs `check -- train.py`, or `train_step` in your file. Else the profiler's own step runs,
    which clears gradients.
    """

    code = "TRAIN016"
    name = "stale-gradients"
    torch_only = "a step of Keras clears its gradients by itself"
    next_step = "Call zero_grad() right after the optimizer's step only."

    def run(self, subject: TrainingSubject) -> Answer:
        made = subject.settings
        if subject.loop is None or (made.loop is None and made.train_step is None):
            return skipped("No train_step of yours was seen.", INIT)
        return _gradients_of_loop(subject.loop)


class GraphInEvaluation(Check):
    """An evaluation that builds a graph which nothing uses.

    ## What it does
    Looks for a graph in each forward pass of your evaluation, and measures its size for a batch.

    ## Why is this bad
    The graph holds the activations of all layers until the output is deleted. This costs memory.

    ## How it decides
    Fails if passes build a graph, and no gradient goes through any. Saliency maps and adversarial
    examples pass. Exact; MB are the tensors that autograd saves, without parameters.

    ## Limits
    A script must call model.eval(), or its evaluation is not recognised.
    """

    code = "TRAIN049"
    name = "graph-in-evaluation"
    nearness = Nearness.SYMPTOM
    torch_only = "Keras evaluates without a graph"
    next_step = "Evaluate under `with torch.inference_mode():` or torch.no_grad()."

    def run(self, subject: TrainingSubject) -> Answer:
        if subject.loop is None:
            return skipped("No evaluate of yours was seen.", INIT)
        return subject.watched.get(self.code) or unclear("The run reached no evaluation.")


INIT = "`check --init factories.py -- train.py` writes this file, to be filled in."
MOST_BATCHES = 8
ANSWERED, ORDERS, SURE, SECONDS = 2, 39, 10.0, 10.0


class Evaluation(Check):
    """An evaluation that depends on batch sizes, changes the model, or ignores the answers.

    ## What it does
    Runs your evaluate(model, loader) twice on the same batches, then on other batch sizes. Compares
    metrics, parameters and buffers. Then replaces the outputs with the targets of two batches, in
    their order and in 39 other orders. In a script, computes accuracy, loss, AUC, F1, IoU, MAE and
    MSE of the evaluated batches. Compares them with printed numbers and named variables.

    ## Why is this bad
    A metric that depends on batch sizes is not a metric of the dataset. An evaluation that trains
    uses the test set.

    ## How it decides
    Fails if a parameter or buffer changes, two runs differ, or other batch sizes change the metric
    beyond rounding (1e-5). Fails if no returned number is best or worst for perfect answers among
    the orders. A script fails if a number equals no right value, but one of a wrong formula: a
    wrong count, one batch, the training loader, or a mean of batches that is off by 1%.

    ## Limits
    Needs a script, or `evaluate` in your file that takes any iterable of batches and returns a
    number, or a tuple or dict of numbers. A mean of losses of batches passes in a script.
    """

    code = "TRAIN024"
    name = "evaluation"
    torch_only = "Keras sums its metrics over examples by itself"
    next_step = "Use eval() and no_grad(); sum over all examples, divide once."

    def run(self, subject: TrainingSubject) -> Answer:
        training = subject.fresh()
        if training.evaluate is None:
            return _reported_by_loop(training.loop)
        loader = training.eval_loader if training.eval_loader is not None else training.loader
        with users_code("The loader for evaluation"):
            batches = FewBatches(map(as_tensors, itertools.islice(loader, MOST_BATCHES)))
        before = subject.state(training)
        metrics = [_metric(training, batches) for _ in range(2)]
        after = subject.state(training)
        changed = [name for name, value in after.items() if not np.array_equal(value, before[name])]
        if changed:
            return Evaluation.failed(
                f"The evaluation changed {len(changed)} parameters or buffers: "
                f"{', '.join(changed[:3])}.",
                "eval() is missing, or a step is made in it",
                changed=changed[:20],
            )
        if metrics[0] is None or metrics[1] is None:
            return unclear("evaluate() returned no number.")
        if not _near(metrics[0], metrics[1]):
            return Evaluation.failed(
                f"Two evaluations of the same batches give {metrics[0]:.6g} and {metrics[1]:.6g}.",
                "dropout or random numbers in the evaluation",
                metrics=metrics,
            )
        return _beside_perfect(
            subject, training, FewBatches(batches[:ANSWERED])
        ) or _in_other_batches(training, batches, metrics[0])


def _reported_by_loop(loop: LoopFacts | None) -> Answer:
    """The answer for a script: its numbers beside the metrics of the batches that it evaluated."""
    rows = [] if loop is None else sorted(loop.reported, key=lambda row: not row[4])
    if loop is None or not rows:
        seen = loop is not None and loop.evaluations
        first = "Your evaluation was not called" if seen else "No evaluation of yours was seen"
        return skipped(f"{first}: add evaluate(model, loader) to a file of factories.", INIT)
    label, metric, value, right, formula, place = rows[0]
    text = f"'{label}' is {value:.6g}{formula and ': '}{formula}"
    text += f". The {metric} of all samples is {right:.6g}."
    if not formula:
        return passed(text, reported=value)
    place = place or loop.places.get("evaluation", "")
    return Evaluation.failed(text, formula, place=place, reported=value, expected=right)


def _metric(training: Training, batches: Any) -> float | None:
    return next(iter(_metrics(training, batches)), None)


def _metrics(training: Training, batches: Any) -> list[float]:
    value = call_evaluate(training, batches)
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


def _beside_perfect(
    subject: TrainingSubject, training: Training, batches: list[Any]
) -> Answer | None:
    """A failure where perfect answers score no better than the same in any other order."""
    split = [inputs_and_targets(batch, training.split_batch)[1] for batch in batches]
    targets = [part for part in split if isinstance(part, torch.Tensor) and part.ndim]
    if len(targets) < len(batches) or subject.task.kind == "unknown" or not subject.takes_tensor:
        return None
    both = torch.cat(targets) if len({t.shape[1:] for t in targets}) == 1 else targets[0][:0]
    if bool((both == both[:1]).all()):
        return None
    generator = torch.Generator().manual_seed(subject.seed)
    start, used = time.monotonic(), time.process_time()
    sizes, scores = [len(t) for t in targets], []
    for number in range(ORDERS + 1):
        order = torch.randperm(len(both), generator=generator) if number else slice(None)
        score = _scored(subject, training, batches, torch.split(both[order], sizes))
        spent = min(time.monotonic() - start, time.process_time() - used)
        slow = spent * ORDERS > min(SECONDS, subject.time_left() / 3)
        if score is None or (not number and slow):
            return None
        scores.append(score)
    perfect, *others = scores
    if any(len(row) != len(perfect) for row in others):
        return None
    columns = list(zip(*others, strict=True))
    if any(reads_answers(p, column) for p, column in zip(perfect, columns, strict=True)):
        return None
    return Evaluation.failed(
        f"Perfect answers score {perfect[0]:.4g}, and the same answers in other orders "
        f"{min(columns[0]):.4g} to {max(columns[0]):.4g}: the metric does not separate them.",
        "the maximum is taken over another axis, or the labels are those of other examples",
        perfect=perfect,
        others=[list(column) for column in columns],
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
        numbers = _metrics(training, batches)
    except UsersError:  # the user's evaluation wants more of an output than we can say
        return None
    finally:
        hook.remove()
    return numbers if numbers and given == [True] * len(batches) else None


def _perfect(subject: TrainingSubject, outputs: Any, targets: Any) -> Any:
    """Outputs of this form that say what the targets are, or None."""
    task = subject.task
    if not isinstance(outputs, torch.Tensor) or len(outputs) != len(targets):
        return None
    if task.kind == "classes" and outputs.ndim == targets.ndim + 1:
        inside = targets.clamp(0, outputs.shape[task.axis] - 1)
        made = functional.one_hot(inside.long(), outputs.shape[task.axis]).movedim(-1, task.axis)
        return subject.loss_alone.formed(SURE * made.to(outputs.dtype))
    if task.kind == "classes" or outputs.numel() != targets.numel():
        return None
    made = targets.reshape(outputs.shape).to(outputs.dtype)
    return subject.loss_alone.formed(SURE * (2 * made - 1)) if task.kind == "binary" else made


def _in_other_batches(training: Training, batches: list[Any], metric: float) -> Answer:
    size = batch_size(batches[0])
    if size < 4:
        return unclear(f"Batches of {size} cannot be split.")
    cuts = slice(0, 1), slice(1, 3), slice(3, size)
    parts = [cut_batch(batches[0], size, cut) for cut in cuts]
    other = _metric(training, FewBatches([*parts, *batches[1:]]))
    numbers = {"metric": metric, "in_other_batches": other}
    if other is None or not _near(metric, other):
        return Evaluation.failed(
            f"The metric is {metric:.6g}, and {other:.6g} when the first batch is split "
            "into parts of different size.",
            "a mean over batches instead of examples",
            **numbers,
        )
    return passed(f"The metric is {metric:.6g}, twice, and in batches of another size.", **numbers)


class EvaluationSet(Check):
    """An evaluation loader that omits or repeats samples.

    ## What it does
    Counts missing and repeated indices of one pass over `eval_loader`. Computes the bias of a mean
    over batches and of padding, and the interval of a metric.

    ## Why is this bad
    A metric of a subset, or of a random draw, varies more between runs than most changes do. Padded
    samples count twice.

    ## How it decides
    Fails if samples are omitted (drop_last, a subset) or repeated. Padding of a rank sampler is
    inconclusive. Exact. Prints the margin of error (95%) of a share near one half, 1.96 sqrt(1/4n).
    Prints the bias of a mean over batches, |1/batches - r/n| for a last batch of r.

    ## What to do
    Set drop_last=False and use no random sampler. Sum over samples, then divide once. Use at least
    the training batch size.

    ## Limits
    Needs `eval_loader` over a dataset with indices. The interval is valid for shares only.
    """

    code = "TRAIN029"
    name = "evaluation-set"
    causes = ("drop_last=True, and fewer examples than a batch",)
    next_step = "Set drop_last=False."

    def run(self, subject: TrainingSubject) -> Answer:
        if subject.loop is not None and subject.loop.dropped is not None:
            missing, total, place = subject.loop.dropped
            return self.failed(
                f"An evaluation leaves out {missing} of {total} samples.", place=place
            )
        loader = subject.settings.eval_loader
        if loader is None:
            return skipped(
                "No loader for evaluation was seen: add make_eval_loader() to a file of factories.",
                INIT,
            )
        if getattr(loader, "_dataset_kind", None) != 0:
            return unclear("The examples of the evaluation loader have no indices to count.")
        batches, total = LoaderSubject(lambda: loader).index_order()[0], len(loader.dataset)
        total = len(getattr(loader.sampler, "indices", range(total)))  # of a part
        if not any(batches):
            return self.failed(f"The evaluation loader gives none of {total} examples.")
        sizes, unique = [len(b) for b in batches], len(set(map(str, chain(*batches))))
        return _judge_examples(subject, sizes, total, sum(sizes), unique)

    def run_keras(self, subject: KerasSubject) -> Answer:
        loader = subject.settings.eval_loader
        if (rows := rows_of(loader)) is None:
            return unclear("There are no validation data that can be counted.")
        total, sizes, patience = getattr(rows, "total", len(rows)), list[int](), Patience(4.0, 12.0)
        for batch in batches_of(loader):
            sizes.append(batch_size(inputs_and_targets(batch)[0]))
            if patience.over:
                return unclear("The validation data are too many to be counted.")
        if total < 0 or not sizes:
            return unclear("The number of validation data is not known.")
        return _judge_examples(subject, sizes, total, sum(sizes), min(total, sum(sizes)))


def _judge_examples(
    subject: Examined, sizes: list[int], total: int, drawn: int, unique: int
) -> Answer:
    loader, missing, twice = subject.settings.eval_loader, total - unique, drawn - unique
    ranks = int(getattr(getattr(loader, "sampler", None), "num_replicas", 1) or 1)
    width = 1.96 * math.sqrt(0.25 / unique)
    bias = abs(1 / len(sizes) - sizes[-1] / drawn)
    numbers = {"examples": total, "missing": missing, "twice": twice, "interval": round(width, 4)}
    numbers |= {"bias_of_a_mean_over_batches": round(bias, 6)}
    if ranks > 1:
        padding = -total % ranks
        share = padding / (total + padding)
        return unclear(
            f"The evaluation loader is one of {ranks} ranks: {padding} of {total} examples come "
            f"twice, which moves a metric by {share:.2%} of the difference at most.",
            "Gather the outputs of all ranks and cut them to the dataset's length.",
            **numbers,
        )
    if missing or twice:
        return wrong(
            f"An evaluation leaves out {missing} of {total} examples, and {twice} come twice.",
            ["drop_last=True" if getattr(loader, "drop_last", False) else "a sampler that draws"],
            "Give each example once: no sampler, drop_last=False.",
            **numbers,
        )
    size = f"{sizes[0]}, the last of {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    return passed(
        f"All {total} examples come once, in batches of {size}: a share near one half is known to "
        f"+-{width:.1%}; a mean over batches is off by {bias:.2%} of the difference between the "
        "last batch and the rest.",
        **numbers,
    )
