"""Progress output: a bar with rate, ETA and errors on a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_EVERY_S = 10.0


class ProgressState(Protocol):
    """Where long work is."""

    @property
    def phase(self) -> str:
        """Name of what is being done now."""

    @property
    def done(self) -> int:
        """Items done."""

    @property
    def total(self) -> int:
        """Items in all, 0 if unknown."""

    @property
    def errors(self) -> int:
        """Items that are not ok so far."""


class ProgressBar:
    """Shows the progress of long work on stderr: a `with` block, called with each state."""

    def __init__(self, words: Mapping[str, str]) -> None:
        """Choose bar or lines by whether stderr is a terminal; `words` says each phase in words."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._words = words
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[errors]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, tuple[float, int]] = {}
        self._printed = time.monotonic()

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, state: ProgressState) -> None:
        """Show one state."""
        began, first = self._started.setdefault(state.phase, (time.monotonic(), state.done))
        seconds = time.monotonic() - began
        rate = f"{(state.done - first) / seconds:,.0f}/s" if seconds > 0.5 else ""
        errors = f"{state.errors:,} not ok" if state.errors else ""
        if self._console.is_terminal:
            self._draw(state, rate, errors)
        elif time.monotonic() - self._printed > LINE_EVERY_S:
            self._printed = time.monotonic()
            parts = [
                f"{self._words[state.phase]}: {state.done:,} of {state.total or '?'}",
                rate,
                errors,
            ]
            with contextlib.suppress(OSError):  # a full disk under the log ends no scan
                sys.stderr.write(", ".join(p for p in parts if p) + "\n")

    def _draw(self, state: ProgressState, rate: str, errors: str) -> None:
        if state.phase not in self._tasks:
            self._tasks[state.phase] = self._bar.add_task(
                self._words[state.phase], rate="", errors=""
            )
        self._bar.update(
            self._tasks[state.phase],
            completed=state.done,
            total=state.total or None,
            rate=rate,
            errors=errors,
        )
