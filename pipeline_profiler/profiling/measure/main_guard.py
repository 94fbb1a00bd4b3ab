"""Find whether a script can start loader workers that import it again."""

from __future__ import annotations

import ast
import multiprocessing
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stack_sampler import frames_of


def refuse_unguarded(loader: Any) -> None:
    """Raise ProfileError where the loader's workers would run the calling script again."""
    if getattr(loader, "num_workers", 0) and _start_method(loader) != "fork":
        line = _unguarded_line(sys._getframe(1))
        if line:
            raise ProfileError(
                f"The loader's workers start by {_start_method(loader)!r} and run this script "
                f'again: put line {line} below `if __name__ == "__main__":`.'
            )


def _start_method(loader: Any) -> str:
    context = getattr(loader, "multiprocessing_context", None)
    if context is not None:
        return str(context.get_start_method())
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


def _unguarded_line(frame: FrameType | None) -> int:
    """Return the line of the script that led here, 0 where it is guarded or there is no script."""
    for f in frames_of(frame):
        if f.f_globals.get("__name__") == "__main__" and f.f_code.co_name == "<module>":
            return 0 if _is_guarded(f) else f.f_lineno
    return 0


def _is_guarded(frame: FrameType) -> bool:
    try:
        source = Path(frame.f_code.co_filename).read_text(encoding="utf-8")
        statements = ast.parse(source).body
    except (OSError, ValueError, SyntaxError):  # a notebook, standard input
        return True
    before = [node for node in statements if node.lineno <= frame.f_lineno]
    return any(isinstance(n, ast.If) and "__name__" in ast.unparse(n.test) for n in before)
