"""The weights over the first steps: gradients that reach them."""

from __future__ import annotations

from pipeline_profiler.checks.check import Answer, Check, passed, unclear
from pipeline_profiler.checks.keras_subject import Examined

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
