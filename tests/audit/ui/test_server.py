"""`audit app` as it serves: without its link nothing answers, with it everything does."""

from __future__ import annotations

import http.client
import itertools
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from audit.ui.guard import NAMING, NO_LINK, NO_NAME, OTHERS
from audit.ui.server import in_clear, shown_host
from tests.browser.app import wait_for
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
PATIENCE_S = 300.0
NUMBERS = itertools.count()
ROUTES = [
    ("GET", "/"), ("GET", "/findings"), ("GET", "/_stcore/host-config"), ("GET", "/media/x.png"),
    ("PUT", "/_stcore/upload_file/a/b"), ("POST", "/_stcore/upload_file/a/b"),
    ("DELETE", "/_stcore/upload_file/a/b"), ("GET", "/_stcore/metrics"), ("OPTIONS", "/"),
    ("GET", "/component/x/index.html"), ("GET", "/static/js/x.js"), ("POST", "/_stcore/agent"),
]  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A server that answers; `token` is what its link says, `said` its first lines."""

    port: int
    token: str
    said: str
    trusted: str = ""  # a file with the certificate of a server that has one

    def ask(
        self, method: str, path: str, form: dict[str, str] | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask once; returns status, headers (lower case) and body."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        if self.trusted:
            context = ssl.create_default_context(cafile=self.trusted)
            line = http.client.HTTPSConnection("localhost", self.port, context=context)
        given = {k.replace("_", "-"): v for k, v in headers.items()}
        line.request(method, path, urlencode(form) if form else None, given)
        answer = line.getresponse()
        got = {name.lower(): value for name, value in answer.getheaders()}
        body = b"" if answer.status == 101 else answer.read()
        line.close()
        return answer.status, got, body

    def connect(self, **headers: str) -> int:
        """Ask for the websocket; returns the status, 101 where it opens."""
        shake = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
            "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": self.origin,
        }  # fmt: skip
        given = {k: v for k, v in {**shake, **headers}.items() if v}
        return self.ask("GET", "/_stcore/stream", None, **given)[0]

    @property
    def origin(self) -> str:
        """The origin of its own pages."""
        return f"https://localhost:{self.port}" if self.trusted else f"http://127.0.0.1:{self.port}"

    def cookie(self, name: str = "") -> str:
        """Trade the token for the cookie, as a browser sends it, which says a name of its own."""
        _, headers, _ = self.ask("GET", f"/?token={self.token}")
        cookie = headers["set-cookie"].split(";")[0]
        named = self.say(cookie, name or f"Visitor {next(NUMBERS)}")
        assert named[0] == 303
        return cookie

    def say(self, cookie: str, name: str, to: str = "/") -> tuple[int, dict[str, str], bytes]:
        """Say a name."""
        return self.ask("POST", NAMING, {"name": name, "to": to}, Cookie=cookie, Origin=self.origin)


def python(folder: Path, library: Path, *line: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with the packages of a library."""
    return subprocess.run(
        [sys.executable, *line], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(library)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`audit app`, as a person starts it."""
    folder = tmp_path_factory.mktemp("served")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "audit", "app", "--no-browser", "--port", str(port)],
            cwd=folder, stdout=file, stderr=file, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE_S
        while not (found := re.search(r"token=(\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
        yield Served(port, found[1], log.read_text())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert "Traceback" not in log.read_text()
    assert process.returncode in (0, 130)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_the_cookie_nothing_answers(served: Served, method: str, path: str) -> None:
    for cookie in ("", "audit-app=x", f"audit-app-{served.port}=x", f"audit-app-{served.port}="):
        status, headers, body = served.ask(method, path, Cookie=cookie)
        assert (status, body.decode()) == (403, NO_LINK)
        assert "set-cookie" not in headers
    assert served.ask(method, f"{path}?token=wrong")[0] == 403


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_another_site_or_name_is_refused_even_with_the_cookie(
    served: Served, method: str, path: str
) -> None:
    cookie = served.cookie()
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{served.port + 1}", ""):
        assert served.ask(method, path, Cookie=cookie, Origin=origin)[0] == 403
    assert served.ask(method, path, Cookie=cookie, Host="evil.example")[0] == 403
    assert served.ask(method, path, Cookie=cookie, Host=f"evil.example:{served.port}")[0] == 403
    # Streamlit has refusals of its own, such as an upload without a session.
    assert served.ask(method, path, Cookie=cookie, Origin=served.origin)[2].decode() != OTHERS


def test_the_websocket_opens_for_its_own_page_with_the_cookie_only(served: Served) -> None:
    cookie = served.cookie()
    assert served.connect(Cookie=cookie) == 101
    assert served.connect() == 403
    assert served.connect(Cookie=cookie, Origin="http://evil.example") == 403
    assert served.connect(Cookie=cookie, Origin="") == 403
    assert served.connect(Cookie=cookie, Host=f"evil.example:{served.port}") == 403
    assert served.connect(Cookie=f"{cookie}x") == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(served: Served) -> None:
    status, headers, _ = served.ask("GET", f"/findings?code=DUP001&token={served.token}&q=a%20b")
    assert (status, headers["location"]) == (303, "/findings?code=DUP001&q=a+b")
    given = headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(given.split("; "))
    assert served.token not in given
    cookie, place = given.split(";")[0], headers["location"]
    # before a name is said there is one page
    status, headers, body = served.ask("GET", place, Cookie=cookie, Accept="text/html")
    assert (status, b"Who are you?" in body) == (200, True)
    assert b'value="/findings?code=DUP001&amp;q=a+b"' in body
    assert served.ask("GET", "/static/js/x.js", Cookie=cookie)[2].decode() == NO_NAME
    assert served.connect(Cookie=cookie) == 403
    for name, to, lands in (
        ("Ada <b>", "//evil.example/", "/evil.example/"),
        ("Ada", place, place),
    ):
        status, headers, _ = served.say(cookie, name, to)
        assert (status, headers["location"]) == (303, lands)
    assert {"HttpOnly", "SameSite=Strict"} <= set(headers["set-cookie"].split("; "))
    status, headers, body = served.say(served.cookie(), "ADA")
    assert (status, b"The name ADA is taken" in body) == (200, True)
    status, headers, body = served.ask("GET", place, Cookie=cookie)
    assert status == 200
    assert b"Who are you?" not in body
    assert b"<html" in body.lower()
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "///evil.example/a"])
def test_the_link_leads_nowhere_else(served: Served, path: str) -> None:
    place = served.ask("GET", f"{path}?token={served.token}")[1]["location"]
    assert re.match(r"/[^/\\]", place)


def test_a_link_opened_by_another_page_turns_by_a_page(served: Served) -> None:
    """A browser would follow a redirect without the cookie that came with it."""
    asked = served.ask("GET", f"/?token={served.token}&q=%22%3E", Sec_Fetch_Site="cross-site")
    assert asked[0] == 200
    assert asked[2] == b'<meta http-equiv="refresh" content="0;url=/?q=%22%3E">'


def test_neither_process_list_nor_log_holds_the_token_twice(served: Served) -> None:
    assert served.said.count(served.token) == 1
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not any(served.token.encode() in line for line in lines)


def test_plain_streamlit_says_what_audit_app_adds(tmp_path: Path) -> None:
    code = "from audit.ui.guard import mention_the_link as m; m(); m()"
    done = python(tmp_path, ROOT, "-c", code)
    assert done.stderr.count("\n") == 1
    assert "audit app" in done.stderr


def test_a_link_for_other_machines_has_a_name_and_says_that_it_travels_in_clear() -> None:
    assert shown_host("0.0.0.0") == socket.gethostname()
    assert shown_host("::1") == "[::1]"
    assert "in clear" in in_clear("0.0.0.0", 8501)
    assert f"ssh -L 8501:127.0.0.1:8501 {socket.gethostname()}," in in_clear("0.0.0.0", 8501)
    assert in_clear("127.0.0.1", 8501) == ""


def test_a_taken_port_is_one_sentence(served: Served, tmp_path: Path) -> None:
    line = ["-m", "audit", "app", "--no-browser", "--port", str(served.port)]
    done = python(tmp_path, ROOT, *line)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "Choose another --port" in done.stderr
