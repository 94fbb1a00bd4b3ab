"""What `audit serve` keeps when it is killed, and how long it takes for 20 reviewers at once.

    python benchmarks/service.py kills --moments 30
    python benchmarks/service.py load --seconds 240

`kills`: a real server over a small dataset that grows. Reviewers decide all the time and send
again what was not answered, with the same key; an admin asks for scans. After each kill -9 the next
server must have the queue, every decision that was answered, once, and the whole history; at the
end every scan that was asked for is done, or was asked for twice while it waited.

`load`: 4 reviewers in Chromium and 16 through the API, each of whom decides every 5 s about a
finding of his own on 200,000 synthetic rows, and asks for the next; meanwhile a re-check of the run
is published. Targets on 2 cores, at p95: the next finding stands within 1 s, reads 0.2 s, decisions
0.5 s.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench import ENVIRONMENT, Document, hall, measures
from PIL import Image

from audit.decisions.store import DecisionStore
from audit.errors import UsageError
from audit.results.history import HISTORY
from audit.service.client import Connection
from audit.service.people import People

app = hall(__doc__)
CODE, LISTED = "IMG001", "/datasets/pets/findings"
GONE = (UsageError, OSError, ValueError, http.client.HTTPException)


class Server:
    """`audit serve` on a folder, in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.folder, self.url = folder, f"http://127.0.0.1:{self.port}"
        self.process: Any = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        line = [sys.executable, "-m", "audit", "serve", str(self.folder), "--port", str(self.port)]
        log = (self.folder / "log").open("a")
        self.process = subprocess.Popen(line, stdout=log, stderr=log, env=ENVIRONMENT)
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2).close()
                return
            time.sleep(0.1)
        raise SystemExit((self.folder / "log").read_text()[-2000:])

    def end(self, number: int) -> None:
        """Send a signal and wait."""
        self.process.send_signal(number)
        self.process.wait(60)


def serve_run(folder: Path, run: Path, source: str = "") -> Server:
    """Write what is served, and start the server."""
    named = f'[[dataset]]\nname = "pets"\nrun = "{run}"\n'
    (folder / "datasets.toml").write_text(named + (f'source = "{source}"\n' if source else ""))
    server = Server(folder)
    server.start()
    return server


def grow(source: Path, n: int, draw: np.random.Generator) -> None:
    for k in range(n):
        folder = source / ("train", "test")[k % 2] / ("cat", "dog")[k // 2 % 2]
        folder.mkdir(parents=True, exist_ok=True)
        noise = draw.integers(0, 255, (12, 12, 3), np.uint8)
        path = folder / f"{sum(1 for _ in folder.iterdir()):05}.jpg"
        Image.fromarray(noise).resize((96, 96)).save(path)


# ---- kills ----


@measures(app)
def kills(moments: int = 30, reviewers: int = 1, seed: int = 1) -> tuple[Document, bool]:
    """Is everything whole after kill -9 at so many moments?"""
    draw, when = np.random.default_rng(seed), random.Random(seed)
    lost: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grow(folder / "data", 400, draw)
        line = [sys.executable, "-m", "audit", "scan", "data", "--out", "run"]
        subprocess.run(line, cwd=folder, env=ENVIRONMENT, capture_output=True)
        people = People(folder)
        names = [f"reviewer{number}" for number in range(reviewers)]
        tokens, admin = (
            [people.invite(n, "reviewer") for n in names],
            people.invite("admin", "admin"),
        )
        server = serve_run(folder, folder / "run", str(folder / "data"))
        answered: dict[str, int] = {}
        over = threading.Event()
        senders = [
            threading.Thread(target=_decide, args=(server, token, name, answered, over))
            for token, name in zip(tokens, names, strict=True)
        ]
        for sender in senders:
            sender.start()
        asked: set[int] = set()
        resumed = 0
        for moment in range(moments):
            grow(folder / "data", 40, draw)
            with contextlib.suppress(*GONE):
                asked.add(_ask_scan(server, admin))
            time.sleep(when.uniform(0, 4))
            server.end(signal.SIGKILL)
            lost += _whole(folder, dict(answered), f"moment {moment}")
            server.start()
            here = Connection(server.url, admin)
            jobs = json.loads(here.ask("/jobs", limit=500))["jobs"]
            resumed += sum(job["state"] in ("waiting", "running") for job in jobs)
            known = {job["number"] for job in jobs}
            lost += [f"moment {moment}: job {one} is not known" for one in asked - known]
            print(f"moment {moment}: {len(answered)} decisions, lost {lost}", file=sys.stderr)
        asked.add(_ask_scan(server, admin))
        until, jobs = time.monotonic() + 120, []
        while time.monotonic() < until:
            jobs = json.loads(Connection(server.url, admin).ask("/jobs", limit=500))["jobs"]
            if all(job["state"] not in ("waiting", "running") for job in jobs):
                break
            time.sleep(0.5)
        over.set()
        for sender in senders:
            sender.join()
        lost += [f"job {job['number']} is {job['state']}: {job['said']}" for job in jobs
                 if job["state"] != "done"]  # fmt: skip
        files = sum(1 for path in (folder / "data").rglob("*.jpg"))
        last = json.loads((folder / "run" / HISTORY).read_text().splitlines()[-1])
        if last["files"] != files:
            lost.append(f"the last scan has {last['files']} of {files} files")
        server.end(signal.SIGINT)
        lost += _whole(folder, answered, "the end")
        traced = (folder / "log").read_text().count("Traceback")
    return {
        "moments": moments, "reviewers": reviewers, "decisions": len(answered), "jobs": len(jobs),
        "went_on": resumed, "tracebacks": traced, "lost": lost,
    }, not lost and not traced  # fmt: skip


def _ask_scan(server: Server, token: str) -> int:
    here = Connection(server.url, token)
    return int(json.loads(here.ask("/datasets/pets/jobs", {"action": "scan"}))["job"])


def _decide(
    server: Server, token: str, name: str, answered: dict[str, int], over: threading.Event
) -> None:
    """Decide about samples in turn; what is not answered is sent again with its key."""
    number = 0
    while not over.is_set():
        key = f"{name}-{number}"
        body = {"things": [f"train/cat/{number % 100:05}.jpg"], "verdict": "keep", "note": key}
        try:
            sent = Connection(server.url, token).ask("/datasets/pets/decisions", body, key)
            answered[key] = json.loads(sent)["decisions"][0]["id"]
            number += 1
        except GONE:  # the server was killed: once more
            time.sleep(0.05)


def _whole(folder: Path, answered: dict[str, int], when: str) -> list[str]:
    """Say what is not as it was answered."""
    found = []
    notes = Counter(one.note for one in DecisionStore(folder / "run").log())
    found += [f"{when}: {key} was answered and is {notes[key]} times in the ledger"
              for key in answered if notes[key] != 1]  # fmt: skip
    found += [f"{when}: {note} is {n} times in the ledger" for note, n in notes.items() if n > 1]
    for name in ("jobs.sqlite", "people.sqlite", "run/decisions.sqlite"):
        with contextlib.closing(sqlite3.connect(folder / name)) as con:
            said = con.execute("PRAGMA integrity_check").fetchone()[0]
        found += [f"{when}: {name}: {said}"] if said != "ok" else []
    for line in (folder / "run" / HISTORY).read_text().splitlines():
        try:
            json.loads(line)
        except ValueError:
            found.append(f"{when}: a line of the history is cut")
    return found


# ---- load ----


@measures(app)
def load(
    seconds: int = 240, browsers: int = 4, others: int = 16, rows: int = 200_000,
    findings: int = 20_000, run: Path | None = None,
) -> tuple[Document, bool]:  # fmt: skip
    """How long do pages, reads and decisions take, and is any decision lost?"""
    from app_scale import make_run

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if run is None:
            run = folder / "run"
            make_run(run, rows, findings)
            subprocess.run(
                [sys.executable, "-m", "audit", "recheck", str(run)],
                env=ENVIRONMENT,
                capture_output=True,
            )  # so that the next one finds the same
        else:
            run = Path(shutil.copytree(run, folder / "run"))
        people = People(folder)
        names = [f"Reviewer {k}" for k in range(browsers + others)]
        tokens = [people.invite(name, "reviewer") for name in names]
        admin = people.invite("admin", "admin")
        server = serve_run(folder, run)
        times: dict[str, list[float]] = {"page": [], "read": [], "decision": []}
        sent: list[tuple[str, str]] = []
        memory = [0.0]
        until = time.monotonic() + seconds
        acts = [partial(_by_api, server, token, k, until, times, sent, names[browsers + k])
                for k, token in enumerate(tokens[browsers:])]  # fmt: skip
        work = [threading.Thread(target=act) for act in acts]
        for one in work:
            one.start()
        if browsers:
            line = [sys.executable, __file__, "visit", server.url, str(seconds), *tokens[:browsers]]
            work.append(threading.Thread(target=_visiting, args=(line, times, sent)))
            work[-1].start()
        time.sleep(seconds / 6)
        asked = time.monotonic()
        here = Connection(server.url, admin)
        here.ask("/datasets/pets/jobs", {"action": "recheck"})
        published = 0.0
        while any(one.is_alive() for one in work):
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            memory[0] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
            with contextlib.suppress(*GONE):
                if not published and json.loads(here.ask("/jobs"))["jobs"][0]["state"] == "done":
                    published = time.monotonic() - asked
            time.sleep(1)
        for one in work:
            one.join()
        rows_of = {(one.by, one.note or one.subject, one.batch) for one in DecisionStore(run).log()}
        found = Counter((by, what) for by, what, _ in rows_of)  # a finding and its samples: once
        wrong = [pair for pair in sent if found[pair] != 1]
        doubled = [pair for pair, n in found.items() if n > 1]
        strangers = [by for by, _ in found if by not in names]
        server.end(signal.SIGINT)
        traced = (folder / "log").read_text().count("Traceback")
        said = {k: _spread(v) for k, v in times.items()}
        held = all(
            said[kind].get("p95", 0) <= most
            for kind, most in (("page", 1.0), ("read", 0.2), ("decision", 0.5))
        )
        good = not wrong and not doubled and not strangers and not traced
        return {
            "seconds": seconds, "browsers": browsers, "others": others, "rows": rows,
            "load": round(os.getloadavg()[0], 1), "published_after_s": round(published, 1),
            "decisions": len(sent), "in_ledger": sum(found.values()), "lost": len(wrong),
            "doubled": len(doubled), "of_strangers": len(strangers), "tracebacks": traced,
            "peak_mb": round(memory[0]), "s": said, "in_time": held,
        }, good  # fmt: skip


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    p50, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99))
    return {"n": len(values), "p50": round(p50, 3), "p95": round(p95, 3), "p99": round(p99, 3),
            "max": round(max(values), 3)}  # fmt: skip


def _by_api(
    server: Server, token: str, k: int, until: float, times: dict[str, list[float]],
    sent: list[tuple[str, str]], name: str,
) -> None:  # fmt: skip
    """Decide every 5 s about the next finding that is open, in a part of the list of one's own."""
    here, place, number = Connection(server.url, token), "/datasets/pets", 0
    time.sleep(5 * random.random())
    while time.monotonic() < until:
        began = time.perf_counter()
        query = {"status": "open", "code": CODE, "limit": 25 * (k + 1)}
        page = json.loads(here.ask(f"{place}/findings", **query))["findings"]
        times["read"].append(time.perf_counter() - began)
        if page:
            one = page[-1]["fingerprint"]
            began = time.perf_counter()
            here.ask(f"{place}/findings/{one}")
            times["read"].append(time.perf_counter() - began)
            note, began = f"{k}-{number}", time.perf_counter()
            body = {"things": [one], "verdict": "keep", "note": note}
            try:
                here.ask(f"{place}/decisions", body, f"{k}-{number}")
                sent.append((name, note))
            except UsageError as error:  # the finding went with the generation before
                print(f"refused: {error}", file=sys.stderr)
            times["decision"].append(time.perf_counter() - began)
            number += 1
        time.sleep(max(0.0, 5 - (time.perf_counter() - began)))


def _visiting(line: list[str], times: dict[str, list[float]], sent: list[Any]) -> None:
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return
    said = json.loads(done.stdout.splitlines()[-1])
    times["page"] += said["page"]
    print("complaints of the browsers:", said["errors"], file=sys.stderr)


@app.command()
def visit(url: str, seconds: int, tokens: list[str]) -> None:
    """Decide by key in one tab a token, each every 5 s; a part of `load`."""
    from playwright.sync_api import sync_playwright

    from tests.browser.app import FLAGS, Visitor, chromium

    with sync_playwright() as playwright:
        path = chromium(playwright)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        tabs = []
        for k, token in enumerate(tokens):
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            tab = Visitor(context.new_page(), f"{url}/?token={token}", f"Reviewer {k}")
            tab.page.set_default_timeout(60_000)
            tab.page.goto(f"{tab.address}/findings?run=pets&finding={_first(url, token, k)}")
            tab.page.locator(".queue[data-finding]").first.wait_for()
            tabs.append(tab)
        until, page = time.monotonic() + seconds, list[float]()
        while time.monotonic() < until:
            turn = time.monotonic()
            for tab in tabs:
                shown = tab.page.locator(".queue[data-finding]").first
                before = shown.get_attribute("data-finding")
                began = time.perf_counter()
                tab.page.locator("body").press("k")
                tab.page.locator(f'.queue[data-finding]:not([data-finding="{before}"])').wait_for()
                page.append(time.perf_counter() - began)
            time.sleep(max(0.0, 5 - (time.monotonic() - turn)))
        for tab in tabs:
            tab.saved()
        print(json.dumps({"page": page, "errors": [e for tab in tabs for e in tab.errors][:5]}))
        browser.close()


def _first(url: str, token: str, k: int) -> str:
    after = None
    for _ in range(2 + k):  # apart from each other, and from those who come through the API
        page = json.loads(Connection(url, token).ask(LISTED, code=CODE, limit=500, after=after))
        after = page["next"]
    return str(page["findings"][-1]["fingerprint"])


if __name__ == "__main__":
    app()
