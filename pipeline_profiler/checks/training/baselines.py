"""TRAIN030: a model that simple ones beat after the same budget."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import main_tensor
from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import Patience
from pipeline_profiler.checks.user_training import Training

STEPS, SECONDS, LEAST_HELD = 60, 8.0, 24
RARE = 1e-5  # probability under "no difference", one-sided
MOST_INPUTS = 768  # numbers an example, for the linear model: pictures are averaged down to that
RIDGE = 0.1
Hits = NDArray[np.float64]


class Held(NamedTuple):
    """A model's figures: right (1 or 0) or minus squared error, by example; loss on held data."""

    name: str
    fitted: Hits  # on the batches that were trained on
    held: Hits
    loss: float


class Baselines(Check):
    """A model that is worse than simple baselines.

    ## What it does
    Trains the model up to 60 steps on three quarters of the batches. Fits two baselines: the
    largest class (or mean), and a ridge regression on pixels. Compares them on the last quarter,
    sample by sample.

    ## Why is this bad
    If a linear model finds more in the same data, the pipeline loses information: wrong inputs, a
    wrong loss, or a wrong rate.

    ## How it decides
    Counts samples that one model has right and the other wrong (regression: nearer). Fails if the
    model is behind the largest class with p < 1e-5, and its loss is no better. Fails in the same
    way behind a linear model that fits the training batches no better. Passes if it leads the
    largest class with p < 1e-5. Otherwise inconclusive.

    ## Limits
    One label or one set of numbers per sample. Held-out samples come from the training loader, so
    augmented or repeated files are not new. Fewer than 24 held-out samples are inconclusive.
    """

    code = "TRAIN030"
    name = "behind-baselines"
    nearness = Nearness.SYMPTOM
    quick = False
    causes = (
        "the learning rate or its sign",
        "inputs that do not reach the model as they are",
        "a loss that asks for something else",
    )
    next_step = "Look at what the model gets, then at the checks before this one."

    def run(self, subject: TrainingSubject) -> Answer:
        problem = _unfit(subject)
        if problem:
            return unclear(problem)
        cut = len(subject.batches) - max(1, len(subject.batches) // 4)
        race = Race(subject, subject.batches[:cut], subject.batches[cut:])
        if sum(len(main_tensor(b[2])) for b in race.held) < LEAST_HELD:
            return unclear(f"Fewer than {LEAST_HELD} examples are left to measure on.")
        own, steps = _own(race, STEPS)
        if own is None:
            return unclear(f"The loss is no number after {steps} steps, or the budget too short.")
        return subject.weighed(_judge([own, _majority(race), _linear(race)], steps))


def _unfit(subject: TrainingSubject) -> str:
    task, inputs = subject.task, main_tensor(subject.batches[0][1])
    if not subject.takes_tensor:
        return "Simple models are for one tensor as the output."
    outputs = subject.first_outputs
    single = task.kind in ("classes", "regression") and outputs.ndim == 2
    single = single or (task.kind == "binary" and outputs.numel() == outputs.shape[0])
    single = single or (task.kind == "regression" and outputs.ndim == 1)
    if not single:
        return "Simple models are for one label or one set of numbers an example."
    if task.kind == "regression" and subject.ignores_shift:
        return "The loss takes logits of mixed labels: its outputs are no numbers to be near."
    if inputs is None or inputs is not subject.batches[0][1] or not inputs.is_floating_point():
        return "Simple models are for one tensor of numbers as the input."
    if len(subject.batches) < 4:
        return "There are fewer than four batches to train and to measure on."
    return ""


class Race(NamedTuple):
    """Batches to train on, and batches to measure on."""

    subject: TrainingSubject
    fit: list[Any]
    held: list[Any]

    def figures(self, name: str, outputs: list[Any], loss: float, border: float = 0.5) -> Held:
        """The figures of a model by its outputs for all batches; `border` between two classes."""
        scores = []
        for made, batch in zip(outputs, (*self.fit, *self.held), strict=True):
            targets = main_tensor(batch[2]).to(made.device)
            if self.subject.task.kind == "regression":
                apart = (made.reshape(len(made), -1) - targets.reshape(len(made), -1)) ** 2
                scores.append(-apart.double().mean(1).cpu().numpy())
                continue
            if self.subject.task.kind == "classes":
                right = made.argmax(1) == targets.reshape(-1)
            else:
                right = (made.reshape(-1) > border) == (targets.reshape(-1) > 0.5)
            scores.append(right.cpu().numpy().astype(np.float64))
        cut = len(self.fit)
        return Held(name, np.concatenate(scores[:cut]), np.concatenate(scores[cut:]), loss)

    def wanted(self) -> NDArray[np.float64]:
        """Targets to fit as rows of numbers: one column a class, or the numbers themselves."""
        values = np.concatenate([main_tensor(b[2]).cpu().numpy() for b in self.fit])
        if self.subject.task.kind == "classes":
            classes = self.subject.task.classes
            values = np.eye(classes)[values.reshape(-1).clip(0, classes - 1)]
        wanted: NDArray[np.float64] = values.reshape(len(values), -1).astype(np.float64)
        return wanted


def _own(race: Race, most: int) -> tuple[Held | None, int]:
    """The user's model after the same steps, in the better of its two modes; and the steps."""
    subject, fit = race.subject, race.fit
    training = subject.fresh()
    patience = Patience(SECONDS, max(2.0, subject.time_left() / 8))
    number = 0
    for number in range(1, most + 1):
        if not math.isfinite(subject.step(training, fit[number % len(fit)])):
            return None, number
        if patience.over:
            break
    rows = [_measured(race, training, mode) for mode in (False, True)]
    return (max(rows, key=lambda row: row.held.mean()), number) if number > 5 else (None, number)


def _measured(race: Race, training: Training, mode: bool) -> Held:
    subject = race.subject
    training.model.train(mode)
    with torch.no_grad():
        made = [subject.output(training, b[1]).float() for b in (*race.fit, *race.held)]
    losses = [subject.measured(training, b, mode) for b in race.held]
    border = 0.5 if subject.loss_alone.form else 0.0
    return race.figures("the model", made, float(np.mean(losses)), border)


def _majority(race: Race) -> Held:
    """The largest class or the mean; its loss is the least that one output for all can have."""
    middle = torch.from_numpy(race.wanted().mean(0))
    made = [middle.expand(len(main_tensor(b[2])), -1) for b in (*race.fit, *race.held)]
    return race.figures("majority", made, race.subject.loss_alone.constant)


def _linear(race: Race) -> Held:
    """Ridge regression on the inputs, averaged down where they are large pictures."""
    rows = [_features(b[1]) for b in (*race.fit, *race.held)]
    known = np.concatenate(rows[: len(race.fit)])
    mean, spread = known.mean(0), known.std(0) + 1e-6
    rows = [(row - mean) / spread for row in rows]
    known = np.concatenate(rows[: len(race.fit)])
    wanted = race.wanted()
    middle = wanted.mean(0)
    strength = RIDGE * len(known) * np.eye(known.shape[1])
    weights = np.linalg.solve(known.T @ known + strength, known.T @ (wanted - middle))
    made = [torch.from_numpy(row @ weights + middle) for row in rows]
    return race.figures("linear on pixels", made, math.nan)


def _features(inputs: Any) -> NDArray[np.float64]:
    value = inputs.detach().float().cpu()
    if value.ndim == 4:
        side = max(2, int(math.sqrt(MOST_INPUTS / value.shape[1])))
        if min(value.shape[2:]) > side:
            value = torch.nn.functional.adaptive_avg_pool2d(value, side)
    flat = value.flatten(1)
    flat = flat[:, :: -(-flat.shape[1] // MOST_INPUTS)]
    features: NDArray[np.float64] = flat.double().nan_to_num().numpy()
    return features


def behind(ours: Hits, theirs: Hits) -> float:
    """Return the probability by chance of being so far behind: a one-sided sign test by sample."""
    lost, won = int((theirs > ours).sum()), int((theirs < ours).sum())
    tosses = lost + won
    ways: int = sum(math.comb(tosses, k) for k in range(lost, tosses + 1))
    return float(ways / 2**tosses)


def share_interval(hits: Hits) -> tuple[float, float, float]:
    """(mean, low, high) at 95 %: Wilson's for shares, the normal one for errors."""
    n, mean, z = len(hits), float(hits.mean()), 1.96
    if not set(np.unique(hits)) <= {0.0, 1.0}:
        half = z * float(hits.std(ddof=1)) / math.sqrt(n)
        return mean, mean - half, mean + half
    middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return mean, middle - half, middle + half


def _judge(rows: list[Held], steps: int) -> Answer:
    own, majority, linear = rows
    shares = set(np.unique(own.held)) <= {0.0, 1.0}
    sign = 1 if shares else -1
    table = {r.name: sorted(round(sign * v, 5) for v in share_interval(r.held)) for r in rows}
    numbers: dict[str, Any] = {"steps": steps, "held": len(own.held), "baselines": table}
    what = "Share that is right" if shares else "Mean squared error"
    said = ", ".join(f"{n} {v[1]:.3g} ({v[0]:.3g} to {v[2]:.3g})" for n, v in table.items())
    text = f"{what} of {len(own.held)} held-out examples after {steps} steps: {said}"
    worse = not own.loss < majority.loss
    if behind(own.held, majority.held) < RARE and worse:
        return Baselines.failed(f"{text}. The model is behind the majority.", **numbers)
    as_fitted = own.fitted.mean() >= linear.fitted.mean() - 1e-9
    if behind(own.held, linear.held) < RARE and as_fitted and worse:
        return Baselines.failed(f"{text}. The model is behind a linear one.", **numbers)
    if behind(majority.held, own.held) < RARE:
        return passed(f"{text}.", **numbers)
    return unclear(
        f"{text}. The model is not surely ahead of the majority, nor behind.",
        "Give it more steps, or look at the learning rate (TRAIN026).",
        **numbers,
    )
