"""Images in a store and behind addresses: read as a folder, tried again, never with a key."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import audit
from audit.errors import UsageError
from audit.exports.application import apply_plan
from audit.exports.planning import plan_dataset
from audit.machine.executors import Serial
from audit.picture.decode import DecodeError, Limits
from audit.picture.measure import FileJob, Measurer
from audit.picture.reading import read_bytes
from audit.scanning.scanning import scan
from audit.sources import object_store, open_source
from audit.sources.object_store import SCHEME, object_times
from audit.sources.paths import reading_place
from tests.audit.sources.failing_store import Failing, serve
from tests.audit.sources.packed_sets import (
    as_folder,
    content,
    pictures,
    places_of,
    write_folder,
    write_parquet,
    write_tar,
)
from tests.audit.sources.trees import read

FILES = pictures()
OF_FILES: dict[str, Any] = {"executor": Serial(), "checks": ["FILE"]}


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from serve(FILES, monkeypatch)


def test_a_store_is_read_as_the_folder_that_it_looks_like(tmp_path: Path) -> None:
    stored = read(open_source(["failing://set"]))
    assert places_of(stored) == as_folder(tmp_path, FILES)


def test_packs_in_a_store_are_read_by_ranges(store: Any, tmp_path: Path) -> None:
    store.pipe(
        "/tars/a.tar", write_tar(tmp_path / "a.tar", {**FILES, "train/cat/z.png": b""}).read_bytes()
    )
    store.pipe("/rows/train.parquet", write_parquet(tmp_path / "p.parquet", FILES).read_bytes())
    in_tar = read(open_source(["failing://tars"]))
    assert [content(s) for s in in_tar if s.n_bytes] == list(FILES.values())
    with pytest.raises(DecodeError, match="no bytes"):
        content(next(s for s in in_tar if not s.n_bytes))
    rows = read(open_source(["failing://rows"]))
    assert [content(s) for s in rows] == list(FILES.values())
    assert {s.split for s in rows} == {"train"}


@pytest.mark.parametrize(
    "failures",
    [[ConnectionResetError("reset")], [OSError("503 Slow Down")] * 4, [TimeoutError()]],
    ids=["reset", "throttled", "slow"],
)
def test_what_fails_for_a_while_is_read(failures: list[Exception]) -> None:
    Failing.failures = {"00.png": list(failures)}
    first = next(s for s in read(open_source(["failing://set"])) if s.id.endswith("00.png"))
    assert content(first) == FILES[first.id]
    assert Failing.failures == {"00.png": []}


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (FileNotFoundError("gone"), "missing"),
        (PermissionError("expired"), "permission"),
        (ConnectionResetError("reset"), "io"),
    ],
)
def test_what_fails_for_good_is_said(failure: Exception, kind: str) -> None:
    first = read(open_source(["failing://set"]))[0]
    Failing.failures = {first.id.rpartition("/")[2]: [failure] * object_store.TRIES}
    with pytest.raises(DecodeError) as error:
        content(first)
    assert error.value.kind == kind


def test_a_short_answer_to_a_range_is_asked_again(store: Any, tmp_path: Path) -> None:
    store.pipe("/tars/a.tar", write_tar(tmp_path / "a.tar", FILES).read_bytes())
    first = read(open_source(["failing://tars"]))[0]
    Failing.failures = {"a.tar": [b"short"]}
    assert content(first) == FILES[first.id]
    Failing.failures = {"a.tar": [b"short"] * object_store.TRIES}
    with pytest.raises(DecodeError, match="5 of"):
        content(first)


def test_an_object_above_the_limit_is_not_kept() -> None:
    first = read(open_source(["failing://set"]))[0]
    with pytest.raises(DecodeError, match="max_bytes") as error:
        content(first, most=20)
    assert error.value.kind == "bomb"


def test_an_object_of_unknown_size_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(open_source(["failing://set"]))[0]
    asked: list[str] = []
    sound = Failing.cat_file

    def counted(self: Any, path: str, *more: Any, **named: Any) -> bytes:
        asked.append(path)
        return bytes(sound(self, path, *more, **named))

    monkeypatch.setattr(Failing, "cat_file", counted)
    measured = Measurer(Limits())([FileJob(first.id, "-1 0 0", reading_place(first.uri))])
    assert measured.features["status"].to_pylist() == ["ok"]
    assert len(asked) == 1


@pytest.mark.parametrize(("times", "kind"), [(1, None), (9, "io")])
def test_an_answer_above_the_limit_of_what_was_listed_below_it_is_the_stores_fault(
    times: int, kind: str | None
) -> None:
    first = read(open_source(["failing://set"]))[0]
    name = first.id.rpartition("/")[2]
    Failing.failures = {name: [bytes(50_000)] * times}
    job = FileJob(first.id, f"{len(FILES[first.id])} 0 0", reading_place(first.uri))
    measured = Measurer(Limits(max_bytes=20_000))([job])
    assert measured.features["error_kind"].to_pylist() == [kind]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("failing://user:secret@host/set", "contains credentials"),
        ("failing://set?signature=secret", "has a query"),
        ("failing://nothing", "is empty"),
        ("unknownstore://set", "are not known"),
    ],
)
def test_an_address_that_cannot_be_used_is_a_sentence_without_its_key(
    address: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as error:
        open_source([address])
    assert "secret" not in str(error.value)


def test_an_object_is_known_by_its_tag_else_its_time_else_read_again() -> None:
    tagged = object_times({"size": 5, "ETag": '"a"', "LastModified": "2026-01-02T00:00:00+00:00"})
    assert tagged[:2] == (5, 1767312000000000000)
    assert tagged[2] != object_times({"size": 5, "ETag": '"b"'})[2]
    assert object_times({"size": 5, "created": 3.0}) == (5, 3_000_000_000, -1)
    one, other = object_times({"size": 5}), object_times({"size": 5})
    assert one[2] > 0
    assert one[2] != other[2]


@pytest.mark.slow
def test_a_scan_of_a_failing_store_finds_what_the_folder_has(tmp_path: Path) -> None:
    folder = audit.scan(write_folder(tmp_path / "set", FILES), tmp_path / "one", jobs=1)
    names = [name.rpartition("/")[2] for name in FILES]
    Failing.failures = {name: [ConnectionResetError("reset")] for name in names[::2]}
    Failing.failures[names[1]] = [OSError("down")] * object_store.TRIES
    Failing.failures[names[3]] = [FileNotFoundError("gone since it was listed")]
    # what comes damaged, or of another size than was listed, is asked for once more
    Failing.failures[names[5]] = [lambda data: data[: len(data) // 2]]
    Failing.failures[names[7]] = [lambda data: data + b"more"]
    scan(open_source(["failing://set"]), tmp_path / "two", executor=Serial())
    stored = audit.open(tmp_path / "two")
    broken = stored.findings.filter(stored.findings["code"] == "FILE001")
    assert len(broken) == 2
    unread = "SELECT count(*) FROM images WHERE status = 'unreadable'"
    assert stored.sql(unread).item() == 2
    # what the store failed at is tried again, and all else is kept
    again = scan(open_source(["failing://set"]), tmp_path / "two", executor=Serial())
    assert (again.measured, again.kept) == (2, len(FILES) - 2)
    stored = audit.open(tmp_path / "two")
    assert sorted(stored.findings["fingerprint"]) == sorted(folder.findings["fingerprint"])
    assert all(uri.startswith(SCHEME) for uri in stored.sql("SELECT uri FROM samples")["uri"])
    assert stored.report(tmp_path / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "said", ["The requested range is not satisfiable", "416, message='Range Not Satisfiable'"]
)
def test_an_object_without_bytes_is_empty_and_not_asked_for_again(
    store: Any, tmp_path: Path, said: str
) -> None:
    store.pipe("/set/train/cat/empty.png", b"")
    # a range of nothing is refused by s3, gcs and http servers alike
    Failing.failures = {"empty.png": [OSError(22, said)] * 9}
    scan(open_source(["failing://set"]), tmp_path / "run", **OF_FILES)
    run = audit.open(tmp_path / "run")
    assert "empty" in run.findings.filter(run.findings["code"] == "FILE001")["message"][0]
    assert len(Failing.failures["empty.png"]) == 8
    again = scan(open_source(["failing://set"]), tmp_path / "run", **OF_FILES)
    assert (again.measured, again.kept) == (0, len(FILES) + 1)


FOUR = dict(list(FILES.items())[:4])
PACKAGES = Path(sys.prefix) / "store_packages"


def manifest(path: Path, addresses: list[str]) -> str:
    rows = [f"{address},{'cat' if i % 2 else 'dog'}" for i, address in enumerate(addresses)]
    path.write_text("\n".join(["url,label", *rows]))
    return str(path)


def failure(address: str) -> tuple[str, str]:
    with pytest.raises(DecodeError) as error:
        read_bytes(address, Limits())
    return error.value.kind, str(error.value)


def test_listed_addresses_are_read_and_their_failures_are_tried_again(tmp_path: Path) -> None:
    listed = manifest(tmp_path / "m.csv", [f"failing://set/{name}" for name in FOUR])
    samples = read(open_source([listed]))
    assert [s.uri for s in samples] == [s.id for s in samples]
    assert [content(s) for s in samples] == list(FOUR.values())
    names = [name.rpartition("/")[2] for name in FOUR]
    Failing.failures = {
        names[0]: [ConnectionResetError("reset")],
        names[1]: [OSError("down")] * object_store.TRIES,
        names[2]: [FileNotFoundError("gone")],
    }
    scan(open_source([listed]), tmp_path / "run", **OF_FILES)
    kinds = audit.open(tmp_path / "run").sql("SELECT error_kind FROM images ORDER BY id")
    assert kinds["error_kind"].to_list() == [None, "io", "missing", None]
    again = scan(open_source([listed]), tmp_path / "run", **OF_FILES)
    assert (again.measured, again.kept) == (1, 3)
    plan = plan_dataset(tmp_path / "run")
    made = apply_plan(plan, tmp_path / "new")
    assert (made.made, made.n_bytes) == (3, 0)
    assert not [file.target for file in plan.files if ":" in file.target]


def test_findings_on_images_of_unknown_size_have_no_negative_size(
    store: Any, tmp_path: Path
) -> None:
    whole = next(iter(FILES.values()))
    bodies = (whole, whole, whole[:150], b"<html></html>", whole + b"x" * 9000)
    for name, data in zip("abcde", bodies, strict=True):
        store.pipe(f"/bad/{name}.png", data)
    listed = manifest(tmp_path / "m.csv", [f"failing://bad/{name}.png" for name in "abcde"])
    scan(open_source([listed]), tmp_path / "run", executor=Serial(), checks=["DUP", "FILE"])
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
    scan(open_source([listed], exclude=["b.jpg*"]), tmp_path / "run", **OF_FILES)
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
    scan(open_source([listed]), tmp_path / "run", **OF_FILES)
    (row,) = audit.open(tmp_path / "run").sql("SELECT * FROM images").to_dicts()
    assert row["error_kind"] == "unsupported"
    assert "pip install 'dataset-preflight[remote]'" in row["error"]
    # after the installation, the next scan tries again
    assert scan(open_source([listed]), tmp_path / "run", **OF_FILES).measured == 1


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
