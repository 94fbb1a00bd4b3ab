"""Read a published run: opened once in this process, its decisions applied once, for all readers.

A version is closed when `MAX_OPEN` others were used since. Every reader has a read-only connection,
so that threads do not wait for each other. Each use updates the statuses of findings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from audit.decisions.store import DecisionStore
from audit.decisions.waivers import LookedUp
from audit.results.decision_summary import DecisionSummary, summarise_decisions
from audit.results.finding_index import index_findings, mark_statuses
from audit.run import run_version
from audit.run.run_version import RunVersion
from audit.run.store import Store

MAX_OPEN = 8  # versions
P = ParamSpec("P")
T = TypeVar("T")
Prepare = Callable[[Store], None]  # makes tables in memory for all readers of a version


@dataclass
class _Open:
    """An open version: `marked` is the summary in its store, `users` counts readers, `prepared`
    tables in memory. `opening` guards the store, `deciding` the summary of decisions and the
    `inode` of their file.
    """

    store: Store | None = None
    prepared: set[Prepare] = field(default_factory=set)
    marked: DecisionSummary | None = None
    users: int = 0
    decisions: DecisionSummary | None = None
    inode: int = 0
    known: LookedUp = field(default_factory=LookedUp)
    opening: threading.Lock = field(default_factory=threading.Lock)
    deciding: threading.Lock = field(default_factory=threading.Lock)


_opened: dict[str, _Open] = {}  # the last used is the last
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class RunReader:
    """One version of a run with the decisions of today; made by `open_reader`.

    `key` names the data for caches: it changes with every scan and re-check.
    """

    run: Path
    version: RunVersion
    key: str
    decisions: DecisionSummary

    @contextmanager
    def connection(self, prepare: Prepare | None = None) -> Iterator[Store]:
        """Give a read-only connection with the tables of the run.

        `prepare` makes tables in memory once, for all readers; tables of a reader are its own.
        """
        with _taken(self.key) as opened:
            with opened.opening:
                if opened.store is None:
                    opened.store = run_version.hold(self.key, self.version)
                    opened.store.plan_briefly()
                if prepare is not None and prepare not in opened.prepared:
                    prepare(opened.store)
                    opened.prepared.add(prepare)
                decisions = opened.decisions or self.decisions
                if prepare is index_findings and opened.marked is not decisions:
                    mark_statuses(opened.store, decisions.statuses)
                    opened.marked = decisions
            store = run_version.open_held(self.key)
            assert store is not None
            with store:
                yield store


def open_reader(run: Path, version: RunVersion | None = None) -> RunReader:
    """Return a version of a run (default: the published one) with the decisions of now.

    Raises RunError where there is none, or it is damaged; OSError where it vanishes meanwhile.
    """
    version, wanted = version or run_version.require(run), DecisionStore(run).revision()
    key, path = version.key, DecisionStore(run).path
    inode = path.stat().st_ino if path.exists() else 0
    with _taken(key) as opened, opened.deciding:
        if opened.inode != inode:  # another file is in its place
            opened.decisions, opened.known, opened.inode = None, LookedUp(), inode
        decisions = opened.decisions
        known = decisions.revision.split("/") if decisions is not None else ["-1", "-1"]
        pairs = zip(known, wanted.split("/"), strict=True)
        if decisions is None or any(int(has) < int(wants) for has, wants in pairs):
            decisions = opened.decisions = summarise_decisions(run, version, opened.known)
        return RunReader(run, version, key, decisions)


def is_open(key: str) -> bool:
    """Return whether a version is open and its findings are indexed."""
    return key in _opened and index_findings in _opened[key].prepared


def reads(
    prepare: Prepare | None = None,
) -> Callable[[Callable[Concatenate[Store, P], T]], Callable[Concatenate[RunReader | Store, P], T]]:
    """Let a question about the tables of a run (and those of `prepare`) take a reader, too."""

    def of_results(
        question: Callable[Concatenate[Store, P], T],
    ) -> Callable[Concatenate[RunReader | Store, P], T]:
        @wraps(question)
        def answer(run: RunReader | Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if isinstance(run, Store):
                return question(run, *args, **kwargs)
            with run.connection(prepare) as store:
                return question(store, *args, **kwargs)

        return answer

    return of_results


@contextmanager
def _taken(key: str) -> Iterator[_Open]:
    with _lock:
        opened = _opened[key] = _opened.pop(key) if key in _opened else _Open()
        opened.users += 1
        for old, other in list(_opened.items())[:-MAX_OPEN]:
            if not other.users:
                if other.store is not None:
                    run_version.let_go(old)
                del _opened[old]
    try:
        yield opened
    finally:
        with _lock:
            opened.users -= 1
