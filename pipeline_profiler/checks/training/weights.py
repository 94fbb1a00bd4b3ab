"""The weights over the first steps: gradients that reach them."""

from __future__ import annotations

from pipeline_profiler.checks.check import Answer, Check, passed, unclear
from pipeline_profiler.checks.keras_subject import Examined

GRADIENT_STEPS = 6


class NoGradient(Check):
    """Trainable parameters without a gradient.

    ## How it decides
    Trains six steps. Fails if a parameter of the optimizer never had a gradient, or a weight had an
    exactly zero gradient in all steps. Branches that start at zero (ReZero) pass: they get
    gradients from the second step. Exact.

    ## Limits
    Unused embedding rows and biases with zero gradients are not reported.
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
        total = len(weights)
        found = missing or [n for n, w in weights.items() if had[n] == 0 and w.ndim > 1]
        if not found:
            return passed(f"All {total} parameters to be trained got gradients.")
        names = ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")
        kind = "no gradient at all" if missing else "gradients that are exactly zero"
        causes = self.of_all if len(missing) == total else self.causes
        return self.failed(f"{len(found)} of {total} parameters have {kind}: {names}.", *causes)

    run_keras = run
