"""What an output depends on: its own input, not other examples, not what comes later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import (
    Array,
    as_array,
    batch_size,
    cut_batch,
    main_tensor,
    map_nested,
    padding_of,
)
from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.keras_subject import Examined, KerasSubject
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import UsersError, seed_everything

STEPS = 12
SAME = 1e-6  # relative difference of outputs


class InputIgnored(Check):
    """Outputs that are the same for every input.

    ## What it does
    Trains for 12 steps and compares the outputs for different examples. Tokens that are no padding
    (a value that fills the ends of rows) are exchanged with each other as well.

    ## Why is this bad
    Such a model learns the base rates and stops there: the loss falls, and looks like training.

    ## How it decides
    Fails where outputs of different examples agree to one part in a million, at the start and
    after the steps, or where no output changes by that much when tokens are exchanged. Rounding
    alone differs by less, a working model by far more.

    ## Limits
    A model that uses a part of its input only passes. Whether it learns from it: TRAIN003.
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
        training = subject.fresh()
        inputs = subject.batches[0][1]
        if batch_size(inputs) < 2:
            return unclear("There are fewer than two examples, or inputs without numbers.")
        before = _apart_input(subject.outputs(training, inputs))
        subject.steps(training, STEPS)
        after = _apart_input(subject.outputs(training, inputs))
        numbers = {"before": before, "after": after}
        if max(before, after) < SAME:
            return self.failed(
                f"Outputs for different inputs differ by {after:.1e} of their size: the input does "
                "not reach the output.",
                **numbers,
            )
        if isinstance(subject, TrainingSubject) and _tokens_ignored(subject, training):
            return self.failed(
                "No output changes when tokens that are no padding are exchanged with each other: "
                "the model sees where padding is, and nothing else.",
                "a mask that is turned round (key_padding_mask is True where a place is ignored)",
                "the embedding is overwritten, or multiplied by a mask of the padding",
                **numbers,
            )
        return passed(
            f"Outputs of different inputs differ by {after:.2g} of their size after "
            f"{STEPS} steps ({before:.2g} at the start).",
            **numbers,
        )

    run_keras = run


def _tokens_ignored(subject: TrainingSubject, training: Any) -> bool:
    """Whether no output depends on which tokens stand at the places that are no padding."""
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
        for place in range(value.shape[1]):  # columns of a table have numbers of their own
            rows = real[:, place].nonzero()[:, 0]
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            other[rows, place] = value[rows[order], place]
        changed[0] |= not torch.equal(other, value)
        return other

    inputs = subject.batches[0][1]
    other = exchanged(inputs)
    if not changed[0]:
        return False
    one, two = (np.asarray(subject.outputs(training, part), float) for part in (inputs, other))
    return one.shape == two.shape and bool(
        np.abs(one - two).max() <= SAME * (np.abs(one).max() + 1e-30)
    )


def _apart_input(outputs: Array) -> float:
    """Deviation of outputs over the examples, relative to their size."""
    numbers = np.asarray(outputs, np.float64)
    return float(np.abs(numbers - numbers[:1]).mean() / (np.abs(numbers).mean() + 1e-30))


MOST_MIXING = 1e-3  # of the deviation of outputs; sums in another order stay below 1e-5


class ExamplesMixed(Check):
    """Outputs of one example that depend on the other examples of the batch.

    ## What it does
    In eval mode, keeps one example (the first, a middle and the last one in turn), exchanges all
    others, and compares its output.

    ## Why is this bad
    Information leaks between examples: the training uses it, and at prediction time it is not
    there. The usual way is a view or reshape that mixes axes, or a softmax or mean over the batch.

    ## How it decides
    Fails where an output moves by more than a thousandth of the deviation of outputs. Sums in
    another order move it by less than a hundred-thousandth.

    ## Limits
    Batch norm mixes examples in train mode by design and is not judged here (TRAIN025).
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
        if count < 3:
            return unclear(f"A batch of {count} is too small to exchange examples.")

        def output(places: list[int]) -> Any:
            seed_everything(subject.seed)  # a model that samples draws the same numbers each time
            return subject.outputs(training, cut_batch(inputs, count, places))

        whole = output([*range(count)])
        if not whole.ndim or len(whole) != count:
            return unclear(
                f"The output has the shape {whole.shape}: its first axis is not the batch of "
                f"{count}."
            )

        def moves(place: int) -> float:
            other = 1 if place == 0 else 0
            orders = [[*range(count)][::-1], [other] * count]
            for order in orders:
                order[place] = place
            return max(float(abs(output(o)[place] - whole[place]).max()) for o in orders)

        moved = max(map(moves, {0, count // 2, count - 1}))
        share = moved / (float(whole.std(ddof=1)) + 1e-12)
        if share > MOST_MIXING:
            return self.failed(
                f"The output for an example moves by {share:.1%} of the deviation of outputs when "
                "the other examples of the batch are exchanged, in eval mode.",
                moved=share,
            )
        return passed(
            f"The output for an example moves by {share:.1e} of the deviation when the "
            "others are exchanged.",
            moved=share,
        )

    run_keras = run


MOST_SINGLES, EXAMPLES = 1e-3, 4


class OneByOne(Check):
    """A batch and its examples one by one, in eval mode.

    ## What it does
    Runs the first four examples as a batch and one by one and compares the outputs; and with
    `reference(model, example)` where your file has one.

    ## Why is this bad
    Code that was vectorised wrongly, or that squeezes a batch of one away, works in training and
    fails where single examples are predicted.

    ## How it decides
    Fails where outputs differ by more than a thousandth of their deviation, or a single example
    raises. Float32 sums in another order differ by less than a hundred-thousandth.

    ## What to do
    squeeze(dim) with its axis; nothing over axis 0; no state between calls.

    ## Limits
    Models that need whole batches (contrastive ones) are no defect: skip this check there.
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
        if count < 2:
            return unclear("A batch of one cannot be compared with single examples.")
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
            return OneByOne.failed(f"A single example cannot be predicted: {error}")
        if not whole.ndim or len(whole) != count:
            return unclear(
                f"The output has the shape {whole.shape}: its first axis is not the batch."
            )
        shapes = {row.shape for row in rows}
        if shapes != {(1, *whole.shape[1:])}:
            return OneByOne.failed(
                f"Single examples give outputs of shape {shapes.pop()}, the batch gives "
                f"{whole.shape}."
            )
        apart = _apart_singles(np.concatenate(rows), whole)
        if apart > MOST_SINGLES:
            return OneByOne.failed(
                f"Outputs one by one differ from those of the batch by {apart:.1%} of "
                "their deviation, in eval mode.",
                apart=apart,
            )
        if training.reference is None:
            return passed(
                f"Outputs one by one agree with those of the batch to {apart:.0e} of "
                "their deviation.",
                apart=apart,
            )
        given: list[Any] = [
            as_array(training.reference(training.model, inputs[i])) for i in range(count)
        ]
        off = _apart_singles(np.stack([np.reshape(r, whole.shape[1:]) for r in given]), whole)
        if off > MOST_SINGLES:
            return OneByOne.failed(
                f"reference() differs from the model by {off:.1%} of the outputs' deviation.",
                apart=off,
            )
        return passed(
            f"Outputs agree one by one ({apart:.0e}) and with reference() ({off:.0e}).",
            apart=apart,
            reference=off,
        )

    run_keras = run


def _apart_singles(rows: Array, whole: Array) -> float:
    """The largest difference, in deviations of the whole."""
    return float(np.abs(rows - whole).max() / (whole.std(ddof=1) + 1e-12))


MOST_FUTURE = 1e-3


class SeesTheFuture(Check):
    """Outputs at a place that depend on later places, or that are asked for the wrong place.

    ## What it does
    Reads from the gradient of the loss which token each place is asked for, however inputs and
    labels are shifted on the way, and how many places ahead it stands in the inputs. For the next
    token, changes the inputs in the second half of each row and compares outputs of the first half.

    ## Why is this bad
    Where the answer stands in the input, the loss falls to zero, and the model cannot write a word.
    Labels that are shifted by the dataset and by the model teach it the token after the next.

    ## How it decides
    Runs only where at least 90 % of the places are asked for one place of the inputs. Fails where
    that is two or more places ahead; where it is the place itself, and outputs do not depend on
    later ones (a model that only copies); and where it is the next one, and an output of the first
    half moves by more than a thousandth of the deviation of outputs.

    ## What to do
    A causal mask (`is_causal=True`, or -inf above the diagonal), and no bidirectional recurrence.
    Shift labels once: models of transformers do it themselves, `labels=input_ids`.

    ## Limits
    Losses of classes by place. A model that is to predict the token after the next is reported.
    """

    code = "TRAIN022"
    name = "sees-the-future"
    causes = (
        "the causal mask is missing or transposed",
        "a bidirectional recurrence",
        "a norm or mean over places",
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
            return absent("The loss does not ask for a class at each place.")
        shares = _places_ahead(subject, tokens)
        ahead = next((k for k in (1, 0, 2, 3) if shares.get(k, 0.0) >= ASKED), None)
        numbers: dict[str, Any] = {"asked": {str(k): round(s, 4) for k, s in shares.items()}}
        if ahead is None:
            return absent(
                f"Only {shares.get(1, 0.0):.0%} of the places are asked for the next input: this "
                "is no prediction of the next token.", **numbers
            )  # fmt: skip
        if ahead > 1:
            return wrong(
                f"The loss asks each place for the token {ahead} places ahead ({shares[ahead]:.0%} "
                f"of places; for the next token in {shares[1]:.0%}): labels are shifted "
                f"{ahead} times.",
                ["labels are shifted in the dataset, and again by the model or in the loss"],
                "Shift labels once: models of transformers do it themselves, labels=input_ids.",
                **numbers,
            )
        moved = _moved(subject, key, tokens)
        if moved is None:
            return unclear("The output has no axis of places.", "", **numbers)
        numbers["moved"] = moved
        half = tokens.shape[1] // 2
        if ahead == 0:
            if moved > MOST_FUTURE:
                return absent("Each place is asked for its own token, by a model of all places.")
            return wrong(
                f"The loss asks each place for the token that stands there ({shares[0]:.0%} of "
                "places), which a causal model sees: it learns to copy.",
                ["labels are not shifted: neither the dataset nor the loss moves them by one"],
                "Compare outputs[:, :-1] with tokens[:, 1:].",
                **numbers,
            )
        if moved > MOST_FUTURE:
            return self.failed(
                f"Outputs of the first {half} places move by {moved:.0%} of their deviation when "
                "later places change, and each place is asked for the next token.",
                **numbers,
            )
        return passed(f"Outputs do not depend on later places (to {moved:.0e}).", **numbers)


def _moved(subject: TrainingSubject, key: Any, tokens: Any) -> float | None:
    """How far outputs of the first half move with the second, in their deviations."""
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


ASKED, MOST_AHEAD, LEAST_ASKED = 0.9, 3, 8


def _token_rows(inputs: Any) -> tuple[Any, Any]:
    """(name in a dict or None, rows of four or more tokens); (None, None) where there are none."""
    named = inputs if isinstance(inputs, Mapping) else {None: inputs}
    names = sorted(named, key=lambda name: name != "input_ids")
    for name in names:
        rows = named[name]
        whole = isinstance(rows, torch.Tensor) and not torch.is_floating_point(rows)
        if whole and rows.ndim == 2 and rows.shape[1] >= 4 and len(rows.unique()) > 2:
            return name, rows
    return None, None


def _places_ahead(subject: TrainingSubject, tokens: Any) -> dict[int, float]:
    """Share of places that the loss asks for the token k places ahead, by k; {} where unknown."""
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
    for k in range(min(MOST_AHEAD, length - 1) + 1):
        asked = known[:, : length - k] & filled[:, k:]
        equal = wanted[:, : length - k] == tokens[:, k:].to(wanted)
        if int(asked.sum()) >= LEAST_ASKED:
            found[k] = float(equal[asked].float().mean())
    return found
