"""The queue of jobs: order, limits, the schedule, what a kill leaves, and what is told."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from audit.errors import RunError, UsageError
from audit.results.history import HISTORY, Moment
from audit.run import run_version
from audit.scanning import scanning
from audit.service import jobs
from audit.service.jobs import FILE, JobQueue
from audit.service.work import LOCKED, Job


@dataclass(frozen=True)
class Pets:
    """A dataset that is served."""

    name: str
    run: Path
    source: str = "/data/pets"
    every_s: float = 0.0
    keep: int = 2


class Process:
    """A worker that ends when a test says so."""

    def __init__(self) -> None:
        self.code, self.stdin = 0, io.StringIO()
        self.ended = threading.Event()

    def wait(self, timeout: float | None = None) -> int:
        self.ended.wait(timeout)
        return self.code


class Hands:
    """What a queue is given: a clock, workers, a webhook, datasets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1_000_000.0
        self.served: dict[str, Pets] = {}
        self.begun: list[tuple[str, str, Sequence[str]]] = []
        self.work: list[Job] = []
        self.sent: list[dict[str, Any]] = []
        self.refuses = False
        for name in ("cats", "dogs"):
            self.add(name)

    def add(self, name: str, **more: Any) -> None:
        self.served[name] = Pets(name, self.folder / name, **more)
        self.served[name].run.mkdir(exist_ok=True)

    def start(self, what: str, action: str, run: Path, more: Sequence[str]) -> Job:
        self.begun.append((action, run.name, more))
        self.work.append(Job(what, run, cast("Any", Process())))
        return self.work[-1]

    def end(self, number: int, code: int = 0, said: str = "24 files read.") -> None:
        job = self.work[number]
        cast("Process", job.process).code = code
        cast("Process", job.process).ended.set()
        job.follow([json.dumps({"error" if code else "result": said})])

    def send(self, url: str, body: bytes) -> None:
        if self.refuses:
            raise OSError("no route")
        assert url == "http://hook"
        self.sent.append(json.loads(body))

    def queue(self, **more: Any) -> JobQueue:
        return JobQueue(
            self.folder, lambda: self.served, webhook="http://hook", link="http://here",
            clock=lambda: self.now, start=self.start, send=self.send, **more,
        )  # fmt: skip


@pytest.fixture
def hands(tmp_path: Path) -> Hands:
    return Hands(tmp_path)


@pytest.fixture
def queue(hands: Hands) -> Iterator[JobQueue]:
    made = hands.queue()
    yield made
    made.close()


def states(queue: JobQueue) -> list[tuple[str, str]]:
    return [(job.dataset, job.state) for job in reversed(queue.jobs())]


def note(run: Path, generation: str, *errors: str) -> None:
    """Add a moment to a history, in which these codes came."""
    moment = Moment("2026-01-01", generation, 24, severities={"error": len(errors)})
    moment = replace(moment, named=[(code, "f", "error", "secret/name.jpg") for code in errors])
    with (run / HISTORY).open("a") as file:
        file.write(json.dumps(asdict(moment)) + "\n")


def test_jobs_begin_in_their_order_one_at_a_time(hands: Hands, queue: JobQueue) -> None:
    assert queue.ask("cats", "scan", "Ada") == queue.ask("cats", "scan", "Bob")
    queue.ask("dogs", "recheck", "Bob")
    queue.step()
    assert hands.begun == [("scan", "cats", ["/data/pets"])]
    hands.work[0].hear({"phase": "measure", "done": 6, "total": 24, "errors": 0})
    assert jobs.job_facts(queue.jobs()[1])["stage"]["share"] == 0.25
    hands.end(0)
    queue.step()
    assert hands.begun[1:] == [("recheck", "dogs", [])]
    assert states(queue) == [("cats", "done"), ("dogs", "running")]
    assert [(job.by, job.said) for job in queue.jobs()] == [("Bob", ""), ("Ada", "24 files read.")]


def test_a_job_whose_run_is_written_by_another_waits_and_is_tried_again(
    hands: Hands, queue: JobQueue
) -> None:
    queue.ask("cats", "scan", "Ada")
    queue.ask("dogs", "scan", "Ada")
    queue.step()
    hands.end(0, LOCKED, "cats is being written.")
    queue.step()
    assert states(queue) == [("cats", "waiting"), ("dogs", "running")]
    assert (queue.jobs()[1].said, queue.jobs()[1].ended) == ("cats is being written.", None)
    hands.end(1)
    queue.step()
    assert states(queue)[0] == ("cats", "waiting")
    hands.now += jobs.PAUSE_S + 1
    queue.step()
    assert states(queue)[0] == ("cats", "running")
    hands.end(2)
    queue.step()
    assert states(queue) == [("cats", "done"), ("dogs", "done")]
    assert hands.sent == []


@pytest.mark.slow
def test_a_run_keeps_as_many_generations_as_the_file_says(
    hands: Hands, queue: JobQueue, reviewed_run: Path
) -> None:
    shutil.copytree(reviewed_run, hands.served["cats"].run, dirs_exist_ok=True)
    hands.add("cats", keep=3)
    queue.ask("cats", "recheck", "Ada")
    queue.step()
    run = hands.served["cats"].run
    for kept in (2, 3, 3):
        scanning.recheck(run)
        assert len(list(run_version.require(run).path.glob("findings-*.duckdb"))) == kept
    (run / run_version.KEEP).write_text("many")
    scanning.recheck(run)
    assert len(list(run_version.require(run).path.glob("findings-*.duckdb"))) == 2


def test_a_job_is_cancelled_before_it_begins_and_while_it_runs(
    hands: Hands, queue: JobQueue
) -> None:
    first, second = queue.ask("cats", "scan", "Ada"), queue.ask("dogs", "scan", "Ada")
    queue.step()
    queue.cancel(second)
    queue.cancel(first)
    assert cast("Process", hands.work[0].process).stdin.closed
    hands.end(0, code=130)
    queue.step()
    assert states(queue) == [("cats", "cancelled"), ("dogs", "cancelled")]
    queue.cancel(99)


def test_what_was_running_when_the_server_was_killed_begins_again(hands: Hands) -> None:
    killed = hands.queue()
    number = killed.ask("cats", "scan", "Ada")
    killed.step()
    with pytest.raises(UsageError, match="served by another"):
        hands.queue()
    killed._con.close()  # as a kill leaves it: nothing was settled
    queue = hands.queue()
    queue.step()
    assert [job.number for job in queue.jobs()] == [number]
    assert [run for _, run, _ in hands.begun] == ["cats", "cats"]
    queue.close()


def test_the_schedule_scans_when_it_is_due_whatever_the_clock_does(
    hands: Hands, queue: JobQueue
) -> None:
    hands.add("cats", every_s=3600.0)
    hands.add("owls", every_s=3600.0, source="")
    queue.step()
    assert [job.by for job in queue.jobs()] == ["the schedule"]
    hands.end(0)
    hands.now += 3599
    queue.step()
    assert len(hands.begun) == 1
    hands.now += 2
    queue.step()
    queue.step()
    assert len(hands.begun) == 2
    hands.end(1)
    hands.now -= 10**6  # the clock was wrong
    assert queue.next_scan(hands.served["cats"]) == hands.now + 3600
    assert queue.next_scan(hands.served["dogs"]) is None
    queue.step()
    assert len(hands.begun) == 2


def test_each_event_is_told_once_without_names(
    hands: Hands, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [["rows"], ["rows"], ["rows", "leaks"]]
    monkeypatch.setattr(jobs, "broken_expectations", lambda run: broken.pop(0))
    note(hands.served["cats"].run, "gen-1")
    for k, codes in enumerate((("SPLIT001", "SPLIT001", "FILE002"), None, ())):
        queue.ask("cats", "scan", "Ada")
        queue.step()
        if codes is not None:
            note(hands.served["cats"].run, f"gen-{k + 2}", *codes)
        hands.end(k)
        queue.step()
        queue.step()
    told = [(event["event"], event.get("codes") or event["expectations"]) for event in hands.sent]
    assert told == [
        ("new_errors", {"FILE002": 1, "SPLIT001": 2}),
        ("expectation_broken", ["rows"]),
        ("expectation_broken", ["leaks"]),
    ]
    assert hands.sent[0]["link"] == "http://here"
    assert "secret" not in json.dumps(hands.sent)


def test_a_failed_job_is_told_until_the_webhook_takes_it(hands: Hands, queue: JobQueue) -> None:
    hands.refuses = True
    queue.ask("dogs", "scan", "Ada")
    queue.step()
    hands.end(0, code=2, said="There is nothing at /data/pets.")
    queue.step()
    queue.step()
    hands.refuses = False
    queue.step()
    assert hands.sent == []  # it waits before it tries again
    hands.now += 60
    queue.step()
    queue.step()
    assert [(e["event"], e["dataset"]) for e in hands.sent] == [("job_failed", "dogs")]
    assert queue.jobs()[0].said == "There is nothing at /data/pets."


def test_what_cannot_be_done_is_a_sentence(
    hands: Hands, queue: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dataset, action in (("owls", "scan"), ("cats", "apply")):
        with pytest.raises(UsageError, match="There is no"):
            queue.ask(dataset, action, "Ada")
    hands.add("owls", source="")
    with pytest.raises(UsageError, match="no source"):
        queue.ask("owls", "scan", "Ada")
    queue.ask("dogs", "scan", "Ada")
    del hands.served["dogs"]
    queue.step()
    assert (queue.jobs()[0].state, queue.jobs()[0].said) == (
        "failed", "The dataset was removed from datasets.toml."
    )  # fmt: skip
    full = sqlite3.OperationalError("database or disk is full")
    with monkeypatch.context() as patch:
        patch.setattr(queue, "_begin_due", lambda: (_ for _ in ()).throw(full))
        queue.step()
        assert "disk is full" in queue.problem
    queue.step()
    assert queue.problem == ""
    other = tmp_path / "other"
    other.mkdir()
    (other / FILE).write_bytes(b"no database at all, but long enough to be taken for one" * 40)
    with pytest.raises(RunError, match="damaged"):
        JobQueue(other, dict)
