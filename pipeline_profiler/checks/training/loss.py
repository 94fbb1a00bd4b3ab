"""The loss at the start and by itself: what it costs, wants, pairs, and which outputs it takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import (
    as_array,
    main_tensor,
    padding_of,
)
from pipeline_profiler.checks.caught_tape import Node, Tape, leaves, recording_mode
from pipeline_profiler.checks.chance import FAR
from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loss_alone import Task, couples_outputs, couples_targets
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_training import learned_by_loss

SEEDS = 3
MOST_NATS, MOST_FACTOR, LEAST_FACTOR = 4.0, 10.0, 0.3


class LossAtStart(Check):
    """A first loss unlike that of an untrained model.

    ## What it does
    Computes the first loss of new models (three seeds). Compares it with your loss of zero outputs
    (log K for K classes), the best constant output and the best outputs.

    ## Why is this bad
    A far higher start costs many steps. With a far lower start, the loss omits terms, or the input
    contains the target.

    ## How it decides
    Fails on any of these:

    - The loss is NaN or infinite.
    - Classes: it exceeds zero outputs by more than 4 nats and 2 log K, per summed term.
    - Regression: it is over 10 times the best constant, both above the minimum. A likelihood may
      use zero outputs.
    - All seeds are below 0.3 times the best constant, above the minimum.

    Inconclusive without finite reference losses or a minimum. If all seeds give the same weights
    (pretrained), only NaN or infinity fails. A high start also fails if the factory seeds itself,
    or a script loads no weights.

    ## What to do
    Set the last bias to the base rates (or mean), shrink the last weights, and standardise the
    targets.

    ## Limits
    Losses with extra terms (penalties) shift all reference values.
    """

    code = "TRAIN001"
    name = "loss-at-start"
    nearness = Nearness.EFFECT
    causes = (
        "inputs or targets hold NaN (check, LOAD008)",
        "a logarithm of zero or a division by zero in model or loss",
        "weights that overflow",
    )
    next_step = "Find the first module that gives NaN: torch.autograd.set_detect_anomaly(True)."

    def run(self, subject: Examined) -> Answer:
        made = map(subject.fresh, range(SEEDS))
        losses = [subject.measured(training, subject.batches[0], mode=True) for training in made]
        mean, task = sum(losses) / SEEDS, subject.task
        numbers: dict[str, Any] = {"losses": [round(v, 5) for v in losses], "task": task.kind}
        if not all(map(math.isfinite, losses)):
            return self.failed(f"The first loss is {mean}: no number.", **numbers)
        if not subject.takes_tensor:
            return unclear(
                f"The first loss is {mean:.4g}; its expectation is not known, because "
                "the loss does not take one tensor.",
                **numbers,
            )
        uniform, constant = subject.loss_alone.uniform, subject.loss_alone.constant
        least = subject.loss_alone.best_outputs[0]
        numbers |= {"zero_outputs": uniform, "best_constant": constant, "least": least}
        known = all(map(math.isfinite, (uniform, constant, least)))
        if not known or (task.kind in ("regression", "unknown") and subject.loss_alone.bottomless):
            why = "falls without end" if known else "of outputs of an untrained model is no number"
            return unclear(
                f"The first loss is {mean:.4g}; its expectation is not known, because the loss "
                f"{why}.",
                **numbers,
            )
        fixed = len(set(losses)) == 1 or getattr(subject, "caught", False)  # dropout differs
        if fixed and not subject.one_start:
            return passed(
                f"The first loss is {mean:.4g}; three seeds give the same weights, so they are "
                "pretrained.",
                **numbers,
            )
        return _judge_start(task, losses, subject.is_likelihood, numbers, fixed)

    run_keras = run


def _judge_start(
    task: Task, losses: list[float], likelihood: bool, numbers: dict[str, Any], fixed: bool
) -> Answer:
    """`fixed`: one start for all seeds, which may yet hold weights of a checkpoint."""
    uniform, constant, least = (
        numbers[name] for name in ("zero_outputs", "best_constant", "least")
    )
    mean, kind = sum(losses) / len(losses), task.kind
    said = (
        f"The first loss is {mean:.4g}; outputs of zero have {uniform:.4g}, the best constant "
        f"has {constant:.4g}"
    )
    if kind in ("classes", "binary"):
        knowing = math.log(max(2, task.classes))
        summed = max(1.0, uniform / knowing)  # a loss that is a sum counts each nat so many times
        high = mean - uniform > summed * max(MOST_NATS, 2 * knowing)
    else:
        # a likelihood has its least far from 0: beside it, outputs of zero are no bad start
        nothing = max(constant, uniform) if likelihood else constant
        high = mean - least > MOST_FACTOR * (nothing - least) > 0
    if high:
        return wrong(
            f"{said}: the start is far above.",
            [
                "targets are not standardised"
                if kind == "regression"
                else "the weights of the last layer are too large",
                "inputs are not scaled",
                "labels or outputs of another order",
            ],
            "Initialise the last layer small, with the base rates (mean) as bias; standardise "
            "targets.",
            **numbers,
        )
    if max(losses) - least < LEAST_FACTOR * (constant - least) and kind != "unknown":
        if fixed:
            return unclear(f"{said}: too good for an untrained model.", **numbers)
        return wrong(
            f"{said}: an untrained model cannot be this good.",
            [
                "the loss averages over places that do not count",
                "the loss is divided twice",
                "the input holds the target",
            ],
            "Compute the loss of one example by hand, and compare.",
            **numbers,
        )
    return passed(f"{said}.", **numbers)


NEAR = 1e-4
OUT_OF_REACH = 0.25  # share of targets


class SoftmaxTwice(Check):
    """Probabilities where the loss expects logits, or logits where it expects log-probabilities.

    ## What it does
    Identifies the loss (cross-entropy, log-likelihood, binary cross-entropy) and the outputs
    (logits, probabilities, log-probabilities) from their values.

    ## Why is this bad
    With two softmaxes, the loss cannot fall below about log(K) - 1, and training is slow.
    Log-likelihood of logits falls without bound.

    ## How it decides
    Fails on any of these:

    - Cross-entropy of logits gets values in 0..1 that sum to 1 (to 1 in 10,000).
    - Outputs sum to 1 along another axis than the classes.
    - Binary cross-entropy of logits gets sigmoid outputs.
    - Log-likelihood gets no log-probabilities, or torch's `kl_div` gets probabilities first.
    - The single output of a two-class model is always 1.
    - Regression outputs stay in 0..1 for eight draws of the weights, and a quarter of the targets
      lie outside.

    Log-softmax before cross-entropy passes, because it changes nothing.

    ## Limits
    Other losses are inconclusive.
    """

    code = "TRAIN010"
    name = "softmax-and-loss"
    next_step = "Let the model return logits, and the loss be cross-entropy of logits."

    def run(self, subject: TrainingSubject) -> Answer:
        task = subject.task
        if subject.takes_tensor and _probabilities_into_divergence(subject):
            return SoftmaxTwice.failed(
                "The loss is kl_div, and what it is given as log-probabilities are probabilities "
                "(between 0 and 1, sum 1).",
                "softmax instead of log_softmax on the first argument of KLDivLoss",
            )
        if task.kind == "regression" and subject.takes_tensor:
            return _judge_bounded(subject)
        if task.kind not in ("classes", "binary") or not subject.takes_tensor:
            return unclear("The task is none of classes.")
        if task.kind == "binary" and _is_one(subject.first_outputs):
            return _softmax_of_one()
        if subject.loss_alone.form == "unit" and subject.loss_alone.insists:
            return passed("The loss takes probabilities in 0..1, and that is what outputs are.")
        loss = _name_loss(subject)
        outputs = subject.first_outputs.float()
        numbers: dict[str, Any] = {
            "loss": loss,
            "least": float(outputs.min()),
            "largest": float(outputs.max()),
        }
        between = bool((outputs >= 0).all() and (outputs <= 1).all())
        if task.kind == "binary":
            return _judge_binary(loss, between, subject, numbers)
        axis = task.axis % outputs.ndim
        shares, logs = (_sums_to_one(part, axis) for part in (outputs, outputs.exp()))
        probable, logged = between and shares == axis, logs == axis
        other = shares if between and not probable else None if logged else logs
        if other is not None:
            return SoftmaxTwice.failed(
                f"A softmax runs along axis {other} of the outputs"
                f"{', over the examples of the batch' if other == 0 else ''}: the classes are axis "
                f"{axis}.",
                f"softmax or log_softmax with dim={other}, or without dim",
                **numbers,
            )
        if loss == "cross-entropy" and probable:
            return SoftmaxTwice.failed(
                "Outputs are probabilities (between 0 and 1, sum 1), and the loss "
                "applies a softmax to them again.",
                "a softmax at the end of the model",
                **numbers,
            )
        if loss == "log-likelihood" and not logged:
            what = "probabilities" if probable else "no log-probabilities"
            return SoftmaxTwice.failed(
                f"The loss is a log-likelihood (NLLLoss), and outputs are {what}.",
                "log_softmax is missing before NLLLoss",
                **numbers,
            )
        if loss == "unknown":
            return unclear(
                "The loss is neither cross-entropy nor log-likelihood by its numbers.", **numbers
            )
        what = "probabilities" if probable else "log-probabilities" if logged else "logits"
        return passed(f"The loss is {loss}, and outputs are {what}.", **numbers)

    def run_keras(self, subject: KerasSubject) -> Answer:
        kind, outputs = subject.task.kind, subject.first_outputs
        if kind not in ("classes", "binary") or not subject.takes_tensor:
            return unclear("The task is none of classes.")
        sums = outputs.sum(axis=subject.task.axis)
        if kind == "binary" and _is_one(outputs):
            return _softmax_of_one()
        ends = _stays_bounded(subject) if kind == "binary" else np.allclose(sums, 1, atol=NEAR)
        takes = _keras_loss(subject)
        numbers = {"loss": takes, "outputs": "probabilities" if ends else "any numbers"}
        if takes == "logits" and ends:
            return SoftmaxTwice.failed(
                "Outputs are probabilities, and the loss (from_logits=True) makes probabilities of "
                "them again.",
                "a softmax or sigmoid at the end of the model, and from_logits=True",
                **numbers,
            )
        if takes == "probabilities" and not ends:
            return SoftmaxTwice.failed(
                f"Outputs run from {outputs.min():.3g} to {outputs.max():.3g}, and the loss takes "
                "them for probabilities (it cuts them off at 0 and 1).",
                "from_logits=True is missing in the loss",
                **numbers,
            )
        if takes == "unknown":
            return unclear("The loss is no cross-entropy by its numbers.", **numbers)
        return passed(f"The loss takes {takes}, and outputs are {numbers['outputs']}.", **numbers)


def _probabilities_into_divergence(subject: TrainingSubject) -> bool:
    """Whether the first argument of a kl_div in the user's loss is no logarithm."""
    tape = Tape()
    outputs = subject.loss_alone.formed(torch.randn_like(subject.first_outputs.float()))
    with recording_mode(lambda: tape):
        subject.loss_of(subject.settings, outputs, subject.batches[0][2])
    given = [
        tape.tensors[call.args[0].number] for call in tape.calls
        if call.name == "kl_div" and isinstance(call.args[0], Node)
    ]  # fmt: skip
    return any(bool((v >= 0).all()) and _sums_to_one(v, v.ndim - 1) is not None for v in given)


def _sums_to_one(values: Any, first: int) -> int | None:
    """The axis along which all sums are 1, `first` looked at first; None without one."""
    for axis in (first, *(a for a in range(values.ndim) if a != first)):
        sums = values.sum(axis)
        if values.shape[axis] > 1 and torch.allclose(sums, torch.ones_like(sums), atol=NEAR):
            return axis
    return None


def _name_loss(subject: TrainingSubject) -> str:
    """What the loss does, by its values on random outputs."""
    shape, targets = subject.first_outputs, subject.batches[0][2]

    def cost(outputs: Any) -> float:
        return float(subject.loss_of(subject.settings, outputs, targets))

    if subject.task.kind == "binary":
        # Only binary cross-entropy of logits has these values, whatever its weights: outputs of 0
        # cost c log 2, outputs of 40 on the wrong side 40 c, on the right side nothing.
        side = 1 - 2 * main_tensor(targets).float().reshape(shape.shape)
        wrong_side, right_side, middle = (cost(part * side) for part in (40.0, -40.0, 0.0))
        slope = wrong_side * math.log(2) / (40.0 * middle) if middle > 0 else 0.0
        known = abs(slope - 1) < NEAR and abs(right_side) < NEAR * middle
        return "binary cross-entropy of logits" if known else "unknown"
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(shape.shape, generator=generator).to(shape.device)
    shift = torch.randn(1, generator=generator).item() * 3 + 5
    value, moved = cost(outputs), cost(outputs + shift)
    if abs(moved - value) < NEAR * max(1.0, abs(value)):
        return "cross-entropy"  # a constant on all classes changes nothing: a softmax is inside
    if abs(moved - (value - shift)) < 1e-3 * max(1.0, abs(shift)):
        return "log-likelihood"  # it moves by exactly that constant: outputs are taken as they are
    return "unknown"


def _judge_binary(
    loss: str, between: bool, subject: TrainingSubject, numbers: dict[str, Any]
) -> Answer:
    if loss == "binary cross-entropy of logits" and between and subject.ends_in_sigmoid:
        return SoftmaxTwice.failed(
            "Outputs went through a sigmoid, and the loss applies one again.",
            "a sigmoid at the end of the model",
            **numbers,
        )
    if loss == "unknown":
        return unclear("The loss is no binary cross-entropy of logits by its numbers.", **numbers)
    return passed(
        f"The loss is {loss}; outputs run from {numbers['least']:.3g} to {numbers['largest']:.3g}.",
        **numbers,
    )


def _judge_bounded(subject: TrainingSubject) -> Answer:
    """Numbers: targets that a sigmoid at the end of the model cannot reach."""
    targets = main_tensor(subject.batches[0][2]).float()
    if not subject.ends_in_sigmoid:
        return unclear("The outputs are numbers without bounds.")
    beyond = float(((targets < -0.05) | (targets > 1.05)).float().mean())
    said = (
        f"outputs end in a sigmoid, and targets run from {targets.min():.4g} to {targets.max():.4g}"
    )
    if beyond > OUT_OF_REACH:
        return SoftmaxTwice.failed(
            f"{beyond:.0%} of the targets cannot be reached: {said}.",
            "targets are in pixels or other units, and outputs between 0 and 1",
            "a sigmoid at the end of a model for numbers of any size",
            beyond=beyond,
        )
    return passed(f"{said[0].upper()}{said[1:]}.", beyond=beyond)


def _is_one(outputs: Any) -> bool:
    return bool(outputs.ndim > 1 and outputs.shape[-1] == 1 and (abs(outputs - 1) < 1e-6).all())


def _softmax_of_one() -> Answer:
    return SoftmaxTwice.failed(
        "The model has one output, which is 1 for every input: a softmax over one number.",
        "softmax instead of sigmoid at the end of a model with one output",
    )


def _stays_bounded(subject: KerasSubject) -> bool:
    """Outputs stay between 0 and 1 where the last weights are ten thousand times as large."""
    training = subject.fresh()
    held = [w for w in training.model.trainable_variables if len(w.shape) > 1][-1:]
    for weight in held:
        weight.assign(weight * 1e4)
    outputs = [subject.first_outputs, subject.outputs(training, subject.batches[0][1])]
    subject.fresh()  # puts them back
    return all(bool((o >= 0).all() and (o <= 1).all()) for o in outputs)


def _keras_loss(subject: KerasSubject) -> str:
    """'logits', 'probabilities' or 'unknown', by the loss of random outputs."""
    alone, binary = subject.loss_alone, subject.task.kind == "binary"
    noise = np.random.default_rng(0).normal(0, 1, subject.first_outputs.shape)
    with np.errstate(over="ignore"):
        share = 1 / (1 + np.exp(-noise))
    if not binary:
        share = np.exp(noise) / np.exp(noise).sum(axis=-1, keepdims=True)
    wanted = subject.targets.astype(np.int64).reshape(share.shape[: subject.targets.ndim])
    if wanted.min() < 0 or wanted.max() >= max(2, subject.task.classes):
        return "unknown"  # labels out of range: TRAIN020
    if binary:
        chosen = np.where(wanted.reshape(share.shape) == 1, share, 1 - share)
    else:
        chosen = np.take_along_axis(share, wanted[..., None], axis=-1)
    expected = float(-np.log(chosen).mean())
    penalty = alone.of(noise) - expected, alone.of(share) - expected
    if abs(penalty[0]) < 1e-3 * expected:
        return "logits"
    return "probabilities" if abs(penalty[1]) < 1e-3 * expected else "unknown"


FAR_FROM_MEAN = 10.0  # deviations of the targets


class BaseRate(Check):
    """Outputs that start far from the mean of the targets.

    ## What it does
    Computes the gain of a better last bias: the distance of the outputs from the mean (regression),
    or log K minus the label entropy (classes).

    ## Why is this bad
    Hundreds of steps learn a mean, and their large gradients disturb all other weights.

    ## How it decides
    Regression fails if the mean is more than 10 deviations from the first outputs. Classes fail if
    a bias at the base rates saves more than 0.6 nats and a third of log K. Your loss and the label
    counts must agree, with one label per sample and ten per class. Tokens and masks only get a
    report.

    ## Limits
    The base rates of a few batches are rough. Compute them on the training set.
    """

    code = "TRAIN013"
    name = "far-from-base-rate"
    nearness = Nearness.EFFECT
    causes = ("targets are not standardised",)
    next_step = "Subtract the mean and divide by the deviation, or set the last bias."

    def run(self, subject: Examined) -> Answer:
        task = subject.task
        if task.kind == "regression":
            found = [as_array(main_tensor(batch[2])) for batch in subject.batches]
            targets = np.concatenate([t.reshape(-1) for t in found if t is not None])
            mean, spread = float(targets.mean()), float(targets.std(ddof=1)) + 1e-12
            if subject.takes_tensor and found[0] is not None:
                wanted = float(subject.loss_alone.shared_outputs[1].mean())
                if abs(wanted - float(found[0].mean())) > spread:
                    return unclear(
                        f"The best constant output is {wanted:.4g}, and the mean of the targets "
                        f"{mean:.4g}: the loss asks for another number."
                    )
            start = float(subject.outputs(subject.fresh(), subject.batches[0][1]).mean())
            distance = abs(mean - start) / spread
            numbers = {"mean": mean, "deviation": spread, "distance": distance}
            if distance > FAR_FROM_MEAN:
                return self.failed(
                    f"Targets have mean {mean:.4g} and deviation {spread:.4g}; outputs start "
                    f"{distance:.0f} deviations from that mean.",
                    **numbers,
                )
            return passed(
                f"Outputs start {distance:.2f} deviations from the mean of the targets.", **numbers
            )
        if task.kind in ("classes", "binary") and subject.takes_tensor:
            return _judge_rates(subject)
        return unclear("The task is neither of classes nor of numbers.")

    run_keras = run


MOST_SAVED, OF_KNOWING, COUNTED = 0.6, 1 / 3, 10  # nats; of log K; labels for each class


def _judge_rates(subject: Examined) -> Answer:
    """The answer for classes: what a last bias at the base rates would save of the first loss."""
    task, alone = subject.task, subject.loss_alone
    least = max(MOST_SAVED, OF_KNOWING * math.log(max(2, task.classes)))
    start = subject.measured(subject.fresh(), subject.batches[0])
    saved = min(start, alone.uniform) - alone.constant
    said = f"A last bias at the base rates would start {max(0.0, saved):.3f} nats lower"
    counts = _label_counts(subject)
    total = int(counts.sum())
    numbers: dict[str, Any] = {"saved_nats": saved, "labels": total}
    if total < COUNTED * len(counts) or _places_each(subject) != 1:
        return passed(f"{said}.", **numbers)
    rates = counts / total
    if rates.max() == 1:  # a critic's, say: there are no rates to start at
        return unclear(f"{said}; all {total} labels are one class.", **numbers)
    entropy = float(-(rates[rates > 0] * np.log(rates[rates > 0])).sum())
    counted = math.log(len(counts)) - entropy - (len(counts) - 1) / (2 * total)
    numbers["counted_nats"] = counted
    if min(saved, counted) <= least:
        return passed(f"{said}, {counted:.3f} by the labels of {total} places.", **numbers)
    known = (rates + 1 / total) / (rates + 1 / total).sum()
    bias = np.log(known) if task.kind == "classes" else [math.log(known[1] / known[0])]
    shown = ", ".join(f"{v:.2f}" for v in bias[:8]) + (", ..." if len(bias) > 8 else "")
    return wrong(
        f"{said}, more than {least:.2f}: the most frequent class has {rates.max():.0%} of {total} "
        "labels, and the outputs start as if all were as frequent.",
        ["the last bias does not start at the base rates of imbalanced classes"],
        f"Set the last bias to log base rates: {shown} (of these labels; better of all).",
        bias=[round(float(v), 3) for v in bias[:1000]],
        **numbers,
    )


def _places_each(subject: Examined) -> int:
    """Labels of an example: one, or one for each token or pixel."""
    labels = as_array(main_tensor(subject.batches[0][2]))
    return 0 if labels is None or not len(labels) else labels.size // len(labels)


def _label_counts(subject: Examined) -> Any:
    """How often each class occurs in the batches; ignored labels are left out."""
    found = [as_array(main_tensor(batch[2])) for batch in subject.batches]
    classes = max(2, subject.task.classes)
    if subject.task.kind == "binary":
        found = [None if a is None else a > 0.5 for a in found]
    labels = np.concatenate([a.reshape(-1).astype(np.int64) for a in found if a is not None])
    return np.bincount(labels[(labels >= 0) & (labels < classes)], minlength=classes)


UNEVEN, STEEP, IN_LINE = 1.5, (0.5, 1.5), 0.95
FITS, MISFIT = 3.0, 30.0  # deviations of chi-squared
ROUND, MOST_COUNT = 100, 10_000  # smaller counts fit costs that are set by hand


class WeightsInverted(Check):
    """Class weights that grow with the number of samples.

    ## What it does
    Measures the weight of each class in your loss by its gradient at zero outputs. Compares the
    weights with the class counts of the first batches.

    ## Why is this bad
    Weights should compensate for rare classes. Inverted weights (`counts / counts.sum()`) suppress
    them, so the model never predicts them.

    ## How it decides
    Applies to cross-entropy of logits. Fails if weights differ by a factor above 1.5 and follow the
    counts as a power of 0.5 to 1.5. Two classes: 0.75 to 1.25. The logarithms must correlate by
    0.95. Counts must differ by more than 2 times and 3 standard errors, with eight samples of each
    class. Also fails if three or more weights are 1 / counts in another order of the classes only.

    ## What to do
    `weight = counts.sum() / (K * counts)`. For two classes, `pos_weight = negatives / positives`.

    ## Limits
    Weights by the cost of errors may follow the counts by chance: skip this check there. Focal and
    multi-label losses are inconclusive.
    """

    code = "TRAIN041"
    name = "weights-inverted"
    causes = (
        "weights are counts instead of their inverse",
        "pos_weight is positives / negatives instead of negatives / positives",
    )
    next_step = "Divide by the counts: weight = counts.sum() / (K * counts)."

    def run(self, subject: TrainingSubject) -> Answer:
        task = subject.task
        if task.kind not in ("classes", "binary") or not subject.takes_tensor:
            return unclear("The task is none of classes.")
        names = ("cross-entropy", "binary cross-entropy of logits")
        if subject.loss_alone.form or _name_loss(subject) not in names:  # BCELoss takes no logits
            return unclear("The loss is no cross-entropy of logits by its numbers.")
        counts = _label_counts(subject)
        return self._judge(counts, _class_weights(subject, counts))

    def run_keras(self, subject: KerasSubject) -> Answer:
        if all(weights is None for weights, _, _ in subject.batches):
            return absent("No examples and no classes are given weights.")
        targets = [as_array(main_tensor(targets)) for _, _, targets in subject.batches]
        kinds = subject.task.classes if subject.task.kind == "classes" else 2
        if subject.task.kind not in ("classes", "binary") or any(t is None for t in targets):
            return unclear("The task is none of classes.")
        rows = np.concatenate([np.asarray(t).reshape(len(t), -1) for t in targets if t is not None])
        labels = rows.argmax(1) if rows.shape[1] > 1 else rows[:, 0].astype(int)
        told = np.concatenate([w for w, _, _ in subject.batches]).reshape(-1)
        counts, sums = (np.bincount(labels, w, kinds) for w in (None, told))
        with np.errstate(invalid="ignore"):
            return self._judge(counts, sums / counts)

    def _judge(self, counts: Any, weights: Any) -> Answer:
        known = weights > 1e-6 * np.nanmax(weights)  # NaN: does not occur; 0: is ignored
        rows = [
            f"{k}: {n} and {w:.3g}"
            for k, n, w in zip(np.flatnonzero(known), counts[known], weights[known], strict=True)
        ]
        numbers: dict[str, Any] = {
            "counts": counts.tolist()[:1000],
            "weights": weights.tolist()[:1000],
        }
        if known.sum() < 2:
            return unclear("Fewer than two classes occur in the first batches.")
        uneven = float(weights[known].max() / weights[known].min())
        if uneven < UNEVEN:
            return passed(
                f"Classes weigh alike in the loss (to a factor of {uneven:.2f}).", **numbers
            )
        seen, told = counts[known], weights[known]
        if known.all() and _other_order(seen, told):
            said = f"Weights are 1 / count in another order of the classes ({'; '.join(rows[:5])})."
            causes = ["value_counts() sorts classes by their counts, not by their labels"]
            return wrong(said, causes, "Use value_counts().sort_index(), or bincount.", **numbers)
        enough = seen.min() >= 8 and seen.max() > 2 * seen.min()
        if not enough or math.log(seen.max() / seen.min()) < 3 * float(
            np.sqrt((1 / seen).max() * 2)
        ):
            return unclear(
                "Classes are too alike, or too rare, to compare weights with.", **numbers
            )
        x, y = np.log(seen) - np.log(seen).mean(), np.log(told) - np.log(told).mean()
        steep, line = float((x * y).sum() / (x * x).sum()), float(np.corrcoef(x, y)[0, 1])
        numbers |= {"power": round(steep, 3), "correlation": round(line, 3)}
        low, high = STEEP if len(seen) > 2 else (0.75, 1.25)
        said = f"Weights grow with the counts of classes as their power {steep:.2f}"
        if low < steep < high and line > IN_LINE:
            return self.failed(f"{said} (count and weight of {'; '.join(rows[:5])}).", **numbers)
        return passed(f"{said}.", **numbers)


def _other_order(counts: Any, weights: Any) -> bool:
    """Whether the counts fit 1 / weight in another order of the classes only."""
    wanted, degrees = counts.sum() / weights / (1 / weights).sum(), len(counts) - 1
    own, best = (
        (((a - b) ** 2 / a).sum() - degrees) / math.sqrt(2 * degrees)
        for a, b in ((wanted, counts), (np.sort(wanted), np.sort(counts)))
    )
    most = np.arange(1, MOST_COUNT)[:, None]  # samples of the most frequent class
    others = most * weights.min() / weights
    whole = np.flatnonzero((np.abs(others - others.round()) < 5e-7 * most).all(axis=1))
    return bool(degrees > 1 and len(whole) and whole[0] >= ROUND and best < FITS and own > MISFIT)


def _class_weights(subject: TrainingSubject, counts: Any) -> Any:
    """What each class weighs beside the most frequent one; NaN for one that does not occur."""
    logs, classes = [], len(counts)
    for _, _, targets in subject.batches:
        labels = main_tensor(targets)
        labels = (labels > 0.5).long() if subject.task.kind == "binary" else labels.long()
        like, axis = subject.first_outputs, subject.task.axis
        shape = [len(labels), *like.shape[1:]]
        if subject.task.kind == "classes":  # rows of tokens are as long as those of their batch
            shape = [*labels.shape[:axis], classes, *labels.shape[axis:]]
        free = like.new_zeros(shape, dtype=torch.float32).requires_grad_()
        with torch.enable_grad():
            subject.loss_of(subject.settings, free, targets).backward()
        size = free.grad.abs()
        size = size.sum(subject.task.axis) if subject.task.kind == "classes" else size
        flat, places = size.reshape(-1).double().cpu().numpy(), labels.reshape(-1).cpu().numpy()
        flat, places = (a[(places >= 0) & (places < classes)] for a in (flat, places))
        sums, often = (np.bincount(places, w, classes) for w in (flat, None))
        row = np.where(often > 0, np.log(np.maximum(sums, 1e-30) / np.maximum(often, 1)), np.nan)
        logs.append(row - row[counts.argmax()])  # a mean over a batch divides by its weights
    known = ~np.isnan(logs)
    found = np.exp(np.where(known, logs, 0).sum(axis=0) / np.maximum(1, known.sum(axis=0)))
    return np.where(known.any(axis=0), found, np.nan)


AGREE = 0.9
LEAST_USED = 3


class LossWants(Check):
    """A loss whose best outputs are not the targets.

    ## What it does
    Optimises free outputs with your loss alone, and compares them with the targets. For bounding
    boxes, draws random weights to see whether the model always returns corners (x1, y1, x2, y2).

    ## Why is this bad
    With a wrong sign, exchanged arguments or shifted labels, the training optimises another goal.
    Outputs (B, 1) and targets (B,) broadcast to (B, B): the best output is the mean.

    ## How it decides
    Fails if fewer than 90% of the best outputs have the target's class, or that of the next token.
    Regression fails if neither values nor ranks correlate with the targets by 0.9. Fails if eight
    draws of weights give corners, and a tenth of the targets are not corners. Labels from K on
    fail.

    ## What to do
    Call loss(outputs, targets), minimise it, and number classes from 0.

    ## Limits
    Inconclusive for losses on several tensors or that compare samples (ranking, survival,
    contrast), for rates and for mixed targets. Robust losses on very different targets may not
    converge in these steps.
    """

    code = "TRAIN020"
    name = "loss-wants-other"

    def run(self, subject: TrainingSubject) -> Answer:
        task = subject.task
        if (answer := _judge_boxes(subject)) is not None:
            return answer
        if task.kind == "unknown" or not subject.takes_tensor:
            return unclear("What the targets ask for is not known by their shape.")
        if isinstance(subject.batches[0][2], tuple | list) and len(subject.batches[0][2]) > 1:
            return unclear("The loss takes several targets, of which none need be its best answer.")
        if learned_by_loss(subject.settings):
            return unclear("The loss has parameters of its own, so what it asks for is learned.")
        targets = main_tensor(subject.batches[0][2])
        low, high = targets.min().item(), targets.max().item()
        if task.kind == "classes" and high >= task.classes and high != 255:
            return _beyond(int(low), int(high), task.classes)
        if low == high:
            return unclear(f"All targets of the first batch are {low}: they are all equal.")
        least, best = subject.loss_alone.best_outputs
        zero = subject.loss_alone.uniform
        if not math.isfinite(least):
            return unclear("The loss has no gradient with respect to its first argument.")
        crossed = _crossed(best, targets)
        answer = _judge_wants(_agreement(subject, best), least, zero, crossed)
        if answer.judgement == "passed" or task.kind != "regression":
            return answer
        if _compares(subject, best):
            return unclear(f"{answer.sentence[:-1]}, and it compares examples with each other.")
        if subject.loss_alone.form == "positive" and _agreement(subject, -best) >= AGREE:
            return unclear("The outputs that the loss likes best fall with the targets, as rates.")
        return answer

    def run_keras(self, subject: KerasSubject) -> Answer:
        task, labels = subject.task, subject.targets
        if task.kind == "unknown" or not subject.takes_tensor:
            return unclear("What the targets ask for is not known by their shape.")
        if task.kind == "classes" and not 0 <= labels.min() <= labels.max() < task.classes:
            return _beyond(int(labels.min()), int(labels.max()), task.classes)
        least, best = subject.loss_alone.best_outputs
        if not math.isfinite(least):
            return unclear("The loss has no gradient with respect to the outputs.")
        share, zero = _equal_share(task, best, labels), subject.loss_alone.uniform
        return _judge_wants(share, least, zero, _crossed(best, labels))


NO_CORNERS, LEAST_BOXES = 0.1, 16


def _judge_boxes(subject: TrainingSubject) -> Answer | None:
    """A failure where corners are compared with boxes of another form; None of anything else."""
    boxes = [part for _, part in leaves(subject.batches[0][2]) if _are_boxes(part)]
    rows = torch.cat([part.reshape(-1, 4).float() for part in boxes]) if boxes else None
    if rows is None or len(rows) < LEAST_BOXES or float(rows[:, 2:].min()) < 0:
        return None
    share = float((~_are_corners(rows)).float().mean())
    if share < NO_CORNERS:
        return None
    shapes = {part.shape for part in boxes}
    for training in subject.drawn():
        outputs = subject.evaluated(training, subject.batches[0])
        given = [part for _, part in leaves(outputs) if part.shape in shapes]
        if not given or not all(bool(_are_corners(part).all()) for part in given):
            return None
    return wrong(
        f"The model's boxes are corners (x1, y1, x2, y2) whatever its weights, and {share:.0%} of "
        "the targets are no corners: they look like x, y, width, height.",
        ["boxes of COCO (x, y, width, height) where corners are expected"],
        "Make corners of the targets: x, y, x + width, y + height.",
        no_corners=share,
    )


def _are_boxes(part: Any) -> bool:
    return bool(part.is_floating_point() and part.ndim > 1 and part.shape[-1] == 4)


def _are_corners(boxes: Any) -> Any:
    return (boxes[..., 2:] >= boxes[..., :2]).all(-1)


def _compares(subject: TrainingSubject, best: Any) -> bool:
    """Whether ranking, survival or contrast explains that the best outputs are no targets."""

    def loss(outputs: Any, targets: Any) -> Any:
        return subject.loss_of(subject.settings, subject.loss_alone.formed(outputs), targets)

    targets = subject.batches[0][2]
    if couples_outputs(loss, best, targets):
        return True
    beyond = _agreement(subject, best) * math.sqrt(best.numel() - 1) > FAR
    return beyond and couples_targets(loss, best, targets)  # else they are exchanged


def _beyond(low: int, high: int, classes: int) -> Answer:
    """Labels from K on, where K is the number of outputs."""
    return wrong(
        f"Labels run from {low} to {high}, and the model has {classes} outputs.",
        ["labels are counted from 1", "the last layer has too few outputs"],
        f"Give the last layer {high + 1} outputs, or map the labels to 0..{classes - 1}.",
        largest=high,
        outputs=classes,
    )


def _agreement(subject: TrainingSubject, best: Any) -> float:
    return _equal_share(subject.task, as_array(best), as_array(main_tensor(subject.batches[0][2])))


def _equal_share(task: Task, best: Any, wanted: Any) -> float:
    if task.kind == "classes":
        # an output that the loss leaves out stays alike in all classes
        used = best.max(axis=task.axis) > best.min(axis=task.axis)
        found = best.argmax(axis=task.axis)
        rows = [(found == wanted)[used]]
        if found.ndim == 2:  # a language model moves its labels by one place itself
            rows.append((found[:, :-1] == wanted[:, 1:])[used[:, :-1]])
        return max((float(equal.mean()) for equal in rows if equal.size), default=0.0)
    flat, wanted = best.reshape(-1), wanted.reshape(-1)
    if task.kind == "binary":
        middle = (flat.max() + flat.min()) / 2 if len(np.unique(wanted)) > 1 else 0.0
        return float(((flat > middle) == (wanted > 0.5)).mean())
    # the larger of correlation and rank correlation: a loss may want the logarithm, say
    used = flat != 0  # an output that the loss leaves out stays where it started
    if used.sum() < LEAST_USED:
        return 0.0
    both = flat[used], wanted[used]
    pairs = (both, tuple(map(_ranks, both)))
    with np.errstate(invalid="ignore", divide="ignore"):  # all alike: no correlation
        return max(float(np.nan_to_num(np.corrcoef(*pair)[0, 1])) for pair in pairs)


def _ranks(values: Any) -> Any:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (count.cumsum() - (count - 1) / 2)[place]


def _judge_wants(share: float, least: float, zero: float, crossed: str = "") -> Answer:
    numbers: dict[str, Any] = {"agreement": share, "least": least, "zero_outputs": zero}
    if share < AGREE:
        return wrong(
            f"The outputs that minimise the loss agree with {share:.0%} of the targets "
            f"(loss {least:.4g}; outputs of zero have {zero:.4g}).",
            [
                *([crossed] if crossed else []),
                "the sign of the loss is turned round",
                "arguments of the loss are exchanged",
                "labels are shifted, or the loss uses another axis",
                "the loss leaves most examples out",
            ],
            "Compute the loss of a perfect and of a wrong answer by hand.",
            **numbers,
        )
    return passed(
        f"The outputs that minimise the loss agree with {share:.0%} of targets.", **numbers
    )


def _crossed(outputs: Any, targets: Any) -> str:
    """A cause: shapes that broadcast to more numbers than outputs and targets have."""
    try:
        shape = np.broadcast_shapes(outputs.shape, targets.shape)
    except ValueError:
        return ""
    if math.prod(shape) <= max(math.prod(outputs.shape), math.prod(targets.shape)):
        return ""
    return f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} broadcast to {shape}"


class PaddingCounted(Check):
    """A loss that averages over padding.

    ## What it does
    Finds a value that fills the ends of target rows and occurs nowhere else. Tests whether the loss
    has a gradient there.

    ## Why is this bad
    The model learns to predict padding. The loss looks low, and depends on the amount of padding.

    ## How it decides
    Padding is a value that fills the ends of four rows and a quarter of all, and never precedes
    another value. Else padding of the inputs counts where all targets are alike. Fails if the loss
    has a gradient there. Not applicable without padding.

    ## What to do
    Use `ignore_index=pad`, or multiply by a mask and divide by its sum.

    ## Limits
    Targets of whole numbers by position. A single predicted end token is not padding.
    """

    code = "TRAIN021"
    name = "padding-counted"

    def run_keras(self, subject: KerasSubject) -> Answer:
        targets = as_array(main_tensor(subject.batches[0][2]))
        if targets is None or targets.ndim != 2 or targets.dtype.kind == "f":
            return absent("The targets are no rows of whole numbers.")
        return super().run_keras(subject)

    def run(self, subject: TrainingSubject) -> Answer:
        targets = main_tensor(subject.batches[0][2])
        if targets is None or targets.ndim != 2 or torch.is_floating_point(targets):
            return absent("The targets are no rows of whole numbers.")
        found = padding_of(targets) or _padded_beside(subject.batches[0][1], targets)
        if found is None:
            return absent("No value fills the ends of rows: there is no padding to see.")
        value, places = found
        if not subject.takes_tensor or subject.task.kind != "classes":
            return unclear(
                f"The value {value} looks like padding; the loss does not take one tensor."
            )
        outputs = torch.randn_like(subject.first_outputs.float()).requires_grad_()
        with torch.enable_grad():
            subject.loss_of(subject.settings, outputs, subject.batches[0][2]).backward()
        size = outputs.grad.abs().sum(subject.task.axis) if outputs.grad is not None else places * 0
        share = float((size[places] > 0).float().mean())
        numbers = {"value": value, "padded": float(places.float().mean()), "counted": share}
        if share > 0:
            return wrong(
                f"The value {value} fills the ends of rows ({numbers['padded']:.0%} of all "
                f"places), and {share:.0%} of these places count in the loss.",
                ["ignore_index is missing", "the mask is not applied, or only to the sum"],
                f"Set ignore_index={value}, or mask the loss and divide by the sum of the mask.",
                **numbers,
            )
        return passed(
            f"Padding ({value}, {numbers['padded']:.0%} of all places) does not count.", **numbers
        )


def _padded_beside(inputs: Any, targets: Any) -> tuple[int, Any] | None:
    """(target, places) where rows of tokens of the same form are padded; None without such rows."""
    for _, rows in leaves(inputs):
        if rows.shape == targets.shape and not rows.is_floating_point():
            places = (padding_of(rows) or (0, targets < targets))[1]
            values = targets[places].unique().tolist()
            if len(values) == 1:
                return values[0], places
    return None
