"""`profiler.toml`: the settings of the profiler, each with its default.

    [record]
    study = "birds"

    [measure]
    repeats = 3

    [check]
    mean = [0.485, 0.456, 0.406]

The file is looked for in the working folder unless `--config` names it. `--set measure.repeats=3`
sets a key for one command. Paths are relative to the working folder. Unknown keys are refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dataset_preflight.foundation.settings import (
    GlobalOptions,
    SettingsError,
    assign,
    read_settings,
)
from dataset_preflight.foundation.terminal import nearest_name
from pipeline_profiler.profiling.record.errors import ProfileError

FILE_NAME = "profiler.toml"
MAX_SEED = 2**32 - 1  # numpy and torch take no larger seed
MAX_COUNT = 10**9  # of steps, repeats or classes
MAX_SHOWN = 40  # characters of a wrong value in a sentence


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value must be: the test, and the phrase that completes `write ...`."""

    fits: Callable[[Any], bool]
    phrase: str


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(low: int, high: int = MAX_COUNT) -> Rule:
    def fits(value: Any) -> bool:
        return _is_number(value) and isinstance(value, int) and low <= value <= high

    end = "" if high == MAX_COUNT else f" to {high}"
    return Rule(fits, f"a whole number from {low}{end}")


SWITCH = Rule(lambda value: isinstance(value, bool), "true or false")
TEXT = Rule(lambda value: isinstance(value, str) and "\0" not in value, "a text in quotes")
SECONDS = Rule(lambda value: _is_number(value) and value > 0, "a number of seconds above 0")
NUMBERS = Rule(
    lambda value: isinstance(value, list) and all(map(_is_number, value)),
    "a list of numbers, such as [0.485, 0.456, 0.406]",
)


def _key(default: Any, rule: Rule, meaning: str) -> Any:
    return field(default=default, metadata={"rule": rule, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """`[record]`: the row that a command adds to the table of runs."""

    study: str = _key("", TEXT, "name of the study (default: name of the repository or folder)")
    configuration: str = _key("", TEXT, "configuration of the training, as a file or a link")
    file: str = _key("", TEXT, "table of runs (default: PIPELINE_PROFILER_RUNS, or the user data)")
    enabled: bool = _key(True, SWITCH, "add a row for each measurement and each run of checks")


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """`[measure]`: how `run`, `watch` and `precision` measure; None is the command's default."""

    steps: int | None = _key(
        None,
        _whole(1),
        "timed steps of a configuration (default: 300 for `run`; 9 of a window of `precision`, 5 "
        "where a step is slow)",
    )
    repeats: int | None = _key(
        None,
        _whole(1),
        "interleaved repeats of each configuration (default: 5; at most 24 rounds of `precision`)",
    )
    seed: int = _key(0, _whole(0, MAX_SEED), "order of the configurations, and initial weights")
    limit: float | None = _key(
        None,
        SECONDS,
        "stop if no step finishes in this time (default: the time budget of `run`, at least 30 s; "
        "twice that of `precision`)",
    )
    epoch_steps: int = _key(0, _whole(0), "steps of an epoch, where the loader has no length")
    parity_steps: int | None = _key(
        None, _whole(1), "first steps whose losses `precision` compares (default: 50; on a CPU 8)"
    )
    every: float = _key(60.0, SECONDS, "time between two saves of `watch`")


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """`[check]`: what the checks of loaders and training loops compare with."""

    classes: int | None = _key(None, _whole(2), "number of classes (labels 0 to classes - 1)")
    mean: tuple[float, ...] = _key((), NUMBERS, "mean per channel that the model expects")
    std: tuple[float, ...] = _key((), NUMBERS, "deviation per channel that the model expects")
    pretrained: str = _key(
        "",
        TEXT,
        "source of mean and std: preprocessor_config.json, config.json of timm, or "
        "FILE.py:FUNCTION that returns a model, weights or a processor (default: make_model)",
    )
    seed: int = _key(0, _whole(0, MAX_SEED), "seed of everything random")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one call."""

    record: RecordSettings = field(default_factory=RecordSettings)
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    check: CheckSettings = field(default_factory=CheckSettings)


TABLES: Mapping[str, type[Any]] = {
    "record": RecordSettings, "measure": MeasureSettings, "check": CheckSettings,
}  # fmt: skip


def setting_fields() -> dict[str, dataclasses.Field[Any]]:
    """Return the field of every setting, by `table.key`."""
    return {f"{t}.{key.name}": key for t, of in TABLES.items() for key in dataclasses.fields(of)}


def load_settings(options: GlobalOptions) -> Settings:
    """Return the settings of a call: `profiler.toml` or `--config`, then `--set`."""
    try:
        document, path = read_settings(options.config, FILE_NAME)
        assign(document, options.assignments, setting_fields())
    except SettingsError as error:
        raise ProfileError(str(error)) from None
    if not document:
        return Settings()
    _refuse_unknown(document, TABLES, f"{path}: there is no table")
    assigned = {text.partition("=")[0].strip() for text in options.assignments}
    tables = {}
    for name, of in TABLES.items():
        values = document.get(name, {})
        if not isinstance(values, dict):
            text = f"{path}: {name} is {_shown(values)}: write it as a table, [{name}]."
            raise ProfileError(text)
        rules = {key.name: key.metadata["rule"] for key in dataclasses.fields(of)}
        _refuse_unknown(values, rules, f"{path}: [{name}] has no key")
        for key, value in values.items():
            if not rules[key].fits(value):
                source = "--set" if f"{name}.{key}" in assigned else path
                problem = f"{source}: {name}.{key} is {_shown(value)}"
                raise ProfileError(f"{problem}: write {rules[key].phrase}.")
        lists = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        tables[name] = of(**lists)
    return Settings(**tables)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _refuse_unknown(found: Mapping[str, Any], known: Any, problem: str) -> None:
    for key in found:
        if key not in known:
            raise ProfileError(
                f"{problem} {key!r}.{nearest_name(key, known)} It may have {', '.join(known)}."
            )
