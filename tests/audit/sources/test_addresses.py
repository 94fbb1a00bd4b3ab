"""Addresses in a manifest: fetched when they are measured, and never with a key."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import audit
from audit.exports.application import apply_plan
from audit.exports.planning import plan_dataset
from audit.machine.executors import Serial
from audit.picture.decode import DecodeError, Limits
from audit.picture.reading import read_bytes
from audit.scanning.scanning import scan
from audit.sources import object_store, open_source
from tests.audit.sources.failing_store import Failing, serve
from tests.audit.sources.packed_sets import content, pictures
from tests.audit.sources.trees import read

FILES = pictures(4)
PACKAGES = Path(sys.prefix) / "store_packages"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from serve(FILES, monkeypatch)


def manifest(path: Path, addresses: list[str]) -> str:
    rows = [f"{address},{'cat' if i % 2 else 'dog'}" for i, address in enumerate(addresses)]
    path.write_text("\n".join(["url,label", *rows]))
    return str(path)


def failure(address: str) -> tuple[str, str]:
    with pytest.raises(DecodeError) as error:
        read_bytes(address, Limits())
    return error.value.kind, str(error.value)


def test_listed_addresses_are_read_and_their_failures_are_tried_again(tmp_path: Path) -> None:
    listed = manifest(tmp_path / "m.csv", [f"failing://set/{name}" for name in FILES])
    samples = read(open_source([listed]))
    assert [s.uri for s in samples] == [s.id for s in samples]
    assert [content(s) for s in samples] == list(FILES.values())
    names = [name.rpartition("/")[2] for name in FILES]
    Failing.failures = {
        names[0]: [ConnectionResetError("reset")],
        names[1]: [OSError("down")] * object_store.TRIES,
        names[2]: [FileNotFoundError("gone")],
    }
    scan(open_source([listed]), tmp_path / "run", executor=Serial())
    kinds = audit.open(tmp_path / "run").sql("SELECT error_kind FROM images ORDER BY id")
    assert kinds["error_kind"].to_list() == [None, "io", "missing", None]
    again = scan(open_source([listed]), tmp_path / "run", executor=Serial())
    assert (again.measured, again.kept) == (1, 3)
    plan = plan_dataset(tmp_path / "run")
    made = apply_plan(plan, tmp_path / "new")
    assert (made.made, made.n_bytes) == (3, 0)
    assert not [file.target for file in plan.files if ":" in file.target]


def test_findings_on_images_of_unknown_size_have_no_negative_size(
    store: Any, tmp_path: Path
) -> None:
    whole = next(iter(FILES.values()))
    bodies = {
        "a": whole,
        "b": whole,
        "c": whole[:150],
        "d": b"<html></html>",
        "e": whole + b"x" * 9000,
    }
    for name, data in bodies.items():
        store.pipe(f"/bad/{name}.png", data)
    listed = manifest(tmp_path / "m.csv", [f"failing://bad/{name}.png" for name in bodies])
    scan(open_source([listed]), tmp_path / "run", executor=Serial())
    found = audit.open(tmp_path / "run").findings
    texts = dict(zip(found["code"], found["message"], strict=True))
    assert "have the same content" in texts["DUP001"]
    assert {"FILE001", "FILE002", "FILE003"} <= set(texts)
    assert not [text for text in texts.values() if "-1" in text]


def test_no_secret_of_an_address_is_stored(tmp_path: Path) -> None:
    listed = manifest(
        tmp_path / "m.csv",
        ["https://user:s3cret@x.org/a.jpg", "https://x.org/b.jpg?key=s3cret", "s3://b/c#s3cret",
         " https://user:s3cret@x.org/d.jpg", "http://[s3cret@x/e.jpg", "failing://set/f"],
    )  # fmt: skip
    scan(open_source([listed], exclude=["b.jpg*"]), tmp_path / "run", executor=Serial())
    run = audit.open(tmp_path / "run")
    shown = run.sql("SELECT id, error_kind, error FROM images ORDER BY id")
    errors = dict(zip(shown["id"], shown["error"], strict=True))
    assert "contains credentials" in errors["https://***@x.org/a.jpg"]
    assert "has a query" in errors["s3://b/c#***"]
    assert Counter(shown["error_kind"]) == {"unsupported": 4, "missing": 1}
    run.report(tmp_path / "run/report.html")
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"s3cret" not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nostore://set/a.jpg", "are not known"),
        ("zip://a.jpg", "cannot be opened"),
        ("http://[::1/a.jpg", "is not an address"),
        *((f"http://{host}/latest", "link-local") for host in
          ("169.254.169.254", "2852039166", "0xA9FEA9FE", "[fe80::1]", "[::ffff:169.254.1.1]")),
    ],
)  # fmt: skip
def test_an_address_that_may_not_be_read_is_a_sentence(address: str, reason: str) -> None:
    kind, text = failure(address)
    assert kind == "unsupported"
    assert reason in text


@pytest.mark.parametrize("library", ["fsspec", "aiohttp"])
def test_a_missing_library_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    listed = manifest(tmp_path / "m.csv", ["http://127.0.0.1:9/a.jpg"])
    scan(open_source([listed]), tmp_path / "run", executor=Serial())
    (row,) = audit.open(tmp_path / "run").sql("SELECT * FROM images").to_dicts()
    assert row["error_kind"] == "unsupported"
    assert "pip install 'dataset-preflight[remote]'" in row["error"]
    # after the installation, the next scan tries again
    assert scan(open_source([listed]), tmp_path / "run", executor=Serial()).measured == 1


class Host(BaseHTTPRequestHandler):
    """Serves the pictures by number; `/busy` fails twice, `/gone` does not exist."""

    answered: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.answered[self.path] += 1
        code = 404 if self.path == "/gone" else 200
        if self.path == "/busy" and self.answered[self.path] < 3:
            code = 503
        body = next(iter(FILES.values())) if code == 200 else b""
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.mark.slow
@pytest.mark.skipif(not (PACKAGES / "aiohttp").is_dir(), reason="needs `make test`")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_pictures_of_a_host_of_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))
    sys.path.append(sys.path.pop(0))  # behind the packages of the environment
    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    first = next(iter(FILES.values()))
    assert read_bytes(f"{address}/a.png", Limits()) == first
    assert read_bytes(f"{address}/busy", Limits()) == first
    assert Host.answered["/busy"] == 3
    assert failure(f"{address}/gone")[0] == "missing"
    with pytest.raises(DecodeError, match="max_bytes"):
        read_bytes(f"{address}/a.png", Limits(max_bytes=20))
    server.shutdown()
    server.server_close()
    assert failure(f"{address}/a.png")[0] == "io"
