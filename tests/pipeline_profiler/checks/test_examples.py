"""Every check fails what is planted for it, and no healthy twin; the twin may be "inconclusive".

Nor does it fail any of the plain toys of its family.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler import checks
from pipeline_profiler.checks.check import Check, Judgement, all_checks
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.log_subject import LogSubject
from pipeline_profiler.checks.training_subject import TrainingSubject
from tests.pipeline_profiler.checks.conftest import judged
from tests.pipeline_profiler.checks.examples import all_examples
from tests.pipeline_profiler.checks.toys import HEALTHY_TOYS

pytestmark = pytest.mark.slow

FAULT = re.compile(
    r"\b(eval mode|never|missing|wrong(ly)?|fault|defect|broken|fail(s|ed)?|bug|leaks?|mistake|"
    r"not (called|scaled|cleared|shuffled|trained|restored|divided|normalised|used|saved)|"
    r"un(scaled|trained|used)|is lost|begins .* again|behind (a|the)|"
    r"too (small|large|high|low|few|many|late)|are few|wanted|usual|recipes|cost time|"
    r"(9\d|100)% come to both)\b"
)


def examples(planted: bool) -> list[Any]:
    return [
        pytest.param(check, make, id=f"{check.code} {name}")
        for family, toys in HEALTHY_TOYS.items()
        for check in all_checks(family).values()
        for name, make in (
            all_examples()[check.code].planted
            if planted
            else (*toys, *all_examples()[check.code].healthy)
        )
    ]


@cache
def training_subject(make: Any) -> TrainingSubject:
    """One subject for all examples of the same training, as a run of all checks has one."""
    return TrainingSubject(make)


@cache
def other_subject(make: Any) -> Any:
    made = make()
    return made if isinstance(made, LoaderSubject | LogSubject) else LoaderSubject(make)


def answer(check: Check, make: Any) -> Any:
    """What a check says of an example: what the user's factory returns, or a whole subject."""
    if check.code.startswith("TRAIN"):
        return judged(check.code, training_subject(make)).answer
    return judged(check.code, other_subject(make)).answer


@pytest.mark.parametrize(("check", "make"), examples(planted=True))
def test_a_planted_defect_fails(check: Check, make: Any) -> None:
    said = answer(check, make)
    assert said.judgement is Judgement.FAIL, said.sentence
    assert said.causes
    assert said.next
    assert said.sentence.endswith(".")


@pytest.mark.parametrize(("check", "make"), examples(planted=False))
def test_a_healthy_twin_does_not_fail(check: Check, make: Any) -> None:
    said = answer(check, make)
    assert said.judgement is not Judgement.FAIL, said.sentence
    assert said.sentence.endswith(".")
    if said.judgement is Judgement.PASS:
        assert not FAULT.search(said.sentence), said.sentence


def test_no_text_of_a_passed_check_describes_a_fault() -> None:
    """Branches that no example reaches: the constant parts of each sentence in the source."""
    found = []
    for path in Path(checks.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "passed":
                parts = [p.value for p in ast.walk(call.args[0]) if isinstance(p, ast.Constant)]
                found.append((path.name, " ".join(map(str, parts))))
    assert len(found) > 60
    assert [row for row in found if FAULT.search(row[1])] == []


def test_every_check_has_planted_examples() -> None:
    codes = [code for family in HEALTHY_TOYS for code in all_checks(family)]
    assert sorted(all_examples()) == sorted(codes)
    assert [code for code, made in all_examples().items() if not made.planted] == []
