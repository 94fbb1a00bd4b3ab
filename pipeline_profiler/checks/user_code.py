"""Calls into the user's code: errors become sentences, generators are put back, time is bounded.

`users_code` separates the user's errors (inconclusive) from those of a check (broken).
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_profiler.profiling.measure.watchdog import is_own_code
from pipeline_profiler.profiling.record.errors import ProfileError

LONGEST = 200  # characters of a foreign message
KNOWN = (  # (a pattern of type and message of an error, its fix)
    ("not compiled with CUDA|No CUDA GPUs|Found no NVIDIA driver",
     "it asks for a GPU: choose the device by torch.cuda.is_available()"),
    ("No module named",
     f"name the Python that has it with --python PATH; this is {sys.executable}"),
    ("MemoryError|out of memory|can't allocate memory",
     "the memory is too small: take a smaller batch"),
    ("unsigned char|found Byte|got Byte", "the loader gives bytes: give train_step, or "
     "split_batch, which turns them into numbers as your loop does"),
    ("Expected more than 1 value", "batch norm needs batches of more than one example"),
    ("mat1 and mat2 shapes|Given groups=|incompatible with the layer",
     "the shape of the input does not fit the model: is it CHW?"),
    ("outside the valid range|out of bounds",
     "a label lies outside [0, K): K is the number of outputs"),
)  # fmt: skip


class UsersError(ProfileError):
    """Code of the user failed while a check asked it."""


@contextlib.contextmanager
def users_code(what: str) -> Iterator[None]:
    """Turn what is raised inside into UsersError: `what` names the call, such as `make_model()`."""
    try:
        yield
    except (UsersError, TimeoutError):
        raise
    except (Exception, SystemExit) as error:
        raise UsersError(explain_error(what, error)) from error


def batches_of(loader: Any) -> Iterator[Any]:
    """What a loader gives; what it raises becomes a sentence."""
    with users_code("The loader"):
        yield from loader


def explain_error(what: str, error: BaseException) -> str:
    """One sentence: what failed, how, and the fix where the error is a known one."""
    text = str(error)
    if "Original Traceback" in text:  # of a worker: its last line is what was raised there
        text = text.strip().splitlines()[-1]
    message = f"{type(error).__name__}: {' '.join(text.split()) or 'no message'}"
    fixes = (fix for pattern, fix in KNOWN if re.search(pattern, message, re.IGNORECASE))
    fix = next(fixes, "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [f" ({Path(f.filename).name}:{f.lineno})" for f in frames if is_own_code(f.filename)]
    where, tail = "".join(own[-1:]), f": {fix}." if fix else "."
    return f"{what} failed with {message[:LONGEST].rstrip('.')}{where}{tail}"


def user_place() -> str:
    """Return the innermost of `user_places`, or ''."""
    return next(user_places(), "")


def user_places() -> Iterator[str]:
    """`/src/train.py:57:8-57:20`: expressions of the user's that run, innermost first; in bytes."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_own_code(file) and "pipeline_profiler" not in file:
            ran = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            columns = "" if None in ran else ":{2}-{1}:{3}".format(*ran)
            yield f"{Path(file).absolute()}:{ran[0] or frame.f_lineno}{columns}"
        frame = frame.f_back


def short_place(place: str) -> str:
    """Return `train.py:57` of a place."""
    return ":".join(Path(place).name.split(":")[:2])


def call_with(function: Callable[..., Any], offers: Mapping[str, Any], what: str) -> Any:
    """Call with those of `offers` that the function has parameters for, by name.

    A single parameter of another name gets the first offer. Raises UsersError for a parameter
    that nothing is offered for, and for what the function raises.
    """
    parameters = _parameters(function)
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    unknown = [name for name in needed if name not in offers]
    if unknown and len(needed) == 1 and offers:
        with users_code(what):
            return function(next(iter(offers.values())))
    if unknown:
        known = f" (known: {', '.join(offers)})" if offers else ""
        raise UsersError(
            f"{what} takes the argument {', '.join(unknown)}, for which there is no value{known}: "
            "give it a default, or wrap it in a function without arguments."
        )
    with users_code(what):
        return function(**{p.name: offers[p.name] for p in parameters if p.name in offers})


def _parameters(function: Any) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    with contextlib.suppress(TypeError, ValueError):  # of compiled code, or None
        return [p for p in inspect.signature(function).parameters.values() if p.kind not in kinds]
    return []


def plain_augmentation(factory: Any) -> dict[str, bool]:
    """`augment=False` for a factory that takes it."""
    return {"augment": False} if "augment" in [p.name for p in _parameters(factory)] else {}


@contextlib.contextmanager
def kept_state() -> Iterator[None]:
    """Put every global generator and setting back at the end."""
    undo = [(restore, read()) for read, restore in _states()]
    try:
        yield
    finally:
        for restore, value in undo:
            restore(value)


def seed_everything(seed: int) -> None:
    """Seed random, numpy, torch and TensorFlow as far as they are imported."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    if hasattr(sys.modules.get("tensorflow"), "random"):
        sys.modules["tensorflow"].random.set_seed(seed)


def _states() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return (reads it, puts it back) of each generator and setting of what is imported."""
    yield random.getstate, random.setstate
    if (numpy := sys.modules.get("numpy")) is not None:
        yield numpy.random.get_state, numpy.random.set_state
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is not None and hasattr(context, "global_seed"):
        yield context.global_seed, sys.modules["tensorflow"].random.set_seed
    if (torch := sys.modules.get("torch")) is not None:
        yield torch.get_rng_state, torch.set_rng_state
        yield torch.get_default_dtype, torch.set_default_dtype
        yield torch.is_grad_enabled, torch.set_grad_enabled
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all


@dataclass(frozen=True)
class Patience:
    """Over after `work` seconds of this process, or `wall` seconds on the clock.

    Work is the lesser of wall time (which counts other processes) and CPU time (which counts
    threads twice); wall time ends a check only for the budget of all checks.
    """

    work: float
    wall: float
    began: tuple[float, float] = field(
        default_factory=lambda: (time.monotonic(), time.process_time())
    )

    def _used(self) -> tuple[float, float]:
        """Seconds on the clock, and of this process."""
        return time.monotonic() - self.began[0], time.process_time() - self.began[1]

    @property
    def over(self) -> bool:
        """Whether to stop."""
        return min(self._used()) > self.work or self._used()[0] > self.wall

    @property
    def left(self) -> float:
        """Seconds on the clock that are left, at the speed there was so far."""
        wall, busy = self._used()
        slower = min(max(1.0, wall / busy), self.wall / max(self.work, 1e-9)) if busy > 1 else 1.0
        return min((self.work - min(wall, busy)) * slower, self.wall - wall)
