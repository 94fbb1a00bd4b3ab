"""What ends a measurement early leaves a partial session that can be read like any other."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_profiler.measure import failure
from pipeline_profiler.measure.watchdog import OverdueError, Pulse, Watchdog, mark_cut_off
from pipeline_profiler.record.session import ProfileError, Session


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
    """How a measurement is kept from being lost: its limit, and where to save meanwhile.

    limit_s: seconds without a step after which it is ended; None watches nothing. `save` writes the
    session as it is and returns its path; `rescue` saves it and ends the process.
    """

    limit_s: float | None = None
    save: Callable[[Session], Path | None] | None = None
    rescue: Callable[[Session], None] | None = None
    pulse: Pulse = field(default_factory=Pulse)
    watchdog: Watchdog | None = None

    def save_meanwhile(self, session: Session) -> None:
        """Save a partial state, so that an end from outside loses little."""
        if self.save is None:
            return
        before, session.partial = session.partial, True
        try:
            path = self.save(session)
        finally:
            session.partial = before
        if path is not None and self.watchdog is not None:
            self.watchdog.tell_saved(path)


@contextmanager
def kept_when_stopped(
    session: Session, guard: Guard, batches: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Turn whatever ends the work inside into StoppedError with the partial session.

    `batches` counts what the loader had delivered, for the sentence.
    """
    with ExitStack() as stack:
        watch = _start_watchdog(session, guard, stack)
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


def _start_watchdog(session: Session, guard: Guard, stack: ExitStack) -> Watchdog | None:
    if guard.limit_s is None or not hasattr(signal, "pthread_kill"):
        return None
    if threading.current_thread() is not threading.main_thread():
        return None
    guard.watchdog = Watchdog(guard.pulse, guard.limit_s, session, guard.rescue)
    stack.callback(setattr, guard, "watchdog", None)
    return stack.enter_context(guard.watchdog)


def _stop(error: BaseException, session: Session, batches: int) -> StoppedError:
    if isinstance(error, StoppedError):
        return error
    if isinstance(error, KeyboardInterrupt):
        session.notes.append("Interrupted: this session is partial.")
        return StoppedError("Interrupted.", session, interrupted=True)
    if isinstance(error, ProfileError):
        return StoppedError(str(error), session)
    text, details = failure.sentence(error, batches), failure.user_traceback(error)
    session.notes += [text, details]
    return StoppedError(text, session, details=details)
