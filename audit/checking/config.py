"""`audit.toml`: the settings of a scan and the thresholds of its checks.

    [scan]
    exclude = ["**/thumbs/**"]
    embedder = "auto"            # what --embedder says: the best model that is installed
    max_pixels = 200_000_000     # of one file, by its header
    max_memory = 4_000_000_000   # bytes to decode one file (default: 2 GiB, or a worker's share of
                                 # half the free memory)

    [measure]
    hashes = ["whash"]   # further hashes as columns: whash, average_hash, phash_simple,
                         # dhash_vertical, colorhash, crop_resistant

    [relate]
    hashes = ["whash"]   # those of [measure] whose close pairs are candidates as well
    radius = 10          # bits of the perceptual hash within which every pair is a candidate
    turned = true        # the same for mirror images and quarter turns
    nearest = 12         # neighbours by descriptor that are candidates
    rechecks = 500       # most full-resolution checks of uncertain pairs (default: 500 or 2 %)
    uncertainty_band = 3.0  # distance of the score from the threshold that makes a pair uncertain

    [checks.IMG003]
    min_sharpness = 0.2

    [own]
    files = ["my_checks.py"]  # checks and measured columns of your own, beside this file

    [expect]
    leaked_share = "< 0.001"  # see audit.compare.expectations

Looked for in the working directory unless `--config` names it. Unknown keys are refused, because a
misspelt threshold that is silently ignored is worse than none.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.checking.check import all_checks
from audit.checking.retired import without_retired
from audit.errors import UsageError
from audit.picture.decode import Limits
from audit.picture.hashing import COMPARABLE_HASHES, LIBRARY_HASHES
from preflight.files import read_regular

RELATE_RANGES = {"radius": (0, 20), "nearest": (1, 100), "rechecks": (0, 10_000_000)}
SETTINGS: Mapping[str, Collection[str]] = {
    "scan": ("exclude", "embedder", "max_pixels", "max_bytes", "max_memory", "timeout_s"),
    "measure": ("hashes",),
    "relate": ("hashes", *RELATE_RANGES, "turned", "uncertainty_band"),
    "own": ("files",),
}
"""Keys of each table of `audit.toml`; `[checks.CODE]` and `[expect]` have keys of their own."""


@dataclass(frozen=True)
class Config:
    """Settings; `thresholds` maps a check code to its overrides, `relate` holds those of the
    near-duplicate search that are given, `hashes` names the library's hashes to measure,
    `relate_hashes` those of them whose close pairs are candidates as well. `own` are files with
    checks and columns of the user's own. `expect` is what the dataset is expected to be, as
    written; `embedder` what `--embedder` says where it is not given. `notes` are sentences about
    settings that have no effect.
    """

    exclude: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 60.0
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    relate: Mapping[str, int | float | bool] = field(default_factory=dict)
    hashes: tuple[str, ...] = ()
    relate_hashes: tuple[str, ...] = ()
    own: tuple[Path, ...] = ()
    expect: Mapping[str, Any] = field(default_factory=dict)
    embedder: str | None = None
    notes: tuple[str, ...] = ()


def load_config(path: Path | None) -> Config:
    """Return the settings of `path`, of ./audit.toml where None, or the defaults.

    Raises UsageError for a file that is absent or broken, or a key that does not exist.
    """
    if path is None and not Path("audit.toml").exists():
        return Config()
    chosen = path or Path("audit.toml")
    try:
        document = tomllib.loads(read_regular(chosen).decode())
    except FileNotFoundError:
        raise UsageError(f"{chosen} does not exist: check the path given to --config.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{chosen} is not UTF-8: save it as UTF-8, as TOML is written.") from None
    except (ValueError, RecursionError) as error:  # ValueError: an integer of 4,300 digits, too
        raise UsageError(f"{chosen} cannot be read as TOML: {error}.") from None
    except OSError as error:
        raise UsageError(f"{chosen} cannot be read: {error.strerror or error}.") from None
    return _validated(document, chosen)


def _validated(document: dict[str, Any], path: Path) -> Config:
    scan, measure, relate, checks, own = (
        _table(document, name, path) for name in ("scan", "measure", "relate", "checks", "own")
    )
    for code in checks:
        _table(checks, code, path, "checks.")
    checks, notes = without_retired(checks)
    expect, more_notes = _without_retired_codes(_table(document, "expect", path))
    known = set(all_checks())
    files = _texts(own, "[own] files", "mine.py", path)
    if files:  # whether a check of one's own has a code is known when its file has run
        known |= {code for code in checks if code[:-3] not in {other[:-3] for other in known}}
    for where, found, allowed in (
        ("", document, {*SETTINGS, "checks", "expect"}),
        ("[scan] ", scan, SETTINGS["scan"]),
        ("[measure] ", measure, SETTINGS["measure"]),
        ("[relate] ", relate, SETTINGS["relate"]),
        ("[checks] ", checks, known),
        ("[own] ", own, SETTINGS["own"]),
    ):
        if unknown := sorted(set(found) - set(allowed)):
            raise UsageError(
                f"{path}: {where}has no {unknown[0]!r}; it may have {', '.join(sorted(allowed))}."
            )
    defaults = Limits()
    relate_hashes = relate.pop("hashes", ())
    known_hashes = [column.name for column in LIBRARY_HASHES]
    rule = f"it is a list of {', '.join(known_hashes)}"
    hashes = _hashes(measure.get("hashes", ()), known_hashes, f"{path}: [measure]", rule)
    rule = f"it may have those of {', '.join(COMPARABLE_HASHES)} that [measure] hashes names"
    usable = [name for name in COMPARABLE_HASHES if name in hashes]
    return Config(
        exclude=tuple(_texts(scan, "[scan] exclude", "**/x/**", path)),
        limits=Limits(
            max_pixels=int(_positive(scan, "max_pixels", defaults.max_pixels, path)),
            max_bytes=int(_positive(scan, "max_bytes", defaults.max_bytes, path)),
            max_memory=int(_positive(scan, "max_memory", defaults.max_memory, path)),
        ),
        timeout_s=float(_positive(scan, "timeout_s", 60.0, path)),
        thresholds=checks,
        relate=_relate(relate, path),
        hashes=hashes,
        relate_hashes=_hashes(relate_hashes, usable, f"{path}: [relate]", rule),
        own=tuple(path.parent / file for file in files),
        expect=expect,
        embedder=_embedder(scan, path),
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


def _embedder(scan: Mapping[str, Any], path: Path) -> str | None:
    text = scan.get("embedder")
    if text is not None and (not isinstance(text, str) or not text):
        raise UsageError(f'{path}: [scan] embedder is {text!r}: write a text, such as "auto".')
    return None if text is None else str(text)


def _table(inside: Mapping[str, Any], name: str, path: Path, above: str = "") -> dict[str, Any]:
    """Return a table of the file, empty where it is not there."""
    found = inside.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(
            f"{path}: {above}{name} is {found!r}: write it as a table, [{above}{name}]."
        )
    return dict(found)


def _texts(table: Mapping[str, Any], where: str, example: str, path: Path) -> list[str]:
    """Return a list of texts, empty where it is not given; `where` ends with its key."""
    value = table.get(where.split()[-1], [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError(f'{path}: {where} is {value!r}: write a list such as ["{example}"].')
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(scan: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    """Return a number above 0 of `[scan]`."""
    value = scan.get(key, default)
    # whole numbers of TOML have no end, and beyond this they are no number of seconds or bytes
    if not _is_number(value) or not 0 < value <= sys.float_info.max:
        raise UsageError(f"{path}: [scan] {key} is {str(value)[:40]}: write a number above 0.")
    return float(value) if isinstance(value, float) else int(value)


def _switch(table: Mapping[str, Any], where: str, path: Path) -> bool:
    """Return a switch, off where it is not given; `where` ends with its key."""
    value = table.get(where.split()[-1], False)
    if not isinstance(value, bool):
        raise UsageError(f"{path}: {where} is {value!r}: write true or false.")
    return value


def _hashes(given: Any, usable: Sequence[str], where: str, rule: str) -> tuple[str, ...]:
    """Return the names of hashes that are given, in the order of those that may be."""
    names = given if isinstance(given, list | tuple) else [given]
    if unknown := [name for name in names if name not in usable]:
        raise UsageError(f"{where} hashes has {unknown[0]!r}; {rule}.")
    return tuple(name for name in usable if name in names)


def _relate(given: Mapping[str, Any], path: Path) -> dict[str, int | float | bool]:
    """Check the settings of the near-duplicate search."""
    _switch(given, "[relate] turned", path)
    for key, value in given.items():
        low, high = RELATE_RANGES.get(key, (0, 50))
        what = "whole number" if key in RELATE_RANGES else "number"
        sound = _is_number(value) and low <= value <= high
        if key in RELATE_RANGES:
            sound = sound and isinstance(value, int)
        if key != "turned" and not sound:
            raise UsageError(
                f"{path}: [relate] {key} is {value!r}: write a {what}, {low} to {high:,}."
            )
    return dict(given)
