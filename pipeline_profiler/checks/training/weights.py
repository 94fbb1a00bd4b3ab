"""The weights over the first steps: gradients that reach them, moves, sizes of updates, twins."""

from __future__ import annotations

import itertools
import math
from statistics import median_high
from typing import Any

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject

GRADIENT_STEPS = 6


class NoGradient(Check):
    """Trainable parameters without a gradient.

    ## What it does
    Trains for six steps, and records for each parameter with requires_grad whether its gradient
    exists and is nonzero.

    ## Why is this bad
    These weights keep their random start. The rest of the model learns around them, so the result
    is only worse.

    ## How it decides
    Fails if a parameter of the optimizer never had a gradient, or a weight had an exactly zero
    gradient in all six steps. Branches that start at zero (ReZero, zero-initialised norms) pass:
    they get gradients from the second step. Exact.

    ## What to do
    Look for detach(), no_grad(), .data, .item(), numpy or argmax between the parameter and the
    loss. Look for modules that forward() does not call.

    ## Limits
    TRAIN006 covers requires_grad=False. Unused embedding rows and biases with zero gradients are
    not reported.
    """

    code = "TRAIN005"
    name = "no-gradient"
    causes = (
        "detach(), .item(), no_grad(), .data or numpy between them and the loss",
        "a module that forward() does not call, or whose output is not used",
        "units that are all dead",
    )
    of_all = (
        "the loss does not depend on the model: detach(), .item() or no_grad() around it",
        "zero_grad() comes between backward() and optimizer.step()",
    )
    next_step = "Follow the path from these parameters to the loss."

    def run(self, subject: Examined) -> Answer:
        training = subject.fresh()
        had: dict[str, float] = {}
        for number in range(GRADIENT_STEPS):
            batch = subject.batches[number % len(subject.batches)]
            for name, size in subject.step_with_gradients(training, batch)[1].items():
                had[name] = max(had.get(name, 0.0), size)
        weights = subject.weights(training)
        if groups := getattr(training.optimizer, "param_groups", ()):  # the rest trains elsewhere
            held = {id(p) for group in groups for p in group["params"]}
            ours = {n for n, p in training.model.named_parameters() if n in had or id(p) in held}
            weights = {name: w for name, w in weights.items() if name in ours}
        if not weights:
            return unclear("The model has no weights to be trained.")
        missing = [name for name in weights if name not in had]
        zero = [n for n, w in weights.items() if n in had and had[n] == 0 and w.ndim > 1]
        total, found = len(weights), missing or zero
        numbers = {"parameters": total, "without": missing[:20], "zero": zero[:20]}
        if not found:
            return passed(f"All {total} parameters to be trained got gradients.", **numbers)
        names = ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")
        kind = "no gradient at all" if missing else "gradients that are exactly zero"
        causes = self.of_all if len(missing) == total else self.causes
        said = f"{len(found)} of {total} parameters have {kind}: {names}."
        return self.failed(said, *causes, **numbers)

    run_keras = run


UPDATE_STEPS, MOST_CALLS = 8, 24
LARGE, SMALL = 0.3, 1e-6  # update over weight, by step; about 1e-3 is usual


class UpdateSizes(Check):
    """The size of weight updates, layer by layer.

    ## What it does
    Measures the norm of the change of each weight (two or more axes) relative to the weight. Uses
    eight steps, or 24 if nothing changes. Looks for NaN and infinite gradients.

    ## Why is this bad
    About a thousandth per step is usual. A third erases the start in three steps, and a millionth
    needs a million steps.

    ## How it decides
    Fails if no weight changes, or a gradient is not finite while the loss is. Fails if the median
    over layers is above 0.3, or its largest step is below 1e-6. Layers that start at zero are
    ignored. Fails if a step leaves half of the weights in half precision equal, although they have
    a gradient.

    ## What to do
    Call loss.backward(), then optimizer.step() of this model's optimizer. Change the learning rate
    by factors of 10. Look for clipping at a tiny norm, or a schedule that divides twice.

    ## Limits
    Only the beginning of a warm-up is seen (TRAIN014 reads more). Accumulation over more than 24
    batches fails.
    """

    code = "TRAIN012"
    name = "update-sizes"
    nearness = Nearness.EFFECT

    def run(self, subject: Examined) -> Answer:
        training = subject.fresh()
        before = subject.weights(training)
        names = [n for n, w in before.items() if w.ndim > 1 and np.linalg.norm(w) > 0]
        if not names:
            return unclear("No weight of two or more axes is trained.")
        ratios: dict[str, list[float]] = {name: [] for name in names}
        infinite: set[str] = set()
        for number in range(MOST_CALLS):
            batch = subject.batches[number % len(subject.batches)]
            loss, sizes = subject.step_with_gradients(training, batch)
            infinite |= {n for n in names if not math.isfinite(sizes.get(n, 0.0))}
            after = subject.weights(training)
            for name in names:
                size = float(np.linalg.norm(before[name])) + 1e-12
                ratios[name].append(float(np.linalg.norm(after[name] - before[name])) / size)
            before = after
            moved = any(map(any, ratios.values()))
            if not math.isfinite(loss) or (moved and number >= UPDATE_STEPS - 1):
                break
        means = {name: sum(values) / len(values) for name, values in ratios.items()}
        median = median_high(means.values())
        most = median_high(max(values) for values in ratios.values())
        numbers: dict[str, Any] = {
            "median": median,
            "by_layer": dict(list(means.items())[:40]),
            "not_finite": sorted(infinite)[:20],
        }
        rounded = _share_rounded(subject)
        step = "One step changes the weights by"
        layers = f"of their size (median over {len(means)} layers)."
        rows = (
            (not moved and math.isfinite(loss),
             f"None of {len(names)} weights has changed after {MOST_CALLS} training steps.",
             ["optimizer.step() or backward() is missing", "the optimizer holds other parameters",
              "the learning rate is 0", "zero_grad() comes between backward() and step()"],
             "Check the order: zero_grad, backward, step."),
            (infinite, f"Gradients of {len(infinite)} weights are not finite: "
             f"{', '.join(sorted(infinite)[:3])}.",
             ["overflow in half precision", "a square root or logarithm at zero",
              "a learning rate that is far too high"],
             "Set torch.autograd.set_detect_anomaly(True), and try a tenth of the learning rate."),
            (median > LARGE or not math.isfinite(median), f"{step} {median:.0%} {layers}",
             ["the learning rate is too high", "gradients are summed instead of averaged"],
             "Try a hundredth of the learning rate."),
            (rounded > 0.5 and median > 10 * SMALL,
             f"A step leaves {rounded:.0%} of the weights in half precision equal: the update is "
             "smaller than their rounding.", ["the model was cast with .to(torch.bfloat16)"],
             "Keep the weights in float32, and use torch.autocast."),
            (most < SMALL, f"{step} {median:.1e} {layers}",
             ["the learning rate is too low", "gradients are clipped to a tiny norm",
              "the schedule starts at almost zero"], "Try a thousand times the learning rate."),
        )  # fmt: skip
        for failed, sentence, causes, action in rows:
            if failed:
                return wrong(sentence, causes, action, **numbers)
        return passed(f"{step} {median:.1e} {layers}", **numbers)

    run_keras = run


def _share_rounded(subject: Examined) -> float:
    """Return the share of weights in half precision with a gradient that a step leaves equal."""
    training, shares = subject.fresh(), [0.0]
    weights = training.model.parameters() if isinstance(subject, TrainingSubject) else ()
    half = [p for p in weights if p.dtype in (torch.float16, torch.bfloat16)]
    for batch in itertools.islice(itertools.cycle(subject.batches), UPDATE_STEPS if half else 0):
        before = [p.detach().clone() for p in half]
        subject.step(training, batch)
        same = [
            (weight == old)[weight.grad != 0]
            for weight, old in zip(half, before, strict=True)
            if weight.grad is not None
        ]
        shares.append(float(torch.cat(same).float().mean()) if same else 0.0)
    return median_high(shares)
