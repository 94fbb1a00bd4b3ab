"""The contract of a check in both programs: code, name, documentation page, source location.

A check is a class, or a row of a table; its docstring is its page. A walk over the folder finds all
checks, and reports a broken contract with file and line.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, Protocol, TypeVar

NAME = re.compile(r"^[a-z]+(-[a-z0-9]+)*$")


class Documented(Protocol):
    """What this file needs of a check."""

    code: ClassVar[str]
    name: ClassVar[str]


C = TypeVar("C", bound=Documented)


@dataclass(frozen=True)
class Contract:
    """A program's rules for checks, (broken, sentence) each; `error` is raised with location."""

    families: tuple[str, ...]
    sections: tuple[str, ...]
    error: type[Exception]
    rules: Callable[[Any], Iterable[tuple[bool, str]]]

    def fits(self, code: str) -> bool:
        """Whether a code is one of these families and three digits."""
        return bool(re.fullmatch(rf"({'|'.join(self.families)})\d{{3}}", code))


def modules_in(package: str) -> Iterator[ModuleType]:
    """Import every file of a folder of checks, in the order of names."""
    folder = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(folder.__path__), key=lambda i: i.name):
        yield importlib.import_module(f"{package}.{info.name}")


def checks_in(modules: Iterable[ModuleType], base: type[C], contract: Contract) -> Mapping[str, C]:
    """Return every check of these files by code; broken rules raise.

    Classes with `_` are bases. `ROWS` of a file holds instances that share a class, each with its
    own `__doc__`.
    """
    found: dict[str, C] = {}
    for module in modules:
        classes = [cls for _, cls in inspect.getmembers(module, inspect.isclass)]
        own = (c for c in classes if issubclass(c, base) and c.__module__ == module.__name__)
        checks = [cls() for cls in own if not cls.__name__.startswith("_")]
        for check in (*checks, *getattr(module, "ROWS", ())):
            rule = next(_broken_rules(check, contract), "")
            if not rule and check.code in found:
                rule = f"the code {check.code} is that of {type(found[check.code]).__name__} too"
            if rule:
                cls = type(check)
                raise contract.error(f"{_place(cls)}: {cls.__name__}: {rule}.")
            found[check.code] = check
    return MappingProxyType(dict(sorted(found.items())))


def _broken_rules(check: Documented, contract: Contract) -> Iterator[str]:
    if not contract.fits(getattr(check, "code", "")):
        yield f"code must look like {contract.families[0]}001"
    if not NAME.match(getattr(check, "name", "")):
        yield "name must be lower-case words joined by -"
    titles = re.findall(r"^\s*## (.+)$", check.__doc__ or "", flags=re.MULTILINE)
    titles += ["What to do"] if getattr(check, "next_step", "") else []
    if missing := [s for s in contract.sections if s not in titles]:
        yield f"the docstring lacks the sections {missing}"
    yield from (rule for broken, rule in contract.rules(check) if broken)


def _place(cls: type) -> str:
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):  # a class that was made without a file
        return cls.__module__


def named_checks(checks: Iterable[C], word: str) -> list[C]:
    """Return the checks that a word names: a code, the beginning of codes, or a name."""
    return [c for c in checks if (word and c.code.startswith(word.upper())) or c.name == word]


def page_text(check: Documented) -> str:
    """Return the page of a check: its docstring, with the next step if it has none."""
    text, step = inspect.cleandoc(check.__doc__ or ""), getattr(check, "next_step", "")
    if step and "\n## What to do\n" not in text:
        head, limits, rest = text.partition("\n## Limits\n")
        text = f"{head.rstrip()}\n\n## What to do\n{textwrap.fill(step, 100)}"
        text += f"\n{limits}{rest}" if limits else ""
    return text


def page_of(check: Documented, note: str = "") -> str:
    """Return a check's page as Markdown; `note` stands in brackets in its title."""
    title = f"# {check.code} {check.name}{note and f' ({note})'}"
    return f"{title}\n\n{page_text(check)}\n"
