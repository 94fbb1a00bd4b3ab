"""Pictures in a store: read as a folder, tried again where the store fails, never with a key."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import audit
from audit.errors import UsageError
from audit.machine.executors import Serial
from audit.picture.decode import DecodeError, Limits
from audit.picture.measure import FileJob, Measurer
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


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from serve(FILES, monkeypatch)


def test_a_store_is_read_as_the_folder_that_it_looks_like(store: Any, tmp_path: Path) -> None:
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
def test_what_fails_for_a_while_is_read(store: Any, failures: list[Exception]) -> None:
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
def test_what_fails_for_good_is_said(store: Any, failure: Exception, kind: str) -> None:
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


def test_an_object_above_the_limit_is_not_kept(store: Any) -> None:
    first = read(open_source(["failing://set"]))[0]
    with pytest.raises(DecodeError, match="max_bytes") as error:
        content(first, most=20)
    assert error.value.kind == "bomb"


def test_an_object_of_unknown_size_is_asked_for_once(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    store: Any, times: int, kind: str | None
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
    store: Any, address: str, said: str
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
def test_a_scan_of_a_failing_store_finds_what_the_folder_has(store: Any, tmp_path: Path) -> None:
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
    page = tmp_path / "report.html"
    stored.report(page)
    assert io.StringIO(page.read_text()).read(15)


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
    scan(open_source(["failing://set"]), tmp_path / "run", executor=Serial())
    run = audit.open(tmp_path / "run")
    assert "empty" in run.findings.filter(run.findings["code"] == "FILE001")["message"][0]
    assert len(Failing.failures["empty.png"]) == 8
    again = scan(open_source(["failing://set"]), tmp_path / "run", executor=Serial())
    assert (again.measured, again.kept) == (0, len(FILES) + 1)
