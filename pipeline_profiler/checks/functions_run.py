"""Run train_step and evaluate of a file as a script would: steps and an evaluation, twice.

The hooks of a script record the run, so that one rule judges both.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from pipeline_profiler.checks.batches import batch_size
from pipeline_profiler.checks.caught_torch import Caught
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import LoopFacts, modes_of
from pipeline_profiler.checks.ranks import source_of
from pipeline_profiler.checks.user_code import Patience, UsersError, batches_of, kept_state
from pipeline_profiler.checks.user_training import call_evaluate

EPOCHS, MOST_BATCHES = 2, 8
SECONDS = 20.0  # of CPU


class EndedError(BaseException):
    """The hooks recorded enough. No Exception, so that code of the user lets it through."""


def record_functions(subject: Any) -> LoopFacts:
    """Return the facts of a loop over the functions of a TrainingSubject."""
    text = source_of(list(subject.functions.values()) or [subject.make])
    caught = Caught(Patience(SECONDS, 3 * SECONDS), _stop, text=lambda: text, once=True)
    with kept_state():
        caught.hook(sys.modules["torch"])
        try:
            with contextlib.suppress(UsersError, EndedError):
                _run(subject, caught.facts)
                caught.end()
        finally:
            caught.unhook()
            caught.mode.__exit__(None, None, None)
    if not _sets_mode(subject):  # a loop around it may put the frozen part into eval mode
        caught.facts.answers.pop("TRAIN046", None)
    return caught.facts


def _stop(caught: Caught) -> None:
    raise EndedError


def _run(subject: Any, facts: LoopFacts) -> None:
    training = subject.fresh()
    training.model.train()
    steps = given_loader(subject.given_batches)
    held_out = training.eval_loader
    if not isinstance(held_out, torch.utils.data.DataLoader):
        given = (batch[0] for batch in subject.given_batches)
        batches = given if held_out is None else batches_of(held_out)
        held_out = given_loader(itertools.islice(batches, MOST_BATCHES))
    for _ in range(EPOCHS + 1):
        for batch in steps:
            subject.step(training, batch, mode=None)
        if training.evaluate is not None:
            call_evaluate(training, held_out)
        if training.train_step is None:  # our step calls train(), so no later step shows it
            modes = modes_of(training.model)
            facts.unmoded = tuple(name for name, trains in modes.items() if not trains)


def _sets_mode(subject: Any) -> bool:
    """Return whether train_step itself calls train()."""
    training = subject.fresh()
    if training.train_step is None:
        return False
    with kept_state(), contextlib.suppress(UsersError):
        subject.step(training, subject.batches[0], mode=False)
    return bool(training.model.training)


def given_loader(batches: Any) -> Any:
    """Return a DataLoader that gives these batches, with their number and their samples."""
    held = list(batches)

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            return iter(held)

        def __len__(self) -> int:
            return sum(map(batch_size, held))

    class Loader(torch.utils.data.DataLoader):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(held)

    return Loader(Batches(), batch_size=None, collate_fn=lambda batch: batch)
