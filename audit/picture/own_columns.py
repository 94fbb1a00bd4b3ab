"""Measured columns of the user's own: a function from a picture to a number, in a file of theirs.

    from audit import column

    @column("share of the pixels that are strongly red, 0..1")
    def redness(picture):  # uint8 (height, width, 3), RGB, as it is shown
        return (picture[..., 0] > 200).mean()

Workers import the file by its path and evaluate it in the same pass as all other columns; what is
defined in a notebook is not available. An error costs the value alone, and is stored in the column
`own_error`. A function that ends its process is not measured for the rest of the scan.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import blake3
import numpy as np
import numpy.typing as npt

from audit.errors import UsageError, error_place, error_text
from audit.records import Column

Measure = Callable[[npt.NDArray[np.uint8]], Any]
OWN_ERROR = Column(
    "own_error",
    "VARCHAR",
    "what columns of the user's own raised: JSON lines of name, place, error",
)


@dataclass(frozen=True)
class OwnColumn:
    """A column of the user's own: `meaning` has the unit, `function` takes a picture.

    `known_as` is the identity of one that is not measured now, whose values are kept; `error` is
    then the place and the text of why.
    """

    name: str
    meaning: str
    function: Measure
    known_as: str = ""
    error: tuple[str, str] = ("", "")

    @property
    def file(self) -> Path:
        """Where it is defined."""
        return Path(self.function.__code__.co_filename)

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.file.name}:{self.function.__code__.co_firstlineno}"

    def dropped(self, why: str) -> OwnColumn:
        """Return it as it is after its process failed: not measured any more in this scan."""
        text = f"{why}; it is not measured for the rest of the scan"
        return self if self.known_as else lost_column(self.name, self.identity, self.place, text)

    @property
    def column(self) -> Column:
        """Its place in the table `features`."""
        return Column(self.name, "DOUBLE", self.meaning)

    @property
    def identity(self) -> str:
        """A digest of its file: another one, and every picture is measured again."""
        return self.known_as or str(blake3.blake3(self.file.read_bytes()).hexdigest()[:16])

    def __reduce__(self) -> tuple[Any, ...]:
        if self.known_as:
            return lost_column, (self.name, self.known_as, *self.error)
        return _column_in_worker, (str(self.file), self.name, self.identity)

    def __call__(self, picture: npt.NDArray[np.uint8]) -> Any:
        """Return what the function returns."""
        return self.function(picture)


def column(meaning: str) -> Callable[[Measure], OwnColumn]:
    """Make a measured column of the function below, named after it; `meaning` tells its unit."""
    if not isinstance(meaning, str):
        raise UsageError('Say what a column means, with its unit: @audit.column("redness, 0..1").')
    return lambda function: OwnColumn(function.__name__, meaning, function)


def lost_column(name: str, known_as: str, place: str, why: str) -> OwnColumn:
    """Return a column that is not measured now, and why: what it measured before stays."""
    return OwnColumn(name, "", float, known_as, (place, why))


def declared_columns(columns: Sequence[OwnColumn]) -> tuple[Column, ...]:
    """Return their columns of the table `features`."""
    return (*(one.column for one in columns), OWN_ERROR) if columns else ()


def measure_own(columns: Sequence[OwnColumn], picture: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """Return the values of one picture; what is raised, and what is no number, is no value."""
    values: dict[str, Any] = {}
    errors = [(one.name, *one.error) for one in columns if one.known_as]
    for one in (column for column in columns if not column.known_as):
        try:
            value = float(one(picture.copy()))  # theirs to change
            values[one.name] = value if math.isfinite(value) else None
        except (MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - the user's code raises anything
            place = error_place(error, str(one.file))
            if not place.startswith(one.file.name):
                place = one.place
            errors.append((one.name, place, error_text(error)))
    return values | {OWN_ERROR.name: "\n".join(map(json.dumps, errors)) or None}


def import_file(path: Path) -> ModuleType:
    """Run a file of the user's as a module of its own; files beside it can be imported from it."""
    name = f"_own_{blake3.blake3(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported: give a file whose name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if (folder := str(path.parent)) not in sys.path:
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module


def _column_in_worker(file: str, name: str, identity: str) -> OwnColumn:
    try:
        found: OwnColumn = getattr(_imported(file, identity), name)
    except BaseException as error:  # noqa: BLE001 - a file may run in the first process alone
        why = f"its file cannot be imported by a worker process, {error_text(error)}"
        return lost_column(name, identity, error_place(error, file), why)
    return found


@cache
def _imported(file: str, identity: str) -> ModuleType:
    return import_file(Path(file))  # once for each state of the file: workers live longer
