"""The loss at the start and by itself: its value, its best outputs, its weights and padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import as_array, main_tensor, padding_of
from pipeline_profiler.checks.caught_tape import leaves, recording_mode
from pipeline_profiler.checks.chance import FAR
from pipeline_profiler.checks.check import (
    Answer,
    Check,
    CheckTable,
    Nearness,
    absent,
    fault,
    passed,
    unclear,
)
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loss_alone import Task, couples_samples
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import UsersError
from pipeline_profiler.checks.user_training import learned_by_loss
from pipeline_profiler.checks.wrong_arguments import wrong_argument

ROWS = CheckTable()
SEEDS = 3
MAX_NATS, MAX_FACTOR = 4.0, 10.0
MAX_SAVED, OF_KNOWING, COUNTED = 0.6, 1 / 3, 10  # nats; of log K; labels for each class


@ROWS.row("TRAIN001", "loss-at-start", torch_only="", nearness=Nearness.EFFECT)
def judge_loss_at_start(subject: Examined) -> Answer:
    """A first loss, or a last bias, unlike that of an untrained model.

    ## How it decides
    Fails if the first loss of three seeds is not finite, or 4 nats and 2 log K above that of zero
    outputs (regression: 10 times the best constant, or 100 times if pretrained). Fails if a last
    bias at the base rates saves 0.6 nats and a third of log K. Penalties in the loss shift all
    reference values; pretrained classifiers pass.
    """
    made = map(subject.fresh, range(SEEDS))
    losses = [subject.measured(training, subject.batches[0], mode=True) for training in made]
    if not all(map(math.isfinite, losses)):
        text = f"The first loss is {sum(losses) / SEEDS}: no number."
        cause = "NaN in inputs or targets (LOAD008), a logarithm of zero, or a division by zero"
        action = "Find the first module that gives NaN: "
        return fault(text, cause, f"{action}torch.autograd.set_detect_anomaly(True).")
    answer = _judge_start(subject, losses)
    return answer if answer.judgement == "failed" else _judge_rates(subject) or answer


def _judge_start(subject: Examined, losses: list[float]) -> Answer:
    mean, (kind, classes, _), alone = sum(losses) / SEEDS, subject.task, subject.loss_alone
    text = f"The first loss is {mean:.4g}"
    if not subject.takes_tensor:
        return unclear(f"{text}; the loss does not take one tensor, so no value is expected.")
    uniform, constant, least = alone.uniform, alone.constant, alone.best_outputs[0]
    known = all(map(math.isfinite, (uniform, constant, least)))
    if not known or (kind in ("regression", "unknown") and alone.bottomless):
        why = "falls without end" if known else "of outputs of an untrained model is no number"
        return unclear(f"{text}; the loss {why}, so no value is expected.")
    fixed = len(set(losses)) == 1 or getattr(subject, "caught", False)  # dropout differs
    pretrained = fixed and not subject.one_start
    text += f"; outputs of zero have {uniform:.4g}, the best constant has {constant:.4g}"
    if kind in ("classes", "binary"):
        knowing = math.log(max(2, classes))
        summed = max(1.0, uniform / knowing)  # a loss that is a sum counts each nat so many times
        high = not pretrained and mean - uniform > summed * max(MAX_NATS, 2 * knowing)
    else:
        # a likelihood has its least far from 0: beside it, outputs of zero are no bad start
        nothing = max(constant, uniform) if subject.is_likelihood else constant
        unlike = mean - least > MAX_FACTOR ** (1 + pretrained) * (nothing - least) > 0
        high = unlike and (kind == "regression" or not pretrained)
    if high:
        scale = "targets are not standardised" if kind == "regression" else "large last weights"
        action = "Initialise the last layer small, with the base rates (mean) as bias; scale"
        cause = f"{scale}, or inputs that are not scaled"
        return fault(f"{text}: the start is far above.", cause, f"{action} targets.")
    if pretrained:
        return passed(f"{text}; three seeds give the same weights, so they are pretrained.")
    return passed(f"{text}.")


def _judge_rates(subject: Examined) -> Answer | None:
    """Return a failure if a last bias at the base rates would save much of the loss, else None."""
    task, labels = subject.task, as_array(main_tensor(subject.batches[0][2]))
    if task.kind not in ("classes", "binary") or not subject.takes_tensor or labels is None:
        return None
    counts = _label_counts(subject)
    total = int(counts.sum())
    rates = counts / max(1, total)
    if total < COUNTED * len(counts) or labels.size != len(labels) or rates.max() == 1:
        return None  # few labels, a label for each token or pixel, or one class
    least = max(MAX_SAVED, OF_KNOWING * math.log(max(2, task.classes)))
    start = subject.measured(subject.fresh(), subject.batches[0])
    saved = min(start, subject.loss_alone.uniform) - subject.loss_alone.constant
    entropy = float(-(rates[rates > 0] * np.log(rates[rates > 0])).sum())
    if min(saved, math.log(len(counts)) - entropy - (len(counts) - 1) / (2 * total)) <= least:
        return None
    known = (rates + 1 / total) / (rates + 1 / total).sum()
    bias = np.log(known) if task.kind == "classes" else [math.log(known[1] / known[0])]
    shown = ", ".join(f"{v:.2f}" for v in bias[:8]) + (", ..." if len(bias) > 8 else "")
    return fault(
        f"A last bias at the base rates would start {saved:.3f} nats lower, more than "
        f"{least:.2f}: the most frequent class has {rates.max():.0%} of {total} labels.",
        "the last bias does not start at the base rates of imbalanced classes",
        f"Set the last bias to log base rates: {shown} (of these labels; better of all).",
    )


def _label_counts(subject: Examined) -> Any:
    """Return the number of labels of each class in the batches, without ignored labels."""
    found = [as_array(main_tensor(batch[2])) for batch in subject.batches]
    classes = max(2, subject.task.classes)
    if subject.task.kind == "binary":
        found = [None if a is None else a > 0.5 for a in found]
    labels = np.concatenate([a.reshape(-1).astype(np.int64) for a in found if a is not None])
    return np.bincount(labels[(labels >= 0) & (labels < classes)], minlength=classes)


NEAR = 1e-4
OUT_OF_REACH = 0.25  # share of targets
SHIFT = 7.0  # of random outputs
LOGITS, SHARES = "cross-entropy of logits", "cross-entropy of probabilities"
BINARY, LIKELIHOOD = "binary cross-entropy of logits", "log-likelihood"
UNIT = "a loss of numbers in 0..1"
AGREE = 0.9
MIN_USED = 3
IGNORED = 255  # a label of segmentation that losses leave out
MIN_NO_CORNERS, MIN_BOXES = 0.1, 16


@ROWS.row("TRAIN020", "loss-misfit", torch_only="")
def judge_loss(subject: Examined) -> Answer:
    """A loss that fits neither the model's outputs nor the targets.

    ## How it decides
    Fails if outputs are not what the loss takes by its values: logits, probabilities or logarithms.
    Optimises free outputs: 90% must have the target's class or that of the next token; numbers must
    correlate by 0.9. Fails on labels from K on, a sigmoid that cannot reach a quarter of targets,
    and corners for width and height. Inconclusive if the loss compares samples (ranking).
    """
    if isinstance(subject, TrainingSubject) and (answer := _judge_boxes(subject)) is not None:
        return answer
    return Check.judged_by(subject, _judge_form, _judge_optimum)


LOGITS_ACTION = "Let the model return logits, and the loss be cross-entropy of logits."


def _judge_form(subject: Examined) -> Answer | None:
    """Fail probabilities where the loss expects logits, or the reverse."""
    kind, is_torch = subject.task.kind, isinstance(subject, TrainingSubject)
    if not subject.takes_tensor:
        return None
    if isinstance(subject, TrainingSubject) and (sentence := _wrong_divergence(subject)):
        return fault(sentence, "softmax instead of log_softmax before KLDivLoss", LOGITS_ACTION)
    if kind not in ("classes", "binary"):
        if not isinstance(subject, TrainingSubject) or kind == "unknown":
            return None
        return _judge_bounded(subject)
    alone, outputs = subject.loss_alone, subject.loss_alone.numbers
    loss = UNIT if is_torch and alone.form == "unit" and alone.insists else _name_loss(subject)
    constant = outputs.ndim > 1 and outputs.shape[-1] == 1 and (abs(outputs - 1) < 1e-6).all()
    form, other = _form_of(subject, outputs)
    probable = form == "probabilities"
    rows = (
        (kind == "binary" and constant, "The model has one output, which is 1 for every input: a "
         "softmax over one number.", "softmax instead of sigmoid at the end of the model"),
        (other is not None, f"A softmax runs along axis {other} of the outputs"
         f"{', over the samples of the batch' * (other == 0)}: the classes are axis "
         f"{subject.task.axis}.", f"softmax or log_softmax with dim={other}, or without dim"),
        (loss == BINARY and probable, "Outputs went through a sigmoid, and the loss applies one "
         "again.", "a sigmoid at the end of the model"),
        (loss == LOGITS and probable, "Outputs are probabilities (between 0 and 1, sum 1), and the "
         "loss applies a softmax to them again.", "a softmax at the end of the model"),
        (loss == SHARES and not probable, f"Outputs run from {outputs.min():.3g} to "
         f"{outputs.max():.3g}, and the loss takes probabilities (it cuts them off).",
         "from_logits=True is missing in the loss"),
        (loss == LIKELIHOOD and form != "log-probabilities", "The loss is a log-likelihood "
         f"(NLLLoss), and outputs are {form}.", "log_softmax is missing before NLLLoss"),
    )  # fmt: skip
    known = None if loss == "unknown" else passed(f"The loss is {loss}, and outputs are {form}.")
    return Check.first_fault((*row, LOGITS_ACTION) for row in rows) or known


def _form_of(subject: Examined, outputs: Any) -> tuple[str, int | None]:
    """Return the form of outputs, and the axis of a softmax that is not that of the classes."""
    bounded = bool(((outputs >= 0) & (outputs <= 1)).all())
    if subject.task.kind == "binary":
        return "probabilities" if bounded and _stays_bounded(subject) else "logits", None
    axis = subject.task.axis % outputs.ndim
    forms = (("probabilities", outputs if bounded else 0 * outputs),
             ("log-probabilities", np.exp(outputs)))  # fmt: skip
    for form, values in forms:
        for along in (axis, *(a for a in range(values.ndim) if a != axis)):
            if values.shape[along] > 1 and np.allclose(values.sum(along), 1, atol=NEAR):
                return (form, None) if along == axis else ("logits", along)
    return "logits", None


def _wrong_divergence(subject: TrainingSubject) -> str:
    """Return what is wrong with the arguments of kl_div in the user's loss; '' for nothing."""
    found = [""]

    def note(function: Any, args: Any, named: Any, _: Any) -> None:
        if function.__name__ == "kl_div":
            found[0] = found[0] or wrong_argument("kl_div", args, named)

    with recording_mode(lambda: None, on_loss=note):
        subject.loss_of(subject.settings, subject.first_outputs, subject.batches[0][2])
    return found[0]


def _targets_of(subject: Examined) -> Any:
    """Return the targets of the first batch as an array, of Keras as classes."""
    if isinstance(subject, KerasSubject):
        return subject.targets
    return as_array(main_tensor(subject.batches[0][2]))


def _name_loss(subject: Examined) -> str:
    """Return the name of the loss by its values on random outputs."""
    cost, shape = subject.loss_alone.of, subject.loss_alone.numbers.shape
    if subject.task.kind == "binary":
        # Only binary cross-entropy has these values, whatever its weights. Of logits: outputs of 0
        # cost c log 2, outputs of 40 on the wrong side 40 c, on the right side nothing. Of
        # probabilities: 1/2 costs c log 2, and 3/4 for the right class c log 4/3.
        side = 2 * _targets_of(subject).reshape(shape).astype(np.float32) - 1
        wrong_side, right_side, middle = (cost(part * side) for part in (-40, 40, 0))
        slope = wrong_side * math.log(2) / (40.0 * middle) if middle > 0 else 0.0
        if abs(slope - 1) < NEAR and abs(right_side) < NEAR * middle:
            return BINARY
        if isinstance(subject, TrainingSubject):
            return "unknown"
        half, more = cost(0 * side + 0.5), cost(0.5 + 0.25 * side)
        shares = math.isclose(more * math.log(2), half * math.log(4 / 3), rel_tol=1e-3)
        return SHARES if shares else "unknown"
    outputs = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    value, moved = cost(outputs), cost(outputs + SHIFT)
    if abs(moved - value) < NEAR * max(1.0, abs(value)):
        return LOGITS  # a constant on all classes changes nothing: a softmax
    if abs(moved - (value - SHIFT)) < 1e-3 * SHIFT:
        return LIKELIHOOD  # it moves by exactly that constant: outputs are taken as they are
    if isinstance(subject, KerasSubject):  # its cross-entropy divides by the sum of the classes
        share = np.exp(outputs) / np.exp(outputs).sum(subject.task.axis, keepdims=True)
        if math.isclose(cost(share), cost(share / 2), rel_tol=1e-3):
            return SHARES
    return "unknown"


def _judge_bounded(subject: TrainingSubject) -> Answer | None:
    """Judge targets of a regression that a sigmoid at the end of the model cannot reach."""
    if not subject.ends_in_sigmoid:
        return None
    targets = main_tensor(subject.batches[0][2]).float()
    beyond = float(((targets < -0.05) | (targets > 1.05)).float().mean())
    text = f"A sigmoid bounds the outputs, and targets run from {targets.min():.4g} to"
    text += f" {targets.max():.4g}"
    if beyond <= OUT_OF_REACH:
        return passed(f"{text}.")
    text += f": {beyond:.0%} of the targets cannot be reached."
    cause = "targets in pixels or other units, or a sigmoid at the end of a model for any numbers"
    return fault(text, cause, "Scale the targets to 0..1, or remove the sigmoid.")


def _stays_bounded(subject: Examined) -> bool:
    """Return whether outputs stay in 0..1 whatever the weights: no logits do."""
    if isinstance(subject, TrainingSubject):
        return subject.ends_in_sigmoid
    training = subject.fresh()
    for weight in [w for w in training.model.trainable_variables if len(w.shape) > 1][-1:]:
        weight.assign(weight * 1e4)
    outputs = subject.outputs(training, subject.batches[0][1])
    subject.fresh()  # puts them back
    return bool(((outputs >= 0) & (outputs <= 1)).all())


def _judge_optimum(subject: Examined) -> Answer:
    """Fail a loss whose best outputs are not the targets."""
    task, targets = subject.task, _targets_of(subject)
    if isinstance(subject, TrainingSubject):
        wanted = subject.batches[0][2]
        if isinstance(wanted, tuple | list) and len(wanted) > 1:
            return unclear("The loss takes several targets, so its best output is unknown.")
        if learned_by_loss(subject.settings):
            return unclear("The loss has parameters of its own, so its best output is learned.")
    if task.kind == "unknown" or not subject.takes_tensor:
        return unclear("The form of the targets does not show the best output.")
    low, high = targets.min().item(), targets.max().item()
    too_high = task.kind == "classes" and high >= task.classes and high != IGNORED
    if too_high and not _accepts_labels(subject):
        text = f"Labels run from {low} to {high}, and the model has {task.classes} outputs."
        cause = "labels are counted from 1, or the last layer has too few outputs"
        return fault(text, cause, f"Map the labels to 0..{task.classes - 1}, or add outputs.")
    if low == high:
        return unclear(f"All targets of the first batch are {low}: they are all equal.")
    alone = subject.loss_alone
    least, best = alone.best_outputs
    if not math.isfinite(least):
        return unclear("The loss has no gradient with respect to its first argument.")
    share = _agreement(task, best, targets)
    text = f"The outputs that minimise the loss agree with {share:.0%} of the targets"
    if share >= AGREE:
        return passed(f"{text}.")
    if isinstance(subject, TrainingSubject) and task.kind == "regression":
        outputs, made = subject.first_outputs, subject.settings
        beyond = share * math.sqrt(outputs.numel() - 1) > FAR  # else they are exchanged
        if couples_samples(  # ranking, survival or contrast
            lambda free, t: subject.loss_of(made, alone.formed(free), t), outputs, wanted, beyond
        ):
            return unclear(f"{text}, and it compares samples with each other.")
        rates = _agreement(task, -best, targets)
        if alone.form == "positive" and rates >= AGREE:
            return unclear("The best outputs of the loss fall with the targets, as rates.")
    text += f" (loss {least:.4g}; outputs of zero have {alone.uniform:.4g})."
    cause = "the sign of the loss or its arguments are exchanged, labels are shifted, or the loss "
    cause = _broadcast(best, targets) or f"{cause}uses another axis or few samples"
    return fault(text, cause, "Compute the loss of a perfect and of a wrong answer by hand.")


def _accepts_labels(subject: Examined) -> bool:
    """Return whether the loss leaves out labels without an output: torch raises for all others."""
    if not isinstance(subject, TrainingSubject):
        return False
    try:
        subject.loss_of(subject.settings, subject.first_outputs, subject.batches[0][2])
    except UsersError:
        return False
    return True


def _judge_boxes(subject: TrainingSubject) -> Answer | None:
    """Return a failure if corners are compared with boxes of another form, else None."""
    boxes = [
        part for _, part in leaves(subject.batches[0][2])
        if part.is_floating_point() and part.ndim > 1 and part.shape[-1] == 4
    ]  # fmt: skip
    rows = torch.cat([part.reshape(-1, 4).float() for part in boxes]) if boxes else None
    if rows is None or len(rows) < MIN_BOXES or float(rows[:, 2:].min()) < 0:
        return None
    share = float((~_are_corners(rows)).float().mean())
    if share < MIN_NO_CORNERS:
        return None
    shapes = {part.shape for part in boxes}
    for training in subject.drawn():
        outputs = subject.evaluated(training, subject.batches[0])
        given = [part for _, part in leaves(outputs) if part.shape in shapes]
        if not given or not all(bool(_are_corners(part).all()) for part in given):
            return None
    text = "The model's boxes are corners (x1, y1, x2, y2) whatever its weights, and "
    text += f"{share:.0%} of the targets are no corners: they look like x, y, width, height."
    cause = "boxes of COCO (x, y, width, height) where corners are expected"
    return fault(text, cause, "Make corners of the targets: x, y, x + width, y + height.")


def _are_corners(boxes: Any) -> Any:
    return (boxes[..., 2:] >= boxes[..., :2]).all(-1)


def _agreement(task: Task, best: Any, wanted: Any) -> float:
    """Return the share of equal classes; of numbers the largest correlation, also of ranks."""
    if task.kind == "classes":
        # an output that the loss leaves out stays alike in all classes
        used = best.max(axis=task.axis) > best.min(axis=task.axis)
        found = best.argmax(axis=task.axis)
        rows = [(found == wanted)[used]]
        if found.ndim == 2:  # a language model moves its labels by one place itself
            rows.append((found[:, :-1] == wanted[:, 1:])[used[:, :-1]])
        return max((float(equal.mean()) for equal in rows if equal.size), default=0.0)
    flat, wide = best.reshape(-1), wanted.reshape(len(wanted), -1)
    if task.kind == "binary":
        return float(((flat > (flat.max() + flat.min()) / 2) == (wanted.reshape(-1) > 0.5)).mean())
    used = flat != 0  # an output that the loss leaves out stays where it started
    if used.sum() < MIN_USED:
        return 0.0
    both = flat[used], wide.reshape(-1)[used]
    pairs = [both, tuple(map(_ranks, both))]
    if wide.shape[1] > 1:  # a softmax in the loss adds any number to a row
        pairs.append((flat, (wide - wide.mean(1, keepdims=True)).reshape(-1)))
    with np.errstate(invalid="ignore", divide="ignore"):  # all alike: no correlation
        return max(float(np.nan_to_num(np.corrcoef(*pair)[0, 1])) for pair in pairs)


def _ranks(values: Any) -> Any:
    """Return ranks from 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (count.cumsum() - (count - 1) / 2)[place]


def _broadcast(outputs: Any, targets: Any) -> str:
    """Return a cause if shapes broadcast to more numbers than outputs and targets have, else ''."""
    try:
        shape = np.broadcast_shapes(outputs.shape, targets.shape)
    except ValueError:
        return ""
    shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}"
    grown = math.prod(shape) > max(math.prod(outputs.shape), targets.size)
    return f"{shapes} broadcast to {shape}" if grown else ""


UNEVEN, STEEP, STEEP_OF_TWO, IN_LINE = 1.5, (0.5, 1.5), (0.75, 1.25), 0.95
FITS, MISFIT = 3.0, 30.0  # deviations of chi-squared
ROUND, MAX_COUNT = 100, 10_000  # smaller counts fit costs that are set by hand


@ROWS.row("TRAIN041", "weights-inverted", torch_only="")
def judge_class_weights(subject: Examined) -> Answer:
    """Class weights that grow with the number of samples.

    ## How it decides
    Measures weights by the gradient at zero outputs, for cross-entropy of logits. Fails if they
    differ by 1.5 times and follow counts (of 8 or more, apart by 2 times and 3 standard errors) as
    a power of 0.5 to 1.5 (two classes: 0.75 to 1.25) with a correlation of 0.95. Fails if weights
    are 1 / counts in another order only. Weights by costs may follow the counts by chance.
    """
    if isinstance(subject, KerasSubject):
        return _judge_keras_class_weights(subject)
    if subject.task.kind not in ("classes", "binary") or not subject.takes_tensor:
        return unclear("The task is none of classes.")
    if subject.loss_alone.form or _name_loss(subject) not in (LOGITS, BINARY):
        return unclear("The loss is no cross-entropy of logits by its numbers.")
    counts = _label_counts(subject)
    return _judge_weights(counts, _class_weights(subject, counts))


def _judge_keras_class_weights(subject: KerasSubject) -> Answer:
    if all(weights is None for weights, _, _ in subject.batches):
        return absent("No examples and no classes are given weights.")
    if subject.task.kind not in ("classes", "binary"):
        return unclear("The task is none of classes.")
    targets = [np.asarray(main_tensor(targets)) for _, _, targets in subject.batches]
    rows = np.concatenate([t.reshape(len(t), -1) for t in targets])
    labels = rows.argmax(1) if rows.shape[1] > 1 else rows[:, 0].astype(int)
    weights = np.concatenate([w for w, _, _ in subject.batches]).reshape(-1)
    counts, sums = (np.bincount(labels, w, subject.task.classes) for w in (None, weights))
    with np.errstate(invalid="ignore"):
        return _judge_weights(counts, sums / counts)


def _judge_weights(counts: Any, weights: Any) -> Answer:
    known = weights > 1e-6 * np.nanmax(weights)  # NaN: does not occur; 0: is ignored
    seen, given = counts[known], weights[known]
    if len(seen) < 2:
        return unclear("Fewer than two classes occur in the first batches.")
    uneven = float(given.max() / given.min())
    if uneven < UNEVEN:
        return passed(f"Classes weigh alike in the loss (to a factor of {uneven:.2f}).")
    triples = zip(np.flatnonzero(known)[:5], seen, given, strict=False)
    rows = "; ".join(f"{k}: {n} and {w:.3g}" for k, n, w in triples)
    if known.all() and _other_order(seen, given):
        text = f"Weights are 1 / count in another order of the classes ({rows})."
        cause = "value_counts() sorts classes by their counts, not by their labels"
        return fault(text, cause, "Use value_counts().sort_index(), or bincount.")
    apart = math.log(seen.max() / seen.min())
    if seen.min() < 8 or apart <= math.log(2) or apart < 3 * math.sqrt(2 / seen.min()):
        return unclear("Classes are too alike, or too rare, to compare weights with.")
    x, y = np.log(seen) - np.log(seen).mean(), np.log(given) - np.log(given).mean()
    steep, line = float((x * y).sum() / (x * x).sum()), float(np.corrcoef(x, y)[0, 1])
    low, high = STEEP if len(seen) > 2 else STEEP_OF_TWO
    text = f"Weights grow with the counts of classes as their power {steep:.2f}"
    if low < steep < high and line > IN_LINE:
        cause = "weights are counts instead of their inverse, or pos_weight is inverted"
        action = "Divide by the counts: weight = counts.sum() / (K * counts)."
        return fault(f"{text} (count and weight of {rows}).", cause, action)
    return passed(f"{text}.")


def _other_order(counts: Any, weights: Any) -> bool:
    """Return whether the counts fit 1 / weight in another order of the classes only."""
    wanted, degrees = counts.sum() / weights / (1 / weights).sum(), len(counts) - 1
    own, best = (
        (((a - b) ** 2 / a).sum() - degrees) / math.sqrt(2 * degrees)
        for a, b in ((wanted, counts), (np.sort(wanted), np.sort(counts)))
    )
    largest = np.arange(1, MAX_COUNT)[:, None]  # samples of the most frequent class
    others = largest * weights.min() / weights
    whole = np.flatnonzero((np.abs(others - others.round()) < 5e-7 * largest).all(axis=1))
    return bool(degrees > 1 and len(whole) and whole[0] >= ROUND and best < FITS and own > MISFIT)


def _class_weights(subject: TrainingSubject, counts: Any) -> Any:
    """Return the weight of each class beside the most frequent class; NaN if it does not occur."""
    classes, task, found = len(counts), subject.task, np.full(len(counts), np.nan)
    for _, _, targets in subject.batches:
        labels = main_tensor(targets)
        labels = (labels > 0.5).long() if task.kind == "binary" else labels.long()
        shape = [len(labels), *subject.first_outputs.shape[1:]]
        if task.kind == "classes":  # rows of tokens are as long as those of their batch
            shape = [*labels.shape[: task.axis], classes, *labels.shape[task.axis :]]
        free = subject.first_outputs.new_zeros(shape, dtype=torch.float32).requires_grad_()
        with torch.enable_grad():
            subject.loss_of(subject.settings, free, targets).backward()
        size = free.grad.abs().sum(task.axis) if task.kind == "classes" else free.grad.abs()
        flat, classes_of = (part.reshape(-1).double().cpu().numpy() for part in (size, labels))
        used = (classes_of >= 0) & (classes_of < classes)
        names = classes_of[used].astype(int)
        sums, often = (np.bincount(names, w, classes) for w in (flat[used], None))
        with np.errstate(invalid="ignore"):  # a mean over a batch divides by its weights
            means = sums / often
            found = np.where(np.isnan(found), means / means[counts.argmax()], found)
    return found


@ROWS.row("TRAIN021", "padding-counted", torch_only="")
def judge_padding(subject: Examined) -> Answer:
    """A loss that averages over padding.

    ## How it decides
    Padding is a value that fills the ends of four target rows and a quarter of all, and never
    precedes another value. Else padding of the inputs counts where all targets are alike. Fails if
    the loss has a gradient there. Not applicable without padding.
    """
    inputs, targets = subject.batches[0][1], main_tensor(subject.batches[0][2])
    wanted = as_array(targets)
    if wanted is None or wanted.ndim != 2 or wanted.dtype.kind == "f":
        return absent("The targets are no rows of whole numbers.")
    if isinstance(subject, KerasSubject):
        return unclear("Padded targets of Keras are not supported.")
    found = padding_of(targets) or _padded_inputs(inputs, targets)
    if found is None:
        return absent("No value fills the ends of rows: there is no padding to see.")
    value, places = found
    if not subject.takes_tensor or subject.task.kind != "classes":
        return unclear(f"The value {value} may be padding; the loss takes no single tensor.")
    outputs = torch.randn_like(subject.first_outputs.float()).requires_grad_()
    with torch.enable_grad():
        subject.loss_of(subject.settings, outputs, subject.batches[0][2]).backward()
    size = outputs.grad.abs().sum(subject.task.axis) if outputs.grad is not None else places * 0
    counted, padded = ((p > 0).float().mean() for p in (size[places], places))
    if not counted:
        return passed(f"Padding ({value}, {padded:.0%} of all positions) does not count.")
    text = f"The value {value} fills the ends of rows ({padded:.0%} of all positions), and"
    text += f" {counted:.0%} of these positions count in the loss."
    cause = "ignore_index is missing, or the mask is not applied, or only to the sum"
    action = f"Set ignore_index={value}, or mask the loss and divide by the sum of the mask."
    return fault(text, cause, action)


def _padded_inputs(inputs: Any, targets: Any) -> tuple[int, Any] | None:
    """Return (target, positions) if inputs of the same form are padded there, else None."""
    for _, rows in leaves(inputs):
        if rows.shape == targets.shape and not rows.is_floating_point():
            places = (padding_of(rows) or (0, targets < targets))[1]
            values = targets[places].unique().tolist()
            if len(values) == 1:
                return values[0], places
    return None
