"""The user's own code, named on the command line as `FILE.py:FUNCTION`.

What it raises is the user's to see: one sentence, and the frames of their own files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline_profiler.cli.factory_text import refuse_empty
from pipeline_profiler.profiling.measure.stopping import said_by, user_traceback
from pipeline_profiler.profiling.record.session import ProfileError

LONGEST = 400  # characters of what an error says
EXTRAS = {"torch": "[torch]", "tensorflow": "[tf]"}


class UserCodeError(ProfileError):
    """Code of the user raised outside a measurement; `details` is the traceback of it."""

    def __init__(self, text: str, details: str) -> None:
        """A sentence and the trimmed traceback."""
        super().__init__(text)
        self.details = details


def spec_file(text: str | None) -> str:
    """The file of `FILE.py:FUNCTION`."""
    return (text or "").rpartition(":")[0]


def target(text: str, makes: str) -> Callable[..., Any]:
    """`FILE.py:FUNCTION` -> the function, its folder put on sys.path as `python FILE.py` would.

    `makes`: what it returns, in words. One that returns nothing is refused before anything runs.
    """
    file, _, name = text.rpartition(":")
    refuse_empty(Path(file), name, makes)
    return _load(text)


def _load(text: str) -> Callable[..., Any]:
    file, colon, name = text.rpartition(":")
    path = Path(file)
    if "\0" in file or not colon or not path.is_file() or path.suffix != ".py":
        raise ProfileError(f"'{text}' is not FILE.py:FUNCTION of an existing file.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    function = getattr(_import_file(path), name, None)
    if not callable(function):
        raise ProfileError(f"{path} has no function {name}.")
    return function  # type: ignore[no-any-return]


def offered(file: str, name: str) -> Callable[..., Any] | None:
    """A function of the user's file; None where the file has none of that name."""
    try:
        return _load(f"{file}:{name}")
    except UserCodeError:
        raise
    except ProfileError as error:
        if "has no function" in str(error):
            return None
        raise


def _import_file(path: Path) -> ModuleType:
    try:
        return importlib.import_module(path.stem)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "", "")
        fix = f", or pip install 'dataset-preflight{extra}'" if extra else ""
        raise ProfileError(
            f"{path} cannot be imported by {sys.executable} ({error}): name the Python of your "
            f"training with --python PATH{fix}."
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        raise _told(f"{path} cannot be imported", error) from None


def call_user(function: Callable[..., Any], name: str) -> Any:
    """Call a function of the user; what it raises becomes a sentence with their frames."""
    try:
        return function()
    except ProfileError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        raise _told(f"{name} failed", error) from None


def _told(what: str, error: BaseException) -> UserCodeError:
    said = f"{what}: {type(error).__name__}: {said_by(error)[:LONGEST]}"
    return UserCodeError(said, user_traceback(error))
