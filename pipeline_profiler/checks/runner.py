"""Run checks one after the other: seeds put back, errors turned into answers, time bounded."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from dataset_preflight.foundation.terminal import show_progress, write_message
from pipeline_profiler.checks.check import EXACT, Answer, Check, Judgement, unclear
from pipeline_profiler.checks.user_code import Patience, UsersError, kept_state, seed_everything
from pipeline_profiler.profiling.record.errors import ProfileError

LEAST_LIMIT_S = 30.0
PATIENT = 3.0  # times as long on the clock, where others have the cores


@dataclass(frozen=True)
class CheckResult:
    """The answer of a check, and its time; `broken`: the traceback of an error of the check."""

    check: Check
    answer: Answer
    seconds: float
    broken: str = ""
    users: bool = False  # the user's code raised, so there was nothing to judge


@dataclass
class CheckReport:
    """The results in the order of running; `ended` says why checks are missing.

    places: lines by part of the training; unreached: what a script did not reach; grid: a PNG.
    """

    results: list[CheckResult] = field(default_factory=list)
    ended: str = ""
    interrupted: bool = False
    seconds: float = 0.0
    places: Mapping[str, str] = field(default_factory=dict)
    unreached: Sequence[str] = ()
    grid: bytes | None = None
    kind: str = "training"

    @property
    def failed(self) -> list[CheckResult]:
        """Failed checks, causes before their symptoms."""
        hits = [r for r in self.results if r.answer.judgement is Judgement.FAIL]
        return sorted(hits, key=lambda r: (r.check.nearness, r.check.code))

    @property
    def broken(self) -> list[CheckResult]:
        """Checks that broke, which is our fault."""
        return [r for r in self.results if r.broken]


class ProgressLine:
    """Shows the running check on stderr: in place on a terminal, else a line each 10 s."""

    EVERY_S = 10.0

    def __init__(self) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._shown = time.monotonic()

    def __call__(self, text: str) -> None:
        """Show the text."""
        now = time.monotonic()
        if self._live or now - self._shown > self.EVERY_S:
            self._shown = now
            (show_progress if self._live else write_message)(text)

    def clear(self) -> None:
        """Remove the line."""
        if self._live:
            self("")


def run_checks(
    checks: Sequence[Check],
    subject: Any,
    seconds: float,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> CheckReport:
    """Run every check on `subject` within a budget of seconds of CPU, causes first.

    The limit in wall time is three times the budget.
    """
    report, start = CheckReport(), time.monotonic()
    order = lambda c: (not c.recorded, c.code not in EXACT, c.nearness, c.code)  # noqa: E731
    checks = sorted(checks, key=order)
    patience, limit = Patience(seconds, PATIENT * seconds), max(LEAST_LIMIT_S, seconds / 2)
    for number, check in enumerate(checks, 1):
        if patience.over:
            names = ", ".join(c.code for c in checks[number - 1 :])
            report.ended = f"The budget of {seconds:.0f} s was over before {names}."
            break
        subject.deadline = time.monotonic() + patience.left
        progress(f"[{number}/{len(checks)}] {check.code} {check.name}")
        try:
            report.results.append(run_check(check, subject, seed, limit))
        except KeyboardInterrupt:
            report.ended, report.interrupted = f"Interrupted in {check.code}.", True
            break
    report.seconds = time.monotonic() - start
    return report


def run_check(check: Check, subject: Any, seed: int = 0, limit_s: float = 0.0) -> CheckResult:
    """One check, its errors turned into answers; `limit_s` 0 sets no limit."""
    start, broken = time.monotonic(), ""
    try:
        with kept_state(), warnings.catch_warnings(), ended_after(limit_s):
            warnings.simplefilter("ignore")  # of the user's libraries: they have seen them
            seed_everything(seed)
            answer = check.ask(subject)
    except TimeoutError:
        answer = unclear(
            f"The check was ended after {limit_s:.0f} s: a call into your code hangs or is slow.",
            "Run it alone with --only and a larger --seconds.",
        )
    except UsersError as error:
        answer = unclear(str(error), "Fix this error first: the check could not run.")
        return CheckResult(check, answer, time.monotonic() - start, users=True)
    except ProfileError as error:
        answer = unclear(str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the other checks run
        broken = "".join(traceback.format_exception(error))
        text = " ".join(str(error).split())[:200]
        answer = unclear(f"The check itself broke ({type(error).__name__}: {text}): report this.")
    return CheckResult(check, answer, time.monotonic() - start, broken)


@contextlib.contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside after `seconds` of work, or three times as long on the clock.

    In the main thread of Unix only, else there is no limit.
    """
    main = threading.current_thread() is threading.main_thread()
    if seconds <= 0 or not main or not hasattr(signal, "setitimer"):
        yield
        return
    patience = Patience(seconds, PATIENT * seconds)

    def end(number: int, frame: FrameType | None) -> None:
        if patience.over:
            signal.setitimer(signal.ITIMER_REAL, 0)  # once: what ends then may take its time
            raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 4)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
