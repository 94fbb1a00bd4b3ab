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

from pipeline_profiler.measure.failure import user_traceback
from pipeline_profiler.record.session import ProfileError

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


def target(text: str) -> Callable[..., Any]:
    """`FILE.py:FUNCTION` -> the function, its folder put on sys.path as `python FILE.py` would."""
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
        return target(f"{file}:{name}")
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
        fix = f": pip install 'dataset-preflight{extra}'" if extra else ""
        raise ProfileError(f"{path} cannot be imported ({error}){fix}.") from None
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
    said = " ".join(str(error).split())[:200] or "no message"
    return UserCodeError(f"{what}: {type(error).__name__}: {said}", user_traceback(error))
