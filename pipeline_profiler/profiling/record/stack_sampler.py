"""Names for time that no hook could see: the Python stack of one thread, 200 times a second.

A sample counts for the innermost frame of the user's code, and for a stage by the words in function
names. These labels decide no verdict.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import linecache
import multiprocessing
import os
import random
import re
import signal
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

INTERVAL_S = 0.005
AGAIN_S = 0.05  # to the next alarm, where the interpreter lost one in a tight loop
SWITCH_S = 0.0002
CALLERS = 3
LINE_SHOWN = 60
_WORDS = (
    ("decode", r"decod|decompress|imread|jpe?g|png|parse|unpack|inflate|pil\.imagefile"),
    ("collate", r"collat|pad_sequence|make_batch|to_batch|batchify"),
    ("serialise", r"pickl|dumps|serialis|serializ"),
    (
        "transform",
        r"transform|augment|resiz|crop|flip|rotat|normali[sz]|jitter|blur|warp|preprocess|tokeni|"
        r"mixup|compose|pil\.imageops|pil\.imageenhance|pil\.imagefilter",
    ),
    (
        "read",
        r"(^|[._])(read|open|load(_?(bytes|file|raw|data|sample|image)s?)?(?![a-z_])|fetch|download|"
        r"request|"
        r"get_object|"
        r"recv|seek|urlopen|cat_file|slurp|execute(?![a-z]))|readinto|throttl|http|fsspec|boto",
    ),
)
_CALLED = re.compile(r"([\w.]+)\(")
_PATTERNS = tuple((stage, re.compile(pattern, re.IGNORECASE)) for stage, pattern in _WORDS)
_OURS = __name__.split(".")[0]
_SYSTEM = tuple(
    path for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if path
)
_WAITING = ("threading", "queue", "concurrent.futures._base", "selectors", "multiprocessing.queues")
OUR_THREADS = ("stack-sampler", "shadow-loader", "profile-autosave", "profile-live-line")
_PROXIES = {"CollateProxy.__call__": "collate"}  # whatever the user's function is called
_DRIVERS = (f"{_OURS}.profiling.measure.arms",)  # what calls the user's code


def frames_of(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _words(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    library = module if module.startswith(("PIL", "pickle", "http")) else ""
    return f"{library}.{frame.f_code.co_qualname}"


def stage_of(names: list[str]) -> str:
    """The stage that function names, innermost first, tell of; '' when they tell of none."""
    for name in names:
        for stage, pattern in _PATTERNS:
            if pattern.search(name):
                return stage
    return ""


def _is_user(frame: FrameType) -> bool:
    module, path = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
    system = path.startswith(_SYSTEM) or "site-packages" in path or path.startswith("<frozen")
    return not system and not module.startswith((_OURS, "importlib"))


def describe(frame: FrameType | None) -> str:
    """Return 'stage|file:line function: source < caller:line ...', up to what drives it."""
    names: list[str] = []
    place = line = within = ""
    callers: list[str] = []
    for f in frames_of(frame):
        module = f.f_globals.get("__name__", "")
        if module.startswith("torch.utils.data") and "_utils.collate" not in module:
            break
        if module in _DRIVERS:
            break
        if module.startswith(_OURS):
            within = within or _PROXIES.get(f.f_code.co_qualname, "")
            continue
        names.append(_words(f))
        if not place and _is_user(f):
            file = f.f_code.co_filename
            line = linecache.getline(file, f.f_lineno).strip()
            line = line if len(line) <= LINE_SHOWN else f"{line[: LINE_SHOWN - 3]}..."
            place = f"{file.rsplit('/', 1)[-1]}:{f.f_lineno} {f.f_code.co_qualname}: {line}"
        elif place and _is_user(f) and len(callers) < CALLERS:
            callers.append(f"{f.f_code.co_qualname}:{f.f_lineno}")
    # compiled code has no frame: the line that called it names it
    stage = within or stage_of(names) or stage_of(_CALLED.findall(line))
    return f"{stage}|{' < '.join([place, *callers])}"


def _idle(frame: FrameType | None) -> bool:
    """Whether a thread waits for another one: its innermost frame is a lock, queue or future."""
    return frame is not None and frame.f_globals.get("__name__", "") in _WAITING


def _busy_threads(but: int) -> list[tuple[int, FrameType]]:
    """Return native id (0: not started by Python) and place of other threads that do something."""
    threads = {t.ident: t for t in threading.enumerate()}
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)  # this very frame: a cycle that keeps all callers alive
    return [
        ((threads[ident].native_id or 0) if ident in threads else 0, frame)
        for ident, frame in frames.items()
        if ident != but
        and not (ident in threads and threads[ident].name in OUR_THREADS)
        and not _idle(frame)
    ]


class StackSampler:
    """Samples one thread; `drain()` returns microseconds by place since the last call.

    A timer (SIGALRM) samples a main thread, because a second thread runs mostly when the first one
    blocks; while it waits for other threads, those are sampled. A sample weighs the time since the
    sample before.
    """

    def __init__(self, thread_id: int, phase: Callable[[], str] | None = None) -> None:
        self.thread_id, self.phase = thread_id, phase
        self.calls_back = False  # native threads call Python functions
        self.weights: Counter[str] = Counter()
        self._last = time.perf_counter_ns()
        self._interval_s = INTERVAL_S
        self._draw = random.Random()  # of its own: the script's numbers stay what they are
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._undo: Callable[[], None] = lambda: None

    @classmethod
    def start_here(
        cls, phase: Callable[[], str] | None = None, calls_back: bool = False
    ) -> StackSampler:
        """Sample the calling thread; `calls_back`: native threads call Python meanwhile."""
        sampler = cls(threading.get_ident(), phase)
        sampler.calls_back = calls_back
        main = threading.current_thread() is threading.main_thread()
        free = signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
        if main and free and not calls_back:
            sampler._start_timer()
            # a spawned worker ends through the interpreter's exit, which takes the signal's handler
            # away: a timer that still runs would then kill it
            atexit.register(sampler.stop)
        else:
            sampler._start_thread()
        return sampler

    @classmethod
    def start_beside(cls, phase: Callable[[], str] | None, interval_s: float) -> StackSampler:
        """Sample the calling thread from another thread, at a rate for a real training."""
        sampler = cls(threading.get_ident(), phase)
        sampler._interval_s = interval_s
        sampler._start_loop()
        return sampler

    def _start_timer(self) -> None:
        def take(number: int, frame: FrameType | None) -> None:
            self._take(frame)
            if not self._stop.is_set():
                signal.setitimer(signal.ITIMER_REAL, self._next(), AGAIN_S)

        before = signal.signal(signal.SIGALRM, take)
        signal.setitimer(signal.ITIMER_REAL, self._next(), AGAIN_S)

        def undo() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

        self._undo = undo

    def _start_thread(self) -> None:
        switch = sys.getswitchinterval()
        # at the usual 5 ms a CPU-bound thread is only ever seen where it blocks
        sys.setswitchinterval(SWITCH_S)
        self._undo = lambda: sys.setswitchinterval(switch)
        self._start_loop()

    def _start_loop(self) -> None:
        self._thread = threading.Thread(target=self._loop, daemon=True, name="stack-sampler")
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.wait(self._next()):
            frame = sys._current_frames().get(self.thread_id)
            if frame is None:
                return
            self._take(frame)
            del frame

    def _next(self) -> float:
        """Return the seconds to the next sample, at random: the loop may have an even beat."""
        return self._interval_s * self._draw.uniform(0.5, 1.5)

    def _take(self, frame: FrameType | None) -> None:
        now = time.perf_counter_ns()
        weight, self._last = (now - self._last) // 1000, now
        phase = self.phase() if self.phase else "worker"
        if phase == "outside":
            return
        # a thread without an id that only waits may be anybody's
        others = _busy_threads(self.thread_id) if phase == "wait" else []
        helpers = [f for id_, f in others if _idle(frame) or (self.calls_back and not id_)]
        frames: list[FrameType | None] = [*helpers] or [frame]
        for f in frames:
            self._book(phase, f, weight // len(frames))

    def _book(self, phase: str, frame: FrameType | None, weight: int) -> None:
        # the thread may go on and leave this frame while it is read: one sample less
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            self.weights[f"{phase}|{describe(frame)}"] += weight

    def drain(self) -> tuple[tuple[str, int], ...]:
        """Microseconds by place since the last call, as pairs."""
        weights, self.weights = self.weights, Counter()
        return tuple(weights.items())

    def stop(self) -> None:
        """End the sampling; a second call does nothing."""
        self._stop.set()  # first: a sample that is being taken sets no timer any more
        undo, self._undo = self._undo, lambda: None
        undo()
        atexit.unregister(self.stop)
        if self._thread is not None:
            self._thread.join(timeout=1.0)


DUMP_SIGNAL = signal.SIGUSR1
DUMP_VARIABLE = "PIPELINE_PROFILER_STACKS"
_files: list[object] = []  # kept open as long as the process lives


def offer_stack_dump() -> None:
    """Register in this process if the watching process requested it and the signal is free."""
    path = os.environ.get(DUMP_VARIABLE)
    if not path or _files or multiprocessing.parent_process() is None:
        return
    if signal.getsignal(DUMP_SIGNAL) != signal.SIG_DFL:
        return
    try:
        file = open(path, "ab")  # noqa: SIM115
    except OSError:
        return
    _files.append(file)
    faulthandler.register(DUMP_SIGNAL, file, all_threads=True)
