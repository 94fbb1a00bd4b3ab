"""Settings files (`audit.toml`, `profiler.toml`) and the options that every command has.

`--config FILE` names the file, `--set TABLE.KEY=VALUE` sets a key for one call, and `--trace`
prints tracebacks. They are options of the program: they stand before or after the command.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_preflight.foundation.files import read_regular
from dataset_preflight.foundation.terminal import nearest_name

CONFIG_HELP = "Settings file (default: {name} in this folder)."
SET_HELP = "Set a key of the settings file for this call, such as {example}; repeatable."
TRACE_HELP = "Print the traceback of an internal error."
WITH_VALUE = frozenset(("--config", "--set"))


class SettingsError(ValueError):
    """A settings file or a `--set` that cannot be used; the text names the remedy."""


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The options that every command has."""

    config: Path | None = None
    assignments: Sequence[str] = ()
    trace: bool = False


def global_options_first(words: Sequence[str]) -> list[str]:
    """Return a command line with the options of the program first; words after `--` stay."""
    end = words.index("--") if "--" in words else len(words)
    first: list[str] = []
    rest: list[str] = []
    remaining = iter(words[:end])
    for word in remaining:
        if word == "--trace" or (word.partition("=")[0] in WITH_VALUE and "=" in word):
            first.append(word)
        elif word in WITH_VALUE:
            first += [word, *([value] if (value := next(remaining, None)) is not None else [])]
        else:
            rest.append(word)
    return [*first, *rest, *words[end:]]


def read_settings(path: Path | None, name: str) -> tuple[dict[str, Any], Path]:
    """Return the settings document (empty without a file) and its path; raises SettingsError."""
    chosen = path or Path(name)
    if path is None and not chosen.exists():
        return {}, chosen
    try:
        return tomllib.loads(read_regular(chosen).decode()), chosen
    except FileNotFoundError:
        problem = "does not exist: check the path given to --config"
    except UnicodeDecodeError:
        problem = "is not UTF-8: save it as UTF-8, as TOML requires"
    except (ValueError, RecursionError) as error:  # ValueError: an integer of 4,300 digits, too
        problem = f"cannot be read as TOML: {error}"
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    raise SettingsError(f"{chosen} {problem}.")


def assign(document: dict[str, Any], assignments: Iterable[str], keys: Collection[str]) -> None:
    """Set keys, each given as `TABLE.KEY=VALUE`; SettingsError with the nearest known key."""
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals:
            raise SettingsError(f"{text!r} has no value: write KEY=VALUE.")
        if key not in keys:
            raise SettingsError(
                f"--set {text}: there is no setting {key!r}.{nearest_name(key, keys)}"
            )
        *tables, last = key.split(".")
        table = document
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise SettingsError(
                    f"{name} is {table!r} in the settings file: write it as a table."
                )
        table[last] = _value(value.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        with suppress(ValueError):
            return float(text)  # .5 is no TOML
        return text
