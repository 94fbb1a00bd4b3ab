"""Published runs that are open in this process: one store for all who look, pages and API.

A generation is opened once, used by one thread at a time, and closed when `KEPT` others were used
since. The ledger's summary is made once for each of its revisions, by one thread, while others wait
for it. Both are looked for with every use: it costs a few files of some bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from audit.browse import findings
from audit.browse.decided import LedgerSummary, summarise_ledger
from audit.decisions.ledger import Ledger
from audit.run import generations
from audit.run.generations import Generation
from audit.run.store import Store

KEPT = 8


@dataclass
class _Open:
    """What is open of a generation; `marked` is the ledger whose statuses the store has, `users`
    how many hold it or wait for it.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    store: Store | None = None
    marked: str = ""
    users: int = 0
    ledger: LedgerSummary | None = None
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
        """Give the store to one thread at a time, with the ledger's statuses in it."""
        with _taken(self.key) as opened, opened.lock:
            if opened.store is None:
                store = generations.open_generation(self.generation)
                findings.index(store)
                opened.store, opened.marked = store, ""
            if opened.marked != self.ledger.revision:
                findings.mark(opened.store, self.ledger.statuses)
                opened.marked = self.ledger.revision
            yield opened.store


def look(run: Path) -> Look:
    """Return a run as it is now; raises RunError where there is none, OSError where it vanishes."""
    generation = generations.require(run)
    key = key_of(generation)
    with _taken(key) as opened, opened.reading:
        if opened.ledger is None or opened.ledger.revision != Ledger(run).revision():
            opened.ledger = summarise_ledger(run, generation)
        return Look(run, generation, key, opened.ledger)


def is_open(key: str) -> bool:
    """Say whether a generation need not be opened and indexed first."""
    return key in _opened and _opened[key].store is not None


def key_of(generation: Generation) -> str:
    """Return what names a generation's data: it changes with every scan and re-check."""
    # the time too: a run that was deleted and made again has the same names again
    return f"{generation.findings}@{generation.findings.stat().st_mtime_ns}"


@contextmanager
def _taken(key: str) -> Iterator[_Open]:
    with _lock:
        opened = _opened[key] = _opened.pop(key) if key in _opened else _Open()
        opened.users += 1
        for old, one in list(_opened.items())[:-KEPT]:
            if not one.users:
                if one.store is not None:
                    one.store.close()
                del _opened[old]
    try:
        yield opened
    finally:
        with _lock:
            opened.users -= 1
