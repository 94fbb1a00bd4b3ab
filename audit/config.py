"""`audit.toml`: the settings of a scan and the thresholds of its checks.

    [scan]
    exclude = ["**/thumbs/**"]
    max_pixels = 200_000_000

    [checks.IMG003]
    min_sharpness = 0.2

Looked for in the working directory unless `--config` names it. Unknown keys are refused, because a
misspelt threshold that is silently ignored is worse than none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.check import all_checks
from audit.decode import Limits
from audit.errors import UsageError

SCAN_KEYS = ("exclude", "max_pixels", "max_bytes", "timeout_s")


@dataclass(frozen=True)
class Config:
    """Settings; `thresholds` maps a check code to its overrides."""

    exclude: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 60.0
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_config(path: Path | None) -> Config:
    """Return the settings of `path`, of ./audit.toml where None, or the defaults.

    Raises UsageError for a file that is absent or broken, or a key that does not exist.
    """
    if path is None and not Path("audit.toml").exists():
        return Config()
    chosen = path or Path("audit.toml")
    try:
        document = tomllib.loads(chosen.read_text())
    except FileNotFoundError:
        raise UsageError(f"{chosen} does not exist: check the path given to --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{chosen} cannot be read as TOML: {error}.") from None
    return _validated(document, chosen)


def _validated(document: dict[str, Any], path: Path) -> Config:
    scan, checks = document.get("scan", {}), document.get("checks", {})
    known = set(all_checks())
    for where, found, allowed in (
        ("", document, {"scan", "checks"}),
        ("[scan] ", scan, set(SCAN_KEYS)),
        ("[checks] ", checks, known),
    ):
        if unknown := sorted(set(found) - allowed):
            raise UsageError(
                f"{path}: {where}has no {unknown[0]!r}; it may have {', '.join(sorted(allowed))}."
            )
    defaults = Limits()
    try:
        return Config(
            exclude=tuple(str(glob) for glob in scan.get("exclude", ())),
            limits=Limits(
                max_pixels=int(scan.get("max_pixels", defaults.max_pixels)),
                max_bytes=int(scan.get("max_bytes", defaults.max_bytes)),
            ),
            timeout_s=float(scan.get("timeout_s", 60.0)),
            thresholds={code: dict(values) for code, values in checks.items()},
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: [scan] holds a value of the wrong type: {error}.") from None
