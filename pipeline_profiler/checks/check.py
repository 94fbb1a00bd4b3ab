"""The contract of a check, and the registry of every family.

A check is documentation (the docstring of the class) and `run`, which returns an `Answer` for a
subject; it never prints, writes or imports another check. A random check fails on a healthy subject
with a probability of at most 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import cache, partial
from typing import Any, ClassVar

from dataset_preflight.foundation.check_contract import (
    Contract,
    checks_in,
    modules_in,
    named_checks,
)
from pipeline_profiler.profiling.record.errors import ProfileError

SECTIONS = ("How it decides",)  # of a page; others are optional
FAMILIES = {"LOAD": "loader", "TRAIN": "training", "LOG": "log"}  # and the folder of each


class Judgement(StrEnum):
    """The result of a check; INCONCLUSIVE also if it is not applicable or skipped."""

    PASS = "passed"
    FAIL = "failed"
    INCONCLUSIVE = "inconclusive"


WEIGHT = (Judgement.FAIL, Judgement.PASS, Judgement.INCONCLUSIVE)


class Nearness(IntEnum):
    """How near a check is to a cause: failed checks are listed in this order.

    A softmax too many (CAUSE) makes gradients small (EFFECT) and the loss fall slowly (SYMPTOM).
    """

    CAUSE = 0
    EFFECT = 1
    SYMPTOM = 2


@dataclass(frozen=True)
class Answer:
    """The answer of a check: a sentence with the numbers, likely causes in order, next step."""

    judgement: Judgement
    sentence: str
    causes: tuple[str, ...] = ()
    next: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


def passed(sentence: str, /, **evidence: Any) -> Answer:
    """The check found nothing wrong, and could have."""
    return Answer(Judgement.PASS, sentence, evidence=evidence)


def unclear(sentence: str, next_step: str = "", /, **evidence: Any) -> Answer:
    """The evidence does not decide."""
    return Answer(Judgement.INCONCLUSIVE, sentence, (), next_step, evidence)


absent = partial(unclear, absent=True)  # there is nothing of the kind: no schedule, no masks
skipped = partial(unclear, skipped=True)  # an input or an option is missing; `next_step` names it


def wrong(sentence: str, causes: Sequence[str], next_step: str, /, **evidence: Any) -> Answer:
    """Something is wrong; `causes` from the likeliest on."""
    return Answer(Judgement.FAIL, sentence, tuple(causes), next_step, evidence)


def fault(sentence: str, cause: str, next_step: str, place: str = "", /, **evidence: Any) -> Answer:
    """Something is wrong, for one likely cause; `place`: the line, where it is known."""
    return wrong(sentence, [cause], next_step, **({"place": place} if place else {}), **evidence)


# Checks of a training that are exact and cost a step or two: they run before the others.
EXACT = ("TRAIN005", "TRAIN009", "TRAIN016", "TRAIN024", "TRAIN025", "TRAIN046")


class Check:
    """Base class; the docstring of a subclass is its page (`pipeline-profiler explain CODE`)."""

    code: ClassVar[str]
    name: ClassVar[str]
    nearness: ClassVar[Nearness] = Nearness.CAUSE
    recorded: ClassVar[bool] = False  # it judges what was recorded and costs nothing: asked first
    torch_only: ClassVar[str] = "it reads modules and gradients of torch"  # why not Keras
    causes: ClassVar[tuple[str, ...]] = ()  # of `failed`, the likeliest first
    next_step: ClassVar[str] = ""

    def run(self, subject: Any) -> Answer:
        """Examine `subject`, a LoaderSubject or a TrainingSubject."""
        raise TypeError(f"{type(self).__name__} does not define run()")

    def run_keras(self, subject: Any) -> Answer:
        """Examine a KerasSubject; a check that cannot says why, `torch_only` "" means it can."""
        if not self.torch_only:
            return self.run(subject)
        by_itself = self.torch_only != Check.torch_only  # then there is nothing here to be judged
        say = absent if by_itself else unclear
        return say(f"Trainings of Keras are not supported: {self.torch_only}.")

    @classmethod
    def failed(cls, sentence: str, /, *causes: str, **evidence: Any) -> Answer:
        """Return a failure with the next step of the check, and its causes where none are given."""
        return wrong(sentence, causes or cls.causes, cls.next_step, **evidence)

    @staticmethod
    def first_fault(
        rows: Iterable[Sequence[Any]], place: str = "", /, **evidence: Any
    ) -> Answer | None:
        """Return a fault for the first row (found, sentence, cause, next step) that is found."""
        for found, sentence, cause, next_step in rows:
            if found:
                return fault(sentence, cause, next_step, place, **evidence)
        return None

    @staticmethod
    def judged_by(subject: Any, *judges: Callable[[Any], Answer | None]) -> Answer:
        """Return the failed, else passed answers of all judges as one; else one inconclusive."""
        answers, errors = list[Answer](), list[ProfileError]()
        for judge in judges:
            try:
                answers += filter(None, [judge(subject)])
            except ProfileError as error:  # of the user's code, which not every judge needs
                errors.append(error)
        if not answers:
            raise errors[0]
        kind = next(kind for kind in WEIGHT if any(a.judgement is kind for a in answers))
        equal = [answer for answer in answers if answer.judgement is kind]
        if kind is Judgement.INCONCLUSIVE:
            return min(equal, key=lambda answer: "absent" in answer.evidence)
        return replace(equal[0], sentence=" ".join(answer.sentence for answer in equal))

    @staticmethod
    def without_seed(subject: Any, equal: str, /, **evidence: Any) -> Answer | None:
        """The answer for a script without a seed, else None; `equal`: what agrees with one."""
        if not subject.unseeded:
            return None
        return unclear(
            f"{subject.unseeded} With a seed that this check sets, {equal}.",
            "Set one seed at the start of the script, before the model and the loader are made.",
            **evidence,
        )

    def ask(self, subject: Any) -> Answer:
        """Return the answer of run() or run_keras()."""
        keras = getattr(subject, "framework", "") == "keras"
        return self.run_keras(subject) if keras else self.run(subject)

    def as_entered(self, subject: Any, given: Answer, judge: Callable[[Any], Answer]) -> Answer:
        """Return `given`, with what `judge` answers for the inputs as they enter the model."""
        view = subject.at_model
        return given if view is None else self._both(given, judge(view))

    def _both(self, given: Answer, entered: Answer) -> Answer:
        """Return one answer of two: of what the loader gives, and of what enters the model."""
        bad, judgement = given.judgement is Judgement.FAIL, entered.judgement
        if judgement is Judgement.INCONCLUSIVE:
            text = f"{given.sentence} What enters the model is something else: {entered.sentence}"
            return unclear(text, given.next, **given.evidence) if bad else given
        text, repaired = f"As it enters the model: {entered.sentence}", judgement is Judgement.PASS
        if not (bad and repaired) and given.sentence != entered.sentence:
            text = f"{text} The loader: {given.sentence}"
        return replace(entered, sentence=text, evidence={**entered.evidence, "at_model": True})


Judge = Callable[..., Answer]


class RowCheck(Check):
    """A row of a table of checks: a function, whose docstring is the page."""

    def __init__(self, code: str, name: str, judge: Judge, **options: Any) -> None:
        vars(self).update(code=code, name=name, run=judge, __doc__=judge.__doc__, **options)


class CheckTable(list[Check]):
    """A table of checks that are functions of a subject."""

    def row(self, code: str, name: str, **options: Any) -> Callable[[Judge], Judge]:
        """Return a decorator that adds a function; options: attributes of a check."""

        def add(judge: Judge) -> Judge:
            self.append(RowCheck(code, name, judge, **options))
            return judge

        return add


@cache
def all_checks(family: str) -> Mapping[str, Check]:
    """Return every check of a family by code, read-only; TypeError names line and broken rule."""
    contract = Contract((family,), SECTIONS, TypeError, lambda check: ())
    return checks_in(modules_in(f"pipeline_profiler.checks.{FAMILIES[family]}"), Check, contract)


def select_checks(family: str, only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[Check]:
    """The checks named by code, prefix of a code, or name; ProfileError for an unknown word."""
    checks = all_checks(family)

    def codes(words: Sequence[str]) -> set[str]:
        found = {word: named_checks(checks.values(), word) for word in words}
        for word in (word for word, hits in found.items() if not hits):
            raise ProfileError(
                f"No check of {family} is called '{word}': `pipeline-profiler explain {family}` "
                "lists codes and names."
            )
        return {check.code for hits in found.values() for check in hits}

    chosen = (codes(only) or set(checks)) - codes(skip)
    return [check for code, check in checks.items() if code in chosen]
