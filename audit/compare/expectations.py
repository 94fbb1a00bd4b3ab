"""What is expected of a dataset: `[expect]` of audit.toml (`docs/ci.md`), met or not, and why.

A number whose check did not run is inconclusive. Decisions settle findings, and change nothing
else: the files are counted as they were scanned.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.results.report_data import ExpectationOutcome
from audit.results.results import Results, find_check, open_results
from audit.results.run_findings import NAMES, NUMBERS, SEVERITIES, list_names, read_number

SCHEMA = "audit-expectations/1"
ALL = ""
"""Name of the part that is the whole dataset; the others are splits."""
COMPARED = re.compile(r"\s*(<=|>=|<|>|=)?\s*([-+]?[0-9][0-9_.eE+-]*)\s*")
SAID: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip
CODE = re.compile(r"[A-Z]{3,5}[0-9]{3}")
NEEDS = {"leaked_share": "SPLIT001"}
LISTED = 5  # names in a sentence

Wanted = str | int | float | Sequence[str]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that is expected of a dataset, or of a split of it (`part`)."""

    name: str
    wanted: Wanted
    part: str = ALL

    def __post_init__(self) -> None:
        """Raise UsageError for a name or a form that does not exist."""
        known = self.name in NUMBERS or self.name in NAMES or self.name in SEVERITIES
        if not known and not CODE.fullmatch(self.name):
            names = ", ".join((*NUMBERS, *SEVERITIES, *NAMES))
            raise UsageError(
                f"[expect] has {self.name!r}; it may have {names}, and codes of checks."
            )
        if self.name in NAMES:
            listed = isinstance(self.wanted, list | tuple)
            if not listed or not all(isinstance(n, str) for n in self.wanted):  # type: ignore[union-attr]
                raise UsageError(
                    f'[expect] {self.name} is {self.wanted!r}: write a list, ["cat", "dog"].'
                )
        else:
            self.comparison()

    def comparison(self) -> tuple[str, float]:
        """Return the sign and the number; raises UsageError where there are none."""
        if isinstance(self.wanted, int | float) and not isinstance(self.wanted, bool):
            if math.isfinite(self.wanted):
                return "=", float(self.wanted)
        elif isinstance(self.wanted, str) and (match := COMPARED.fullmatch(self.wanted)):
            try:
                return match[1] or "=", float(match[2])
            except ValueError:
                pass
        raise UsageError(
            f'[expect] {self.name} is {self.wanted!r}: write a comparison, such as ">= 64".'
        )

    @property
    def title(self) -> str:
        """The name, with its split where it is of one."""
        return f"{self.part}.{self.name}" if self.part else self.name


@dataclass(frozen=True, slots=True)
class JudgedExpectation:
    """Whether an expectation is met: True, False, or None where the run cannot tell; and why."""

    expectation: Expectation
    met: bool | None
    found: float | list[str] | None
    said: str

    def outcome(self) -> ExpectationOutcome:
        """Return it as a report has it."""
        return ExpectationOutcome(self.expectation.title, self.met, self.said)

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        one = self.expectation
        wanted = list(one.wanted) if isinstance(one.wanted, tuple) else one.wanted
        return {"name": one.name, "split": one.part or None, "expected": wanted,
                "found": self.found, "met": self.met, "message": self.said}  # fmt: skip


def parse_expectations(table: Mapping[str, Any]) -> tuple[Expectation, ...]:
    """Return the expectations of a table `[expect]`; raises UsageError for what cannot be read."""
    found = []
    for name, wanted in table.items():
        if isinstance(wanted, Mapping):
            found += [Expectation(inner, w, name) for inner, w in wanted.items()]
        else:
            found.append(Expectation(name, wanted))
    return tuple(found)


def judge_expectations(run: Path, expected: Sequence[Expectation]) -> list[JudgedExpectation]:
    """Compare a run with what is expected of it, in the order given."""
    results = open_results(run)
    return [_judge(results, one) for one in expected]


def _judge(results: Results, one: Expectation) -> JudgedExpectation:
    if one.part and one.part not in list_names(results, "splits", ALL):
        return JudgedExpectation(one, None, None, f"there is no split {one.part}")
    needed = NEEDS.get(one.name, one.name if CODE.fullmatch(one.name) else None)
    if needed and find_check(results, needed) is None:
        return JudgedExpectation(one, None, None, f"{needed} was skipped")
    if one.name in NAMES:
        return _judge_names(results, one)
    value = read_number(results, one.name, one.part)
    if value is None:
        return JudgedExpectation(one, None, None, "there is nothing to count")
    sign, wanted = one.comparison()
    return JudgedExpectation(
        one, SAID[sign](value, wanted), value, f"{value:.6g}, expected {sign} {wanted:.6g}"
    )


def _judge_names(results: Results, one: Expectation) -> JudgedExpectation:
    assert not isinstance(one.wanted, int | float)
    there = list_names(results, one.name, one.part)
    missing = [n for n in one.wanted if n not in there]
    more = [n for n in there if n not in set(one.wanted)]
    said = []
    for word, names in (("without", missing), ("also", more)):
        rest = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
        said += [f"{word} {', '.join(names[:LISTED])}{rest}"] if names else []
    return JudgedExpectation(one, not said, there, "; ".join(said) or f"{len(there)} as expected")


def propose_expectations(run: Path) -> str:
    """Return a table `[expect]` that the run meets, with what each line is about."""
    results = open_results(run)
    named = {name: list_names(results, name, ALL) for name in NAMES}
    lines = ["[expect]"]
    lines += [f"{n} = [{', '.join(map(_quoted, values))}]" for n, values in named.items() if values]
    for name, (about, _) in NUMBERS.items():
        needed = NEEDS.get(name)
        if needed is None or find_check(results, needed) is not None:
            lines += _proposed(name, read_number(results, name, ALL), about)
    for name, severity in SEVERITIES.items():
        lines += _proposed(name, read_number(results, name, ALL), f"open {severity}s")
    return "\n".join(lines) + "\n"


def _proposed(name: str, value: float | None, about: str) -> list[str]:
    if value is None:
        return []
    if name in ("files", "min_side", "per_class"):
        return [f'{name} = ">= {math.floor(value)}"  # {about}']
    limit = math.ceil(value * 10_000) / 10_000
    return [f'{name} = "<= {limit:.10g}"  # {about}']


def _quoted(name: str) -> str:
    plain = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in plain) + '"'
