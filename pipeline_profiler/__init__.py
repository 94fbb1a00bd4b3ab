"""pipeline-profiler: what keeps the accelerator waiting, how sure are we, and does the fix work.

In: a loader and a training step, or two lines in a loop of one's own. Out: a session with arms,
verdict and causes, as a report or JSON. Cost: 30 s to 2 minutes for `run`; some
microseconds a step for the recorder::

    rec = Recorder(save_to="profile.json")
    for batch in rec.watch(loader): ...

or `profile(loader, step)`, which measures as `run` does and returns a `Profile`.

`import pipeline_profiler` loads the standard library only; torch and tensorflow are touched when a
loader of theirs is handed in, never before.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_profiler.profiling.adapters import attach as _attach
from pipeline_profiler.profiling.record.recorder import Recorder as _Recorder
from pipeline_profiler.profiling.record.recorder_live import LiveRecorder as Recorder
from pipeline_profiler.profiling.record.session import ProfileError, Run, Session, Span
from pipeline_profiler.profiling.record.stages import stage

if TYPE_CHECKING:
    from pipeline_profiler.interface import Profile
    from pipeline_profiler.interface import profile_loader as profile
    from pipeline_profiler.profiling.adapters.tf_data import keras_callback

__all__ = [
    "Profile", "ProfileError", "Recorder", "Run", "Session", "Span", "keras_callback", "profile",
    "stage",
]  # fmt: skip
_LAZY = {
    "Profile": "interface.Profile",
    "profile": "interface.profile_loader",
    "keras_callback": "profiling.adapters.tf_data.keras_callback",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'pipeline_profiler' has no attribute {name!r}")
    from importlib import import_module

    module, _, own = _LAZY[name].rpartition(".")
    return getattr(import_module(f"{__name__}.{module}"), own)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def _dress(recorder: Recorder, loader: object) -> object:
    from pipeline_profiler.profiling.adapters.tf_data import dress_dataset

    return dress_dataset(recorder, loader)


def _enter(
    session: Session, file: Path, began: float, study: str, note: str, config: str
) -> int | None:
    from pipeline_profiler.runs.entry import enter_session

    return enter_session(session, file, began, study, note, config)


# recorder.py may import the standard library alone, so what it needs is handed to it.
_Recorder.attach = staticmethod(_attach)
_Recorder.enter = staticmethod(_enter)
Recorder.dress = staticmethod(_dress)
