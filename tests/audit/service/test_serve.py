"""`audit serve` as it serves: its people come in, nobody else; and what the page of docs shows."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import audit
from audit.cli.main import app
from audit.decisions.store import DecisionStore
from audit.errors import UsageError
from audit.report.previews import FOLDER as THUMBNAILS
from audit.results.history import HISTORY
from audit.service.api import ROOT as API
from audit.service.client import push_scan
from audit.service.datasets import PROFILES, write_datasets
from audit.service.people import People
from audit.service.routes import ROUTES
from audit.ui.guard import NOT_INVITED, OTHERS
from tests.audit.ui.test_server import PATIENCE_S, Served
from tests.browser.app import wait_for
from tests.conftest import ROOT, picture

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "service.md").read_text()


@dataclass(frozen=True)
class Service:
    """A service that answers; `tokens` by name."""

    folder: Path
    served: Served
    tokens: dict[str, str]

    def cookie(self, name: str) -> str:
        """What the browser of a person sends, who has opened the link."""
        _, headers, _ = self.served.ask("GET", f"/?token={self.tokens[name]}")
        given = headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict"} <= set(given.split("; "))
        return given.split(";")[0]


def command(*words: str) -> str:
    """What a command prints on stdout."""
    done = CliRunner().invoke(app, ["serve", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture(scope="module")
def service(reviewed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`audit serve`, as a person sets it up and starts it."""
    folder = tmp_path_factory.mktemp("service")
    shutil.copytree(reviewed_run, folder / "runs/pets")
    shutil.copytree(reviewed_run, folder / "runs/secret")
    for split, label in itertools.product(("train", "test"), ("cat", "dog")):
        (folder / "data" / split / label).mkdir(parents=True)
        for seed in range(3):
            image = Image.fromarray(picture(seed + 10 * len(split) + 100 * (label == "dog")))
            image.save(folder / "data" / split / label / f"{seed}.jpg")
    assert command("--init", str(folder)).splitlines() == [
        f"{name}: {folder}/runs/{name}" for name in ("pets", "secret")
    ]
    file = folder / "datasets.toml"
    file.write_text(file.read_text() + 'people = ["Ada"]\n')
    port, tokens = free_port(), dict[str, str]()
    for name, role in (("Ada", "reviewer"), ("Vic", "viewer"), ("Ann", "admin")):
        line = command(str(folder), "--invite", name, "--role", role, "--port", str(port))
        found = re.fullmatch(rf"http://127\.0\.0\.1:{port}/\?token=(\S+)\n", line)
        assert found
        tokens[name] = found[1]
    with serving(folder, port) as log:
        yield Service(folder, Served(port, tokens["Ada"], log.read_text()), tokens)
    said = log.read_text()
    assert "for Ada (reviewer), Ann (admin), Vic (viewer)." in said
    assert "Traceback" not in said
    assert not any(token in said for token in tokens.values())


@contextmanager
def serving(folder: Path, port: int, *more: str) -> Iterator[Path]:
    """Serve a folder; yields the file with what is printed."""
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "audit", "serve", str(folder), "--port", str(port), *more],
            cwd=folder, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            if more:
                until = time.monotonic() + PATIENCE_S
                while "Ctrl-C" not in log.read_text() and time.monotonic() < until:
                    time.sleep(0.1)
            else:
                wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
            yield log
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_nobody_comes_in_without_an_invitation(service: Service) -> None:
    ask = service.served.ask
    for path in ("/", "/home", "/_stcore/host-config", "/media/x.png"):
        assert (ask("GET", path)[0], ask("GET", path)[2].decode()) == (403, NOT_INVITED)
    assert service.served.connect() == 403
    cookie = service.cookie("Vic")
    status, _, body = ask("GET", "/", Cookie=cookie, Accept="text/html")
    assert (status, b"Who are you?" in body) == (200, False)  # the link says who it is for
    assert service.served.connect(Cookie=cookie) == 101
    assert service.served.connect(Cookie=cookie, Origin="http://evil.example") == 403


def test_the_api_takes_tokens_and_no_cookies_under_its_own_name(service: Service) -> None:
    ask, path = service.served.ask, f"{API}/datasets"
    good = {"Authorization": f"Bearer {service.tokens['Vic']}"}
    status, headers, body = ask("GET", path, **good)
    assert [one["name"] for one in json.loads(body)["datasets"]] == ["pets"]
    assert (status, headers["cache-control"]) == (200, "no-store")
    assert ask("GET", path, Cookie=service.cookie("Vic"))[0] == 401
    for more in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
        status, _, body = ask("GET", path, **good, **more)
        assert (status, json.loads(body)) == (403, {"error": OTHERS.strip()})
    assert ask("GET", "/api/v2/x", **good)[0] == 404
    assert ask("GET", f"{path}/..%2f..%2fetc/history", **good)[0] == 404


def test_who_is_withdrawn_is_out_at_once(service: Service) -> None:
    people = People(service.folder)
    token = people.invite("Eve", "viewer")
    asked = {"Authorization": f"Bearer {token}"}
    assert service.served.ask("GET", f"{API}/datasets", **asked)[0] == 200
    command(str(service.folder), "--withdraw", "Eve")
    assert service.served.ask("GET", f"{API}/datasets", **asked)[0] == 401
    listed = command(str(service.folder), "--people").splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["Ada", "reviewer"], ["Ann", "admin"], ["Vic", "viewer"],
    ]  # fmt: skip


def test_python_reads_a_run_of_a_service_as_one_of_its_own(
    service: Service, tmp_path: Path
) -> None:
    url = service.served.origin
    there = audit.connect(f"{url}/?token=x", service.tokens["Ada"])
    assert there.datasets["name"].to_list() == ["pets", "secret"]
    far, near = there.open("secret"), audit.open(service.folder / "runs/secret")
    same = ["fingerprint", "code", "severity", "message"]
    found = far.findings.select(same).sort("fingerprint")
    assert found.equals(near.findings.select(same).sort("fingerprint"))
    assert far.found("DUP001", status="open").height == near.found("DUP001").height > 1
    assert far.images["id"].equals(near.images["id"])
    assert far.groups.equals(near.groups.select("group", "id"))
    assert far.history["files"].equals(near.history["files"])
    assert far.sql("SELECT id FROM samples ORDER BY id")["id"].equals(near.images["id"])
    assert far.decisions.is_empty()
    (done,) = far.decide("train/cat/0.jpg", "keep", key="k").to_dicts()
    assert far.decide(["train/cat/0.jpg"], "keep", key="k").to_dicts() == [done]
    assert (far.decisions["by"].to_list(), near.decisions["by"].to_list()) == (["Ada"], ["Ada"])
    assert "DUP001" in str(far.report())
    assert "DUP001" in Path(far.report(tmp_path / "x.json")).read_text()
    for token, run, why in (
        (service.tokens["Vic"], "secret", "no such dataset"), ("x", "pets", "needs a token"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            _ = audit.connect(url, token).open(run).history
    with pytest.raises(UsageError, match="cannot be reached"):
        _ = audit.connect("http://127.0.0.1:1", "x").datasets


def test_behind_a_proxy_its_header_says_who_asks_and_nobody_else_is_answered(
    reviewed_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "datasets.toml").write_text(f'[[dataset]]\nname = "pets"\nrun = "{reviewed_run}"\n')
    cert, key, port = tmp_path / "cert.pem", tmp_path / "key.pem", free_port()
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9"
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*line.split(), *named, "-keyout", key, "-out", cert], check=True, capture_output=True
    )
    url = f"https://localhost:{port}"
    more = ["--tls-cert", str(cert), "--tls-key", str(key), "--url", url]
    invited = command(str(tmp_path), "--invite", "Ada", *more)
    assert invited.startswith(f"{url}/?token=")
    token = invited.strip().partition("token=")[2]
    with serving(tmp_path, port, *more) as log:
        served = Served(port, token, log.read_text(), str(cert))
        given = served.ask("GET", f"/?token={token}")[1]["set-cookie"]
        assert "Secure" in given.split("; ")
        assert served.ask("GET", "/", X_Forwarded_User="Ada")[0] == 403  # no proxy: no header
    with serving(tmp_path, port, *more, "--behind-proxy", "127.0.0.1") as log:
        served = Served(port, token, log.read_text(), str(cert))
        for name, status in (("ada", 200), ("", 403), ("Eve", 403)):
            assert served.ask("GET", "/", X_Forwarded_User=name)[0] == status
            assert served.connect(X_Forwarded_User=name) == (101 if status == 200 else status)
        hidden = {"X_Forwarded_For": "10.1.1.1", "X_Forwarded_User": "Ada"}
        assert served.ask("GET", "/", **hidden)[0] == 200
        assert served.ask("GET", "/", Cookie=given.split(";")[0])[0] == 403  # the header alone
        assert served.ask("GET", "/", X_Forwarded_User="Ada", Host="evil.example")[0] == 403
    with serving(tmp_path, port, *more, "--behind-proxy", "127.0.0.2") as log:
        served = Served(port, token, log.read_text(), str(cert))
        assert served.ask("GET", "/", X_Forwarded_User="Ada")[0] == 403
        assert served.ask("GET", f"{API}/datasets", Authorization=f"Bearer {token}")[0] == 403


def test_what_is_kept_of_a_name_is_forgotten_and_nothing_else(
    reviewed_run: Path, tmp_path: Path
) -> None:
    for name in ("pets", "other"):
        shutil.copytree(reviewed_run, tmp_path / name)
        (tmp_path / name / THUMBNAILS).mkdir(exist_ok=True)
    write_datasets(tmp_path)
    people, kept = People(tmp_path), tmp_path / PROFILES
    token = people.invite("Ada", "reviewer")
    kept.write_text('{"name": "pets", "value": 1}\n{"name": "other", "value": 2}\n')
    said = command(str(tmp_path), "--forget", "pets").splitlines()
    assert said == [
        f"{tmp_path}/pets/{THUMBNAILS}", f"{tmp_path}/pets/{HISTORY}", "1 profiles"
    ]  # fmt: skip
    assert [path.parent.name for path in tmp_path.glob(f"*/{HISTORY}")] == ["other"]
    assert kept.read_text() == '{"name": "other", "value": 2}\n'
    assert (tmp_path / "pets/CURRENT").exists()
    assert people.identify(token)
    assert command(str(tmp_path), "--forget", "Ada") == "1 links and browsers\n"
    assert people.identify(token) is None
    with pytest.raises(UsageError, match="There are no data of Eve"):
        CliRunner().invoke(app, ["serve", str(tmp_path), "--forget", "Eve"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--address", "0.0.0.0"], "would be sent unencrypted"),
        (["--tls-cert", __file__], "need each other"),
        (["--behind-proxy", "proxy.example"], "not an IP address"),
        (["--init", "--people"], "one of --init"),
    ],
)
def test_what_would_not_be_safe_is_refused(tmp_path: Path, words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        CliRunner().invoke(app, ["serve", str(tmp_path), *words], catch_exceptions=False)


def test_a_scan_is_pushed_without_names_of_files_unless_asked(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, url = service.folder / "runs/pets", f"{service.served.origin}/far"
    file = service.folder / "datasets.toml"
    before = file.read_text()
    file.write_text(f'{before}\n[[dataset]]\nname = "far"\npushed = true\n')
    try:
        with pytest.raises(UsageError, match="needs a token"):
            push_scan(run, url)
        monkeypatch.setenv("PREFLIGHT_TOKEN", service.tokens["Ada"])
        audit.scan(service.folder / "data", service.folder / "x", jobs=1)
        data = service.folder / "data"
        shutil.copy(data / "train/cat/0.jpg", data / "test/cat/new.jpg")
        audit.scan(service.folder / "data", service.folder / "x", jobs=1)
        there = audit.connect(service.served.origin, service.tokens["Ada"])
        listed = push_scan(service.folder / "x", url, dry_run=True)
        assert there.open("far").history.is_empty()
        assert push_scan(service.folder / "x", url) == listed
        assert push_scan(service.folder / "x", url) == listed  # once
        sent = there.open("far").history.to_dicts()
        assert [one["files"] for one in sent] == [13]
        assert "SPLIT001" in json.dumps(sent)
        assert ".jpg" not in json.dumps(sent)
        with_paths = push_scan(service.folder / "x", url, with_paths=True)
        assert any(".jpg" in line for line in with_paths)
        with pytest.raises(UsageError, match="scanned here"):
            push_scan(service.folder / "x", f"{service.served.origin}/pets")
    finally:
        file.write_text(before)


def table() -> str:
    """The routes, as the page of docs lists them."""
    rows = []
    for r in ROUTES:
        names = ", ".join(f"`{f.name}`{'' if f.needed else '?'}" for f in r.own)
        rows.append(f"| {r.method} | `{r.path}` | {r.role} | {names} | {r.gives} |\n")
    return "".join(rows)


def test_the_page_lists_every_route() -> None:
    assert table() in PAGE, table()


def test_the_lines_of_curl_work(service: Service, tmp_path: Path) -> None:
    (lines,) = re.findall(r"```bash\n(API=.*?)```", PAGE, re.DOTALL)
    first, *asked = lines.strip().splitlines()
    first = first.replace(":8501", f":{service.served.port}")
    assert len(asked) >= 10
    for line in asked:
        done = subprocess.run(
            ["bash", "-c", f"{first}\n{line.replace('curl -s', 'curl -sf')}"], cwd=tmp_path,
            env={**os.environ, "TOKEN": service.tokens["Ada"]}, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, line
        if " -o " not in line:
            assert json.loads(done.stdout)
    assert (tmp_path / "0.jpg").read_bytes()[:2] == b"\xff\xd8"
    assert "DUP001" in (tmp_path / "report.html").read_text()
    (one,) = DecisionStore(service.folder / "runs/pets").log()
    assert (one.by, one.verb, one.note) == ("Ada", "drop", "a test print")
