"""Run train_step and evaluate of a file as a script would: steps and an evaluation, twice.

The hooks of a script record the run, so that one rule judges both.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from typing import Any

from pipeline_profiler.checks.caught_torch import Caught, Recorded
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import LoopFacts, modes_of
from pipeline_profiler.checks.ranks import source_of
from pipeline_profiler.checks.user_code import Patience, UsersError, batches_of, kept_state
from pipeline_profiler.checks.user_training import Training, call_evaluate

EPOCHS, MOST_BATCHES = 3, 8
SECONDS = 20.0  # of CPU


class EndedError(BaseException):
    """The hooks recorded enough. No Exception, so that code of the user lets it through."""


def record_functions(subject: Any) -> Recorded:
    """Return what the hooks recorded of a loop over the functions of a TrainingSubject."""
    text = source_of(list(subject.functions.values()) or [subject.make])
    caught = Caught(Patience(SECONDS, 3 * SECONDS), _stop, text=lambda: text, once=True)
    with kept_state():
        caught.hook(sys.modules["torch"])
        try:
            training = subject.fresh()
            with contextlib.suppress(UsersError, EndedError):
                _run(subject, training, caught.record.facts)
                caught.end()
        finally:
            caught.unhook()
            caught.mode.__exit__(None, None, None)
        training.model.eval()
        with contextlib.suppress(UsersError):
            if training.train_step is not None:
                subject.own_step(training, subject.given_batches[0])
    if not training.model.training:  # a loop around train_step may freeze parts by eval()
        caught.record.facts.answers.pop("TRAIN046", None)
    return caught.record


def _stop(caught: Caught) -> None:
    raise EndedError


def _run(subject: Any, training: Training, facts: LoopFacts) -> None:
    steps = given_loader(subject.given_batches)
    held_out = training.eval_loader
    if not isinstance(held_out, torch.utils.data.DataLoader):
        given = (batch[0] for batch in subject.given_batches)
        batches = given if held_out is None else batches_of(held_out)
        held_out = given_loader(itertools.islice(batches, MOST_BATCHES))
    step = subject.step if training.train_step is None else subject.own_step
    training.model.train()
    for _ in range(EPOCHS):
        for batch in steps:
            step(training, batch)
        if training.evaluate is not None:
            call_evaluate(training, held_out)
        if training.train_step is None:  # our step calls train(), so no later step shows it
            modes = modes_of(training.model)
            facts.unmoded = tuple(name for name, trains in modes.items() if not trains)


def given_loader(batches: Any) -> Any:
    """Return a DataLoader that gives these batches."""
    loader = torch.utils.data.DataLoader
    made: Any = list(batches)
    return loader(made, batch_size=None, collate_fn=lambda batch: batch)
