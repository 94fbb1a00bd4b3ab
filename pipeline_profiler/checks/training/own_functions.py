"""The user's train_step, evaluate and eval_loader: modes, gradients, metrics, samples."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import math
import re
from dataclasses import replace
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
from pipeline_profiler.checks.check import (
    Answer,
    Check,
    CheckTable,
    fault,
    passed,
    skipped,
    unclear,
)
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import functional, torch
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.reported import without_chance
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience, UsersError, users_code
from pipeline_profiler.checks.user_training import Training, call_evaluate
from pipeline_profiler.profiling.record.errors import ProfileError

ROWS = CheckTable()
INIT = "Define train_step and evaluate in a file: `pipeline-profiler check factories.py`."


@ROWS.row("TRAIN009", "wrong-mode", torch_only="")
def judge_modes(subject: Examined) -> Answer:
    """Training in eval mode, or evaluation in train mode.

    ## How it decides
    Fails if a model with dropout or batch norm is evaluated in train mode or trained in eval mode,
    or if a module that trained at first does not train later. Fails if a model that no optimizer
    trains is in train mode in a step, or if dropout that is called as a function acts in eval mode.
    In Keras, fails if predictions change statistics or differ, or if a loop around a tape calls the
    model without `training=True`. Monte Carlo dropout passes.
    """
    if isinstance(subject, KerasSubject):
        return _judge_keras_modes(subject)
    answer = skipped("No train_step and no evaluate of yours was seen.", INIT)
    if subject.loop is not None:
        answer = _judge_modes(subject.loop, subject.settings)
    if answer.judgement == "failed" or not (function := _dropout_in_eval_mode(subject)):
        return answer
    text = f"{function} is called as a function and drops in eval mode as well."
    return fault(text, "no training=self.training", "Pass it, or use nn.Dropout.")


def _judge_keras_modes(subject: KerasSubject) -> Answer:
    loop = subject.settings.loop
    if loop is not None and loop.asleep:
        text = "The loop trains the model in eval mode: dropout and batch norm do not act."
        cause = "model(x) without training=True inside the tape"
        return fault(text, cause, "Call model(x, training=True).", loop.places["model"])
    training, inputs = subject.fresh(), subject.batches[0][1]
    before = subject.state(training)
    first, second = (subject.outputs(training, inputs) for _ in range(2))
    after = subject.state(training)
    changed = [path for path, value in before.items() if not np.array_equal(value, after[path])]
    if not changed and np.allclose(first, second, rtol=1e-4, atol=1e-6):
        return passed("Predictions repeat and change no statistics: layers follow the mode.")
    text = f"A prediction changes {changed[0]}" if changed else "Two predictions differ"
    action = "Call the layer without training=True: Keras passes the mode on."
    cause = "training=True is fixed in the call of a layer"
    return fault(f"{text} although training=False.", cause, action)


def _judge_modes(loop: LoopFacts, made: Training) -> Answer:
    left, awake = loop.unmoded, loop.evaluated_in_train_mode
    own = [function for function in (made.train_step, made.evaluate) if function is not None]
    if left and made.evaluate is not None:  # a loop that is not run may call train()
        text = _text_of_files(*own)
        if (
            made.train_step is None
            or re.search(r"^[^#\n]*\.train\(", text, re.MULTILINE)
            or not text
        ):
            text = "Your evaluate leaves the model in eval mode; no call of train() was seen."
            return unclear(text, "Run the loop: `pipeline-profiler check -- train.py`.")
    if made.train_step is not None and made.evaluate is None and not loop.asleep:
        return passed("Your train_step runs the model in train mode.")
    teacher, teacher_place = loop.teacher or ((), "")
    model, evaluation = (loop.places.get(part, "") for part in ("model", "evaluation"))
    train_call = "Call model.train() at the head of each epoch."
    rows = (
        (loop.asleep, f"The first step trains the model in eval mode ({loop.modes} modules).",
         "model.eval() before the loop, and no model.train() in it", train_call, model),
        (left, f"{len(left)} of {loop.modes} modules ({', '.join(left[:3])}) train in the first "
         "step and are in eval mode in a later step: train() is not called again.",
         "model.train() is never called after model.eval()", train_call, model),
        (awake, f"While another loader is evaluated, {len(awake)} modules ({', '.join(awake[:3])}) "
         "are in train mode.", "model.eval() is missing before the evaluation",
         "Call model.eval() before each evaluation.", evaluation),
        (teacher, "A model that no optimizer trains is in train mode in each step "
         f"({', '.join(teacher[:3])}).", "eval() of the teacher or feature extractor is missing",
         "Call model.eval() once, where it is made.", teacher_place),
    )  # fmt: skip
    for *fact, place in rows:
        if found := Check.first_fault([fact], place):
            return found
    if loop.steps and not loop.modes:
        return passed("The model has no module that behaves differently by mode.")
    if not loop.evaluations or not loop.after_evaluation:
        return unclear("The run did not reach a training step after an evaluation.")
    return passed(f"{loop.modes} modules train before and after the first evaluation, not in it.")


def _text_of_files(*functions: Any) -> str:
    """Return the text of the files that define these functions; '' if it cannot be read."""
    with contextlib.suppress(OSError, TypeError):
        modules = {inspect.getmodule(inspect.unwrap(function)) for function in functions}
        return "\n".join(inspect.getsource(module) for module in modules if module)
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


MIN_LOST = 3


@ROWS.row(
    "TRAIN016", "stale-gradients", torch_only="a step of Keras clears its gradients by itself"
)
def judge_gradients(subject: TrainingSubject) -> Answer:
    """A step that adds gradients of earlier steps, or loses gradients.

    ## How it decides
    Reads the gradients at the first backward() after a step. Fails if every backward() after a
    step, of at least three, starts with old gradients. Fails if gradients are cleared without a
    step, or if a step sums gradients of batches for a mean loss. Accumulation passes. Exact.
    """
    made, loop = subject.settings, subject.loop
    if loop is None or (made.loop is None and made.train_step is None):
        return skipped("No train_step of yours was seen.", INIT)
    place, steps, (count, factor) = loop.places.get("backward", ""), loop.steps, loop.summed
    clear = "Call zero_grad() right after the optimizer's step only."
    if loop.optimizers == 1 and loop.lost >= max(MIN_LOST, steps - 1):
        text = f"In {steps} steps of your loop, gradients were cleared {loop.lost} times unused."
        cause = "zero_grad() in every batch, and a step only in every n-th"
        return fault(text, cause, clear, place, lost=loop.lost)
    if factor > 0.75 * count > 1:
        text = f"A step takes {factor:.3g} times the mean gradient of {count} batches: their sum."
        cause = "the loss is not divided by the number of batches that are gathered"
        return fault(text, cause, f"Call (loss / {count}).backward().", place)
    if count > 1 and abs(factor - 1) > 0.25:
        return unclear(f"A step gathers {count} batches, with losses of an unknown scale.")
    if steps < 4:
        return unclear(f"Only {steps} steps of your loop were seen.")
    if loop.kept >= steps - 1:
        text = f"{loop.kept} of {steps} steps add to old gradients, which are never cleared."
        return fault(text, "optimizer.zero_grad() is missing", clear, place)
    if loop.lost:
        return unclear(f"{loop.lost} gradients were cleared unused: optimizers may take turns.")
    return passed(f"Gradients are cleared between {steps} steps of your loop.")


MAX_BATCHES, MIN_SPLIT = 8, 4
ANSWERED, ORDERS, SURE, SECONDS = 2, 39, 10.0, 10.0
SUM = "Use eval() and no_grad(); sum over all examples, divide once."


@ROWS.row("TRAIN024", "evaluation", torch_only="Keras sums its metrics over examples by itself")
def judge_evaluation(subject: TrainingSubject) -> Answer:
    """A metric that depends on batch sizes, omits samples, or ignores answers.

    ## How it decides
    Runs evaluate(model, loader) twice, then on other batch sizes: fails if a weight or buffer
    changes, or a metric by 1e-5. Fails if targets as outputs score no better than in 39 other
    orders, or if `eval_loader` omits or repeats samples. A script fails if a number equals that of
    a wrong formula: a wrong count, one batch, a mean of batches. A mean of batch losses passes.
    """
    samples: Answer | None = None
    own = subject.settings.evaluate is not None
    metric = _judge_evaluate(subject) if own else _judge_reported(subject)
    with contextlib.suppress(ProfileError):  # of a sampler that cannot be iterated
        samples = _judge_samples(subject)
    if samples is None or samples.judgement == "passed" != metric.judgement:
        return metric
    return Check.judged_by(subject, lambda _: metric, lambda _: samples)


def _judge_samples(subject: TrainingSubject) -> Answer | None:
    """Return whether an evaluation uses each sample once; None if samples have no index."""
    loop, loader = subject.loop, subject.settings.eval_loader
    if loop is not None and loop.dropped is not None:
        missing, total, place = loop.dropped
        text = f"An evaluation leaves out {missing} of {total} samples."
        return fault(text, "drop_last=True", "Set drop_last=False.", place)
    sampler = getattr(loader, "sampler", None)
    by_index = getattr(loader, "_dataset_kind", None) == 0 and len(loader.dataset)
    if not by_index or getattr(sampler, "num_replicas", 1) > 1:
        return None
    batches = LoaderSubject(lambda: loader).index_order(epochs=(0,))[0]
    sizes, unique = [*map(len, batches)], len(set(map(str, itertools.chain(*batches))))
    total = len(getattr(sampler, "indices", loader.dataset))  # of a subset
    if unique < total or sum(sizes) > unique:
        text = f"The evaluation loader leaves out {total - unique} of {total} samples, and"
        text += f" {sum(sizes) - unique} come twice."
        if getattr(loader, "drop_last", False):
            return fault(text, "drop_last=True", "Set drop_last=False.")
        return fault(text, "a sampler that draws", "Give each sample once: use no sampler.")
    margin = 1.96 * math.sqrt(0.25 / total)
    text = f"All {total} samples come once, in batches of {sizes[0]} and a last of {sizes[-1]}"
    return passed(f"{text}; a share near one half has a margin of error of {margin:.1%}.")


def _judge_reported(subject: TrainingSubject) -> Answer:
    """Compare the numbers of a script with the metrics of the batches that it evaluated."""
    loop = subject.settings.loop
    rows = [] if loop is None else without_chance(loop.reported)
    if loop is None or not rows:
        seen = loop is not None and loop.evaluations
        text = "No number that the script reports is a metric of its evaluation that is known here."
        return skipped(text if seen else "No evaluation was seen.", INIT)
    label, metric, value, right, formula, place, _ = max(rows, key=lambda row: bool(row.flaw))
    text = f"'{label}' is {value:.6g}{formula and ': '}{formula}"
    text += f". The {metric} of all samples is {right:.6g}."
    if not formula:
        return passed(text)
    return fault(text, formula, SUM, place or loop.places.get("evaluation", ""))


def _judge_evaluate(subject: TrainingSubject) -> Answer:
    """Run the user's evaluate on equal batches, on other sizes, and with answers of all orders."""
    training = subject.fresh()
    loader = training.eval_loader if training.eval_loader is not None else training.loader
    with users_code("The loader for evaluation"):
        batches = FewBatches(map(as_tensors, itertools.islice(loader, MAX_BATCHES)))
    before = subject.state(training)
    first, second = (_numbers(training, batches)[:1] for _ in range(2))
    after = subject.state(training)
    changed = [name for name, value in after.items() if not np.array_equal(value, before[name])]
    if changed:
        names = ", ".join(changed[:3])
        text = f"The evaluation changed {len(changed)} weights or buffers: {names}."
        return fault(text, "eval() is missing, or a step is made in it", SUM)
    if not first or not second:
        return unclear("evaluate() returned no number.")
    if not np.allclose(first, second, rtol=1e-5, atol=1e-6):
        text = f"Two evaluations of the same batches give {first[0]:.6g} and {second[0]:.6g}."
        return fault(text, "dropout or random numbers in the evaluation", SUM)
    if answer := _beside_perfect(subject, training, FewBatches(batches[:ANSWERED])):
        return answer
    if (size := batch_size(batches[0])) < MIN_SPLIT:
        return unclear(f"Batches of {size} cannot be split.")
    parts = [cut_batch(batches[0], size, slice(*ends)) for ends in ((0, 1), (1, 3), (3, size))]
    other = [*_numbers(training, FewBatches([*parts, *batches[1:]])), math.nan][0]
    if not np.allclose(first, other, rtol=1e-5, atol=1e-6):
        text = f"The metric is {first[0]:.6g}, and {other:.6g} in smaller batches."
        return fault(text, "a mean over batches instead of samples", SUM)
    return passed(f"The metric is {first[0]:.6g}, twice, and in batches of another size.")


def _numbers(training: Training, batches: Any) -> list[float]:
    """Return the numbers that evaluate() returns."""
    value = call_evaluate(training, batches)
    value, found = list(value.values()) if isinstance(value, dict) else value, list[float]()
    for part in value if isinstance(value, tuple | list) else [value]:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            found.append(float(part))
    return found


def _beside_perfect(
    subject: TrainingSubject, training: Training, batches: list[Any]
) -> Answer | None:
    """Return a failure if perfect answers score no better than in another order, else None."""
    targets = [inputs_and_targets(batch, training.split_batch)[1] for batch in batches]
    if not all(isinstance(t, torch.Tensor) and t.ndim for t in targets) or not subject.takes_tensor:
        return None
    if len({t.shape[1:] for t in targets}) > 1 or subject.task.kind == "unknown":
        return None
    both, generator = torch.cat(targets), torch.Generator().manual_seed(subject.seed)
    limit = min(SECONDS, subject.time_left() / 3)
    patience, scores, model = Patience(limit, limit), list[list[float]](), copy.copy(training.model)
    with contextlib.suppress(UsersError, RuntimeError):  # the evaluation calls it in another way
        outputs = _perfect_outputs(subject, both)
        while len(scores) <= ORDERS and not patience.over:
            order = torch.randperm(len(both), generator=generator) if scores else slice(None)
            left = list(torch.split(outputs[order], [len(t) for t in targets]))
            model.forward = lambda *_, left=left, **__: left.pop(0)
            scores.append(_numbers(replace(training, model=model), batches))
            if left or not scores[-1] or len(scores[-1]) != len(scores[0]):
                return None
    columns = list(zip(*scores, strict=True))
    if len(scores) <= ORDERS or bool((both == both[:1]).all()):
        return None
    if any(reads_answers(column[0], column[1:]) for column in columns):
        return None
    perfect, *others = columns[0]
    text = f"Perfect answers score {perfect:.4g}, and the same answers in other orders"
    text += f" {min(others):.4g} to {max(others):.4g}: the metric does not separate them."
    cause = "the maximum is taken over another axis, or the labels are those of other examples"
    return fault(text, cause, SUM)


def _perfect_outputs(subject: TrainingSubject, targets: Any) -> Any:
    """Return outputs that are right for the targets."""
    kind, classes, axis = subject.task
    made = targets
    if kind == "classes":
        hot = functional.one_hot(targets.clamp(0, classes - 1).long(), classes)
        made = SURE * hot.movedim(-1, axis)
    elif kind == "binary":
        made = SURE * (2 * targets - 1)
    made = made.to(subject.first_outputs.dtype)
    made = made.reshape(len(targets), *subject.first_outputs.shape[1:])
    return made if kind == "regression" else subject.loss_alone.formed(made)


def reads_answers(perfect: float, others: tuple[float, ...]) -> bool:
    """Return whether a number is at its best for perfect answers; True if any is not finite."""
    if not all(map(math.isfinite, (perfect, *others))):
        return True
    lower, higher = (sum(sign * (o - perfect) > 0 for o in others) for sign in (-1, 1))
    return min(lower, higher) == 0 and max(lower, higher) > len(others) / 2
