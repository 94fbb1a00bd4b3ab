"""Every check fails what is planted for it, and no healthy twin; the twin may be "cannot tell"."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from pipeline_profiler.checking.check import FAMILIES, Check, Judgement, all_checks
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.runner import run_check
from pipeline_profiler.checking.training_subject import TrainingSubject

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")


def examples(planted: bool) -> list[Any]:
    return [
        pytest.param(family, check, example, id=f"{check.code} {example.name}")
        for family in FAMILIES
        for check in all_checks(family).values()
        for example in (check.PLANTED if planted else check.HEALTHY)
    ]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def training_subject(make: Any) -> TrainingSubject:
    """One subject for all examples of the same training, as a run of all checks has one."""
    return TrainingSubject(make)


def answer(family: str, check: Check, example: Any) -> Any:
    made = example.make
    subject: Any
    if family == "LOAD":
        subject = as_loader_subject(made)
    else:
        subject = training_subject(made) if family == "TRAIN" else made()
    result = run_check(check, subject)
    assert not result.broken, result.broken
    return result.answer


def as_loader_subject(make: Any) -> LoaderSubject:
    """An example returns a loader, or a subject where it needs more than that."""
    made = make()
    return made if isinstance(made, LoaderSubject) else LoaderSubject(make)


@pytest.mark.parametrize(("family", "check", "example"), examples(planted=True))
def test_a_planted_defect_fails(family: str, check: Check, example: Any) -> None:
    said = answer(family, check, example)
    assert said.judgement is Judgement.FAIL, said.sentence
    assert said.causes
    assert said.next
    assert said.sentence.endswith(".")


@pytest.mark.parametrize(("family", "check", "example"), examples(planted=False))
def test_a_healthy_twin_does_not_fail(family: str, check: Check, example: Any) -> None:
    said = answer(family, check, example)
    assert said.judgement is not Judgement.FAIL, said.sentence
    assert said.sentence.endswith(".")
