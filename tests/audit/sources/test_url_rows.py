"""Tables of addresses: each row is fetched, politely, and its address is in no run."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import polars as pl
import pytest

import audit
from audit.machine.executors import Serial
from audit.picture.decode import DecodeError, Limits
from audit.picture.measure import FileJob, Measurer
from audit.scanning.scanning import scan
from audit.sources import open_source, web_answers
from audit.sources.object_store import AT_ONCE
from audit.sources.paths import reading_place
from audit.sources.readings import ReadingError
from audit.sources.web_answers import shown_address
from tests.audit.sources.failing_host import BROKEN, DRIPPING, DROPS, FailingHost, serving
from tests.audit.sources.packed_sets import content, pictures, write_folder, write_tar
from tests.audit.sources.trees import read

FILES = pictures()
NAMES = list(FILES)
DATA = list(FILES.values())


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(web_answers, "FIRST_PAUSE_S", 0.0)
    with serving(FILES) as address:
        yield address


def table(at: Path, urls: list[str | None], **more: Any) -> str:
    """Write a table of addresses with the labels of `FILES`."""
    labels = [NAMES[i % 12].split("/")[1] for i in range(len(urls))]
    pl.DataFrame({"URL": urls, "TEXT": labels, "label": labels, **more}).write_parquet(
        at, row_group_size=5
    )
    return str(at)


def kinds(source: str) -> list[str]:
    """Return the kind of error of each row, '' for none."""
    found = []
    for sample in read(open_source([source])):
        try:
            content(sample)
            found.append("")
        except DecodeError as error:
            found.append(error.kind)
    return found


def test_each_row_is_the_picture_at_its_address(host: str, tmp_path: Path) -> None:
    urls: list[str | None] = [f"{host}/{name}?size=big#top" for name in NAMES]
    source = open_source([table(tmp_path / "train-0001.parquet", urls, WIDTH=list(range(12)))])
    found = read(source)
    assert [content(s) for s in found] == DATA
    assert [s.id for s in found] == [f"train/{i}" for i in range(12)]
    assert [s.label for s in found] == [name.split("/")[1] for name in NAMES]
    assert source.metadata is not None
    assert source.metadata["WIDTH"].to_list() == list(range(12))
    assert source.metadata["url"].to_list() == [f"{host}/{name}" for name in NAMES]
    assert FailingHost.asked[f"/{NAMES[0]}?size=big"] == 1


@pytest.mark.parametrize(
    ("answers", "kind", "times"),
    [
        ([(503, {"Retry-After": "0"}, b"")] * 6, "", 7),
        ([(429, {"Retry-After": "0"}, b"slow down")], "", 2),
        ([(500, {}, b"")] * 3, "", 4),
        ([(500, {}, b"")] * 4, "io", 4),
        ([(200, {"Content-Length": "900"}, b"part" + BROKEN)], "", 2),
        ([(200, {"Content-Length": "99999999999"}, BROKEN)], "", 2),
        ([(410, {}, b"")], "missing", 1),
        ([(404, {}, b"")], "missing", 1),
        ([(403, {}, b"")], "permission", 1),
        ([(302, {"Location": "file:///etc/passwd"}, b"")], "permission", 1),
        ([(302, {"Location": "http://localhost:1/x.png"}, b"")], "permission", 1),
        ([(302, {"Location": "/" + NAMES[1]}, b"")], "", 1),
        ([(429, {"Retry-After": "86400"}, b"")], "io", 1),
        ([(200, {}, b"")], "empty", 1),
    ],
)
def test_an_answer_is_asked_again_or_is_what_it_says(
    host: str, tmp_path: Path, answers: list[Any], kind: str, times: int
) -> None:
    FailingHost.answers = {f"/{NAMES[0]}": list(answers)}
    assert kinds(table(tmp_path / "a.parquet", [f"{host}/{NAMES[0]}"])) == [kind]
    assert FailingHost.asked[f"/{NAMES[0]}"] == times


def test_a_host_that_throttles_is_waited_for_by_all(host: str, tmp_path: Path) -> None:
    waited: list[float] = []
    path = f"/{NAMES[0]}"
    FailingHost.answers = {path: [(429, {"Retry-After": "0"}, b"")]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web_answers, "_hold", lambda host, wait: waited.append(wait))
        assert kinds(table(tmp_path / "a.parquet", [host + path])) == [""]
    assert waited == [0.0]
    web_answers._hold("127.0.0.1", 2 * web_answers.LONGEST_S)
    try:
        assert kinds(table(tmp_path / "a.parquet", [host + path])) == ["io"]
        assert FailingHost.asked[path] == 2
    finally:
        web_answers._busy_until.clear()


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "/etc/passwd", "ftp://h/x", "memory://x", "", None, "http://",
        "simplecache::file:///etc/passwd", "s3::file:///etc/passwd", "http://[bad", "http://h:x/",
        "http://169.254.169.254/latest", "s3://key:secret@bucket/x.png", "http://\ud7ff\u0000.x/",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_picture_is_not_opened(
    host: str, tmp_path: Path, url: str | None
) -> None:
    source = open_source([table(tmp_path / "a.parquet", [url, f"{host}/{NAMES[0]}"])])
    bad, good = read(source)
    assert content(good) == DATA[0]
    with pytest.raises(DecodeError) as error:
        content(bad)
    assert error.value.kind in ("unsupported", "missing")
    assert "secret" not in str(error.value)


def test_an_answer_above_the_limit_is_not_read(host: str, tmp_path: Path) -> None:
    FailingHost.pictures["/big"] = bytes(50_000)
    FailingHost.answers["/lies"] = [(200, {"Content-Length": "99999999"}, BROKEN)] * 4
    source = open_source([table(tmp_path / "a.parquet", [f"{host}/big", f"{host}/lies"])])
    jobs = [FileJob(s.id, "-1 0 0", reading_place(s.uri)) for s in read(source)]
    measured = Measurer(Limits(max_bytes=20_000))(jobs)
    assert measured.features["error_kind"].to_pylist() == ["bomb", "bomb"]


def test_some_rows_are_asked_for_at_a_time(host: str, tmp_path: Path) -> None:
    FailingHost.lasts_s = 0.1
    urls: list[str | None] = [f"{host}/{NAMES[i % 12]}?{i}" for i in range(60)]
    source = open_source([table(tmp_path / "a.parquet", urls)])
    jobs = [FileJob(s.id, "-1 0 0", reading_place(s.uri)) for s in read(source)]
    measured = Measurer(Limits())(jobs)
    assert set(measured.features["status"].to_pylist()) == {"ok"}
    assert 1 < FailingHost.at_once[1] <= AT_ONCE
    assert set(FailingHost.asked.values()) == {1}


def test_an_address_is_shown_without_its_keys() -> None:
    assert shown_address("https://me:secret@h:8/a/b.png?sig=secret#x") == "https://h:8/a/b.png"
    assert shown_address("http://[bad") == ""


def test_a_table_of_paths_or_of_boxes_is_a_manifest(host: str, tmp_path: Path) -> None:
    urls: list[str | None] = [f"{host}/{name}" for name in NAMES]
    for more in ({"path": NAMES}, {"xmin": [1] * 12, "ymin": [1] * 12, "xmax": [2] * 12,
                                   "ymax": [2] * 12}):  # fmt: skip
        source = open_source([table(tmp_path / "a.parquet", urls, **more)])
        assert source.layout.name == "manifest"
    source = open_source([table(tmp_path / "a.parquet", urls)], layout="manifest")
    assert source.layout.name == "manifest"


def test_a_table_beside_the_shard_that_was_filled_from_it_is_no_pack(
    host: str, tmp_path: Path
) -> None:
    write_tar(tmp_path / "00000.tar", FILES)
    table(tmp_path / "00000.parquet", [f"{host}/{name}" for name in NAMES])
    source = open_source([str(tmp_path)])
    assert [s.id for s in read(source)] == NAMES
    assert not FailingHost.asked


@pytest.mark.slow
def test_a_scan_of_a_table_finds_what_the_folder_has_and_keeps_no_key(
    host: str, tmp_path: Path
) -> None:
    folder = audit.scan(write_folder(tmp_path / "set", FILES), tmp_path / "one", jobs=1)
    key = "Zx9secretKey"
    login = host.replace("//", f"//user:{key}@")
    urls: list[str | None] = [f"{login}/{name}?signature={key}" for name in NAMES]
    source = table(
        tmp_path / "a.parquet",
        [*urls, f"{login}/gone.png?{key}"],
        thumb=[*urls, None],
        split=[name.split("/")[0] for name in NAMES] + ["train"],
    )
    FailingHost.answers = {f"/{NAMES[3]}": [(500, {}, key.encode())] * 4}
    scan(open_source([source]), tmp_path / "two", executor=Serial())
    assert FailingHost.headers_seen[f"/{NAMES[0]}"]["Authorization"].startswith("Basic ")
    run = audit.open(tmp_path / "two")
    broken = run.findings.filter(pl.col("code") == "FILE001")
    assert sorted(broken["ids"].explode()) == ["train/0", "train/9"]
    # what failed for now is asked again, what is gone is not
    FailingHost.asked.clear()
    again = scan(open_source([source]), tmp_path / "two", executor=Serial())
    assert (again.measured, again.kept) == (1, 12)
    assert len(FailingHost.asked) == 1
    run = audit.open(tmp_path / "two")
    broken = run.findings.filter(pl.col("code") == "FILE001")
    assert broken["ids"].explode().to_list() == ["train/9"]
    same = set(folder.findings["code"]) - {"FILE007", "FILE008"}
    assert same <= set(run.findings["code"])
    run.report(tmp_path / "two" / "report.html")
    tables = ("samples", "features", "metadata", "source_notes")
    text = "".join(str(run.sql(f"SELECT * FROM {name}").rows()) for name in tables)
    assert host in text
    assert key not in text
    for path in (tmp_path / "two").rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes(), path


def test_a_host_that_drips_does_not_outlast_the_limit(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_answers, "LONGEST_S", 1.2)
    FailingHost.answers[f"/{NAMES[1]}"] = [(200, {}, DATA[1] + DRIPPING)] * 9
    path = table(tmp_path / "t.parquet", [f"{host}/{name}" for name in NAMES[:3]])
    assert kinds(path) == ["", "io", ""]
    assert 0 < FailingHost.drops[0] < DROPS  # given up in the middle


def test_a_picture_that_was_gone_and_is_there_again_is_read_with_verify(
    host: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "t.parquet", [f"{host}/{name}" for name in NAMES[:3]])
    FailingHost.answers[f"/{NAMES[1]}"] = [(404, {}, b"")]
    states = []
    for verify in (False, False, True, True):
        result = scan(open_source([path]), tmp_path / "run", executor=Serial(), verify=verify)
        rows = audit.open(tmp_path / "run").sql("SELECT status FROM features ORDER BY sample_id")
        states.append((rows["status"].to_list().count("ok"), result.edited_unseen))
    assert [n for n, _ in states] == [2, 2, 3, 3]  # who asks a host that says so, only when told
    assert len(states[2][1] or ()) == 1
    assert states[3][1] == []


@pytest.mark.parametrize(
    ("before", "after", "followed"),
    [
        ("http://127.0.0.1/a.jpg", "http://127.0.0.1/b.jpg", True),
        ("http://127.0.0.1:81/a.jpg", "/b.jpg", True),
        ("http://127.0.0.1/a.jpg", "https://127.0.0.1/a.jpg", True),
        ("http://127.0.0.1:80/a.jpg", "http://127.0.0.1/b.jpg", True),
        ("http://127.0.0.1/a.jpg", "http://127.0.0.1:8500/v1/kv", False),
        ("https://127.0.0.1/a.jpg", "http://127.0.0.1/a.jpg", False),
        ("http://127.0.0.1:81/a.jpg", "http://127.0.0.1/a.jpg", False),
        ("http://127.0.0.1/a.jpg", "http://127.0.0.1:99999/a.jpg", False),
    ],
)
def test_a_redirect_stays_on_its_port(before: str, after: str, followed: bool) -> None:
    asked = urllib.request.Request(before)
    goal = urljoin(before, after)

    def redirect() -> object:
        handler = web_answers._Redirects()
        return handler.redirect_request(asked, io.BytesIO(), 302, "", Message(), goal)

    if followed:
        assert redirect() is not None
    else:
        with pytest.raises(ReadingError, match=r"port|no address"):
            redirect()
