"""pipeline-profiler: what keeps the accelerator waiting, how sure are we, and does the fix work.

Two lines in a training loop are enough::

    rec = Recorder()
    for batch in rec.watch(loader): ...

`import pipeline_profiler` costs the standard library only; torch and tensorflow are looked at
when a loader of theirs is handed in, never before.
"""

from pipeline_profiler.adapters import attach as _attach
from pipeline_profiler.record.recorder import Recorder
from pipeline_profiler.record.session import ProfileError, Run, Session, Span
from pipeline_profiler.record.stages import stage

__all__ = ["ProfileError", "Recorder", "Run", "Session", "Span", "stage"]

# recorder.py may import the standard library alone, so the adapters hand themselves to it.
Recorder.attach = staticmethod(_attach)
