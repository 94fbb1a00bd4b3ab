"""Progress output: a bar with rate, ETA and errors on a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_EVERY_S = 10.0
COUNTED_S = 0.5  # a rate of less time is none
LEAST_LEFT_S = 5.0  # less is not worth an estimate


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


@dataclass(slots=True)
class Pace:
    """How fast a phase goes, counted from its first finished items: starting up is no work."""

    first: int
    began: float | None = None

    def advance(self, done: int, now: float) -> float:
        """Return the items a second at `done` items, 0 while it is not known."""
        if self.began is None and done > self.first:
            self.first, self.began = done, now
        if self.began is None or now - self.began <= COUNTED_S:
            return 0.0
        return (done - self.first) / (now - self.began)


def left_text(items: int, rate: float) -> str:
    """Return the time that `items` take at `rate` items a second; empty where it is short."""
    if rate <= 0 or items / rate <= LEAST_LEFT_S:
        return ""
    seconds = items / rate
    return f"about {seconds / 60:,.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


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
        )

        self._words = words
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[errors]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}
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
        now = time.monotonic()
        speed = self._paces.setdefault(state.phase, Pace(state.done)).advance(state.done, now)
        rate = f"{speed:,.0f}/s" if speed else ""
        left = left_text(state.total - state.done, speed)
        errors = f"{state.errors:,} not ok" if state.errors else ""
        if self._console.is_terminal:
            self._draw(state, rate, left, errors)
        elif now - self._printed > LINE_EVERY_S:
            self._printed = now
            parts = [
                f"{self._words[state.phase]}: {state.done:,} of {state.total or '?'}",
                rate,
                left,
                errors,
            ]
            with contextlib.suppress(OSError):  # a full disk under the log ends no scan
                sys.stderr.write(", ".join(p for p in parts if p) + "\n")

    def _draw(self, state: ProgressState, rate: str, left: str, errors: str) -> None:
        if state.phase not in self._tasks:
            self._tasks[state.phase] = self._bar.add_task(
                self._words[state.phase], rate="", left="", errors=""
            )
        self._bar.update(
            self._tasks[state.phase],
            completed=state.done,
            total=state.total or None,
            rate=rate,
            left=left,
            errors=errors,
        )
