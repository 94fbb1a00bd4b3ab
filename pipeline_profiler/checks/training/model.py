"""The model: what an output depends on, and flags that freeze nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import (
    Array,
    as_array,
    batch_size,
    cut_batch,
    links_examples,
    map_nested,
    padding_of,
)
from pipeline_profiler.checks.caught_tape import leaves
from pipeline_profiler.checks.check import Answer, Check, CheckTable, absent, fault, passed, unclear
from pipeline_profiler.checks.keras_subject import Examined
from pipeline_profiler.checks.lazy import nn, torch
from pipeline_profiler.checks.loop_facts import idle_flags
from pipeline_profiler.checks.training_subject import TrainingSubject, batch_first
from pipeline_profiler.checks.user_code import UsersError, seed_everything

ROWS = CheckTable()
STEPS = 12
SAME = 1e-6  # relative difference of outputs
MAX_CHANGE = 1e-3  # of the deviation of outputs; sums in another order stay below 1e-5
PREDICTED, MAX_OFFSET, MIN_POSITIONS, MIN_SAMPLES = 0.9, 3, 8, 3


@ROWS.row("TRAIN004", "input-dependence", torch_only="")
def judge_dependence(subject: Examined) -> Answer:
    """Outputs that ignore their input, or use other samples or later tokens.

    ## How it decides
    Fails if outputs of all samples agree to 1e-6, or if exchanged tokens change none. Fails if one
    moves by a thousandth of their deviation with other samples, with later tokens, for a sample
    alone, or by `reference(model, sample)`. Fails if positions predict their own token, or a token
    two or three ahead. Nodes of a graph, and a first axis that may be time, are not compared.
    """
    return Check.judged_by(subject, _judge_mixed, _judge_ignored, _judge_future)


def _judge_ignored(subject: Examined) -> Answer:
    """Fail outputs that are the same for every input."""
    training, inputs = subject.fresh(), subject.batches[0][1]
    if batch_size(inputs) < 2:
        return unclear("There are fewer than two examples, or inputs without numbers.")
    before = _spread(subject.outputs(training, inputs))
    subject.steps(training, STEPS)
    first = subject.outputs(training, inputs)
    after = _spread(first)
    if max(before, after) < SAME:
        text = f"Outputs for different inputs differ by {after:.1e} of their size"
        cause = "a layer whose output is overwritten in forward(), or dead or saturated units"
        action = "Print the deviation over the batch after each layer."
        return fault(f"{text}: the input does not reach the output.", cause, action)
    other = _with_tokens(inputs, _exchanged) if isinstance(subject, TrainingSubject) else None
    if other is not None:
        second = subject.outputs(training, other)
        same = first.shape == second.shape and abs(first - second).max() <= SAME * abs(first).max()
        if same:
            text = "No output changes when tokens that are no padding are exchanged."
            cause = "an inverted mask (key_padding_mask is True where a position is ignored)"
            return fault(text, cause, "Print the mask beside the tokens.")
    text = f"differ by {before:.2g} of their size, and by {after:.2g} after {STEPS} steps"
    return passed(f"Outputs of different inputs {text}.")


def _token_rows(inputs: Any) -> list[Any]:
    """Return the tensors of rows of four or more tokens, `input_ids` first."""
    found = sorted(leaves(inputs), key=lambda leaf: leaf[0] != ("input_ids",))
    whole = [rows for _, rows in found if rows.dtype in (torch.int64, torch.int32)]
    return [r for r in whole if r.ndim == 2 and r.shape[1] > 3 and len(r.unique()) > 2]


def _with_tokens(inputs: Any, change: Callable[[Any], Any]) -> Any:
    """Return inputs with changed rows of tokens; None if nothing changes."""
    tokens = _token_rows(inputs)
    others = {id(rows): change(rows) for rows in tokens}
    if all(torch.equal(rows, others[id(rows)]) for rows in tokens):
        return None

    def replaced(value: Any) -> Any:
        is_tensor = isinstance(value, torch.Tensor)
        return others.get(id(value), value) if is_tensor else map_nested(value, replaced)

    return replaced(inputs)


def _exchanged(rows: Any) -> Any:
    """Return tokens, without padding, in another order of the samples."""
    other, padding = rows.clone(), padding_of(rows)
    real = torch.ones_like(rows, dtype=torch.bool) if padding is None else ~padding[1]
    for column, used in enumerate(real.T):  # columns of a table have numbers of their own
        other[used, column] = rows[used, column].roll(int(used.sum()) // 2)
    return other


def _spread(outputs: Array) -> float:
    """Return the deviation of outputs over the samples, relative to their size."""
    numbers = np.asarray(outputs, np.float64)
    return float(np.abs(numbers - numbers[:1]).mean() / (np.abs(numbers).mean() + 1e-30))


WAYS = (  # in which a sample is given, and why its output may move
    ("with other samples of the batch, in eval mode",
     "a view, softmax, mean, recurrence or attention over the batch (batch_first)"),
    ("for the sample alone, in eval mode", "a reduction, softmax or norm over the batch"),
    ("by reference()", "the vectorised code computes something else"),
)  # fmt: skip


def _judge_mixed(subject: Examined) -> Answer:
    """Fail outputs of a sample that depend on the batch in which it comes."""
    inputs, training = subject.batches[0][1], subject.fresh()
    count, moved = batch_size(inputs), [0.0, 0.0, 0.0]
    if (answer := _not_comparable(subject, inputs, count)) is not None:
        return answer

    def output(places: list[int]) -> Any:
        seed_everything(subject.seed)  # a model that samples draws the same numbers each time
        return subject.outputs(training, cut_batch(inputs, count, places))

    whole, cause = output([*range(count)]), "squeeze() without an axis"
    draws = not np.allclose(subject.outputs(training, inputs), whole, atol=1e-5)
    action = "Follow the shapes in forward(); use permute, and name the axis of reductions."
    for sample in {0, count // 2, count - 1}:
        row, others = whole[sample : sample + 1], [*range(count)][::-1]
        repeated = [int(sample == 0)] * count
        others[sample] = repeated[sample] = sample
        found = [(0, output(order)[sample : sample + 1]) for order in (others, repeated)]
        try:
            found += [] if draws else [(1, output([sample]))]
        except UsersError as error:
            return fault(f"A single sample cannot be predicted: {error}", cause, action)
        if training.reference is not None:
            example = cut_batch(inputs, count, [sample])[0]
            given = np.asarray(as_array(training.reference(training.model, example)))
            found.append((2, given.reshape(row.shape)))
        for way, part in found:
            if (filled := _filled(part, row)).shape != row.shape:
                text = f"A single sample gives outputs of shape {part.shape}, and in a batch"
                return fault(f"{text} {row.shape}.", cause, action)
            share = float(abs(filled - row).max() / (whole.std(ddof=1) + 1e-12))
            moved[way] = max(moved[way], share)
    ways = [way for way in range(3) if moved[way] > MAX_CHANGE]
    if not ways:
        return passed(f"The output of a sample is that of its batch (to {max(moved):.0e}).")
    text = f"The output of a sample moves by {moved[ways[0]]:.2g} of the deviation of outputs"
    how, why = WAYS[ways[0]]
    return fault(f"{text} {how}.", why, action)


def _not_comparable(subject: Examined, inputs: Any, count: int) -> Answer | None:
    """Return why samples cannot be compared along the first axis; None if they can."""
    if links_examples(inputs):
        return absent("The examples are nodes of a graph: by design their outputs are linked.")
    made = subject.settings
    own = made.loop is not None and getattr(made.loader, "batch_size", None) is None
    parts: Iterable[Any] = getattr(made.model, "modules", tuple)() if own else ()
    time = (isinstance(m, nn.RNNCellBase) or not getattr(m, "batch_first", True) for m in parts)
    if count < MIN_SAMPLES or any(time) or not batch_first(subject):
        return unclear(f"The first axis of {count} is not the batch alone, too short, or time.")
    return None


def _filled(row: Array, whole: Array) -> Array:
    """Return the outputs of a sample, filled with those of the batch if a batch is longer."""
    shorter = row.ndim == whole.ndim > 1 and row.shape[-1] == whole.shape[-1]
    if not shorter or row.shape == whole.shape or any(np.greater(row.shape, whole.shape)):
        return row
    made = whole.copy()
    made[tuple(map(slice, row.shape))] = row
    return made


def _judge_future(subject: Examined) -> Answer | None:
    """Fail outputs that move with later tokens, or are compared with a wrong token."""
    if not isinstance(subject, TrainingSubject):
        return None
    tokens = next(iter(_token_rows(subject.batches[0][1])), None)
    if tokens is None or subject.task.kind != "classes" or not subject.takes_tensor:
        return None
    shares = _predicted_offsets(subject, tokens)
    offset = next((k for k in (1, 0, 2, 3) if shares.get(k, 0.0) >= PREDICTED), None)
    if offset is None:
        return None
    text = f"In {shares[offset]:.0%} of the positions"
    if offset > 1:
        text += f" the loss compares the output with the token {offset} ahead: labels are shifted"
        cause = "labels are shifted in the dataset, and again by the model or in the loss"
        action = "Shift labels once: models of transformers do it themselves, labels=input_ids."
        return fault(f"{text} {offset} times.", cause, action)
    moved = _moved_by_future(subject, tokens)
    if moved is None or (offset == 0 and moved > MAX_CHANGE):  # a class for each position
        return None
    if offset == 0:
        cause = "labels are not shifted: neither the dataset nor the loss moves them by one"
        action = "Compare outputs[:, :-1] with tokens[:, 1:]."
        return fault(f"{text} a causal model predicts its own input.", cause, action)
    if moved > MAX_CHANGE:
        text = f"Outputs of the first {tokens.shape[1] // 2} positions move by {moved:.0%} of"
        cause = "the causal mask is missing or transposed, or a recurrence runs in both directions"
        action = "Give attention a causal mask."
        return fault(f"{text} their deviation when later tokens change.", cause, action)
    return passed(f"Outputs do not depend on later tokens (to {moved:.0e}).")


def _moved_by_future(subject: TrainingSubject, tokens: Any) -> float | None:
    """Return how far outputs of the first half move with the second, in their deviations."""
    half, training, inputs = tokens.shape[1] // 2, subject.fresh(), subject.batches[0][1]

    def later(rows: Any) -> Any:
        return torch.cat([rows[:, :half], rows.roll(1, 0)[:, half:].flip(1)], 1)

    other = _with_tokens(inputs, lambda rows: later(rows) if rows is tokens else rows)
    first = subject.outputs(training, inputs)
    axis = next((i for i in (1, 2) if first.shape[i : i + 1] == tokens.shape[1:]), None)
    if axis is None or other is None:
        return None
    second = subject.outputs(training, other)
    moved = np.moveaxis(abs(first - second), axis, 0)[:half].max()
    return float(moved / (first.std(ddof=1) + 1e-12))


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
    length, found = tokens.shape[1], dict[int, float]()
    padding = (padding_of(tokens) or (None,))[0]
    filled = torch.ones_like(known) if padding is None else (tokens != padding).to(known.device)
    for k in range(min(MAX_OFFSET, length - 1) + 1):
        counted = known[:, : length - k] & filled[:, k:]
        equal = wanted[:, : length - k] == tokens[:, k:].to(wanted)
        if int(counted.sum()) >= MIN_POSITIONS:
            found[k] = float(equal[counted].float().mean())
    return found


@ROWS.row("TRAIN046", "not-frozen")
def judge_freezing(subject: TrainingSubject) -> Answer:
    """Frozen parts that change in training, or flags that freeze nothing.

    ## How it decides
    Fails if a trainable parameter or module has an attribute that is False and resembles
    `requires_grad`, such as `require_grad`. Fails if a step moves a frozen parameter, or statistics
    of a batch norm that no gradient reaches (norms at 0 and 1 pass). A file needs a train_step that
    calls train(). Statistics that are adapted on purpose fail.
    """
    made = subject.settings
    if "TRAIN046" in subject.watched:
        return subject.watched["TRAIN046"]
    flags = idle_flags(made.model) if made.loop is None else made.loop.idle_flags
    if not flags:
        return passed("No parameter or module has a flag that torch does not read.")
    text = f"{len(flags)} flags that are False freeze nothing ({', '.join(flags[:3])}): the weights"
    cause = "a misspelled name, or requires_grad is set on a module instead of its parameters"
    action = "module.requires_grad_(False), before the optimizer is made."
    return fault(f"{text} below them are trained.", cause, action)
