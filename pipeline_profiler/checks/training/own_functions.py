"""The user's train_step, evaluate and eval_loader: modes, gradients, metrics, samples."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
from dataclasses import replace
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
from pipeline_profiler.checks.caught_tape import Tape, recording_mode
from pipeline_profiler.checks.check import Answer, Check, Judgement, passed, skipped, unclear, wrong
from pipeline_profiler.checks.keras_subject import KerasSubject
from pipeline_profiler.checks.lazy import functional, torch
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience, UsersError, users_code
from pipeline_profiler.checks.user_training import Training, call_evaluate
from pipeline_profiler.profiling.record.errors import ProfileError

INIT = "Define train_step and evaluate in a file: `pipeline-profiler check factories.py`."


class WrongMode(Check):
    """Training in eval mode, or evaluation in train mode.

    ## How it decides
    Fails on any of these (exact):

    - A model with dropout or batch norm is evaluated in train mode, or trained in eval mode.
    - Your evaluate leaves eval mode on, and its file never calls train().
    - In a script, a module that trained at first does not train in a later step.
    - A model of another form that no optimizer trains is called in a step, in train mode.
    - Dropout that is called as a function acts in eval mode.
    - In Keras, predictions change statistics or differ, or a tape loop lacks `training=True`.

    ## Limits
    Needs `check -- train.py`, or `train_step` or `evaluate` in your file. Frozen submodules are
    ignored. Intended dropout in evaluation (Monte Carlo) passes only as a module, after eval().
    """

    code = "TRAIN009"
    name = "wrong-mode"

    def run(self, subject: TrainingSubject) -> Answer:
        loop = subject.loop
        answer = skipped("No train_step and no evaluate of yours was seen.", INIT)
        if loop is not None:
            answer = _judge_modes(loop, subject.settings)
        function = "" if answer.judgement is Judgement.FAIL else _dropout_in_eval_mode(subject)
        if not function:
            return answer
        text = f"{function} is called as a function and drops in eval mode as well."
        return wrong(text, ["no training=self.training"], "Pass it, or use nn.Dropout.")

    def run_keras(self, subject: KerasSubject) -> Answer:
        loop = subject.settings.loop
        if loop is not None and loop.asleep:
            text = "The loop trains the model in eval mode: dropout and batch norm do not act."
            causes = ["model(x) without training=True inside the tape"]
            return wrong(text, causes, "Call model(x, training=True).", place=loop.places["model"])
        training, inputs = subject.fresh(), subject.batches[0][1]
        before = subject.state(training)
        first, second = (subject.outputs(training, inputs) for _ in range(2))
        after = subject.state(training)
        changed = [path for path, value in before.items() if not np.array_equal(value, after[path])]
        if not changed and np.allclose(first, second, rtol=1e-4, atol=1e-6):
            return passed("Predictions repeat and change no statistics: layers follow the mode.")
        text = f"A prediction changes {changed[0]}" if changed else "Two predictions differ"
        return wrong(
            f"{text} although training=False.",
            ["training=True is fixed in the call of a layer"],
            "Call the layer without training=True: Keras passes the mode on.",
        )


def _judge_modes(loop: LoopFacts, made: Training) -> Answer:
    left, awake = loop.unmoded, loop.evaluated_in_train_mode
    text = _text_of_files(made.train_step, made.evaluate)
    elsewhere = made.train_step is None or re.search(r"^[^#\n]*\.train\(", text, re.MULTILINE)
    if left and made.evaluate is not None and (elsewhere or not text):
        text = "Your evaluate leaves the model in eval mode; no call of train() around it was seen."
        return unclear(text, "Run the loop: `pipeline-profiler check -- train.py`.")
    if made.train_step is not None and made.evaluate is None and not loop.asleep:
        return passed("Your train_step runs the model in train mode.")
    teacher, teacher_place = loop.teacher or ((), "")
    model, evaluation = (loop.places.get(part, "") for part in ("model", "evaluation"))
    train_call, eval_call = "train() at the head of each epoch", "eval() before each evaluation"
    rows = (
        (loop.asleep, f"The first step trains the model in eval mode ({loop.modes} modules).",
         "model.eval() before the loop, and no model.train() in it", train_call, model),
        (left, f"{len(left)} of {loop.modes} modules ({', '.join(left[:3])}) train in the first "
         "step and are in eval mode in a later step: train() is not called again.",
         "model.train() is never called after model.eval()", train_call, model),
        (awake, f"While another loader is evaluated, {len(awake)} modules ({', '.join(awake[:3])}) "
         "are in train mode.", "model.eval() is missing before the evaluation", eval_call,
         evaluation),
        (teacher, "A model that no optimizer trains is in train mode in each step "
         f"({', '.join(teacher[:3])}).", "eval() of the teacher or feature extractor is missing",
         "eval() once, where it is made", teacher_place),
    )  # fmt: skip
    for found, sentence, cause, call, place in rows:
        if found:
            return wrong(sentence, [cause], f"Call model.{call}.", place=place)
    if loop.steps and not loop.modes:
        return passed("The model has no module that behaves differently by mode.")
    if not loop.evaluations or not loop.after_evaluation:
        return unclear("The run did not reach a training step after an evaluation.")
    return passed(f"{loop.modes} modules train before and after the first evaluation, not in it.")


def _text_of_files(*functions: Any) -> str:
    """Return the text of the files that define these functions; '' if it cannot be read."""
    with contextlib.suppress(OSError, TypeError, ValueError):
        files = {inspect.getsourcefile(inspect.unwrap(f)) for f in functions if f is not None}
        return "\n".join(Path(file or "").read_text() for file in files)
    return ""


def _dropout_in_eval_mode(subject: TrainingSubject) -> str:
    """Return the name of a dropout function that acts in eval mode, else ''."""
    tape = Tape()
    with contextlib.suppress(UsersError):
        batch, training = subject.batches[0], subject.fresh()
        with recording_mode(lambda: tape):
            subject.evaluated(training, batch)
    for call in tape.calls:
        given = dict(zip(("input", "p", "training"), call.args, strict=False)) | call.kwargs
        if "dropout" in call.name and given.get("training", True) and given.get("p", 0.5) > 0:
            return call.name
    return ""


LEAST_LOST = 3


class StaleGradients(Check):
    """A step that adds gradients of earlier steps, or loses gradients.

    ## How it decides
    Reads the gradients at the first backward() after a step. Fails if every backward() after a
    step, of at least three, starts with old gradients. Fails if gradients are cleared without a
    step, or if a step sums gradients of batches for a mean loss. Accumulation passes. Exact.
    """

    code = "TRAIN016"
    name = "stale-gradients"
    torch_only = "a step of Keras clears its gradients by itself"
    next_step = "Call zero_grad() right after the optimizer's step only."

    def run(self, subject: TrainingSubject) -> Answer:
        made, loop = subject.settings, subject.loop
        if loop is None or (made.loop is None and made.train_step is None):
            return skipped("No train_step of yours was seen.", INIT)
        place, steps, (count, factor) = loop.places.get("backward", ""), loop.steps, loop.summed
        if loop.optimizers == 1 and loop.lost >= max(LEAST_LOST, steps - 1):
            return self.failed(
                f"In {steps} steps of your loop, gradients were cleared {loop.lost} times unused.",
                "zero_grad() in every batch, and a step only in every n-th",
                lost=loop.lost,
                place=place,
            )
        if factor > 0.75 * count > 1:
            return wrong(
                f"A step takes {factor:.3g} times the mean gradient of {count} batches: their sum.",
                ["the loss is not divided by the number of batches that are gathered"],
                f"Call (loss / {count}).backward().",
                place=place,
            )
        if count > 1 and abs(factor - 1) > 0.25:
            return unclear(f"A step gathers {count} batches, with losses of an unknown scale.")
        if steps < 4:
            return unclear(f"Only {steps} steps of your loop were seen.")
        if loop.kept >= steps - 1:
            text = f"{loop.kept} of {steps} steps add to old gradients, which are never cleared."
            return self.failed(text, "optimizer.zero_grad() is missing", place=place)
        if loop.lost:
            return unclear(f"{loop.lost} gradients were cleared unused: optimizers may take turns.")
        return passed(f"Gradients are cleared between {steps} steps of your loop.")


MOST_BATCHES = 8
ANSWERED, ORDERS, SURE, SECONDS = 2, 39, 10.0, 10.0


class Evaluation(Check):
    """A metric that depends on batch sizes, omits samples, or ignores answers.

    ## How it decides
    Runs evaluate(model, loader) twice on the same batches, then on other batch sizes. Fails if a
    parameter or buffer changes, or if a metric changes beyond rounding (1e-5). Then replaces the
    outputs by the targets. Fails if no number is at its best for the right order among 39 others.
    A script fails if a number equals no right value, but the value of a wrong formula: a wrong
    count, one batch, the training loader, or a mean of batches that is off by 1%. Fails if
    `eval_loader` omits or repeats samples (exact).

    ## Limits
    Needs a script, or `evaluate` in your file that returns numbers. A mean of batch losses passes.
    """

    code = "TRAIN024"
    name = "evaluation"
    torch_only = "Keras sums its metrics over examples by itself"
    next_step = "Use eval() and no_grad(); sum over all examples, divide once."

    def run(self, subject: TrainingSubject) -> Answer:
        training, samples = subject.fresh(), _judge_samples(subject)
        if training.evaluate is None:
            answer = _judge_reported(training.loop)
        else:
            answer = _judge_evaluate(subject, training)
        if samples is not None and samples.judgement is answer.judgement:
            return replace(answer, sentence=f"{answer.sentence} {samples.sentence}")
        return answer if samples is None or samples.judgement is Judgement.PASS else samples


def _judge_samples(subject: TrainingSubject) -> Answer | None:
    """Return whether an evaluation uses each sample once; None if samples have no index."""
    loop, loader = subject.loop, subject.settings.eval_loader
    cause, action = "drop_last=True", "Set drop_last=False."
    if loop is not None and loop.dropped is not None:
        missing, total, place = loop.dropped
        text = f"An evaluation leaves out {missing} of {total} samples."
        return wrong(text, [cause], action, place=place)
    if getattr(loader, "_dataset_kind", None) != 0 or not len(loader.dataset):
        return None
    try:
        batches = LoaderSubject(lambda: loader).index_order(epochs=(0,))[0]
    except ProfileError:
        return None
    sampler, sizes = loader.sampler, [len(batch) for batch in batches]
    total, unique = len(loader.dataset), len(set(map(str, itertools.chain(*batches))))
    total = len(getattr(sampler, "indices", range(total)))  # of a subset
    if getattr(sampler, "num_replicas", 1) > 1:
        return None
    if unique < total or sum(sizes) > unique:
        if not getattr(loader, "drop_last", False):
            cause, action = "a sampler that draws", "Give each sample once: use no sampler."
        text = f"The evaluation loader leaves out {total - unique} of {total} samples, and"
        return wrong(f"{text} {sum(sizes) - unique} come twice.", [cause], action)
    margin = 1.96 * math.sqrt(0.25 / total)
    text = f"All {total} samples come once, in batches of {sizes[0]} and a last of {sizes[-1]}"
    return passed(f"{text}; a share near one half has a margin of error of {margin:.1%}.")


def _judge_reported(loop: LoopFacts | None) -> Answer:
    """Compare the numbers of a script with the metrics of the batches that it evaluated."""
    rows = [] if loop is None else sorted(loop.reported, key=lambda row: not row[4])
    if loop is None or not rows:
        seen = loop is not None and loop.evaluations
        first = "Your evaluation was not called" if seen else "No evaluation of yours was seen"
        return skipped(f"{first}: add evaluate(model, loader) to a file of factories.", INIT)
    label, metric, value, right, formula, place = rows[0]
    text = f"'{label}' is {value:.6g}{formula and ': '}{formula}"
    text += f". The {metric} of all samples is {right:.6g}."
    if not formula:
        return passed(text)
    return Evaluation.failed(text, formula, place=place or loop.places.get("evaluation", ""))


def _judge_evaluate(subject: TrainingSubject, training: Training) -> Answer:
    loader = training.eval_loader if training.eval_loader is not None else training.loader
    with users_code("The loader for evaluation"):
        batches = FewBatches(map(as_tensors, itertools.islice(loader, MOST_BATCHES)))
    before = subject.state(training)
    first, second = (_numbers(training, batches)[:1] for _ in range(2))
    after = subject.state(training)
    changed = [name for name, value in after.items() if not np.array_equal(value, before[name])]
    if changed:
        text = (
            f"The evaluation changed {len(changed)} weights or buffers: {', '.join(changed[:3])}."
        )
        return Evaluation.failed(text, "eval() is missing, or a step is made in it")
    if not first or not second:
        return unclear("evaluate() returned no number.")
    if not _near(first, second):
        text = f"Two evaluations of the same batches give {first[0]:.6g} and {second[0]:.6g}."
        return Evaluation.failed(text, "dropout or random numbers in the evaluation")
    if answer := _beside_perfect(subject, training, FewBatches(batches[:ANSWERED])):
        return answer
    if (size := batch_size(batches[0])) < 4:
        return unclear(f"Batches of {size} cannot be split.")
    parts = [cut_batch(batches[0], size, slice(*ends)) for ends in ((0, 1), (1, 3), (3, size))]
    other = _numbers(training, FewBatches([*parts, *batches[1:]]))[:1]
    if not _near(first, other):
        text = f"The metric is {first[0]:.6g}, and {[*other, math.nan][0]:.6g} in smaller batches."
        return Evaluation.failed(text, "a mean over batches instead of samples")
    return passed(f"The metric is {first[0]:.6g}, twice, and in batches of another size.")


def _numbers(training: Training, batches: Any) -> list[float]:
    """Return the numbers that evaluate() returns."""
    value = call_evaluate(training, batches)
    if isinstance(value, dict):
        value = list(value.values())
    found = []
    for part in value if isinstance(value, tuple | list) else [value]:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            found.append(float(part))
    return found


def _near(first: list[float], second: list[float]) -> bool:
    return len(first) == len(second) and np.allclose(first, second, rtol=1e-5, atol=1e-6)


def _beside_perfect(
    subject: TrainingSubject, training: Training, batches: list[Any]
) -> Answer | None:
    """Return a failure if perfect answers score no better than in another order, else None."""
    split = [inputs_and_targets(batch, training.split_batch)[1] for batch in batches]
    targets = [part for part in split if isinstance(part, torch.Tensor) and part.ndim]
    one_form = len(targets) == len(batches) and len({t.shape[1:] for t in targets}) == 1
    if not one_form or subject.task.kind == "unknown" or not subject.takes_tensor:
        return None
    both, sizes = torch.cat(targets), [len(t) for t in targets]
    if bool((both == both[:1]).all()):
        return None
    generator = torch.Generator().manual_seed(subject.seed)
    limit = min(SECONDS, subject.time_left() / 3)
    patience, scores = Patience(limit, limit), list[list[float]]()
    for number in range(ORDERS + 1):
        order = torch.randperm(len(both), generator=generator) if number else slice(None)
        score = _scored(subject, training, batches, torch.split(both[order], sizes))
        if not score or patience.over or len(score) != len([*scores, score][0]):
            return None
        scores.append(score)
    columns = list(zip(*scores, strict=True))
    if any(reads_answers(column[0], column[1:]) for column in columns):
        return None
    perfect, *others = columns[0]
    return Evaluation.failed(
        f"Perfect answers score {perfect:.4g}, and the same answers in other orders "
        f"{min(others):.4g} to {max(others):.4g}: the metric does not separate them.",
        "the maximum is taken over another axis, or the labels are those of other examples",
    )


def reads_answers(perfect: float, others: tuple[float, ...]) -> bool:
    """Return whether a number is at its best for perfect answers; True if any is not finite."""
    if not all(map(math.isfinite, (perfect, *others))):
        return True
    lower, higher = (sum(sign * (o - perfect) > 0 for o in others) for sign in (-1, 1))
    return min(lower, higher) == 0 and max(lower, higher) > len(others) / 2


def _scored(
    subject: TrainingSubject, training: Training, batches: list[Any], answers: Any
) -> list[float]:
    """Return the numbers of evaluate() if the model gives these answers; [] if it cannot."""
    left = list(answers)

    def answer(_model: Any, _inputs: Any, outputs: Any) -> Any:
        targets, task = left.pop(0), subject.task
        if len(outputs) != len(targets):
            raise UsersError("An output is no answer to a batch.")
        if task.kind == "classes":
            inside = targets.clamp(0, outputs.shape[task.axis] - 1).long()
            hot = functional.one_hot(inside, outputs.shape[task.axis]).movedim(-1, task.axis)
            return subject.loss_alone.formed(SURE * hot.to(outputs.dtype).reshape(outputs.shape))
        made = targets.to(outputs.dtype).reshape(outputs.shape)
        return subject.loss_alone.formed(SURE * (2 * made - 1)) if task.kind == "binary" else made

    hook = training.model.register_forward_hook(answer)
    try:
        numbers = _numbers(training, batches)
    except UsersError:  # the evaluation calls the model in another way
        return []
    finally:
        hook.remove()
    return [] if left else numbers
