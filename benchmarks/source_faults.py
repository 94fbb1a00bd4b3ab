"""Break shards, objects of a store and workers on purpose, and count what is lost.

    python benchmarks/source_faults.py [--only WORD] [--docs F.md]

The dataset is 24 small pictures in four tar shards, a zip, LMDB, Parquet, TFRecord, addresses in a
table of a host that fails as it is told, or objects of a store
(`failing://`, a store in memory that throttles, resets, lies and changes as it is told). Each fault
strikes one scan: what it touches is a finding or a sentence, all else must be there, with its
values. Then the fault is gone, and the same scan runs again: survived means that its tables equal
those of an undisturbed run row for row. A scan that raises anything but a sentence for the user has
not survived. The table says how many of the untouched rows were lost while the fault lasted.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import struct
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import polars as pl
from bench import Document, hall, measures
from faults import Faults, Strike, Struck, conclude, differences, index

from audit.checking.config import Config
from audit.errors import AuditError
from audit.machine.executors import Executor, Processes, Serial
from audit.picture.decode import Limits
from audit.run.generations import open_run
from audit.scanning.scanning import scan
from audit.sources import object_store, open_source, web_answers
from tests.audit.sources.failing_host import BROKEN, FailingHost, serving
from tests.audit.sources.failing_store import Failing
from tests.audit.sources.packed_sets import (
    Files,
    pictures,
    write_lmdb,
    write_parquet,
    write_tar,
    write_tfrecord,
    write_zip,
)

CONFIG = Config(relate={"synthetic_sources": 0}, limits=Limits(max_bytes=1 << 20))
CHECKS = ("FILE", "DUP")
FILES = pictures(24)
PARTS = {
    split: {n: d for n, d in FILES.items() if n.startswith(split)} for split in ("train", "test")
}
Values = dict[str, tuple[object, ...]]
app = hall(__doc__)


@dataclass
class Scene:
    """One dataset at one address, a run of it, and what it is when nothing disturbs it."""

    folder: Path
    source: str
    values: Values = field(default_factory=dict)
    said: str = ""
    executor: Executor = field(default_factory=Serial)
    verify: bool = False

    def scan(self, run: str = "run") -> Values:
        """Scan into a run; return what was measured, by id. A sentence is kept in `said`."""
        try:
            scan(
                open_source([self.source]), self.folder / run, executor=self.executor,
                config=CONFIG, checks=CHECKS, verify=self.verify,
            )  # fmt: skip
        except AuditError as error:
            self.said = str(error)
            return {}
        return read_values(self.folder / run)


Steps = Iterator[set[str] | None]
FAULTS = Faults()
"""Each breaks something, yields the ids that may suffer (None: all of them, with a sentence),
and mends it. Named by the kind of source, a bar, and the words of the table."""


def read_values(run: Path) -> Values:
    """Return what a run knows of every file that was read."""
    with open_run(run) as store:
        rows = store.query("SELECT id, content_hash, phash, label FROM images WHERE status = 'ok'")
    return {row[0]: row[1:] for row in rows.iter_rows()}


def fault(kind: str, words: str, strike: Strike, *given: Any) -> None:
    """Register a fault of one kind of source: tar, zip, parquet, tfrecord or store."""
    FAULTS.add(f"{kind}|{words}", strike, *given)


# ---- shards ----


def damaged(
    scene: Scene, path: str, change: Callable[[bytes], bytes], suffers: Iterable[str] | None
) -> Steps:
    """Change the bytes of a shard, and put them back."""
    place = Path(scene.source) / path
    kept, status = place.read_bytes(), place.stat()
    place.write_bytes(change(kept))
    yield None if suffers is None else set(suffers)
    place.write_bytes(kept)
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(size: Callable[[bytes], int]) -> Callable[[bytes], bytes]:
    """Return a change that keeps the first bytes."""
    return lambda data: data[: size(data)]


def patched(at: Callable[[bytes], int], new: bytes) -> Callable[[bytes], bytes]:
    """Return a change that writes other bytes at one place."""

    def change(data: bytes) -> bytes:
        place = at(data) % len(data)
        return data[:place] + new + data[place + len(new) :]

    return change


def tar_entry(number: int) -> Callable[[bytes], int]:
    """Return where a tar's entry starts."""

    def place(data: bytes) -> int:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            return archive.getmembers()[number].offset

    return place


def added_to_tar(name: str) -> Callable[[bytes], bytes]:
    """Return a change that appends an entry of this name: one more picture."""

    def change(data: bytes) -> bytes:
        whole = io.BytesIO(data)
        with tarfile.open(fileobj=whole, mode="a") as archive:
            entry = tarfile.TarInfo(name)
            entry.size = len(BOMB)
            archive.addfile(entry, io.BytesIO(BOMB))
        return whole.getvalue()

    return change


def added_to_zip(name: str, content: bytes, said: int | None = None) -> Callable[[bytes], bytes]:
    """Return a change that appends a member, which says that it unpacks to `said` bytes."""

    def change(data: bytes) -> bytes:
        whole = io.BytesIO(data)
        with zipfile.ZipFile(whole, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)
        made = whole.getvalue()
        if said is None:
            return made
        return made.replace(struct.pack("<I", len(content)), struct.pack("<I", said))

    return change


def root_to_itself(data: bytes) -> int:
    """Return where the last page, that of four, keeps the number of the first page below it."""
    assert len(data) == 5 * PAGE
    return 4 * PAGE + int.from_bytes(data[4 * PAGE + 16 : 4 * PAGE + 18], "little")


BOMB = bytes(1 << 22)
TRAIN, TEST = (list(PARTS[split]) for split in ("train", "test"))
LENGTH = struct.pack("<I", 0x7FFFFFF0)
TAR, ZIP, PARQUET, RECORDS = "train.tar", "train.zip", "train.parquet", "train.tfrecord"
LMDB, PAGE = "train.lmdb", 4096
IDS = {"train": [f"train/{n}" for n in range(len(TRAIN))]}
for _words, _change, _suffers in (
    ("cut in the middle of a header", cut(lambda d: tar_entry(9)(d) + 100), TRAIN[9:]),
    ("cut in the middle of a picture", cut(lambda d: tar_entry(9)(d) + 540), TRAIN[9:]),
    ("cut before its end blocks", cut(lambda d: tar_entry(17)(d) + 1024), TRAIN[17:]),
    ("a header whose checksum is wrong", patched(tar_entry(4), b"\xff\xff"), [TRAIN[4]]),
    ("an entry of 2 GB more", patched(lambda d: tar_entry(4)(d) + 124, b"77777777777"), TRAIN[4:]),
    ("an entry ../../../x.png of zeros", added_to_tar("../../../x.png"), []),
    ("an entry /etc/x.png of zeros", added_to_tar("/etc/x.png"), []),
    ("empty", cut(lambda d: 0), TRAIN),
):
    fault("tar", f"tar: {_words}", damaged, TAR, _change, _suffers)
for _words, _change, _suffers in (
    ("without its directory", cut(lambda d: d.rindex(b"PK\x01\x02") - 400), TRAIN),
    ("cut in the middle of a picture", cut(lambda d: d.index(TRAIN[9].encode()) + 60), TRAIN[9:]),
    ("an entry ../../x.png of zeros", added_to_zip("../../x.png", BOMB), []),
    ("a bomb: 4 MB of zeros in 4 kB", added_to_zip("train/cat/bomb.png", BOMB), []),
    ("a bomb that says 100 bytes", added_to_zip("train/cat/bomb.png", BOMB, 100), []),
    ("a directory of 2 GB", patched(lambda d: d.rindex(b"PK\x05\x06") + 12, LENGTH), TRAIN),
):
    fault("zip", f"zip: {_words}", damaged, ZIP, _change, _suffers)
for _words, _change in (
    ("a footer of 2 GB", patched(lambda d: len(d) - 8, LENGTH)),
    ("cut in its footer", cut(lambda d: len(d) - 60)),
    ("cut in its first page", cut(lambda d: 300)),
    ("a page header of other lengths", patched(lambda d: 4, b"\x15\xfe\xff\xff\xff\x0f\x15")),
):
    fault("parquet", f"parquet: {_words}", damaged, PARQUET, _change, None)
for _words, _change in (
    ("a record of 2 GB", patched(lambda d: 0, LENGTH)),
    ("cut in the middle of a record", cut(lambda d: len(d) // 2)),
    ("a record whose checksum is wrong", patched(lambda d: 40, b"\xff\xff\xff")),
):
    fault("tfrecord", f"tfrecord: {_words}", damaged, RECORDS, _change, IDS["train"])

for _words, _change, _suffers in (
    ("its first page is zeros, the second counts", patched(lambda d: 0, bytes(PAGE)), []),
    ("both first pages are zeros", patched(lambda d: 0, bytes(2 * PAGE)), TRAIN),
    ("cut before the page that finds the others", cut(lambda d: len(d) - PAGE), TRAIN),
    ("cut in its middle", cut(lambda d: len(d) // 2), TRAIN),
    ("a page of keys is zeros", patched(lambda d: 2 * PAGE, bytes(PAGE)), TRAIN[:14]),
    ("a page that leads to itself", patched(root_to_itself, bytes([4])), TRAIN[:14]),
    ("a value of 2 GB", patched(lambda d: d.index(TRAIN[4].encode()) - 6, b"\xff\x7f"), TRAIN[4:5]),
):
    fault("lmdb", f"lmdb: {_words}", damaged, LMDB, _change, _suffers)


# ---- a store ----


def failing(scene: Scene, failures: Sequence[Any], suffers: Iterable[str], name: str = "") -> Steps:
    """Let requests for one object (or for every one) fail, one after the other."""
    chosen = [name] if name else [path.rpartition("/")[2] for path in FILES]
    Failing.failures = {one: list(failures) for one in chosen}
    yield set(suffers)
    Failing.failures = {}


ONE, TRIES = TRAIN[5].rpartition("/")[2], object_store.TRIES
for _words, _failures, _suffers, _name in (
    ("503 for a while, every object", [OSError("503 Slow Down")] * 3, [], ""),
    ("503 for good, one object", [OSError("503 Slow Down")] * TRIES, [TRAIN[5]], ONE),
    ("resets the connection twice", [ConnectionResetError("reset")] * 2, [], ""),
    ("answers after the time is up", [TimeoutError()] * 2, [], ""),
    ("refuses one object: credentials ended", [PermissionError("expired")], [TRAIN[5]], ONE),
    ("refuses all: credentials ended", [PermissionError("expired")] * 2, FILES, ""),
    ("answers with half of an object", [lambda data: data[: len(data) // 2]], [TRAIN[5]], ONE),
    ("answers with more than it said", [lambda data: data + b"more"], [TRAIN[5]], ONE),
    ("answers with a page of HTML", [b"<html>busy</html>"], [TRAIN[5]], ONE),
    ("an object vanishes after the listing", [FileNotFoundError("gone")], [TRAIN[5]], ONE),
):
    fault("store", f"store: {_words}", failing, _failures, _suffers, _name)
for _words, _failures, _suffers in (
    ("a range answers short twice", [b"x", b"x"], []),
    ("the object changes between two ranges", [lambda data: data[::-1]], TRAIN),
    ("the object vanishes between two ranges", [FileNotFoundError("gone")] * 99, TRAIN),
):
    fault("tars", f"store, tar: {_words}", failing, _failures, _suffers, TAR)


# ---- addresses in a table ----


def host_fails(
    scene: Scene, answers: Sequence[Any], names: Sequence[str], suffers: Iterable[str]
) -> Steps:
    """Let a host answer otherwise, for some pictures."""
    FailingHost.answers = {f"/{name}": list(answers) for name in names}
    yield set(suffers)
    FailingHost.answers = {}


ALL, FIFTH = list(FILES), [IDS["train"][5]]
SHORT = (200, {"Content-Length": "9999"}, b"x" + BROKEN)
INSIDE = (302, {"Location": "http://localhost:9/"}, b"")
for _words, _answers, _names, _suffers in (
    ("503 for a while, every address", [(503, {"Retry-After": "0"}, b"")] * 5, ALL, []),
    ("429 without saying how long", [(429, {"Retry-After": "soon"}, b"")], ALL[:1], []),
    ("500 three times, every address", [(500, {}, b"")] * 3, ALL, []),
    ("500 for good, one address", [(500, {}, b"")] * 9, [TRAIN[5]], FIFTH),
    ("breaks off within the picture", [SHORT] * 3, ALL, []),
    ("says 100 GB", [(200, {"Content-Length": "99999999999"}, b"x" + BROKEN)], [TRAIN[5]], FIFTH),
    ("credentials end in the middle", [(401, {}, b"")], TRAIN[9:], IDS["train"][9:]),
    ("redirects to file://", [(302, {"Location": "file:///etc/passwd"}, b"")], [TRAIN[5]], FIFTH),
    ("redirects to itself", [(302, {"Location": "/" + TRAIN[5]}, b"")] * 99, [TRAIN[5]], FIFTH),
    ("redirects into a private network", [INSIDE], [TRAIN[5]], FIFTH),
    ("429 and a second to wait", [(429, {"Retry-After": "1"}, b"")], ALL[:1], []),
    ("403 in the middle", [(403, {}, b"")], TRAIN[9:], IDS["train"][9:]),
):  # fmt: skip
    fault("urls", f"addresses: {_words}", host_fails, _answers, _names, _suffers)


def host_answers_for_good(scene: Scene, answers: Sequence[Any], names: Sequence[str]) -> Steps:
    """Let a host answer what is no fault of it for all that can be told: asked with --verify."""
    suffers = [IDS["train"][TRAIN.index(name)] for name in names]
    yield from host_fails(scene, answers, names, suffers)
    scene.verify = True


for _words, _answers, _names in (
    ("404 in the middle", [(404, {}, b"")], TRAIN[9:]),
    ("a page of HTML as a picture", [(200, {}, b"<html>busy</html>")], [TRAIN[5]]),
    ("says fewer bytes than come", [(200, {"Content-Length": "40"}, FILES[TRAIN[5]])], [TRAIN[5]]),
):
    _words = f"addresses: {_words} (then --verify)"
    fault("urls", _words, host_answers_for_good, _answers, _names)


# ---- workers ----


class Killing(Processes):
    """Worker processes of which all are killed after the third picture."""

    def run(self, work: Any, chunks: Any) -> Iterator[Any]:
        """Run picture by picture, and kill once."""
        singles = ([job] for chunk in chunks for job in chunk)
        for number, answer in enumerate(super().run(work, singles)):
            if number == 3:
                kill_children()
            yield answer


def kill_children() -> None:
    listed = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True)
    for word in listed.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(word), signal.SIGKILL)


def workers_killed(scene: Scene) -> Steps:
    """Let the workers of a scan be killed; the pictures they held may be said to be the cause."""
    scene.executor = Killing(2, 60.0, 1 << 30)
    yield set()
    scene.executor = Serial()


for _kind in ("tar", "zip", "lmdb", "parquet", "tfrecord"):
    fault(_kind, f"{_kind}: both workers killed", workers_killed)


def swapped(scene: Scene) -> Steps:
    """Let a store answer with another whole picture: only its content tells, so ask for that."""
    yield from failing(scene, [FILES[TEST[0]]], [TRAIN[5]], ONE)
    scene.verify = True


fault("store", "store: answers with another picture (then --verify)", swapped)


# ---- running them ----


def write_addresses(path: Path, files: Files) -> Path:
    rows = {"url": [f"{HOST[0]}/{n}" for n in files], "label": [n.split("/")[1] for n in files]}
    pl.DataFrame(rows).write_parquet(path)
    return path


HOST: list[str] = []
"""The address of the host that fails, while it runs."""


def write_source(kind: str, folder: Path) -> str:
    """Write the dataset in a kind; return its address."""
    if kind == "store":
        filesystem = fsspec.filesystem("failing")
        for name, data in FILES.items():
            filesystem.pipe(f"/set/{name}", data)
        return "failing://set"
    write: Callable[[Path, Files], Path] = {
        "tar": write_tar, "tars": write_tar, "zip": write_zip, "parquet": write_parquet,
        "tfrecord": write_tfrecord, "lmdb": write_lmdb, "urls": write_addresses,
    }[kind]  # fmt: skip
    folder.mkdir()
    suffix = {"tars": "tar", "urls": "parquet"}.get(kind, kind)
    made = [write(folder / f"{split}.{suffix}", files) for split, files in PARTS.items()]
    if kind != "tars":
        return str(folder)
    for path in made:
        fsspec.filesystem("failing").pipe(f"/tars/{path.name}", path.read_bytes())
    return "failing://tars"


def try_fault(name: str, work: Path) -> Struck:
    """Strike once, then scan without the fault; tell what was lost."""
    kind, _, words = name.partition("|")
    Failing.forget()
    scene = Scene(work, write_source(kind, work / "data"))
    scene.values = scene.scan("undisturbed")
    whole = index(work / "undisturbed")
    assert len(scene.values) == len(FILES), f"{kind}: {scene.said} {len(scene.values)}"
    try:
        steps = FAULTS[name](scene)
        suffers = next(steps)
        struck = scene.scan()
        next(steps, None)
        spared = scene.values.keys() - (scene.values.keys() if suffers is None else suffers)
        lost = sum(struck.get(one) != scene.values[one] for one in spared)
        said, scene.said = scene.said, ""
        found = index(work / "run") if scene.scan() else {}
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return words, [0, 0, 0, "no"], False, [f"{type(error).__name__}: {error}"]
    differ, twice = differences(whole, found)
    survived = not differ and not lost
    columns = [len(struck), lost, twice, "yes" if survived else "no"]
    return words, columns, survived, [one for one in (said, *differ) if one]


HEAD = """
## Shards, stores and workers

Written by `python benchmarks/source_faults.py --docs docs/faults.md`: {n} pictures each. Read:
pictures that were read while the fault lasted. Lost: of the rows that it did not touch. Survived:
none lost, and the scan after it equals an undisturbed run row for row.

| fault | read | lost | twice | survived |
|---|---:|---:|---:|---|
"""


@measures(app)
def strike(only: str = "", docs: Path | None = None) -> tuple[Document, bool]:
    """Let every fault strike once; ends with 1 where one was not survived."""
    object_store.FIRST_PAUSE_S = web_answers.FIRST_PAUSE_S = 0.0
    fsspec.register_implementation("failing", Failing, clobber=True)

    def struck() -> Iterator[Struck]:
        for name in (name for name in FAULTS if only in name.partition("|")[2]):
            with serving(FILES) as host, tempfile.TemporaryDirectory(prefix="faults-") as work:
                HOST[:] = [host]
                yield try_fault(name, Path(work))

    return conclude(struck(), docs, HEAD.format(n=len(FILES)))


if __name__ == "__main__":
    app()
