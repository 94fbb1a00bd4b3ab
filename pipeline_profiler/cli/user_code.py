"""The user's own code, named on the command line as `FILE.py:FUNCTION`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_profiler.record.session import ProfileError


def target(text: str) -> Callable[..., Any]:
    """`FILE.py:FUNCTION` -> the function, its folder put on sys.path as `python FILE.py` would."""
    file, colon, name = text.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file() or path.suffix != ".py":
        raise ProfileError(f"'{text}' is not FILE.py:FUNCTION of an existing file.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(path.stem)
    except ImportError as error:
        extra = {"torch": "[torch]", "tensorflow": "[tf]"}.get(error.name or "", "")
        fix = f": pip install 'dataset-preflight{extra}'" if extra else ""
        raise ProfileError(f"{path} cannot be imported ({error}){fix}.") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise ProfileError(f"{path} has no function {name}.")
    return function  # type: ignore[no-any-return]
