"""End a measurement early with a partial session that can be read like any other.

A thread watches the counter of steps; at the limit it stores the stacks and raises OverdueError in
the main thread by a signal. If the main thread does not react, it saves the session and ends the
process. If C code holds the interpreter lock, faulthandler writes the stacks and ends the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import math
import multiprocessing
import os
import re
import signal
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from pipeline_profiler.profiling.record.recorder import Recorder
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.profiling.record.stack_sampler import (
    DUMP_SIGNAL,
    DUMP_VARIABLE,
    OUR_THREADS,
    frames_of,
)
from pipeline_profiler.profiling.record.stages import Counters

_HERE = str(Path(__file__).parents[2])  # as frames say it: links stay
_FRAME = re.compile(r'(?m)^(?=  File ")')
_FILE = re.compile(r'  File "([^"]+)"')
_WORKER = re.compile(r"Caught \S+ in DataLoader worker process (\d+)")
_KILLED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (.+?)[.\s]*$", re.MULTILINE)
_SYSTEM = tuple(path for path in (sysconfig.get_path("stdlib"), _HERE) if path)
_RAISED_IN = {"_iterate": "The loader", "loader": "The function that makes the loader"}


def describe_failure(error: BaseException, batches: int) -> str:
    """Who raised what, and after how many batches."""
    after = f" after {batches} batches" if batches else ""
    if killed := _KILLED.search(str(error)):
        # torch raises this in whatever the training process does at that moment
        memory = (
            "; the system kills when memory runs out: fewer workers or a smaller prefetch need less"
            if "Killed" in killed.group(2)
            else ""
        )
        return f"The loader's worker process {killed.group(1)} {killed.group(2)}{after}{memory}."
    match = _WORKER.search(str(error))
    who = f"The loader's worker {match.group(1)}" if match else _place(error)
    return f"{who} raised {type(error).__name__}{after}: {said_by(error)}"


def _place(error: BaseException) -> str:
    """Which of the user's functions was running, by the innermost of our own frames."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(_HERE)]
    for frame in reversed(frames):
        if frame.name in _RAISED_IN:
            return _RAISED_IN[frame.name]
        if frame.name == "drive":
            return "The step"
    return "The measurement"


def said_by(error: BaseException) -> str:
    """The last line of an error; of an import, with the Python that lacks it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no message"
    where = f" (in {sys.executable})" if isinstance(error, ImportError) else ""
    return last.removeprefix(f"{type(error).__name__}: ") + where


def user_traceback(error: BaseException) -> str:
    """Return the traceback without frames of this package, frameworks and standard library."""
    text = "".join(traceback.format_exception(error))
    if "Original Traceback" in text:
        text = text[text.index("Original Traceback") :]
    _, *frames = _FRAME.split(text)
    if not frames:
        return text.strip()
    # what follows the last frame's source lines is the exception itself
    body = frames[-1].splitlines()
    end = next((i for i, line in enumerate(body) if line and not line.startswith("  ")), len(body))
    frames[-1], last = "\n".join(body[:end]) + "\n", "\n".join(body[end:]).strip()
    own = [f for f in frames if (m := _FILE.match(f)) and is_own_code(m.group(1))] or frames
    return "Traceback of your code (most recent call last):\n" + "".join(own) + last


def is_own_code(path: str) -> bool:
    """Whether a file is the user's: not ours, not the standard library's, not an installed one."""
    return not path.startswith(_SYSTEM) and "site-packages" not in path and path[:1] != "<"


LEAST_LIMIT_S = 30.0
ATTEMPTS, ATTEMPT_S = 3, 4.0  # signals to the main thread before the process is ended
MOST_WORKERS, MOST_FRAMES = 8, 12
DUMP_S = 0.2  # between two looks at the stack that a worker writes
LAST_DUMP_S = 15.0  # all workers write their stacks within that, if they can
NAME = "watchdog"
STDERR_FD = 2  # sys.stderr may be no file
LOCK_S = 15.0  # beyond the limit, after which a process ends whose interpreter lock is never free
_STUCK_IN = {
    "_close": "the loader was closed",
    "_iterate": "the loader was started",
    "loader": "the loader was made",
    "repeatable": "single samples were loaded",
    "_load_alone": "single samples were loaded",
}
_DUMPED = re.compile(r'(?m)^  File "(.*)", line (\d+) in (.*)$')


class OverdueError(BaseException):
    """Raised in the main thread; no Exception, so that a loader's own `except` lets it through."""


@dataclass
class Pulse:
    """What a measurement shows of itself: steps done, what it is at, and the open recorder."""

    steps: int = 0
    doing: str = ""
    recorder: Recorder | None = None
    end_s: float | None = None  # time.monotonic() from which even steps are too slow

    def key(self) -> tuple[int, str]:
        """What changes as long as something happens."""
        return self.steps, self.doing


class Watchdog:
    """Watches one measurement; `with watchdog:` in the main thread."""

    def __init__(
        self,
        pulse: Pulse,
        limit_s: float,
        session: Session,
        rescue: Callable[[Session], None] | None = None,
    ) -> None:
        self.pulse, self.limit_s, self.session, self.rescue = pulse, limit_s, session, rescue
        self.cut_off: dict[str, Any] | None = None
        self._main = threading.get_ident()
        self._counters = Counters()  # of the main thread, wherever they are read
        self._stop = threading.Event()
        self._dump: IO[bytes] | None = None
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Watchdog:
        self._open_dump()
        if signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL:
            signal.signal(signal.SIGUSR2, self._raise)
            self._undo.append(lambda: signal.signal(signal.SIGUSR2, signal.SIG_DFL))
        hook = sys.unraisablehook
        sys.unraisablehook = lambda what: None if what.exc_type is OverdueError else hook(what)
        self._undo.append(lambda: setattr(sys, "unraisablehook", hook))
        threading.Thread(target=self._loop, daemon=True, name=NAME).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        faulthandler.cancel_dump_traceback_later()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _open_dump(self) -> None:
        """Let this process and those it starts write their stacks at a signal, in C."""
        if signal.getsignal(DUMP_SIGNAL) != signal.SIG_DFL:
            return
        try:
            self._dump = tempfile.NamedTemporaryFile("a+b", prefix="stacks-")  # noqa: SIM115
        except OSError:  # no folder for temporary files has room: no stacks of workers then
            return
        faulthandler.register(DUMP_SIGNAL, self._dump, all_threads=True)
        os.environ[DUMP_VARIABLE] = self._dump.name  # for workers that are spawned, not forked
        self._undo += [self._dump.close, lambda: os.environ.pop(DUMP_VARIABLE, None)]
        self._undo.append(lambda: faulthandler.unregister(DUMP_SIGNAL))

    def _loop(self) -> None:
        key, since = self.pulse.key(), self._usable_s()
        while not self._stop.wait(min(1.0, self.limit_s / 4)):
            # set anew as long as this thread runs; its own thread needs no interpreter lock
            faulthandler.dump_traceback_later(self.limit_s + LOCK_S, file=STDERR_FD, exit=True)
            if self._stop.is_set():  # the measurement ended meanwhile
                faulthandler.cancel_dump_traceback_later()
                return
            now = self._usable_s()
            if self.pulse.key() != key:
                key, since = self.pulse.key(), now
            if now - since > self.limit_s or time.monotonic() > (self.pulse.end_s or math.inf):
                self._end(now - since)
                return

    def _usable_s(self) -> float:
        """Seconds on the clock without those in which the main thread waited for a core."""
        return time.monotonic() - max(0, self._counters.queued_ns()) / 1e9

    def _end(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._main)
        self.cut_off = self._describe(frame, seconds)
        del frame
        installed = signal.getsignal(signal.SIGUSR2) == self._raise
        for _ in range(ATTEMPTS if installed else 0):
            signal.pthread_kill(self._main, signal.SIGUSR2)
            for _ in range(int(ATTEMPT_S)):
                if self._stop.wait(1.0):
                    return
        if self.rescue is not None:
            self._settle()
            self.rescue(self.session)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        """In the main thread: workers that hang shall not be waited for, then the exception."""
        if self._stop.is_set():  # the measurement ended by itself meanwhile
            return
        # torch's own handler would raise for each killed worker, wherever the clean-up then is
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for child in multiprocessing.active_children():
            child.kill()
        raise OverdueError((self.cut_off or {}).get("sentence", ""))

    def _settle(self) -> None:
        """Put what the open recorder has into the session; the main thread stands still."""
        mark_cut_off(self.session, self.cut_off or {})
        recorder = self.pulse.recorder
        if recorder is not None:
            recorder.session()
            if recorder.steps and not any(run is recorder.run for run in self.session.runs):
                self.session.runs.append(recorder.run)

    def _describe(self, frame: FrameType | None, seconds: float) -> dict[str, Any]:
        stacks = [{"of": "the training process", "frames": list_frames(frame)}]
        stacks += self._other_threads()
        stacks += self._workers()
        where = self._where(frame)
        at = next((s["frames"][0] for s in reversed(stacks) if s["frames"]), "an unknown place")
        slow = f"Steps became so slow that the time was over by far while {where}"
        hung = f"Nothing happened for {seconds:.0f} s while {where}"
        what = hung if seconds >= self.limit_s else slow
        return {
            "sentence": f"{what}: the measurement was ended. It hangs at {at}",
            "where": where,
            "seconds": round(seconds, 1),
            "stacks": stacks,
        }

    def _where(self, frame: FrameType | None) -> str:
        recorder = self.pulse.recorder
        phase = recorder.phase if recorder is not None else "outside"
        doing = f" ({self.pulse.doing})" if self.pulse.doing else ""
        if phase in ("wait", "step"):
            return ("the loader was asked for a batch" if phase == "wait" else "a step ran") + doing
        names = [f.f_code.co_name for f in frames_of(frame)]
        stuck = [_STUCK_IN[name] for name in names if name in _STUCK_IN]
        return (stuck[0] if stuck else "neither next() nor a step ran") + doing

    def _other_threads(self) -> list[dict[str, Any]]:
        ours = (*OUR_THREADS, NAME)
        frames = sys._current_frames()
        rows = [
            {"of": f"thread {thread.name}", "frames": list_frames(frames.get(thread.ident or 0))}
            for thread in threading.enumerate()
            if thread.ident != self._main and (thread.name not in ours or "shadow" in thread.name)
        ]
        return [row for row in rows if any(is_users_place(at) for at in row["frames"])]

    def _workers(self) -> list[dict[str, Any]]:
        """Stacks of the processes of multiprocessing, which torch's workers are."""
        rows, end_s = [], time.monotonic() + LAST_DUMP_S
        for child in multiprocessing.active_children()[:MOST_WORKERS]:
            if child.pid is not None and self._dump is not None and _takes_signal(child.pid):
                frames = self._dumped(child.pid, end_s)
                rows.append({"of": f"worker process {child.pid}", "frames": frames})
        return rows

    def _dumped(self, pid: int, end_s: float) -> list[str]:
        """The stack of a worker; one that has no core writes it late."""
        assert self._dump is not None
        path = Path(self._dump.name)
        before = path.stat().st_size
        with contextlib.suppress(OSError):
            os.kill(pid, DUMP_SIGNAL)
        text, grows = b"", True
        while grows:
            time.sleep(DUMP_S)
            last, text = text, path.read_bytes()[before:]
            grows = (text != last or not text) and time.monotonic() < end_s
        return parse_dump(text.decode("utf-8", "replace"))


def mark_cut_off(session: Session, cut_off: dict[str, Any]) -> None:
    """Say in the session that it ended early, and where it hung."""
    session.partial = True
    session.results["cut_off"] = cut_off
    session.notes.append(str(cut_off.get("sentence", "")))


def list_frames(frame: FrameType | None) -> list[str]:
    """'train.py:12 read: line of code', innermost first; the user's own where there are any."""
    return _users_first(
        [(f.f_code.co_filename, f.f_lineno, f.f_code.co_qualname) for f in frames_of(frame)]
    )


def parse_dump(text: str) -> list[str]:
    """The same from what faulthandler wrote: the first thread with a frame of the user's."""
    threads = [
        [(path, int(line), name) for path, line, name in _DUMPED.findall(part)]
        for part in re.split(r"(?m)^(?=(?:Current t|T)hread 0x)", text)
    ]
    shown = [_users_first(rows) for rows in threads if rows]
    return next((t for t in shown if any(map(is_users_place, t))), shown[0] if shown else [])


def _users_first(places: list[tuple[str, int, str]]) -> list[str]:
    """Frames given as (path, line, function) in words."""
    own = [place for place in places if is_own_code(place[0])]
    rows = [
        f"{Path(path).name}:{line} {name}: {linecache.getline(path, line).strip()}"
        for path, line, name in (own or places)[:MOST_FRAMES]
    ]
    return rows if own else [f"{row}{FOREIGN}" for row in rows]


FOREIGN = "  [library]"


def is_users_place(text: str) -> bool:
    """Whether a listed frame is one of the user's."""
    return not text.endswith(FOREIGN)


def _takes_signal(pid: int) -> bool:
    """Whether a process has a handler for the dump: without one the signal would end it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    match = re.search(r"(?m)^SigCgt:\s*([0-9a-f]+)$", status)
    return match is not None and bool(int(match[1], 16) >> (DUMP_SIGNAL - 1) & 1)


class StoppedError(ProfileError):
    """The measurement ended early; `session` holds what it has."""

    def __init__(
        self, text: str, session: Session, interrupted: bool = False, details: str = ""
    ) -> None:
        """Partial `session`; `details` is the traceback of the user's code, where there is one."""
        super().__init__(text)
        self.session, self.interrupted, self.details = session, interrupted, details


@dataclass
class Guard:
    """The limit of a measurement (s without a step; None: no watch), and where to save meanwhile.

    `save` writes the session and returns its path; `rescue` saves it and ends the process.
    """

    limit_s: float | None = None
    save: Callable[[Session], Path | None] | None = None
    rescue: Callable[[Session], None] | None = None
    pulse: Pulse = field(default_factory=Pulse)

    def save_meanwhile(self, session: Session) -> None:
        """Save a partial state, so that an end from outside loses little."""
        if self.save is None:
            return
        before, session.partial = session.partial, True
        try:
            self.save(session)
        finally:
            session.partial = before


@contextmanager
def kept_when_stopped(
    session: Session, guard: Guard, batches: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Turn whatever ends the work inside into StoppedError with the partial session."""
    with ExitStack() as stack:
        watch: Watchdog | None = None
        in_main = threading.current_thread() is threading.main_thread()
        if guard.limit_s is not None and in_main:
            watch = Watchdog(guard.pulse, guard.limit_s, session, guard.rescue)
            stack.enter_context(watch)
        try:
            yield
        except (Exception, OverdueError, KeyboardInterrupt, SystemExit) as error:
            session.partial = True
            # after the signal anything may come up: what a killed worker leaves, for one
            _raise_if_cut_off(session, watch)
            raise _stop(error, session, batches()) from error
        # swallowed on its way, as by a destructor: the hang was ended, and is to be told
        _raise_if_cut_off(session, watch)


def _raise_if_cut_off(session: Session, watch: Watchdog | None) -> None:
    if watch is not None and watch.cut_off is not None:
        mark_cut_off(session, watch.cut_off)
        raise StoppedError(watch.cut_off["sentence"], session) from None


def _stop(error: BaseException, session: Session, batches: int) -> StoppedError:
    if isinstance(error, StoppedError):
        return error
    if isinstance(error, KeyboardInterrupt):
        session.notes.append("Interrupted: this session is partial.")
        return StoppedError("Interrupted.", session, interrupted=True)
    if isinstance(error, ProfileError):
        return StoppedError(str(error), session)
    text, details = describe_failure(error, batches), user_traceback(error)
    session.notes += [text, details]
    return StoppedError(text, session, details=details)
