"""The app served as a person starts it, and a page of it in headless Chromium."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from audit.ui.guard import NAMING
from audit.ui.server import command
from tests.conftest import ROOT

PATIENCE_MS = 180_000
REVIEWER, VIEWER = 0, 1  # links, in the order in which they are printed
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
)  # fmt: skip
# Without the selectors of what it finds, which nobody reads. An element that is not there is none.
SERIOUS = """([rules, beside]) => axe.run({include: [["html"]], exclude: beside}, {
    resultTypes: ['violations'], iframes: false, selectors: false,
    ...(rules.length && {runOnly: rules}),
  })
  .then((r) => r.violations.filter((v) => ['critical', 'serious'].includes(v.impact))
  .flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 160)}`)))"""
# At a deep link the server's own script looks for its health below the page's path first.
PROBES = ("/_stcore/health", "/_stcore/host-config")


def chromium(playwright: Any) -> str | None:
    """Where a Chromium is: Playwright's own, else the system's; None without one."""
    own = playwright.chromium.executable_path
    if own and Path(own).exists():
        return str(own)
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def axe_script() -> str:
    """The source of axe-core, as the package for tests carries it."""
    found = importlib.util.find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


def serious(page: Any, rules: Sequence[str] = (), beside: Sequence[str] = ()) -> list[str]:
    """What axe-core calls critical or serious, by all its rules or some: rule and element.

    `beside`: selectors of what is left out.
    """
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(axe_script())
    found = page.evaluate(SERIOUS, [list(rules), [[one] for one in beside]])
    return [str(one) for one in found]


def without_chromium() -> NoReturn:
    """Skip; on a build server that is a failure."""
    reason = "no Chromium: python -m playwright install chromium"
    if os.environ.get("CI"):
        pytest.fail(f"the browser tests must run here, and cannot: {reason}")
    pytest.skip(reason)


@contextmanager
def served(folder: Path, *words: Path) -> Iterator[list[str]]:
    """The links that `audit app` prints, which serves these runs and sessions in `folder`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    line = command([str(w) for w in words], port=port, browser=False)
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with (folder / "app.log").open("w") as file:
        process = subprocess.Popen(
            line, cwd=folder, stdout=file, stderr=file, env={**os.environ, **settings}
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
            yield re.findall(r"http://\S+token=\S+", (folder / "app.log").read_text())
        finally:
            process.terminate()
            process.wait(PATIENCE_MS / 1000)


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers; fails where its process ends before."""
    until = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < until:
        assert process.poll() is None, "the app ended before it answered"
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_MS / 1000):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError("the app did not answer")


@dataclass
class Visitor:
    """A tab of the browser at the app; `errors` is what its console and network complained of."""

    page: Any
    link: str
    name: str = "Ada"
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    address: str = ""
    leaves: bool = False  # whether the question of a page that is left is answered with yes

    def __post_init__(self) -> None:
        # As a person does: the token is traded for the cookie of this browser, which says a name.
        request, self.address = self.page.context.request, self.link.partition("/?")[0]
        request.get(self.link, max_retries=3)  # a kept connection may end
        request.post(f"{self.address}{NAMING}", form={"name": self.name, "to": "/none"})
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        if self.leaves and dialog.type == "beforeunload":
            dialog.accept()
        else:
            self.errors.append(f"dialog: {dialog.message}")
            dialog.dismiss()

    def _console(self, message: Any) -> None:
        where = message.location.get("url", "")
        if message.type == "error" and not where.endswith(PROBES):
            self.errors.append(f"{message.text} ({where})")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(
            (self.address, "data:", "blob:", self.address.replace("http", "ws"))
        ):
            self.outside.append(request.url)

    def open(self, link: str = "") -> None:
        """Open a link and wait until the page is drawn."""
        self.page.goto(f"{self.address}/{link}")
        self.page.get_by_role("heading", level=1).first.wait_for()
        self.rest()

    def barriers(self, rules: Sequence[str] = (), beside: Sequence[str] = ()) -> list[str]:
        """What axe-core calls critical or serious on this page: rule and element.

        Asked again where something is found: charts are drawn, and colours turn, after the page.
        """
        for _ in range(8):
            if not (found := serious(self.page, rules, beside)):
                break
            self.page.wait_for_timeout(300)
        return found

    def turn_to(self, title: str) -> None:
        """Open a page through the navigation."""
        self.page.get_by_test_id("stSidebarNav").get_by_role("link", name=title, exact=True).click()
        self.page.get_by_role("heading", level=1, name=title, exact=True).wait_for()
        self.rest()

    def rest(self) -> None:
        """Wait until the script has ended."""
        self.page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()

    def press(self, key: str, said: str) -> None:
        """Press a key and wait for what the page says then.

        On a crowded machine a page may be drawn before it listens: pressed once more at rest.
        """
        self._press_until(key, self.page.get_by_text(said).first)
        self.says(said)

    def press_for(self, key: str, selector: str) -> None:
        """The same, where what comes is an element."""
        self._press_until(key, self.page.locator(selector).first)

    def _press_until(self, key: str, shown: Any) -> None:
        self.page.locator("body").press(key)
        if not self._is_seen(shown, PATIENCE_MS / 3):
            self.rest()
            if not self._is_seen(shown, 0):
                self.page.locator("body").press(key)
        shown.wait_for()

    def saved(self) -> None:
        """Wait until the ledger has all that this tab has queued, and the page shows it."""
        self.page.wait_for_function(
            "() => !Object.keys(sessionStorage)"
            ".some((name) => name.startsWith('dataset-preflight'))"
        )
        self.rest()

    def choose(self, label: str, option: str) -> None:
        """Choose from a list; one opened while its box unfolds closes again, and is reopened."""
        listed = self.page.get_by_role("option", name=option, exact=True)
        until, within_ms = time.monotonic() + PATIENCE_MS / 1000, 500
        while not listed.is_visible():
            assert time.monotonic() < until, f"{label} does not offer {option}"
            self.page.get_by_label(label, exact=True).click()
            self._is_seen(listed, within_ms)
            within_ms *= 2  # on a slow machine the next click would close what is just opening
        listed.click()

    def next_in_strip(self, before: Sequence[str]) -> str:
        """Wait until the strip shows a finding that was not shown before; return which."""
        gone = "".join(f':not([data-finding="{name}"])' for name in ("", *before))
        self.page.locator(f".queue{gone}").wait_for()
        return str(self.page.locator(".queue[data-finding]").first.get_attribute("data-finding"))

    def next_label(self) -> None:
        """Wait until there is a label in front that is not being saved."""
        there = "preflightQueue.fronts.labels.root.dataset.labels"
        saving = f"preflightQueue.pending.some((entry) => entry.samples.includes({there}))"
        self.waits_for(f"{there} && !{saving}")

    def waits_for(self, condition: str) -> None:
        """Wait for what JavaScript says."""
        self.page.wait_for_function(f"() => {condition}")

    def says(self, words: str) -> None:
        """Wait until the words are on the page; the page is told where they never are."""
        seen = self._is_seen(self.page.get_by_text(words).first, PATIENCE_MS)
        shown = "" if seen else self.page.locator("body").inner_text()
        assert seen, f"{words!r} is not on the page:\n{shown}"
        self.rest()

    def _is_seen(self, element: Any, within_ms: float) -> bool:
        """Whether an element is visible before the time is over."""
        until = time.monotonic() + within_ms / 1000
        while not (seen := element.is_visible()):
            if time.monotonic() > until:
                break
            self.page.wait_for_timeout(50)
        return bool(seen)

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that fit, now."""
        return [str(t).strip() for t in self.page.locator(selector).all_inner_texts()]
