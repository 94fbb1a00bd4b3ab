"""`audit serve` from a night to a morning: a leak comes in, people are told, decide, and see it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import audit
from audit.decisions.store import DecisionStore
from audit.interface import Run
from audit.service.people import ADMIN, REVIEWER, People
from audit.ui.server import command
from tests.audit.service.test_serve import free_port
from tests.browser.app import PATIENCE_MS, Visitor, wait_for
from tests.conftest import ROOT, picture

pytestmark = pytest.mark.slow
DAY_S = 86_400
# The server, with a clock that is as far ahead as a file says.
CLOCKED = """
import sys, time
from pathlib import Path
from audit.service.jobs import JobQueue
from audit.ui.server import run_server
ahead = Path(sys.argv.pop(1))
JobQueue.__init__.__kwdefaults__["clock"] = lambda: time.time() + float(ahead.read_text())
sys.exit(run_server(sys.argv[1:]))
"""
DATASETS = """
webhook = "{hook}"
[[dataset]]
name = "pets"
run = "runs/pets"
source = "{folder}/pets"
every = "1d"
keep = 3
[[dataset]]
name = "samples"
run = "runs/samples"
people = ["Ann"]
[[dataset]]
name = "far"
pushed = true
"""


@dataclass
class Night:
    """A service in a folder, its people's tokens, and what its webhook was told."""

    folder: Path
    url: str
    tokens: dict[str, str]
    told: list[dict[str, Any]] = field(default_factory=list)

    def pass_days(self, days: float) -> None:
        """Let the clock of the server be so far ahead."""
        (self.folder / "ahead").write_text(str(days * DAY_S))


@contextmanager
def hook(told: list[dict[str, Any]]) -> Iterator[str]:
    """A server that keeps what it is sent; yields its address."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def night(browser: Any, sample_data_run: Path, tmp_path: Path) -> Iterator[Night]:
    """Three datasets, of which `pets` was scanned once and is scanned every day."""
    for split, first in (("train", 0), ("test", 40)):
        for label, more in (("cat", 0), ("dog", 20)):
            (tmp_path / "pets" / split / label).mkdir(parents=True)
            for seed in range(6):
                image = Image.fromarray(picture(first + more + seed))
                image.save(tmp_path / "pets" / split / label / f"{seed}.jpg")
    (tmp_path / "audit.toml").write_text('[expect]\nSPLIT001 = "<= 0"\n')
    audit.scan(tmp_path / "pets", tmp_path / "runs/pets", jobs=1)
    shutil.copytree(sample_data_run, tmp_path / "runs/samples")
    people, port = People(tmp_path), free_port()
    tokens = {n: people.invite(n, role) for n, role in (("Ada", REVIEWER), ("Ann", ADMIN))}
    made = Night(tmp_path, f"http://127.0.0.1:{port}", tokens)
    made.pass_days(0)
    with hook(made.told) as address, (tmp_path / "log").open("w") as log:
        (tmp_path / "datasets.toml").write_text(DATASETS.format(hook=address, folder=tmp_path))
        python, _, _, *settings = command(
            [], port=port, browser=False, service={"folder": str(tmp_path)}
        )
        process = subprocess.Popen(
            [python, "-c", CLOCKED, str(tmp_path / "ahead"), *settings], cwd=tmp_path,
            stdout=log, stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            wait_for(f"{made.url}/_stcore/health", process)
            yield made
        finally:
            process.terminate()
            process.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()


def wait(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.1)


def test_a_leak_of_the_night_is_told_seen_decided_and_remembered(
    browser: Any, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = [browser.new_context(viewport={"width": 1300, "height": 800}) for _ in "ab"]
    ada, ann = (
        Visitor(context.new_page(), f"{night.url}/?token={night.tokens[name]}", name)
        for context, name in zip(contexts, ("Ada", "Ann"), strict=True)
    )

    def line(tab: Visitor, name: str) -> str:
        return str(tab.page.locator(f'.listing tr[data-id="{name}"]').inner_text())

    # the evening: each sees the own datasets, and when the next scan is
    for tab in (ada, ann):
        tab.open()
        tab.says("scan at")
        assert "No scan of it was pushed yet" in tab.page.locator("body").inner_text()
    assert "samples" in ann.texts(".listing tbody tr td:first-child")
    assert "samples" not in ada.texts(".listing tbody tr td:first-child")
    before = line(ada, "pets").split("\t")
    # the night: a test picture comes in that is in train too, and a day goes by
    pets = night.folder / "pets"
    shutil.copy(pets / "train/cat/0.jpg", pets / "test/cat/leak.jpg")
    night.pass_days(1.01)
    wait(lambda: {one["event"] for one in night.told} >= {"new_errors", "expectation_broken"})
    told = {one["event"]: one for one in night.told}
    assert len(night.told) == len(told) == 2
    assert told["new_errors"]["codes"]["SPLIT001"] == 1
    assert "SPLIT001" in str(told["expectation_broken"]["expectations"])
    assert {one["dataset"] for one in night.told} == {"pets"}
    assert "leak" not in json.dumps(night.told)
    # the morning: the pages of both show it by themselves, with what changed
    for tab in (ada, ann):
        tab.says("(+")
        after = line(tab, "pets").split("\t")
        assert (int(before[1]), int(after[1])) == (24, 25)
        tab.page.locator('.listing tr[data-id="pets"] svg[aria-label]').wait_for()
        assert tab.barriers() == []
    # Ada opens the line, then the finding, and decides by key
    ada.page.locator('.listing tr[data-id="pets"]').click()
    ada.page.get_by_role("heading", level=1, name="Overview", exact=True).wait_for()
    ada.open("findings?run=pets&code=SPLIT001")
    ada.page.locator(".queue[data-finding]").first.wait_for()
    ada.page.locator("body").press("f")
    ada.saved()
    # the API's next answer has it, by her name; so has Ann's page
    there = audit.connect(night.url, night.tokens["Ann"]).open("pets")
    assert set(there.found("SPLIT001")["status"]) == {"waived"}
    assert set(there.decisions["by"]) == {"Ada"}
    ann.says("Ada 1")
    run = Run(night.folder / "runs/pets")
    came = run.history.to_dicts()[-1]
    assert (came["files"], came["came"] > 0) == (25, True)
    assert [one.by for one in DecisionStore(run.path).log()] == ["Ada"]
    # from elsewhere: a scan and a profile, which leave nothing but figures
    monkeypatch.setenv("PREFLIGHT_TOKEN", night.tokens["Ada"])
    elsewhere = [sys.executable, "-m", "audit", "scan", str(pets), "--out", str(night.folder / "x")]
    done = subprocess.run(
        [*elsewhere, "--push", f"{night.url}/far"], cwd=night.folder, capture_output=True,
        text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert f"Sent to {night.url}/far:" in done.stderr
    assert "leak.jpg" not in done.stderr
    wait(lambda: "25" in line(ann, "far"))
    for tab, context in zip((ada, ann), contexts, strict=True):
        assert (tab.errors, tab.outside) == ([], [])
        context.close()
