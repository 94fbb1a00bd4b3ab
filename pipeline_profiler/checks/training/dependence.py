"""What an output depends on: its own input, not other samples, not later tokens."""

from __future__ import annotations

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
from pipeline_profiler.checks.training_subject import TrainingSubject, batch_first
from pipeline_profiler.checks.user_code import UsersError, seed_everything

STEPS = 12
SAME = 1e-6  # relative difference of outputs
MAX_CHANGE = 1e-3  # of the deviation of outputs; sums in another order stay below 1e-5


class InputIgnored(Check):
    """Outputs that are the same for every input.

    ## How it decides
    Fails if outputs of different samples agree to one part in a million at the start and after 12
    steps. Fails if exchanged tokens, except padding, change no output by that much.

    ## Limits
    A model that uses part of its input passes. TRAIN003 checks whether it learns.
    """

    code = "TRAIN002"
    name = "input-ignored"
    nearness = Nearness.EFFECT
    causes = (
        "a layer whose output is overwritten or multiplied by zero",
        "all units are dead or saturated",
        "the wrong variable goes on in forward()",
    )
    next_step = "Print the deviation over the batch after each layer."

    def run(self, subject: Examined) -> Answer:
        training, inputs = subject.fresh(), subject.batches[0][1]
        if batch_size(inputs) < 2:
            return unclear("There are fewer than two examples, or inputs without numbers.")
        before = _spread(subject.outputs(training, inputs))
        subject.steps(training, STEPS)
        after = _spread(subject.outputs(training, inputs))
        if max(before, after) < SAME:
            return self.failed(
                f"Outputs for different inputs differ by {after:.1e} of their size: the input does "
                "not reach the output."
            )
        if isinstance(subject, TrainingSubject) and _tokens_ignored(subject, training):
            return self.failed(
                "No output changes when tokens that are no padding are exchanged with each other: "
                "the outputs depend on the positions of padding only.",
                "an inverted mask (key_padding_mask is True where a position is ignored)",
                "the embedding is overwritten, or multiplied by a mask of the padding",
            )
        return passed(
            f"Outputs of different inputs differ by {after:.2g} of their size after {STEPS} steps "
            f"({before:.2g} at the start)."
        )

    run_keras = run


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
    one, two = (np.asarray(subject.outputs(training, part), float) for part in (inputs, other))
    same = one.shape == two.shape
    return same and bool(np.abs(one - two).max() <= SAME * (np.abs(one).max() + 1e-30))


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
    parts = made.model.modules() if own else ()
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
    output changes by more than a thousandth of the deviation of the outputs.

    ## Limits
    Batch norm mixes samples in train mode by design. Not applicable to nodes of a graph.
    Inconclusive if the first axis may be time (a recurrence, without a loader).
    """

    code = "TRAIN004"
    name = "examples-mixed"
    causes = (
        "view or reshape that mixes the batch with another axis",
        "softmax, mean or norm over axis 0",
        "recurrence or attention over the batch (batch_first)",
        "state that is kept between calls",
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
        if share > MAX_CHANGE:
            return self.failed(
                f"The output for an example moves by {share:.1%} of the deviation of outputs when "
                "the other examples of the batch are exchanged, in eval mode."
            )
        return passed(
            f"The output for an example moves by {share:.1e} of the deviation when the others are "
            "exchanged."
        )

    run_keras = run


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
    causes = (
        "squeeze() without an axis",
        "a reduction, softmax or norm over the batch",
        "state kept between calls",
    )
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
                "Two predictions of one batch differ in eval mode: the model draws random "
                "numbers there, so batch and single examples cannot be compared.",
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
            return self.failed(
                f"Single examples give outputs of shape {shapes.pop()}, the batch gives "
                f"{whole.shape}."
            )
        apart = _difference(np.concatenate(rows), whole)
        if apart > MAX_CHANGE:
            return self.failed(
                f"Outputs one by one differ from those of the batch by {apart:.1%} of their "
                "deviation, in eval mode."
            )
        text = f"Outputs one by one agree with those of the batch to {apart:.0e} of their deviation"
        if training.reference is None:
            return passed(f"{text}.")
        given: Any = [as_array(training.reference(training.model, inputs[i])) for i in range(count)]
        off = _difference(np.stack([np.reshape(r, whole.shape[1:]) for r in given]), whole)
        if off > MAX_CHANGE:
            return self.failed(
                f"reference() differs from the model by {off:.1%} of the outputs' deviation."
            )
        return passed(f"{text}, and with reference() to {off:.0e}.")

    run_keras = run


def _filled(row: Array, whole: Array) -> Array:
    """Return the outputs of a sample, filled with those of the batch if a batch is longer."""
    shorter = row.ndim == whole.ndim and row.shape[-1] == whole.shape[-1]
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

    ## Limits
    Losses of classes by position. A model that predicts the token after the next on purpose fails.
    """

    code = "TRAIN022"
    name = "sees-the-future"
    causes = (
        "the causal mask is missing or transposed",
        "a bidirectional recurrence",
        "a norm or mean over positions",
    )
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
            return absent(
                f"Only {shares.get(1, 0.0):.0%} of the positions predict the next input: this is "
                "no prediction of the next token."
            )
        if offset > 1:
            return wrong(
                f"The loss asks each position for the token {offset} positions ahead "
                f"({shares[offset]:.0%} of positions; for the next token in {shares[1]:.0%}): "
                f"labels are shifted {offset} times.",
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
                f"The loss asks each position for its own token ({shares[0]:.0%} of positions), "
                "which is an input of a causal model: it learns to copy.",
                ["labels are not shifted: neither the dataset nor the loss moves them by one"],
                "Compare outputs[:, :-1] with tokens[:, 1:].",
            )
        if moved > MAX_CHANGE:
            return self.failed(
                f"Outputs of the first {tokens.shape[1] // 2} positions move by {moved:.0%} of "
                "their deviation when later tokens change, and each position predicts the next "
                "token."
            )
        return passed(f"Outputs do not depend on later tokens (to {moved:.0e}).")


def _moved_by_future(subject: TrainingSubject, key: Any, tokens: Any) -> float | None:
    """Return how far outputs of the first half move with the second, in their deviations."""
    half, training, inputs = tokens.shape[1] // 2, subject.fresh(), subject.batches[0][1]
    other = tokens.clone()
    other[:, half:] = tokens.roll(1, 0)[:, half:].flip(1)
    given = (inputs, other) if key is None else (inputs, {**inputs, key: other})
    one, two = (subject.outputs(training, part) for part in given)
    axis = next((i for i in (1, 2) if one.shape[i : i + 1] == tokens.shape[1:]), None)
    if axis is None:
        return None
    moved = np.moveaxis(abs(one - two), axis, 0)[:half].max()
    return float(moved / (one.std(ddof=1) + 1e-12))


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
