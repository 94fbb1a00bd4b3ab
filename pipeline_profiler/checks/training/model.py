"""The model: its structure, gradients and flags, and what an output depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import (
    Array,
    as_array,
    batch_size,
    cut_batch,
    links_examples,
    main_tensor,
    map_nested,
    padding_of,
)
from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import nn, torch
from pipeline_profiler.checks.loop_facts import idle_flags
from pipeline_profiler.checks.training_subject import TrainingSubject, batch_first
from pipeline_profiler.checks.user_code import UsersError, seed_everything
from pipeline_profiler.checks.user_training import Training

STEPS = 12
SAME = 1e-6  # relative difference of outputs
MAX_CHANGE = 1e-3  # of the deviation of outputs; sums in another order stay below 1e-5


class InputIgnored(Check):
    """Outputs that are the same for every input.

    ## How it decides
    Fails if outputs of different samples agree to one part in a million at the start and after 12
    steps. Fails if exchanged tokens, except padding, change no output by that much.
    """

    code = "TRAIN002"
    name = "input-ignored"
    torch_only = ""
    nearness = Nearness.EFFECT
    causes = ("a layer whose output is overwritten in forward()", "dead or saturated units")
    next_step = "Print the deviation over the batch after each layer."

    def run(self, subject: Examined) -> Answer:
        training, inputs = subject.fresh(), subject.batches[0][1]
        if batch_size(inputs) < 2:
            return unclear("There are fewer than two examples, or inputs without numbers.")
        before = _spread(subject.outputs(training, inputs))
        subject.steps(training, STEPS)
        after = _spread(subject.outputs(training, inputs))
        if max(before, after) < SAME:
            text = f"Outputs for different inputs differ by {after:.1e} of their size"
            return self.failed(f"{text}: the input does not reach the output.")
        if isinstance(subject, TrainingSubject) and _tokens_ignored(subject, training):
            return self.failed(
                "No output changes when tokens that are no padding are exchanged.",
                "an inverted mask (key_padding_mask is True where a position is ignored)",
                "the embedding is overwritten, or multiplied by a mask of the padding",
            )
        text = f"differ by {before:.2g} of their size, and by {after:.2g} after {STEPS} steps"
        return passed(f"Outputs of different inputs {text}.")


def _tokens_ignored(subject: TrainingSubject, training: Any) -> bool:
    """Return whether no output depends on the tokens that are no padding."""
    generator, changed = torch.Generator().manual_seed(0), [False]

    def exchanged(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return map_nested(value, exchanged)
        whole = value.dtype in (torch.int64, torch.int32)
        if not whole or value.ndim != 2 or np.unique(value.cpu().numpy()).size < 3:
            return value
        padding = padding_of(value)
        real = torch.ones_like(value, dtype=torch.bool) if padding is None else ~padding[1]
        other = value.clone()
        for column in range(value.shape[1]):  # columns of a table have numbers of their own
            rows = real[:, column].nonzero()[:, 0]
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            other[rows, column] = value[rows[order], column]
        changed[0] |= not torch.equal(other, value)
        return other

    inputs = subject.batches[0][1]
    other = exchanged(inputs)
    if not changed[0]:
        return False
    first, second = (np.asarray(subject.outputs(training, part), float) for part in (inputs, other))
    same = first.shape == second.shape
    return same and bool(np.abs(first - second).max() <= SAME * (np.abs(first).max() + 1e-30))


def _spread(outputs: Array) -> float:
    """Return the deviation of outputs over the samples, relative to their size."""
    numbers = np.asarray(outputs, np.float64)
    return float(np.abs(numbers - numbers[:1]).mean() / (np.abs(numbers).mean() + 1e-30))


def _difference(rows: Array, whole: Array) -> float:
    """Return the largest difference, in deviations of the whole."""
    return float(np.abs(rows - whole).max() / (whole.std(ddof=1) + 1e-12))


def _not_comparable(subject: Examined, inputs: Any, least: int) -> Answer | None:
    """Return why samples cannot be compared along the first axis; None if they can."""
    if links_examples(inputs):
        return absent("The examples are nodes of a graph: by design their outputs are linked.")
    made, count = subject.settings, batch_size(inputs)
    own = made.loop is not None and getattr(made.loader, "batch_size", None) is None
    parts = getattr(made.model, "modules", tuple)() if own else ()
    time = (isinstance(m, nn.RNNCellBase) or not getattr(m, "batch_first", True) for m in parts)
    if count < least or any(time):
        return unclear(f"The first axis of {count} is too short, or it may be time.")
    if not batch_first(subject):
        return unclear(f"The first axis of the output is not the batch of {count}, or not alone.")
    return None


class ExamplesMixed(Check):
    """Outputs of one sample that depend on other samples of the batch.

    ## How it decides
    In eval mode, keeps one sample (first, middle, last) and replaces all others. Fails if its
    output changes by more than a thousandth of the deviation of the outputs. Not applicable to
    nodes of a graph, inconclusive if the first axis may be time.
    """

    code = "TRAIN004"
    name = "examples-mixed"
    torch_only = ""
    causes = (
        "a view, softmax, mean or norm that mixes the batch with another axis",
        "recurrence or attention over the batch (batch_first)",
    )
    next_step = "Follow the shapes in forward(); use permute, and name the axis of reductions."

    def run(self, subject: Examined) -> Answer:
        inputs, training = subject.batches[0][1], subject.fresh()
        count = batch_size(inputs)
        if (answer := _not_comparable(subject, inputs, least=3)) is not None:
            return answer

        def output(places: list[int]) -> Any:
            seed_everything(subject.seed)  # a model that samples draws the same numbers each time
            return subject.outputs(training, cut_batch(inputs, count, places))

        whole, moved = output([*range(count)]), 0.0
        for sample in {0, count // 2, count - 1}:
            for order in ([*range(count)][::-1], [int(sample == 0)] * count):
                order[sample] = sample
                found = _filled(output(order)[sample], whole[sample])
                moved = max(moved, float(abs(found - whole[sample]).max()))
        share = moved / (float(whole.std(ddof=1)) + 1e-12)
        text = "The output of a sample moves by {} of the deviation of outputs with other samples"
        if share > MAX_CHANGE:
            return self.failed(f"{text.format(f'{share:.1%}')} of the batch, in eval mode.")
        return passed(f"{text.format(f'{share:.1e}')}.")


EXAMPLES = 4


class OneByOne(Check):
    """Outputs of a batch that differ from outputs of its samples one by one.

    ## How it decides
    In eval mode, compares the first four samples as a batch and one by one, and with
    `reference(model, sample)` if your file has it. Fails if outputs differ by more than a
    thousandth of their deviation, or a single sample raises an error.

    ## Limits
    Models that need whole batches (contrastive) are correct: skip this check there.
    """

    code = "TRAIN011"
    name = "batch-unlike-single"
    torch_only = ""
    causes = ("squeeze() without an axis", "a reduction, softmax or norm over the batch")
    next_step = "Run the model on one example and follow the shapes."

    def run(self, subject: Examined) -> Answer:
        inputs, training = subject.batches[0][1], subject.fresh()
        size = batch_size(inputs)
        count = min(EXAMPLES, size)
        if (answer := _not_comparable(subject, inputs, least=2)) is not None:
            return answer
        chosen = cut_batch(inputs, size, slice(count))
        whole, again = (subject.outputs(training, chosen) for _ in range(2))
        if again.shape == whole.shape and not np.allclose(again, whole, atol=1e-5):
            return unclear(
                "The model draws random numbers in eval mode, so samples cannot be compared.",
                "Right for a model that samples; else look for dropout that is always on.",
            )
        try:
            singles = [cut_batch(inputs, size, slice(i, i + 1)) for i in range(count)]
            rows = [subject.outputs(training, single) for single in singles]
        except UsersError as error:
            return self.failed(f"A single example cannot be predicted: {error}")
        rows = [_filled(row, whole[i : i + 1]) for i, row in enumerate(rows)]
        shapes = {row.shape for row in rows}
        if shapes != {(1, *whole.shape[1:])}:
            text = f"Single samples give outputs of shape {shapes.pop()}"
            return self.failed(f"{text}, the batch gives {whole.shape}.")
        apart = _difference(np.concatenate(rows), whole)
        if apart > MAX_CHANGE:
            text = f"Outputs one by one differ from the batch by {apart:.1%} of their deviation"
            return self.failed(f"{text}, in eval mode.")
        text = f"Outputs one by one agree with those of the batch to {apart:.0e} of their deviation"
        if training.reference is None:
            return passed(f"{text}.")
        given: Any = [as_array(training.reference(training.model, inputs[i])) for i in range(count)]
        off = _difference(np.stack([np.reshape(r, whole.shape[1:]) for r in given]), whole)
        if off > MAX_CHANGE:
            return self.failed(f"reference() differs by {off:.1%} of the outputs' deviation.")
        return passed(f"{text}, and with reference() to {off:.0e}.")


def _filled(row: Array, whole: Array) -> Array:
    """Return the outputs of a sample, filled with those of the batch if a batch is longer."""
    shorter = row.ndim == whole.ndim > 1 and row.shape[-1] == whole.shape[-1]
    if not shorter or row.shape == whole.shape or any(np.greater(row.shape, whole.shape)):
        return row
    made = whole.copy()
    made[tuple(map(slice, row.shape))] = row
    return made


class SeesTheFuture(Check):
    """Outputs that depend on later tokens, or are compared with a wrong token.

    ## How it decides
    The gradient of the loss shows which input token each position predicts: 90% of the positions
    must predict the same offset. Fails if the offset is two or more, or zero without dependence on
    later tokens (the model copies). With offset one, changes the second half of the inputs. Fails
    if an output of the first half changes by a thousandth of the deviation.
    """

    code = "TRAIN022"
    name = "sees-the-future"
    causes = ("the causal mask is missing or transposed", "a bidirectional recurrence")
    next_step = "Give attention a causal mask."

    def run_keras(self, subject: KerasSubject) -> Answer:
        inputs, targets = (as_array(main_tensor(part)) for part in subject.batches[0][1:])
        if inputs is None or targets is None or inputs.shape != targets.shape:
            return absent("Inputs and targets are not rows of one shape.")
        return super().run_keras(subject)

    def run(self, subject: TrainingSubject) -> Answer:
        key, tokens = _token_rows(subject.batches[0][1])
        if tokens is None:
            return absent("The inputs are no rows of four or more tokens.")
        if subject.task.kind != "classes" or not subject.takes_tensor:
            return absent("The loss needs no class at each position.")
        shares = _predicted_offsets(subject, tokens)
        offset = next((k for k in (1, 0, 2, 3) if shares.get(k, 0.0) >= PREDICTED), None)
        if offset is None:
            return absent(f"Only {shares.get(1, 0.0):.0%} of the positions predict the next token.")
        if offset > 1:
            return wrong(
                f"In {shares[offset]:.0%} of the positions the loss compares the output with the "
                f"token {offset} ahead: labels are shifted {offset} times.",
                ["labels are shifted in the dataset, and again by the model or in the loss"],
                "Shift labels once: models of transformers do it themselves, labels=input_ids.",
            )
        moved = _moved_by_future(subject, key, tokens)
        if moved is None:
            return unclear("The output has no axis of positions.")
        if offset == 0 and moved > MAX_CHANGE:
            return absent("The model is not autoregressive: each position predicts its own token.")
        if offset == 0:
            return wrong(
                f"In {shares[0]:.0%} of the positions a causal model predicts its own input.",
                ["labels are not shifted: neither the dataset nor the loss moves them by one"],
                "Compare outputs[:, :-1] with tokens[:, 1:].",
            )
        if moved > MAX_CHANGE:
            text = f"Outputs of the first {tokens.shape[1] // 2} positions move by {moved:.0%} of"
            return self.failed(f"{text} their deviation when later tokens change.")
        return passed(f"Outputs do not depend on later tokens (to {moved:.0e}).")


def _moved_by_future(subject: TrainingSubject, key: Any, tokens: Any) -> float | None:
    """Return how far outputs of the first half move with the second, in their deviations."""
    half, training, inputs = tokens.shape[1] // 2, subject.fresh(), subject.batches[0][1]
    other = tokens.clone()
    other[:, half:] = tokens.roll(1, 0)[:, half:].flip(1)
    given = (inputs, other) if key is None else (inputs, {**inputs, key: other})
    first, second = (subject.outputs(training, part) for part in given)
    axis = next((i for i in (1, 2) if first.shape[i : i + 1] == tokens.shape[1:]), None)
    if axis is None:
        return None
    moved = np.moveaxis(abs(first - second), axis, 0)[:half].max()
    return float(moved / (first.std(ddof=1) + 1e-12))


PREDICTED, MAX_OFFSET, LEAST_POSITIONS = 0.9, 3, 8


def _token_rows(inputs: Any) -> tuple[Any, Any]:
    """Return (name in a dict or None, rows of four or more tokens), or (None, None)."""
    named = inputs if isinstance(inputs, Mapping) else {None: inputs}
    for name in sorted(named, key=lambda name: name != "input_ids"):
        rows = named[name]
        whole = isinstance(rows, torch.Tensor) and not torch.is_floating_point(rows)
        if whole and rows.ndim == 2 and rows.shape[1] >= 4 and len(rows.unique()) > 2:
            return name, rows
    return None, None


def _predicted_offsets(subject: TrainingSubject, tokens: Any) -> dict[int, float]:
    """Return the share of positions that predict the token k ahead, by k; {} if unknown."""
    free = torch.zeros_like(subject.first_outputs.float()).requires_grad_()
    with torch.enable_grad():
        subject.loss_of(subject.settings, free, subject.batches[0][2]).backward()
    if free.grad is None or free.ndim != 3:
        return {}
    pull = free.grad.movedim(subject.task.axis, -1)
    wanted, known = pull.argmin(-1), pull.abs().sum(-1) > 0
    if wanted.shape != tokens.shape:
        return {}
    length, found, filled = tokens.shape[1], {}, torch.ones_like(known)
    if (padding := padding_of(tokens)) is not None:
        filled = (tokens != padding[0]).to(known.device)
    for k in range(min(MAX_OFFSET, length - 1) + 1):
        counted = known[:, : length - k] & filled[:, k:]
        equal = wanted[:, : length - k] == tokens[:, k:].to(wanted)
        if int(counted.sum()) >= LEAST_POSITIONS:
            found[k] = float(equal[counted].float().mean())
    return found


class LayersRepeated(Check):
    """A stack of layers that repeats one layer.

    ## How it decides
    Fails if a module with parameters occurs twice in a Sequential, ModuleList or ModuleDict, and
    its second call depends on the output of its first. One head for several layers passes. Exact.

    ## Limits
    If weights are shared in a container on purpose, use `--skip TRAIN045`.
    """

    code = "TRAIN045"
    name = "layers-repeated"
    causes = ("[layer] * n, which repeats the reference and not the layer",)
    next_step = "Make each layer anew: [layer() for _ in range(n)]."

    def run(self, subject: TrainingSubject) -> Answer:
        training = subject.fresh()
        model = training.model
        for name, container in model.named_modules():
            if not isinstance(container, nn.Sequential | nn.ModuleList | nn.ModuleDict):
                continue
            # _modules: children() leaves out what it has named before
            for module, count in Counter(container._modules.values()).items():
                sizes = sum(p.numel() for p in module.parameters())
                if count > 1 and sizes and _feeds_itself(subject, training, module):
                    text = f"The {count} layers of {name or type(model).__name__} are one"
                    return self.failed(f"{text} {type(module).__name__} of {sizes:,} weights.")
        return passed("No container repeats a layer on its own output.")


def _feeds_itself(subject: TrainingSubject, training: Training, module: Any) -> bool:
    """Return whether the second call of a module depends on the output of its first call."""
    calls: list[Any] = []

    def note(_: Any, inputs: Any, output: Any) -> None:
        calls.append((main_tensor(inputs), main_tensor(output)))

    hook = module.register_forward_hook(note)
    try:
        training.model.train()
        subject.forward(training, subject.small[1])
    finally:
        hook.remove()
    pair: list[Any] = [calls[0][1], calls[1][0]] if len(calls) > 1 else [None]
    if not all(isinstance(t, torch.Tensor) and t.requires_grad for t in pair):
        return False
    first, second = pair
    (found,) = torch.autograd.grad(second.sum(), first, allow_unused=True)
    return found is not None or second is first


class NotFrozen(Check):
    """Frozen parts that change in training, or flags that freeze nothing.

    ## How it decides
    Fails if a trainable parameter, or a module with one, has an attribute that is False and
    resembles `requires_grad`, such as `require_grad`. Fails if a step moves a frozen parameter, or
    statistics of a batch norm that no gradient reaches. Norms that start at 0 and 1 pass. Exact.

    ## Limits
    Only attributes that are set before the first step. Statistics that are adapted on purpose fail.
    In a file, only a train_step that calls train() shows moving statistics.
    """

    code = "TRAIN046"
    name = "not-frozen"
    causes = ("a misspelled name", "requires_grad is set on a module instead of its parameters")
    next_step = "module.requires_grad_(False), before the optimizer is made."

    def run(self, subject: TrainingSubject) -> Answer:
        made = subject.settings
        if self.code in subject.watched:
            return subject.watched[self.code]
        flags = idle_flags(made.model) if made.loop is None else made.loop.idle_flags
        if not flags:
            return passed("No parameter or module has a flag that torch does not read.")
        return self.failed(
            f"{len(flags)} flags that are False freeze nothing ({', '.join(flags[:3])}): the "
            "weights below them are trained."
        )


GRADIENT_STEPS = 6


class NoGradient(Check):
    """Trainable parameters without a gradient.

    ## How it decides
    Trains six steps. Fails if a parameter of the optimizer never had a gradient, or a weight had an
    exactly zero gradient in all steps. Branches that start at zero (ReZero) pass: they get
    gradients from the second step. Exact.
    """

    code = "TRAIN005"
    name = "no-gradient"
    torch_only = ""
    causes = (
        "detach(), .item(), no_grad(), .data or numpy between them and the loss",
        "a module that forward() does not call, or whose output is not used",
    )
    of_all = ("detach() or no_grad() around the loss", "zero_grad() after backward()")
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
