"""The contract of a check, and the loader that finds every check in `audit/checks/`.

A check is a class: its documentation (docstring in fixed sections), its thresholds (`Params`) and
its code (`find`, which runs SQL over measurements). The entry-point group `audit.checks` adds more.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar

from audit.checking.retired import retirement
from audit.errors import CheckContractError, UsageError
from audit.picture.features import MEASURED
from audit.picture.hashing import LIBRARY_HASHES
from audit.records import Action, Evidence, Finding, Severity
from audit.run.store import Store
from dataset_preflight.foundation.check_contract import (
    Contract,
    checks_in,
    modules_in,
    named_checks,
    page_of,
)
from dataset_preflight.foundation.text import agreed

if TYPE_CHECKING:
    import polars as pl

FAMILIES = ("FILE", "DUP", "SPLIT", "LABEL", "BOX", "DIST", "IMG")
SECTIONS = ("What it does", "Why is this bad", "Example", "What to do", "Limits")


@dataclass(frozen=True)
class NoParams:
    """For checks without thresholds."""


class Check:
    """Base class; the docstring of a subclass is its page (`audit explain CODE`)."""

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    features: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ()  # without rows in these there is nothing to find
    # Codes of checks that report the same of a file: a file that they report is left out.
    left_to: ClassVar[tuple[str, ...]] = ()
    embeddings: ClassVar[bool] = False  # whether it reads what embeddings say of labels
    Params: ClassVar[type] = NoParams

    def find(self, store: Store, params: Any) -> Iterator[Finding]:
        """Yield the findings; `params` is an instance of this check's `Params`."""
        raise TypeError(f"{type(self).__name__} does not define find()")

    # The examined samples: a query of one row of counts, and a sentence made of it.
    counts: ClassVar[str] = ""
    examined: ClassVar[str] = ""

    def completeness(self, store: Store, params: Any) -> str:
        """Return one sentence on what was and was not examined, with counts; "" for none."""
        if not self.counts:
            return ""
        (row,) = asked(store, self.counts, params).iter_rows(named=True)
        return self.examined.format(**row, params=params)

    def finding(
        self,
        subject: str,
        message: str,
        evidence: Evidence,
        sample_ids: Sequence[str] = (),
        *,
        action: Action = Action.REVIEW,
        severity: Severity | None = None,
    ) -> Finding:
        """Return a finding of this check; of its own severity where none is given."""
        grade = self.severity if severity is None else severity
        text = agreed(message)
        return Finding(self.code, grade, tuple(sample_ids), text, evidence, action, subject)

    def about(
        self,
        row: Mapping[str, Any],
        message: str,
        evidence: Evidence,
        *,
        severity: Severity | None = None,
    ) -> Finding:
        """Return a finding about one sample: a row of `images` with its `id` and `subject`."""
        return self.finding(row["subject"], message, evidence, (row["id"],), severity=severity)


class QueryCheck(Check):
    """A check that is one query: each row of it is a finding.

    `$name` in `sql` is a threshold. Columns: `subject`, and `id` or `ids` where samples are meant;
    `severity` and `action` are optional. `message` is formatted with the row and with `params`;
    `evidence` names columns and thresholds.
    """

    sql: ClassVar[str]
    message: ClassVar[str]
    evidence: ClassVar[tuple[str, ...]]
    action: ClassVar[Action] = Action.REVIEW

    def find(self, store: Store, params: Any) -> Iterator[Finding]:
        """Yield one finding a row."""
        for row in asked(store, self.sql, params).iter_rows(named=True):
            yield self.of_row(row, params)

    def of_row(self, row: Mapping[str, Any], params: Any) -> Finding:
        """Return the finding of a row."""
        return self.finding(
            row["subject"],
            self.said(row, params),
            self.kept(row, params),
            row.get("ids") or ((row["id"],) if "id" in row else ()),
            action=Action(row.get("action") or self.action),
            severity=Severity(row.get("severity") or self.severity),
        )

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        """Return the message of a row."""
        return self.message.format(**row, params=params)

    def kept(self, row: Mapping[str, Any], params: Any) -> dict[str, Any]:
        """Return the evidence of a row."""
        return {n: row[n] if n in row else getattr(params, n) for n in self.evidence}


def asked(store: Store, sql: str, params: Any, **more: Any) -> pl.DataFrame:
    """Return the rows of a SELECT in which `$name` is the threshold of that name, or of `more`."""
    names = list(dict.fromkeys(re.findall(r"\$([a-z]\w*)", sql)))
    numbered = re.sub(r"\$([a-z]\w*)", lambda m: f"${names.index(m[1]) + 1}", sql)
    values = [more[name] if name in more else getattr(params, name) for name in names]
    return store.query(numbered, [list(v) if isinstance(v, tuple) else v for v in values])


SURE = """
    SELECT coalesce(max(value::DOUBLE) FILTER (WHERE key = 'threshold')
        + ? * max(value::DOUBLE) FILTER (WHERE key = 'threshold_error'), -1e9)
    FROM relate_facts WHERE key IN ('threshold', 'threshold_error')
"""
"""SQL of the score from which a near-duplicate is sure, so many standard errors above the least."""
DOUBT = " Different images of this dataset are nearly as similar: review the pair."
"""What a finding says that rests on others alone."""


def tally(values: Sequence[str]) -> str:
    """Return how often each value occurs, in words: `cat 2, dog 1`; the empty one is `(none)`."""
    counts = sorted(Counter(values).items())
    return ", ".join(f"{value or '(none)'} {count}" for value, count in counts)


def one_of_each_first(ids: Sequence[str], groups: Sequence[str]) -> tuple[str, ...]:
    """Return ids by turns: the first of each group, then the second of each, each turn by id."""
    turns, ranked = Counter[str](), list[tuple[int, str]]()
    for sample, group in sorted(zip(ids, groups, strict=True)):
        ranked.append((turns[group], sample))
        turns[group] += 1
    return tuple(sample for _, sample in sorted(ranked))


def page(check: Check) -> str:
    """Return the check's documentation page as Markdown, thresholds included."""
    params = "".join(
        f"- `{f.name} = {f.default!r}`{_param_doc(check.Params, f.name)}\n"
        for f in dataclasses.fields(check.Params)
    )
    heading = f"\n## Thresholds\nSet under `[checks.{check.code}]` in `audit.toml`.\n\n"
    return page_of(check, check.severity) + (heading + params if params else "")


def _param_doc(params: type, name: str) -> str:
    # the docstring of Params has a line `name: what it is` for each threshold
    match = re.search(rf"^\s*{name}: (.+)$", params.__doc__ or "", re.MULTILINE)
    return f": {match[1]}" if match else ""


@cache
def all_checks() -> Mapping[str, Check]:
    """Return every check by code, in order; raises CheckContractError for a broken contract."""
    added = (entry.load() for entry in entry_points(group="audit.checks"))
    return checks_in((*modules_in("audit.checks"), *added), Check, CONTRACT)


def _rules(check: Check) -> Iterator[tuple[bool, str]]:
    known = {column.name for column in (*MEASURED, *LIBRARY_HASHES)}
    yield retirement(check.code) is not None, "its code was retired"
    yield not dataclasses.is_dataclass(check.Params), "Params must be a frozen dataclass"
    yield not set(check.features) <= known, f"unknown features {set(check.features) - known}"


CONTRACT = Contract(FAMILIES, SECTIONS, CheckContractError, _rules)


def select_checks(wanted: Sequence[str] | None, own: Sequence[Check] = ()) -> list[Check]:
    """Return the checks named by code, name or code prefix ("DUP"), and `own`; all for None."""
    checks = {**all_checks(), **{check.code: check for check in own}}
    if wanted is None:
        return list(checks.values())
    chosen: dict[str, Check] = {}
    for word in wanted:
        hits = named_checks(checks.values(), word)
        if not hits:
            unknown = f"There is no check {word!r}: `audit explain` lists codes and names."
            raise UsageError(retirement(word) or unknown)
        chosen.update((c.code, c) for c in hits)
    return [chosen[code] for code in sorted(chosen)]


def matching_checks(word: str) -> list[Check]:
    """Return the checks whose page has a word, those with it in name or first line first."""
    lowered = word.lower()
    pages = {check: (type(check).__doc__ or "").strip().lower() for check in all_checks().values()}
    heads = {check: f"{check.name} {text.partition(chr(10))[0]}" for check, text in pages.items()}
    found = [
        check for check, text in pages.items() if lowered and lowered in f"{check.name} {text}"
    ]
    return sorted(found, key=lambda check: lowered not in heads[check])


def make_params(check: Check, overrides: Mapping[str, Any]) -> Any:
    """Return the check's Params with the overrides applied; UsageError for a wrong name or type."""
    known = {f.name: f.default for f in dataclasses.fields(check.Params)}
    cast: dict[str, Any] = {}
    for key, value in overrides.items():
        if key not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"[checks.{check.code}] has no threshold {key!r}: it has {names}.")
        cast[key] = _cast(check.code, key, value, known[key])
    return check.Params(**cast)


def _cast(code: str, key: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool) or isinstance(value, bool):
        right = isinstance(value, bool) and isinstance(default, bool)
    elif isinstance(default, float):
        right, value = isinstance(value, int | float), value
    elif isinstance(default, tuple):
        right, value = isinstance(value, list | tuple), value
    else:
        right = isinstance(value, type(default))
    if not right:
        raise UsageError(
            f"[checks.{code}] {key} = {value!r} should be a {type(default).__name__}, "
            f"such as {default!r}."
        )
    try:
        return type(default)(value)
    except OverflowError:
        raise UsageError(
            f"[checks.{code}] {key} is too large: the default is {default!r}."
        ) from None
