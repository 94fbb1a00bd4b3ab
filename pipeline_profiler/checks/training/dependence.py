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
from pipeline_profiler.checks.user_training import Training

STEPS = 12
SAME = 1e-6  # relative difference of outputs


class InputIgnored(Check):
    """Outputs that are the same for every input.

    ## What it does
    Compares the outputs of different samples at the start and after 12 steps. Exchanges tokens too,
    except padding (a value that fills the ends of rows).

    ## Why is this bad
    Such a model learns only the base rates. Its loss falls and resembles training.

    ## How it decides
    Fails if outputs of different samples agree to one part in a million at the start and after the
    steps. Fails if exchanged tokens change no output by that much.

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


def _may_be_time(made: Training) -> bool:
    """Whether a recurrence or attention takes the first axis for time, without a loader."""
    own = made.loop is not None and getattr(made.loader, "batch_size", None) is None
    parts = made.model.modules() if own else ()
    return any(isinstance(m, nn.RNNCellBase) or not getattr(m, "batch_first", True) for m in parts)


def _unfit(subject: Examined, inputs: Any, least: int) -> Answer | None:
    """Why examples cannot be compared along the first axis; None where they can."""
    if links_examples(inputs):
        return absent("The examples are nodes of a graph: by design their outputs are linked.")
    if (count := batch_size(inputs)) < least or _may_be_time(subject.settings):
        return unclear(f"The first axis of {count} is too short, or it may be time.")
    if not batch_first(subject):
        return unclear(f"The first axis of the output is not the batch of {count}, or not alone.")
    return None


MOST_MIXING = 1e-3  # of the deviation of outputs; sums in another order stay below 1e-5


class ExamplesMixed(Check):
    """Outputs of one sample that depend on other samples of the batch.

    ## What it does
    In eval mode, keeps one sample (first, middle, last), replaces all others, and compares its
    output.

    ## Why is this bad
    The training uses information of other samples, which is missing at prediction time. Usual
    causes are a view or reshape that mixes axes, or a softmax or mean over the batch.

    ## How it decides
    Fails if an output changes by more than a thousandth of the deviation of the outputs. Rounding
    changes it by less than a hundred-thousandth.

    ## Limits
    Batch norm mixes samples in train mode by design. TRAIN025 checks it. Not applicable to nodes of
    a graph. Inconclusive if the first axis may be time (a recurrence, without a loader).
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
        if (answer := _unfit(subject, inputs, least=3)) is not None:
            return answer

        def output(places: list[int]) -> Any:
            seed_everything(subject.seed)  # a model that samples draws the same numbers each time
            return subject.outputs(training, cut_batch(inputs, count, places))

        whole = output([*range(count)])

        def moves(place: int) -> float:
            other = 1 if place == 0 else 0
            orders = [[*range(count)][::-1], [other] * count]
            for order in orders:
                order[place] = place
            rows = (_filled(output(o)[place], whole[place]) for o in orders)
            return max(float(abs(row - whole[place]).max()) for row in rows)

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
    """Outputs of a batch that differ from outputs of its samples one by one.

    ## What it does
    In eval mode, compares the first four samples as a batch and one by one. Uses
    `reference(model, sample)` too, if your file has it.

    ## Why is this bad
    Code that is vectorised wrongly, or squeezes a batch of one, trains but fails for single
    samples.

    ## How it decides
    Fails if outputs differ by more than a thousandth of their deviation, or a single sample raises
    an error. Float32 rounding is below a hundred-thousandth.

    ## What to do
    Use squeeze(dim) with an axis, no reduction over axis 0, and no state between calls.

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
        if (answer := _unfit(subject, inputs, least=2)) is not None:
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
            return OneByOne.failed(f"A single example cannot be predicted: {error}")
        rows = [_filled(row, whole[i : i + 1]) for i, row in enumerate(rows)]
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


def _filled(row: Array, whole: Array) -> Array:
    """The outputs of a sample, with those of the batch beyond its end where a batch is longer."""
    shorter = row.ndim == whole.ndim > 1 and row.shape[-1] == whole.shape[-1]
    if not shorter or row.shape == whole.shape or any(np.greater(row.shape, whole.shape)):
        return row
    made = whole.copy()
    made[tuple(map(slice, row.shape))] = row
    return made


def _apart_singles(rows: Array, whole: Array) -> float:
    """The largest difference, in deviations of the whole."""
    return float(np.abs(rows - whole).max() / (whole.std(ddof=1) + 1e-12))


MOST_FUTURE = 1e-3


class SeesTheFuture(Check):
    """Outputs that depend on later tokens, or are compared with the wrong token.

    ## What it does
    Finds from gradients of the loss which input token each position predicts. For next-token
    prediction, changes the second half of the inputs and compares outputs of the first half.

    ## Why is this bad
    If the input shows the answer, the loss falls to zero but the model cannot generate. Labels that
    are shifted twice teach the token after the next.

    ## How it decides
    Needs 90% of the positions to predict the same offset, else not applicable. Fails if the offset
    is two or more, or zero without dependence on later tokens (the model copies). With offset one,
    fails if an output of the first half changes by a thousandth of the deviation.

    ## What to do
    Use a causal mask (`is_causal=True`, or -inf above the diagonal) and no bidirectional
    recurrence. Shift labels once: models of transformers do it themselves with `labels=input_ids`.

    ## Limits
    Losses of classes by position. A model that predicts the token after the next on purpose fails.
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
