"""Checks and measured columns of the user's own, from the files that they name (docs/ci.md).

Files inside the dataset are never run, because what comes with pictures is not code. A file that
cannot be run is a failed part, and the other checks run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.checking.check import Check, all_checks
from audit.errors import UsageError, error_place, error_text, error_trace, find_machine_error
from audit.picture.features import FEATURE_ROW
from audit.picture.hashing import LIBRARY_HASHES
from audit.picture.own_columns import OWN_ERROR, OwnColumn, import_file
from audit.records import FailedPart, Severity
from audit.run.annotation_tables import BOX_STATISTICS_TABLES
from audit.run.store import Store
from audit.run.tables import SAMPLES
from audit.sources.paths import path_of
from dataset_preflight.foundation.check_contract import NAME

CODE = re.compile(r"[A-Z]{3,5}\d{3}")
TAKEN = {
    c.name for c in (*SAMPLES, *FEATURE_ROW, *LIBRARY_HASHES, *BOX_STATISTICS_TABLES["box_images"])
} | {"pixels", "aspect", "subject", OWN_ERROR.name}
_registered: dict[str, Check] = {}


@dataclass(frozen=True, slots=True)
class OwnCode:
    """What the user's files brought: checks, columns, and the files that could not be run."""

    checks: tuple[Check, ...] = ()
    columns: tuple[OwnColumn, ...] = ()
    broken: tuple[FailedPart, ...] = ()


def register(check: type[Check]) -> type[Check]:
    """Let a check of one's own run in every scan and re-check of this process; returns it.

    A later one with its code takes its place. Raises UsageError for what is no sound check.
    """
    if isinstance(check, OwnColumn):
        raise UsageError(
            f"The column {check.name!r} is measured in other processes, which cannot import a "
            "notebook: move it to a file and pass audit.scan(..., plugins=[file])."
        )
    if not (isinstance(check, type) and issubclass(check, Check)):
        raise UsageError("audit.register needs a subclass of audit.Check.")
    _require_contract(check, "This process")
    _registered[check.code] = check()
    return check


def load_own(files: Sequence[Path], roots: Iterable[str] = ()) -> OwnCode:
    """Run the files; return their checks and columns, with the checks that were registered.

    Raises UsageError for a file that is absent, lies in the `roots` or breaks the contract.
    """
    checks, columns, broken = dict(_registered), dict[str, OwnColumn](), list[FailedPart]()
    inside = [Path(os.path.realpath(root)) for root in map(path_of, roots) if root is not None]
    for given in files:
        path = Path(os.path.realpath(given))
        if not path.is_file() or path.suffix != ".py":
            raise UsageError(f"{given} is not a Python file: check the path under [plugins] files.")
        for root in inside:
            if path.is_relative_to(root):
                raise UsageError(
                    f"{given} is inside the dataset ({root}), and files of a dataset are never "
                    "run: move it elsewhere."
                )
        members: dict[str, Any] = {}
        with _errors_in(broken, path):
            members = vars(import_file(path))
        name = members.get("__name__")  # those that the file imports are not its own
        for one in list(members.values()):
            if isinstance(one, OwnColumn) and one.file == path:
                _add(columns, one.name, _sound_column(one), path)
            elif isinstance(one, type) and issubclass(one, Check) and one.__module__ == name:
                _require_contract(one, str(given))
                with _errors_in(broken, path, one):
                    _add(checks, one.code, one(), path)
    return OwnCode(tuple(checks.values()), in_order(columns.values()), tuple(broken))


def in_order(columns: Iterable[OwnColumn]) -> tuple[OwnColumn, ...]:
    """Return columns in the order in which they are stored, whatever file they come from."""
    return tuple(sorted(columns, key=lambda one: one.name))


def _add(found: dict[str, Any], name: str, one: Any, path: Path) -> None:
    if name in found and name not in _registered:
        raise UsageError(f"{path}: {name} is defined twice: rename one definition.")
    found[name] = one


def _require_contract(cls: type[Check], where: str) -> None:
    """Raise UsageError with the rule that a class of a check breaks."""
    code, name = getattr(cls, "code", ""), getattr(cls, "name", "")
    ours = {known[:-3] for known in all_checks()}
    rules = (
        (not (isinstance(code, str) and CODE.fullmatch(code)),
         f"code must be three to five capital letters and three digits, not {code!r}"),
        (str(code)[:-3] in ours, f"codes in {str(code)[:-3]} are reserved: choose others"),
        (not (isinstance(name, str) and NAME.match(name)),
         "name must be lower-case words joined by -"),
        (name in {check.name for check in all_checks().values()}, f"name {name} is already used"),
        (not isinstance(getattr(cls, "severity", None), Severity),
         "severity must be one of Severity.ERROR, WARNING and INFO"),
        (not dataclasses.is_dataclass(cls.Params), "Params must be a frozen dataclass"),
        (cls.find is Check.find, "it needs find(self, store, params) that yields findings"),
    )  # fmt: skip
    for broken, rule in rules:
        if broken:
            raise UsageError(f"{where}: {cls.__name__}: {rule}.")


def _sound_column(one: OwnColumn) -> OwnColumn:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", one.name) or one.name in TAKEN:
        raise UsageError(
            f"{one.file}: invalid column name {one.name}: use lower-case letters, digits and _, "
            "and no name of docs/schema.md."
        )
    return one


@contextlib.contextmanager
def _errors_in(
    broken: list[FailedPart], path: Path, check: type[Check] | None = None
) -> Iterator[None]:
    """Add to `broken` what code of a file raises inside: the file, or one check of it, failed."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the user's code raises anything
        if machine := find_machine_error(error):
            raise machine from None
        code, name = (check.code, check.name) if check else ("", f"file {path.name}")
        place, trace = error_place(error, str(path)), error_trace(error)
        if isinstance(error, SyntaxError) and error.filename == str(path):
            place = f"{path.name}:{error.lineno}"
        broken.append(FailedPart("check", code, name, error_text(error), place, trace))


def failed_columns(store: Store) -> list[FailedPart]:
    """Return what columns of the user's own raised, the most frequent first, at most five."""
    if OWN_ERROR.name not in store.columns("features"):
        return []
    rows = store.rows(
        "SELECT unnest(string_split(own_error, chr(10))) AS said, count(*) AS n FROM features "
        "WHERE own_error IS NOT NULL GROUP BY 1 ORDER BY n DESC, said LIMIT 5"
    )
    parts = []
    for row in rows:
        name, place, text = json.loads(row["said"])
        files = f"{text} (in {row['n']:,} file{'s' * (row['n'] > 1)})"
        parts.append(FailedPart("check", "", f"column {name}", files, place, ""))
    return parts
