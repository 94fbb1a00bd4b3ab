"""`audit.toml`: the settings of a scan and the thresholds of its checks.

    [scan]
    exclude = ["**/thumbs/**"]
    max_pixels = 200_000_000     # of one file, by its header
    max_memory = 4_000_000_000   # bytes to decode one file (default: 2 GiB, or a worker's share of
                                 # half the free memory)

    [measure]
    hashes = ["whash"]   # further hashes as columns: whash, average_hash, phash_simple,
                         # dhash_vertical, colorhash, crop_resistant
    jpeg_walk = true     # look for damage that decoders accept in JPEG files; costs about a decode

    [relate]
    hashes = ["whash"]   # those of [measure] whose close pairs are candidates as well
    radius = 10          # bits of the perceptual hash within which every pair is a candidate
    turned = true        # the same for mirror images and quarter turns
    nearest = 12         # neighbours by descriptor that are candidates
    rechecks = 500       # most full-resolution checks of uncertain pairs (default: 500 or 2 %)
    uncertainty_band = 3.0  # distance of the score from the threshold that makes a pair uncertain

    [checks.IMG003]
    min_sharpness = 0.2

    [expect]
    leaked_share = "< 0.001"  # see audit.expectations

Looked for in the working directory unless `--config` names it. Unknown keys are refused, because a
misspelt threshold that is silently ignored is worse than none.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.checking.check import all_checks
from audit.errors import UsageError
from audit.picture.decode import Limits
from audit.picture.library_hashes import COMPARABLE_HASHES, LIBRARY_HASHES

SCAN_KEYS = ("exclude", "max_pixels", "max_bytes", "max_memory", "timeout_s")
RELATE_RANGES = {"radius": (0, 20), "nearest": (1, 100), "rechecks": (0, 10_000_000)}
RELATE_KEYS = {*RELATE_RANGES, "turned", "uncertainty_band"}
# Names of version 0.1, which keep working.
RELATE_OLD_NAMES = {"looks": "rechecks", "look_band": "uncertainty_band"}


@dataclass(frozen=True)
class Config:
    """Settings; `thresholds` maps a check code to its overrides, `relate` holds those of the
    near-duplicate search that are given, `hashes` names the library's hashes to measure,
    `relate_hashes` those of them whose close pairs are candidates as well, and `jpeg_walk` asks for
    the columns `jpeg_faults` and `jpeg_shift`. `expect` is what the dataset is expected to be, as
    written.
    """

    exclude: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 60.0
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    relate: Mapping[str, int | float | bool] = field(default_factory=dict)
    hashes: tuple[str, ...] = ()
    relate_hashes: tuple[str, ...] = ()
    jpeg_walk: bool = False
    expect: Mapping[str, Any] = field(default_factory=dict)


def load_config(path: Path | None) -> Config:
    """Return the settings of `path`, of ./audit.toml where None, or the defaults.

    Raises UsageError for a file that is absent or broken, or a key that does not exist.
    """
    if path is None and not Path("audit.toml").exists():
        return Config()
    chosen = path or Path("audit.toml")
    try:
        document = tomllib.loads(chosen.read_text("utf-8"))
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
    scan, measure, relate, checks = (
        _table(document, name, path) for name in ("scan", "measure", "relate", "checks")
    )
    for code in checks:
        _table(checks, code, path, "checks.")
    relate_hashes = relate.pop("hashes", ())
    known = set(all_checks())
    for where, found, allowed in (
        ("", document, {"scan", "measure", "relate", "checks", "expect"}),
        ("[scan] ", scan, set(SCAN_KEYS)),
        ("[measure] ", measure, {"hashes", "jpeg_walk"}),
        ("[relate] ", set(relate) - RELATE_OLD_NAMES.keys(), RELATE_KEYS),
        ("[checks] ", checks, known),
    ):
        if unknown := sorted(set(found) - allowed):
            raise UsageError(
                f"{path}: {where}has no {unknown[0]!r}; it may have {', '.join(sorted(allowed))}."
            )
    defaults = Limits()
    hashes = _hashes(measure.get("hashes", ()), path)
    exclude = scan.get("exclude", [])
    if not isinstance(exclude, list) or not all(isinstance(glob, str) for glob in exclude):
        raise UsageError(
            f'{path}: [scan] exclude is {exclude!r}: write a list such as ["**/x/**"].'
        )
    return Config(
        exclude=tuple(exclude),
        limits=Limits(
            max_pixels=int(_positive(scan, "max_pixels", defaults.max_pixels, path)),
            max_bytes=int(_positive(scan, "max_bytes", defaults.max_bytes, path)),
            max_memory=int(_positive(scan, "max_memory", defaults.max_memory, path)),
        ),
        timeout_s=float(_positive(scan, "timeout_s", 60.0, path)),
        thresholds=checks,
        relate=_relate(relate, path),
        hashes=hashes,
        relate_hashes=_relate_hashes(relate_hashes, hashes, path),
        jpeg_walk=_switch(measure, "jpeg_walk", path),
        expect=_table(document, "expect", path),
    )


def _table(inside: Mapping[str, Any], name: str, path: Path, above: str = "") -> dict[str, Any]:
    """Return a table of the file, empty where it is not there."""
    found = inside.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(
            f"{path}: {above}{name} is {found!r}: write it as a table, [{above}{name}]."
        )
    return dict(found)


def _positive(scan: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    """Return a number above 0 of `[scan]`."""
    value = scan.get(key, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # whole numbers of TOML have no end, and beyond this they are no number of seconds or bytes
    if not number or not 0 < value <= sys.float_info.max:
        raise UsageError(f"{path}: [scan] {key} is {str(value)[:40]}: write a number above 0.")
    return float(value) if isinstance(value, float) else int(value)


def _switch(measure: Mapping[str, Any], key: str, path: Path) -> bool:
    """Return a switch of `[measure]`, off where it is not given."""
    value = measure.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{path}: [measure] {key} is {value!r}: write true or false.")
    return value


def _hashes(given: Any, path: Path) -> tuple[str, ...]:
    """Check the names of the hashes to measure."""
    known = [column.name for column in LIBRARY_HASHES]
    names = given if isinstance(given, list | tuple) else [given]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"{path}: [measure] hashes has {unknown[0]!r}; it is a list of {', '.join(known)}."
        )
    return tuple(name for name in known if name in names)


def _relate_hashes(given: Any, measured: Sequence[str], path: Path) -> tuple[str, ...]:
    """Check the names of the hashes that give further candidates: 64 bits, and measured."""
    names = given if isinstance(given, list | tuple) else [given]
    usable = [name for name in COMPARABLE_HASHES if name in measured]
    if unknown := [name for name in names if name not in usable]:
        raise UsageError(
            f"{path}: [relate] hashes has {unknown[0]!r}; it may have those of "
            f"{', '.join(COMPARABLE_HASHES)} that [measure] hashes names."
        )
    return tuple(name for name in usable if name in names)


def _relate(given: Mapping[str, Any], path: Path) -> dict[str, int | float | bool]:
    """Check the settings of the near-duplicate search; old names become the new ones."""
    for old, new in RELATE_OLD_NAMES.items():
        if old in given and new in given:
            raise UsageError(f"{path}: [relate] has {new} and its old name {old}: keep {new}.")
    named = {RELATE_OLD_NAMES.get(key, key): value for key, value in given.items()}
    for key, value in named.items():
        if key == "uncertainty_band":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= 50:
                raise UsageError(f"{path}: [relate] {key} is {value!r}: write a number, 0 to 50.")
            continue
        if key == "turned":
            if not isinstance(value, bool):
                raise UsageError(f"{path}: [relate] turned is {value!r}: write true or false.")
            continue
        low, high = RELATE_RANGES[key]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise UsageError(
                f"{path}: [relate] {key} is {value!r}: write a whole number, {low} to {high:,}."
            )
    return named
