"""Published runs that are open in this process: one store for all who look, pages and API.

A generation is opened once, used by one page at a time and by any number of readers beside it, and
closed when `KEPT` others were used since. The ledger's summary is made by one thread, while others
wait for one that has all that was decided when they came; what it is about is looked up for the
newest decisions alone (`LookedUp`). The store has the statuses of the newest summary, which each
use brings up to date and none takes back. Run and ledger are looked for with every use: it costs a
few files of some bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from audit.browse import findings
from audit.browse.decided import LedgerSummary, summarise_ledger
from audit.decisions.store import DecisionStore
from audit.decisions.waivers import LookedUp
from audit.run import generations
from audit.run.generations import Generation
from audit.run.store import Store

KEPT = 8


@dataclass
class _Open:
    """What is open of a generation; `marked` is the summary whose statuses the store has, `users`
    how many hold it or wait for it.

    Who uses the store holds `lock`; who opens it or brings it up to date, `bringing`; who sums up
    the ledger, `reading`.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    store: Store | None = None
    marked: LedgerSummary | None = None
    users: int = 0
    ledger: LedgerSummary | None = None
    known: LookedUp = field(default_factory=LookedUp)
    bringing: threading.Lock = field(default_factory=threading.Lock)
    reading: threading.Lock = field(default_factory=threading.Lock)


_opened: dict[str, _Open] = {}  # the last used is the last
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Look:
    """A run as it is now: what is published, its `key` for caches, and what its ledger says."""

    run: Path
    generation: Generation
    key: str
    ledger: LedgerSummary

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Give the store to one thread at a time: for a page, which may make tables of its own."""
        with self._brought_up() as opened, opened.lock:
            assert opened.store is not None
            yield opened.store

    @contextmanager
    def reader(self) -> Iterator[Store]:
        """Give another connection to the same: for one who only reads, and waits for nobody."""
        with self._brought_up():
            store = generations.open_held(self.key)
            assert store is not None
            with store:
                yield store

    @contextmanager
    def _brought_up(self) -> Iterator[_Open]:
        """Open the store where it is not, and let it have the statuses of this look or newer."""
        with _taken(self.key) as opened:
            with opened.bringing:
                if opened.store is None:
                    opened.store, opened.marked = _open(self.key, self.generation), None
                ledger = opened.ledger or self.ledger
                writer = None if opened.marked is ledger else generations.open_held(self.key)
                if writer is not None:
                    with writer:  # not by the store, which another thread may be using
                        findings.mark(writer, ledger.statuses)
                    opened.marked = ledger
            yield opened


def look(run: Path) -> Look:
    """Return a run as it is now; raises RunError where there is none, OSError where it vanishes."""
    generation, wanted = generations.require(run), DecisionStore(run).revision()
    key = generation.key
    with _taken(key) as opened, opened.reading:
        ledger = opened.ledger
        differs = ledger is not None and ledger.revision != wanted
        if ledger and differs and not _reaches(DecisionStore(run).revision(), ledger.revision):
            ledger, opened.known = None, LookedUp()  # another is in its place
        if ledger is None or not _reaches(ledger.revision, wanted):
            ledger = opened.ledger = summarise_ledger(run, generation, opened.known)
        return Look(run, generation, key, ledger)


def _reaches(revision: str, wanted: str) -> bool:
    """Say whether a revision has all that another has."""
    pairs = zip(revision.split("/"), wanted.split("/"), strict=True)
    return all(int(has) >= int(wants) for has, wants in pairs)


def _open(key: str, generation: Generation) -> Store:
    store = generations.hold(key, generation)
    try:
        findings.index(store)
    except BaseException:
        generations.let_go(key)
        raise
    return store


def is_open(key: str) -> bool:
    """Say whether a generation need not be opened and indexed first."""
    return key in _opened and _opened[key].store is not None


@contextmanager
def _taken(key: str) -> Iterator[_Open]:
    with _lock:
        opened = _opened[key] = _opened.pop(key) if key in _opened else _Open()
        opened.users += 1
        for old, one in list(_opened.items())[:-KEPT]:
            if not one.users:
                if one.store is not None:
                    generations.let_go(old)
                del _opened[old]
    try:
        yield opened
    finally:
        with _lock:
            opened.users -= 1
