"""Session -> Chrome JSON for ui.perfetto.dev: every batch a flow from dispatch to step.

Tracks: the trainer, its stalls, receipt, workers, causes and configurations; waiting batches are
async slices, as they overlap. Stages inside a fetch are sums, laid end to end. Above MAX_EVENTS
events, the window with the longest waits is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose.verdict import MODERATE
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import MAIN, ProfileError, Session

MAX_EVENTS = 200_000
EVENTS_A_BATCH = 29  # upper estimate, decides how many batches fit
TRAINER, MAIN_THREAD, RECEIVE, READY, STALLS = 1, 1, 2, 3, 4
FETCH, PICKLE = 1, 2
CAUSES, MOST_CAUSES, ARMS, MOST_ARMS = 2, 5, 3, 1_000

Event = dict[str, Any]


def build(session: Session, max_events: int = MAX_EVENTS) -> dict[str, Any]:
    """The trace document: one run of the warm loader, and the arms and causes around it."""
    windows = [Window.whole_of(run) for run in session.arm(Arm.WARM)]
    whole = max((w for w in windows if len(w)), key=_waited, default=None)
    if whole is None:
        raise ProfileError("The session holds no recorded loop to trace: record one with `run`.")
    measured = [w for w in map(Window.whole_of, session.runs[:MOST_ARMS]) if len(w)]
    events = [*_names(whole), *_names_around(session)]
    room = max(1, (max_events - len(events) - len(measured) - MOST_CAUSES) // EVENTS_A_BATCH)
    count = min(len(whole), room)
    origin = min(_begun(window) for window in [whole, *measured])
    builder = _Builder(whole, origin, _worst(whole, count), count)
    events += builder.events()
    events += builder.causes(session)
    events += [builder.arm(window) for window in measured]
    other = {
        "generator": "pipeline-profiler",
        "batches": len(whole),
        "batches_shown": count,
        "first_batch_shown": int(whole.steps.batch[builder.first]),
        "stages": "sums, laid end to end",
    }
    # the mark first: it is looked for in the first bytes of a file that a report would replace
    return {"otherData": other, "traceEvents": events, "displayTimeUnit": "ms"}


def _waited(whole: Window) -> float:
    """The share of a run in which the training waited."""
    return float(whole.exposed.sum() / max(1, whole.steps.period.sum()))


def _worst(whole: Window, count: int) -> int:
    """The row at which the `count` rows with the longest waits begin."""
    waited = np.concatenate([[0], np.cumsum(whole.exposed)])
    return int(np.argmax(waited[count:] - waited[: len(waited) - count]))


def _begun(whole: Window) -> int:
    """The clock's nanoseconds at the first iter() or next() of a run."""
    starts = whole.epochs["start"]
    entry = int(whole.steps.entry[0])
    return min(entry, int(starts[0])) if len(starts) else entry


def _names(whole: Window) -> Iterator[Event]:
    workers = sorted(set(whole.batches.worker.tolist()) - {MAIN})
    own = {MAIN_THREAD: "next() and step", RECEIVE: "receipt", STALLS: "stalls"}
    rows = [(TRAINER, "trainer", own)]
    rows += [(10 + w, f"worker {w}", {FETCH: "fetch", PICKLE: "pickling"}) for w in workers]
    for order, (pid, name, threads) in enumerate(rows):
        yield _meta("process_name", pid, 0, name=name)
        yield _meta("process_sort_index", pid, 0, sort_index=order)
        for tid, thread in threads.items():
            yield _meta("thread_name", pid, tid, name=thread)


def _names_around(session: Session) -> Iterator[Event]:
    """The tracks that are of no batch."""
    yield _meta("process_name", CAUSES, 0, name="causes")
    for tid, cause in enumerate(_causes(session), 1):
        yield _meta("thread_name", CAUSES, tid, name=f"{cause['code']} {cause['name']}")
    yield _meta("process_name", ARMS, 0, name="arms")
    yield _meta("thread_name", ARMS, 1, name="as measured")


def _causes(session: Session) -> list[dict[str, Any]]:
    """The first causes that were found."""
    return list(session.results.get("causes") or [])[:MOST_CAUSES]


def _meta(kind: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


class _Builder:
    """Events of `count` batches of one run."""

    def __init__(self, whole: Window, origin: int, first: int, count: int) -> None:
        """`origin`: the clock's nanoseconds at the left edge of the trace; `first`: a row."""
        self.origin, self.first, self.shown = origin, first, range(first, first + count)
        self.exposed = whole.exposed
        self.steps, self.batches, self.iterations = whole.steps, whole.batches, whole.epochs
        self.row = {int(b): i for i, b in enumerate(self.batches.batch)}
        self.slots = whole.in_flight

    def us(self, ns: float) -> float:
        """Microseconds since the start of the trace."""
        return round((ns - self.origin) / 1e3, 3)

    def slice(self, name: str, pid: int, tid: int, start: int, wall: int, **args: Any) -> Event:
        return {
            "ph": "X",
            "cat": "loader",
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": self.us(start),
            "dur": round(max(wall, 0) / 1e3, 3),
            "args": args,
        }

    def flow(self, phase: str, batch: int, pid: int, tid: int, at: float) -> Event:
        """One joint of a batch's flow; it binds to the slice that encloses `at`."""
        event: Event = {
            "ph": phase,
            "cat": "batch",
            "name": "batch",
            "id": batch + 1,
            "pid": pid,
            "tid": tid,
            "ts": self.us(at),
        }
        return event | {"bp": "e"} if phase == "f" else event

    def events(self) -> list[Event]:
        """All events, in time order within their tracks."""
        out: list[Event] = list(self.epochs())
        for i in self.shown:
            out += self.step(i)
            out += self.stall(i)
            j = self.row.get(int(self.steps.batch[i]), -1)
            if j >= 0 and self.batches.worker[j] != MAIN:
                out += self.worker(i, j)
            elif j >= 0:
                out += self.inside(i, j)
        return out + list(self.ready())

    def epochs(self) -> Iterator[Event]:
        rows = self.iterations
        first, last = (int(self.steps.batch[i]) for i in (self.shown[0], self.shown[-1]))
        for batch, start, wall in zip(rows["batch"], rows["start"], rows["wall"], strict=True):
            if first <= batch <= last:
                yield self.slice("iter()", TRAINER, MAIN_THREAD, int(start), int(wall))

    def step(self, i: int) -> Iterator[Event]:
        """next() and the step of row `i`."""
        s, batch = self.steps, int(self.steps.batch[i])
        entry, wait, loop = int(s.entry[i]), int(s.wait[i]), int(s.loop[i])
        yield self.slice("next()", TRAINER, MAIN_THREAD, entry, wait, batch=batch)
        yield self.slice("step", TRAINER, MAIN_THREAD, entry + wait, loop, batch=batch)

    def stall(self, i: int) -> Iterator[Event]:
        """The wait of row `i`, where it is a notable share of its step; named by what took long."""
        s, waited, wait = self.steps, int(self.exposed[i]), int(self.steps.wait[i])
        share = waited / max(1, int(s.period[i]))
        if share < MODERATE or not wait:
            return
        j, batch = self.row.get(int(s.batch[i]), -1), int(s.batch[i])
        stages = {name: int(walls[j]) for name, walls in self.batches.stages.items()}
        slow = max(stages, key=stages.__getitem__, default="") if j >= 0 else ""
        name = f"stall: {slow}" if slow and stages[slow] else "stall"
        start, more = int(s.entry[i]), {"batch": batch, "share of the step": round(share, 4)}
        yield self.slice(name, TRAINER, STALLS, start, wait, **more)

    def causes(self, session: Session) -> Iterator[Event]:
        """Each cause as long as what is shown."""
        s, last = self.steps, self.shown[-1]
        start = int(s.entry[self.first])
        wall = int(s.entry[last] + s.wait[last] + s.loop[last]) - start
        for tid, cause in enumerate(_causes(session), 1):
            name = f"{cause['code']} {cause['name']}"
            told = {key: cause[key] for key in ("cause", "next", "share") if key in cause}
            yield self.slice(name, CAUSES, tid, start, wall, **told)

    def arm(self, window: Window) -> Event:
        """One pass of an arm, warm-up included."""
        run, s, start = window.run, window.steps, _begun(window)
        end = int(s.entry[-1] + s.wait[-1] + s.loop[-1])
        name = f"{run.arm.name.lower()}, block {run.block}"
        told = {"steps": len(window), "step_ms": round(window.period_ns / 1e6, 3)}
        return self.slice(name, ARMS, 1, start, end - start, **told)

    def inside(self, i: int, j: int) -> Iterator[Event]:
        """num_workers=0: the fetch lies inside next()."""
        s, m = self.steps, self.batches
        end = int(s.entry[i] + s.wait[i])
        start = max(int(m.start[j]), int(s.entry[i]))
        wall = min(int(m.fetch[j]), end - start)
        yield self.slice("fetch", TRAINER, MAIN_THREAD, start, wall, batch=int(m.batch[j]))
        yield from self.stages(j, TRAINER, MAIN_THREAD, start, wall)

    def worker(self, i: int, j: int) -> Iterator[Event]:
        """A batch's way through its worker, the queue, the reorder buffer and the receipt."""
        s, m = self.steps, self.batches
        batch, pid = int(m.batch[j]), 10 + int(m.worker[j])
        start, wall = int(m.start[j]), int(m.fetch[j])
        entry, got = int(s.entry[i]), int(s.entry[i] + s.wait[i])
        sent, received, receive = int(m.sent[j]), int(m.received[j]), int(m.receive[j])
        yield self.slice("fetch", pid, FETCH, start, wall, batch=batch)
        yield from self.stages(j, pid, FETCH, start, wall)
        pickled = int(m.serialise[j])
        yield self.slice("serialise", pid, PICKLE, sent - pickled, pickled, batch=batch)
        yield self.slice("receive", TRAINER, RECEIVE, received - receive, receive, batch=batch)
        waiting = {"cat": "queue", "id": batch + 1, "pid": TRAINER, "tid": MAIN_THREAD}
        # in the queue until received, then in the reorder buffer until delivered
        for name, begin, end in (("queued", sent, received), ("reorder", received, got)):
            if end > begin:
                yield {"ph": "b", "name": name, "ts": self.us(begin), **waiting}
                yield {"ph": "e", "name": name, "ts": self.us(end), **waiting}
        # the index is sent inside next(), when is not known: before its worker begins
        at = min(self.dispatched(i), start)
        yield self.flow("s", batch, TRAINER, MAIN_THREAD, at)
        joints = (
            (pid, FETCH, start),
            (pid, PICKLE, sent - pickled),
            (TRAINER, RECEIVE, received - receive),
            (TRAINER, MAIN_THREAD, max(entry, received, got - 1)),
        )
        for owner, track, moment in joints:
            at = max(at, moment)  # clocks of two processes may differ by microseconds
            yield self.flow("t", batch, owner, track, at)
        yield self.flow("f", batch, TRAINER, MAIN_THREAD, max(at, got))

    def stages(self, j: int, pid: int, tid: int, start: int, room: int) -> Iterator[Event]:
        """Stage sums laid end to end inside the fetch, cut so that they nest."""
        at, end = start, start + room
        for name, walls in self.batches.stages.items():
            wall = min(int(walls[j]), end - at)
            if wall > 0:
                yield self.slice(name, pid, tid, at, wall, summed="over the batch's samples")
                at += wall

    def dispatched(self, i: int) -> float:
        """When the index of row `i` was sent out: w*P deliveries before, or at iter()."""
        starts = np.flatnonzero(self.steps.first[: i + 1])
        first = int(starts[-1]) if len(starts) else 0
        if i - first < self.slots:
            rows = self.iterations
            at = np.searchsorted(rows["batch"], self.steps.batch[first], side="right") - 1
            return float(rows["start"][at] + rows["wall"][at] // 2)
        k = i - self.slots
        return float(self.steps.entry[k] + max(self.steps.wait[k] - 1, 0))

    def ready(self) -> Iterator[Event]:
        """Counter track: batches sent and not yet delivered."""
        shown = {int(self.steps.batch[i]) for i in self.shown}
        rows = [j for b, j in self.row.items() if b in shown and self.batches.worker[j] != MAIN]
        delivered = dict(zip(self.steps.batch, self.steps.entry + self.steps.wait, strict=True))
        marks = [(int(self.batches.sent[j]), 1) for j in rows]
        marks += [(int(delivered[self.batches.batch[j]]), -1) for j in rows]
        level = 0
        for at, change in sorted(marks):
            level += change
            yield {
                "ph": "C",
                "name": "ready batches",
                "pid": TRAINER,
                "tid": READY,
                "ts": self.us(at),
                "args": {"ready": max(level, 0)},
            }
