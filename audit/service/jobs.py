"""The jobs of `audit serve`: scans and re-checks in a queue in FOLDER/jobs.sqlite.

Jobs run one at a time, in order, in a process of their own; they continue after a restart. A
dataset with `every` is scanned at intervals. `news` goes to one webhook, retried for a day.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from audit.checking.config import load_config
from audit.compare.expectations import judge_expectations, parse_expectations
from audit.errors import AuditError, RunError, UsageError
from audit.results.history import Moment, read_history
from audit.run.run_version import MIN_KEPT_VERSIONS, keep_versions
from audit.service.people import ADMIN, Person
from audit.service.work import LOCKED, Job, Stage, start_job

FILE = "jobs.sqlite"
SCAN, RECHECK = "scan", "recheck"
WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
SCHEDULE = "the schedule"
KEPT, TRIES, PAUSE_S, PATIENCE_S = 1_000, 12, 20.0, 5.0
"""Jobs that are remembered; how often news are sent until they are given up, the first pause, which
doubles each time, and how long a webhook may take."""
TABLES = """
    CREATE TABLE IF NOT EXISTS jobs (
        number INTEGER PRIMARY KEY, dataset TEXT, action TEXT, by TEXT, state TEXT, said TEXT,
        asked REAL, began REAL, ended REAL);
    CREATE TABLE IF NOT EXISTS news (
        key TEXT PRIMARY KEY, body TEXT, tries INTEGER, due REAL, sent INTEGER);
    CREATE TABLE IF NOT EXISTS broken (dataset TEXT, expectation TEXT);
"""


@dataclass(frozen=True, slots=True)
class ServedDataset:
    """A dataset of the file; `people` may see it (empty: everybody), and admins.

    `every_s`: seconds between automatic scans, 0 for none; `keep`: versions; `pushed`: scanned
    elsewhere.
    """

    name: str
    run: Path
    source: str = ""
    people: tuple[str, ...] = ()
    every_s: float = 0.0
    keep: int = MIN_KEPT_VERSIONS
    pushed: bool = False

    def is_open_to(self, person: Person) -> bool:
        """Say whether a person may see it."""
        named = {name.casefold() for name in self.people}
        return not named or person.role == ADMIN or person.name.casefold() in named


@dataclass(frozen=True, slots=True)
class ServedJob:
    """A job; `by`: a person; `said`: its last message. Times: seconds since 1970, or None."""

    number: int
    dataset: str
    action: str
    by: str
    state: str
    said: str
    asked: float
    began: float | None
    ended: float | None
    stage: Stage = field(default_factory=Stage)


Start = Callable[[str, str, Path, Sequence[str]], Job]
Send = Callable[[str, bytes], None]


def send_json(url: str, body: bytes) -> None:
    """Post to a webhook; raises OSError where it does not take it in time."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S):
        pass


class JobQueue:
    """The queue of one folder; `step` moves it on, `run` does so every second until `close`."""

    def __init__(
        self,
        folder: Path,
        datasets: Callable[[], Mapping[str, ServedDataset]],
        *,
        webhook: str = "",
        link: str = "",
        clock: Callable[[], float] = time.time,
        start: Start = start_job,
        send: Send = send_json,
    ) -> None:
        """Open the queue; UsageError if another server has it, RunError for a bad disk."""
        self._datasets, self._webhook, self._link = datasets, webhook, link
        self._clock, self._start, self._send = clock, start, send
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._running: dict[int, tuple[Job, ServedDataset, Moment | None]] = {}
        self._again: dict[int, float] = {}  # when a job whose run was locked is tried again
        self.problem = ""
        path = folder / FILE
        try:
            self._con = sqlite3.connect(path, timeout=0.2, check_same_thread=False)
            # held until the end: a second server would begin the same scans
            self._con.executescript(f"PRAGMA locking_mode = EXCLUSIVE; {TABLES}")
            self._con.execute("UPDATE jobs SET state = ? WHERE state = ?", [WAITING, RUNNING])
            self._con.commit()
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise UsageError(f"{folder} is being served by another `audit serve`.") from None
            raise RunError(f"{path} cannot be written ({error}).") from None
        except sqlite3.DatabaseError as error:
            raise RunError(f"{path} is damaged ({error}): move it away; runs are whole.") from None

    def ask(self, dataset: str, action: str, by: str) -> int:
        """Queue a job, return its number or that of an equal job; UsageError if it cannot run."""
        known = self._datasets().get(dataset)
        if known is None or action not in (SCAN, RECHECK):
            raise UsageError(f"There is no {dataset!r} to {action}.")
        if action == SCAN and not known.source:
            raise UsageError(f"datasets.toml names no source of {dataset}: it cannot be scanned.")
        with self._lock, self._con:
            found = self._con.execute(
                "SELECT number FROM jobs WHERE dataset = ? AND action = ? AND state = ?",
                [dataset, action, WAITING],
            ).fetchone()
            if found:
                return int(found[0])
            made = self._con.execute(
                "INSERT INTO jobs (dataset, action, by, state, said, asked) "
                "VALUES (?, ?, ?, ?, '', ?)", [dataset, action, by, WAITING, self._clock()],
            )  # fmt: skip
            return int(made.lastrowid or 0)

    def cancel(self, number: int) -> None:
        """Stop a job, or take it from the queue; what it measured is kept."""
        with self._lock:
            if number in self._running:
                self._running[number][0].cancel()
            else:
                self._settle(number, CANCELLED, "Cancelled before it began.", only=WAITING)

    def jobs(self, n: int = 50) -> list[ServedJob]:
        """Return the latest jobs, the latest first."""
        with self._lock:
            rows = self._con.execute(
                "SELECT number, dataset, action, by, state, said, asked, began, ended FROM jobs "
                "ORDER BY number DESC LIMIT ?", [n],
            ).fetchall()  # fmt: skip
            now = {number: job.stage for number, (job, _, _) in self._running.items()}
        return [replace(ServedJob(*row), stage=now.get(row[0], Stage())) for row in rows]

    def next_scan(self, one: ServedDataset) -> float | None:
        """Return when a dataset is due, in seconds since 1970; None for one without a schedule."""
        if not one.every_s:
            return None
        now = self._clock()
        with self._lock:
            last = self._con.execute(
                "SELECT max(coalesce(began, asked)) FROM jobs WHERE dataset = ? AND action = ?",
                [one.name, SCAN],
            ).fetchone()[0]
        if last is None:
            with suppress(OSError):
                last = (one.run / "CURRENT").stat().st_mtime
        return now if last is None else min(last, now) + one.every_s

    def run(self) -> None:
        """Move the queue on every second, in this thread, until it is closed."""
        while not self._ended.wait(1.0):
            self.step()

    def step(self) -> None:
        """Settle ended jobs, begin due jobs, send news; `problem` is an error to retry."""
        try:
            with self._lock:
                self._settle_ended()
                self._begin_due()
                waiting = self._con.execute(
                    "SELECT key, body, tries FROM news WHERE NOT sent AND tries < ? AND due <= ?",
                    [TRIES, self._clock()],
                ).fetchall()
            for key, body, tries in waiting:  # outside of the lock: a webhook may hang
                self._tell(key, body, tries)
            self.problem = ""
        except sqlite3.Error as error:
            self.problem = f"The queue of jobs cannot be written ({error}); nothing new begins."
        except (AuditError, OSError) as error:
            self.problem = str(error)

    def close(self) -> None:
        """End the workers, as Ctrl-C would; their jobs begin again with the next server."""
        self._ended.set()
        with self._lock:
            for job, _, _ in self._running.values():
                job.cancel()
            self._con.close()

    def _settle_ended(self) -> None:
        for number, (job, one, before) in list(self._running.items()):
            if job.followed.is_set():
                del self._running[number]
                if job.state == FAILED and job.code == LOCKED:  # by `audit scan` in a terminal
                    self._settle(number, WAITING, job.said)
                    self._again[number] = self._clock() + PAUSE_S
                    continue
                self._settle(number, job.state, job.said)
                broken = self._newly_broken(one) if job.state == DONE else []
                for event in news(one, number, job.state, before, broken):
                    self._note(event)

    def _settle(self, number: int, state: str, said: str, only: str = RUNNING) -> None:
        with self._con:
            self._con.execute(
                "UPDATE jobs SET state = ?, said = ?, ended = ? WHERE number = ? AND state = ?",
                [state, said, None if state == WAITING else self._clock(), number, only],
            )
            self._con.execute("DELETE FROM jobs WHERE number <= ? AND ended > 0", [number - KEPT])

    def _begin_due(self) -> None:
        served, now = self._datasets(), self._clock()
        for one in served.values():
            due = self.next_scan(one)
            if due is not None and due <= now and one.source:
                self.ask(one.name, SCAN, SCHEDULE)
        rows = self._con.execute(
            "SELECT number, dataset, action FROM jobs WHERE state = ? ORDER BY number", [WAITING]
        ).fetchall()
        for number, dataset, action in rows:
            chosen = served.get(dataset)
            if chosen is None:
                self._settle(
                    number, FAILED, "The dataset was removed from datasets.toml.", only=WAITING
                )
            elif 0 < self._again.get(number, 0) - now <= PAUSE_S:
                continue
            elif not self._running:
                self._begin(number, chosen, action)

    def _begin(self, number: int, one: ServedDataset, action: str) -> None:
        with self._con:  # noted first: a kill between the two begins it again
            self._con.execute(
                "UPDATE jobs SET state = ?, began = ? WHERE number = ?",
                [RUNNING, self._clock(), number],
            )
        keep_versions(one.run, one.keep)
        before = next(reversed(read_history(one.run)), None)
        what, more = f"{action} of {one.name}", [one.source] if action == SCAN else []
        self._running[number] = self._start(what, action, one.run, more), one, before

    def _newly_broken(self, one: ServedDataset) -> list[str]:
        now = broken_expectations(one.run)
        with self._con:
            rows = self._con.execute(
                "SELECT expectation FROM broken WHERE dataset = ?", [one.name]
            ).fetchall()
            self._con.execute("DELETE FROM broken WHERE dataset = ?", [one.name])
            self._con.executemany("INSERT INTO broken VALUES (?, ?)", [(one.name, n) for n in now])
        return sorted(set(now) - {name for (name,) in rows})

    def _note(self, event: Mapping[str, Any]) -> None:
        if not self._webhook:
            return
        told = {**event, "link": self._link}
        with self._con:
            self._con.execute(
                "INSERT OR IGNORE INTO news VALUES (?, ?, 0, ?, 0)",
                [event["id"], json.dumps(told, ensure_ascii=False), self._clock()],
            )

    def _tell(self, key: str, body: str, tries: int) -> None:
        try:
            self._send(self._webhook, body.encode())
            sent = 1
        except (OSError, ValueError):
            sent = 0
        with self._lock, self._con:
            self._con.execute(
                "UPDATE news SET sent = ?, tries = tries + 1, due = ? WHERE key = ?",
                [sent, self._clock() + PAUSE_S * 2**tries, key],
            )


def broken_expectations(run: Path) -> list[str]:
    """Return what `[expect]` of audit.toml asks of a run and this one does not meet, by name."""
    with suppress(AuditError):
        judged = judge_expectations(run, parse_expectations(load_config(None).expect))
        return sorted({each.expectation.title for each in judged if each.met is False})
    return []


def news(
    one: ServedDataset, number: int, state: str, before: Moment | None, broken: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the news of an ended job: failure, new errors, `broken` expectations; each with id."""
    common = {"dataset": one.name, "job": number}
    if state == FAILED:
        return [{"id": f"{number}:job_failed", "event": "job_failed", **common}]
    now = next(reversed(read_history(one.run)), None)
    if state != DONE or now is None:
        return []
    codes = [code for code, _, severity, _ in now.named if severity == "error" and code]
    found: list[dict[str, Any]] = []
    if codes and now != before:
        found.append({"event": "new_errors", "codes": {c: codes.count(c) for c in sorted(codes)}})
    if broken:
        found.append({"event": "expectation_broken", "expectations": list(broken)})
    more = {**common, "counts": dict(now.severities), "at": now.at}
    return [{"id": f"{number}:{event['event']}", **event, **more} for event in found]


def job_facts(job: ServedJob) -> dict[str, Any]:
    """Return a job as plain data, with the share of its phase that is done."""
    return {**asdict(job), "stage": {**asdict(job.stage), "share": job.stage.share}}
