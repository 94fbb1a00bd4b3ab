"""`audit.toml`: the settings of a scan and the thresholds of its checks (docs/scan.md).

`scan.lock = false` lets several writers into a run. `match.hashes` names those of `measure.hashes`
whose close pairs are candidates as well.

Unknown keys are refused, because a misspelt threshold that is silently
ignored is worse than none.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.checking.check import all_checks
from audit.checking.retired import without_retired
from audit.errors import UsageError
from audit.picture.decode import Limits
from audit.picture.hashing import COMPARABLE_HASHES, LIBRARY_HASHES
from dataset_preflight.foundation.settings import SettingsError, assign, read_settings
from dataset_preflight.foundation.terminal import nearest_name


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Assumptions of `audit subset`, the table `[plan]`: docs/subsets.md explains each."""

    power: float = 0.8
    allocation: str | None = None
    expected: float | None = None
    disagreement: float | None = None
    correlation: float | None = None
    deviation: float | None = None
    comparisons: int | None = None
    label_noise: float | str | None = None
    label_strata: bool = True
    merge_strata: bool = False
    min_gain: float = 0.001
    uncertainty: str = "margin"


MATCH_RANGES = {"radius": (0, 20), "nearest": (1, 100), "rechecks": (0, 10_000_000)}
SETTINGS: Mapping[str, Collection[str]] = {
    "scan": (
        "exclude", "embedder", "label_separator", "one_hot", "max_pixels", "max_bytes",
        "max_memory", "timeout_s", "lock",
    ),
    "measure": ("hashes",),
    "match": ("hashes", *MATCH_RANGES, "turned"),
    "plan": tuple(one.name for one in dataclasses.fields(PlanSettings)),
    "plugins": ("files",),
}  # fmt: skip
"""Keys of each table of `audit.toml`; `[checks.CODE]` and `[expect]` have keys of their own."""
FILE_NAME = "audit.toml"


@dataclass(frozen=True)
class Config:
    """Settings of a scan.

    `thresholds`: overrides by check code. `match`: settings of the near-duplicate search.
    `hashes`: hashes to measure; `match_hashes`: those whose close pairs are candidates.
    `plugins`: files of the user's checks and columns. `expect`: `[expect]` as written.
    `notes`: sentences about settings that have no effect.
    """

    exclude: tuple[str, ...] = ()
    label_separator: str | None = None
    one_hot: str | None = None
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 60.0
    lock: bool = True
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    match: Mapping[str, int | bool] = field(default_factory=dict)
    plan: PlanSettings = field(default_factory=PlanSettings)
    hashes: tuple[str, ...] = ()
    match_hashes: tuple[str, ...] = ()
    plugins: tuple[Path, ...] = ()
    expect: Mapping[str, Any] = field(default_factory=dict)
    embedder: str | None = None
    notes: tuple[str, ...] = ()


def load_config(
    path: Path | None, assignments: Sequence[str] = (), expectations: Iterable[str] = ()
) -> Config:
    """Return the settings of `path`, of ./audit.toml where None, or the defaults.

    `assignments` (`scan.lock=false`) and `expectations` (`leaked_share=< 0.001`) override the file.
    Raises UsageError for a file that is absent or broken, or a key that does not exist.
    """
    try:
        document, chosen = read_settings(path, FILE_NAME)
        if assignments:
            assign(document, assignments, _known_keys())
        expected = [f"expect.{text}" for text in expectations]
        assign(document, expected, {text.partition("=")[0] for text in expected})
    except SettingsError as error:
        raise UsageError(str(error)) from None
    name = "--set or " if assignments else ""
    return _validated(document, f"{name}{chosen}", chosen.parent) if document else Config()


def _known_keys() -> list[str]:
    keys = [f"{table}.{key}" for table, names in SETTINGS.items() for key in names]
    for code, check in all_checks().items():
        keys += (f"checks.{code}.{one.name}" for one in dataclasses.fields(type(check).Params))
    return keys


def _validated(document: dict[str, Any], path: str, folder: Path) -> Config:
    tables = {name: _table(document, name, path) for name in SETTINGS}
    scan, match = tables["scan"], tables["match"]
    checks = _table(document, "checks", path)
    for code in checks:
        _table(checks, code, path, "checks.")
    checks, notes = without_retired(checks)
    expect, more_notes = _without_retired_codes(_table(document, "expect", path))
    known = set(all_checks())
    files = _texts(tables["plugins"], "[plugins] files", "mine.py", path)
    if files:  # the codes of plugins are known when their files have run
        known |= {code for code in checks if code[:-3] not in {other[:-3] for other in known}}
    for where, found, allowed in (
        ("", document, {*SETTINGS, "checks", "expect"}),
        *((f"[{name}] ", tables[name], keys) for name, keys in SETTINGS.items()),
        ("[checks] ", checks, known),
    ):
        if unknown := sorted(set(found) - set(allowed)):
            raise UsageError(
                f"{path}: {where}has no {unknown[0]!r}.{nearest_name(unknown[0], allowed)} It may "
                f"have {', '.join(sorted(allowed))}."
            )
    defaults = Limits()
    match_hashes = match.pop("hashes", ())
    known_hashes = [column.name for column in LIBRARY_HASHES]
    rule = f"it is a list of {', '.join(known_hashes)}"
    hashes = _hashes(tables["measure"].get("hashes", ()), known_hashes, f"{path}: [measure]", rule)
    rule = f"it may have those of {', '.join(COMPARABLE_HASHES)} that [measure] hashes lists"
    usable = [name for name in COMPARABLE_HASHES if name in hashes]
    return Config(
        exclude=tuple(_texts(scan, "[scan] exclude", "**/x/**", path)),
        limits=Limits(
            max_pixels=int(_positive(scan, "max_pixels", defaults.max_pixels, path)),
            max_bytes=int(_positive(scan, "max_bytes", defaults.max_bytes, path)),
            max_memory=int(_positive(scan, "max_memory", defaults.max_memory, path)),
        ),
        timeout_s=float(_positive(scan, "timeout_s", 60.0, path)),
        label_separator=_text(scan, "label_separator", path),
        one_hot=_text(scan, "one_hot", path),
        lock=_switch(scan, "[scan] lock", path, default=True),
        thresholds=checks,
        match=_match(match, path),
        plan=_plan(tables["plan"], path),
        hashes=hashes,
        match_hashes=_hashes(match_hashes, usable, f"{path}: [match]", rule),
        plugins=tuple(folder / file for file in files),
        expect=expect,
        embedder=_text(scan, "embedder", path),
        notes=tuple(dict.fromkeys((*notes, *more_notes))),
    )


def _without_retired_codes(expect: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return `[expect]` and its splits without retired codes, and a note for each."""
    kept, notes = without_retired(expect)
    for name, value in kept.items():
        if isinstance(value, Mapping):
            kept[name], more = without_retired(value)
            notes += more
    return kept, notes


def _text(scan: Mapping[str, Any], key: str, path: str) -> str | None:
    """Return a text of `[scan]`, None where it is not given."""
    text = scan.get(key)
    if text is not None and (not isinstance(text, str) or not text):
        raise UsageError(f'{path}: [scan] {key} is {text!r}: write a text, such as "auto".')
    return None if text is None else str(text)


def _table(inside: Mapping[str, Any], name: str, path: str, above: str = "") -> dict[str, Any]:
    found = inside.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(
            f"{path}: {above}{name} is {found!r}: write it as a table, [{above}{name}]."
        )
    return dict(found)


def _texts(table: Mapping[str, Any], where: str, example: str, path: str) -> list[str]:
    """Return a list of texts, empty where it is not given; `where` ends with its key."""
    value = table.get(where.split()[-1], [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError(f'{path}: {where} is {value!r}: write a list such as ["{example}"].')
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(scan: Mapping[str, Any], key: str, default: float, path: str) -> float:
    value = scan.get(key, default)
    # whole numbers of TOML have no end, and beyond this they are no number of seconds or bytes
    if not _is_number(value) or not 0 < value <= sys.float_info.max:
        raise UsageError(f"{path}: [scan] {key} is {str(value)[:40]}: write a number above 0.")
    return float(value) if isinstance(value, float) else int(value)


def _switch(table: Mapping[str, Any], where: str, path: str, *, default: bool = False) -> bool:
    value = table.get(where.split()[-1], default)
    if not isinstance(value, bool):
        raise UsageError(f"{path}: {where} is {value!r}: write true or false.")
    return value


def _hashes(given: Any, usable: Sequence[str], where: str, rule: str) -> tuple[str, ...]:
    """Return the names of hashes that are given, in the order of those that may be."""
    names = given if isinstance(given, list | tuple) else [given]
    if unknown := [name for name in names if name not in usable]:
        raise UsageError(f"{where} hashes has {unknown[0]!r}; {rule}.")
    return tuple(name for name in usable if name in names)


CHOICES = {
    "allocation": ("proportional", "equal", "neyman"),
    "uncertainty": ("margin", "entropy"),
    "label_noise": ("auto",),
}


def _plan(given: Mapping[str, Any], path: str) -> PlanSettings:
    for one in dataclasses.fields(PlanSettings):
        if one.name not in given:
            continue
        value, kind = given[one.name], str(one.type)
        choices = CHOICES.get(one.name, ())
        sound = isinstance(value, bool) if kind == "bool" else value in choices
        if "int" in kind or "float" in kind:
            whole = isinstance(value, int) or "float" in kind
            sound = sound or (_is_number(value) and whole)
        if not sound:
            wanted = "true or false" if kind == "bool" else " or ".join(choices)
            if "int" in kind or "float" in kind:
                wanted = " or ".join(filter(None, ["a number", wanted]))
            raise UsageError(f"{path}: [plan] {one.name} is {value!r}: write {wanted}.")
    return PlanSettings(**given)


def _match(given: Mapping[str, Any], path: str) -> dict[str, int | bool]:
    _switch(given, "[match] turned", path)
    for key, (low, high) in MATCH_RANGES.items():
        value = given.get(key, low)
        if type(value) is not int or not low <= value <= high:
            raise UsageError(
                f"{path}: [match] {key} is {value!r}: write a whole number, {low} to {high:,}."
            )
    return dict(given)
