"""The contract of a check, and the loader that finds every check in `audit/checks/`.

A check is one file: its documentation (the class docstring, in fixed sections), its thresholds
(`Params`), its code (`find`) and its cases (`CLEAN`, `DIRTY`). Checks only read: `find` runs SQL
over what a scan measured and yields findings. It never prints, never changes anything, never
opens a file, and never imports another check. Adding one touches one file; a package adds more
through the entry-point group `audit.checks`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar

from audit.checking.cases import Case
from audit.errors import CheckContractError, UsageError
from audit.picture.features import MEASURED
from audit.picture.library_hashes import LIBRARY_HASHES
from audit.records import Finding, Severity
from audit.run.store import Store

SECTIONS = (
    "What it does",
    "Why is this bad",
    "Example",
    "What to do",
    "Limits",
    "References",
)
CODE = re.compile(r"^(FILE|DUP|SPLIT|LABEL|BOX|DIST|IMG)\d{3}$")
NAME = re.compile(r"^[a-z]+(-[a-z0-9]+)*$")


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
    # Codes of checks that say the same of a file: where one of them names it, this one is silent.
    left_to: ClassVar[tuple[str, ...]] = ()
    Params: ClassVar[type] = NoParams
    CLEAN: ClassVar[Sequence[Case]]
    DIRTY: ClassVar[Sequence[Case]]

    def find(self, store: Store, params: Any) -> Iterator[Finding]:
        """Yield the findings; `params` is an instance of this check's `Params`."""
        raise TypeError(f"{type(self).__name__} does not define find()")

    def completeness(self, store: Store, params: Any) -> str:
        """Return one sentence on what was and was not examined, with counts; "" for none."""
        return ""


def tally(values: Sequence[str]) -> str:
    """Return how often each value occurs, in words: `cat 2, dog 1`; the empty one is `(none)`."""
    counts = sorted(Counter(values).items())
    return ", ".join(f"{value or '(none)'} {count}" for value, count in counts)


def page(check: Check) -> str:
    """Return the check's documentation page as Markdown, thresholds included."""
    params = "".join(
        f"- `{f.name} = {f.default!r}`{_param_doc(check.Params, f.name)}\n"
        for f in dataclasses.fields(check.Params)
    )
    title = f"# {check.code} {check.name} ({check.severity})\n\n"
    body = inspect.cleandoc(type(check).__doc__ or "")
    thresholds = (
        f"\n\n## Thresholds\nSet under `[checks.{check.code}]` in `audit.toml`.\n\n{params}"
    )
    return title + body + (thresholds if params else "\n")


def _param_doc(params: type, name: str) -> str:
    # Thresholds are documented where they are declared: `Field docs:` lines of the Params
    # docstring.
    match = re.search(rf"^\s*{name}: (.+)$", params.__doc__ or "", re.MULTILINE)
    return f": {match[1]}" if match else ""


@cache
def all_checks() -> Mapping[str, Check]:
    """Return every check by code, in code order; read-only.

    Raises CheckContractError naming the file and the rule where a check breaks the contract.
    """
    found: dict[str, Check] = {}
    for module in _modules():
        for cls in _check_classes(module):
            check = cls()
            _validate(check, module)
            if check.code in found:
                raise CheckContractError(f"{module.__file__}: code {check.code} is used twice.")
            found[check.code] = check
    return MappingProxyType(dict(sorted(found.items())))


def _modules() -> Iterator[ModuleType]:
    package = importlib.import_module("audit.checks")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        yield importlib.import_module(f"audit.checks.{info.name}")
    for entry in entry_points(group="audit.checks"):
        yield entry.load()


def _check_classes(module: ModuleType) -> Iterator[type[Check]]:
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if issubclass(cls, Check) and cls is not Check and cls.__module__ == module.__name__:
            yield cls


def _validate(check: Check, module: ModuleType) -> None:
    doc = inspect.cleandoc(type(check).__doc__ or "")
    missing = [s for s in SECTIONS if f"## {s}" not in doc]
    known = {column.name for column in (*MEASURED, *LIBRARY_HASHES)}
    problems = [
        (not CODE.match(getattr(check, "code", "")), "code must look like FILE001"),
        (not NAME.match(getattr(check, "name", "")), "name must be lower-case words joined by -"),
        (bool(missing), f"the docstring lacks the sections {missing}"),
        (not dataclasses.is_dataclass(check.Params), "Params must be a frozen dataclass"),
        (not getattr(check, "CLEAN", ()), "CLEAN needs at least one case"),
        (not getattr(check, "DIRTY", ()), "DIRTY needs at least one case"),
        (not set(check.features) <= known, f"unknown features {set(check.features) - known}"),
    ]
    for broken, rule in problems:
        if broken:
            raise CheckContractError(f"{module.__file__}: {type(check).__name__}: {rule}.")


def select_checks(wanted: Sequence[str] | None) -> list[Check]:
    """Return the checks named by code, name or code prefix ("DUP"); all of them for None."""
    checks = all_checks()
    if wanted is None:
        return list(checks.values())
    chosen: dict[str, Check] = {}
    for word in wanted:
        hits = [
            c
            for c in checks.values()
            if (word and c.code.startswith(word.upper())) or c.name == word
        ]
        if not hits:
            raise UsageError(f"No check is called {word!r}: `audit checks` lists codes and names.")
        chosen.update((c.code, c) for c in hits)
    return [chosen[code] for code in sorted(chosen)]


def make_params(check: Check, overrides: Mapping[str, Any]) -> Any:
    """Return the check's Params with the overrides applied, each cast to the default's type.

    Raises UsageError for an unknown threshold or a value of the wrong type.
    """
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
        raise UsageError(f"[checks.{code}] {key} is too large: {default!r} is usual.") from None
