"""Parts on a shared place: nothing measured twice, nothing half, a full disk in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import audit
from audit.cluster.measured_parts import (
    FEATURES,
    SIGNATURES,
    PartWriter,
    read_part,
    waiting_parts,
    write_part,
)
from audit.cluster.shared_place import SharedPlace
from audit.errors import MachineError, UsageError
from audit.machine.executors import Serial
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measured, Measurer
from audit.scanning.options import ScanOptions
from audit.scanning.scanning import ScanResult, scan
from audit.sources import open_source
from tests.audit.sources.packed_sets import pictures, write_folder

pytestmark = pytest.mark.slow

FACTS = (
    "SELECT * EXCLUDE (file_key) FROM features ORDER BY sample_id",
    "SELECT * FROM pairs ORDER BY a, b",
    "SELECT * FROM relate_facts ORDER BY key",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "set", pictures(12))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The facts of a scan without parts."""
    folder = tmp_path_factory.mktemp("alone")
    source = open_source([str(write_folder(folder / "set", pictures(12)))])
    scan(source, folder / "run", executor=Serial())
    return facts(folder / "run")


@pytest.fixture
def place(tmp_path: Path) -> SharedPlace:
    return SharedPlace(str(tmp_path / "shared"))


class Counting(Serial):
    """One process, which counts the files that it opens, two at a time."""

    def __init__(self, dies_after: int | None = None) -> None:
        self.opened, self.dies_after = 0, dies_after

    def run(self, work: Callable[..., Any], chunks: Iterable[Sequence[Any]]) -> Iterator[Any]:
        if not isinstance(work, PartWriter):
            yield from super().run(work, chunks)
            return
        for chunk in chunks:
            for start in range(0, len(chunk), 2):
                if self.opened == self.dies_after:
                    raise KeyboardInterrupt
                answer = work(chunk[start : start + 2])
                self.opened += 2
                yield chunk[start : start + 2], answer


def scanned(folder: Path, run: Path, place: SharedPlace, executor: Serial) -> ScanResult:
    return scan(open_source([str(folder)]), run, executor=executor, parts=place)


def facts(run: Path) -> list[Any]:
    opened = audit.open(run)
    return [opened.findings["fingerprint"].to_list(), *[opened.sql(q).rows() for q in FACTS]]


def parts_below(place: SharedPlace) -> list[Path]:
    assert place.folder is not None
    return sorted(place.folder.rglob("*.parquet"))


def test_by_way_of_parts_equals_and_leaves_nothing(
    folder: Path, place: SharedPlace, tmp_path: Path, alone: list[Any]
) -> None:
    scanned(folder, tmp_path / "run", place, Serial())
    assert facts(tmp_path / "run") == alone
    assert parts_below(place) == []


def test_what_nodes_measured_outlives_the_head(
    folder: Path, place: SharedPlace, tmp_path: Path, alone: list[Any]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        scanned(folder, tmp_path / "lost" / "run", place, Counting(dies_after=8))
    assert len(parts_below(place)) == 8
    # the disk of the head is gone with its run
    again = Counting()
    result = scanned(folder, tmp_path / "new" / "run", place, again)
    assert (result.total, result.resumed, again.opened) == (12, 8, 4)
    assert facts(tmp_path / "new" / "run") == alone
    assert parts_below(place) == []


def test_parts_that_outlived_their_scan_are_removed_by_the_next(
    folder: Path, place: SharedPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(SharedPlace, "remove", lambda *_: None)  # killed after it published
        scanned(folder, tmp_path / "run", place, Serial())
    assert parts_below(place)
    assert scanned(folder, tmp_path / "run", place, Serial()).unchanged
    assert parts_below(place) == []


def test_a_damaged_part_is_measured_again(
    folder: Path, place: SharedPlace, tmp_path: Path, alone: list[Any]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        scanned(folder, tmp_path / "lost" / "run", place, Counting(dies_after=8))
    rows = [path for path in parts_below(place) if path.name.endswith(FEATURES)]
    kept = [path for path in parts_below(place) if path.name.endswith(SIGNATURES)]
    rows[0].write_bytes(rows[0].read_bytes()[:-9])
    content = bytearray(kept[1].read_bytes())
    content[len(content) // 2] ^= 1
    kept[1].write_bytes(content)
    again = Counting()
    result = scanned(folder, tmp_path / "new" / "run", place, again)
    damaged = {rows[0].name.removesuffix(FEATURES), kept[1].name.removesuffix(SIGNATURES)}
    assert result.resumed == 8 - 2 * len(damaged)
    assert facts(tmp_path / "new" / "run") == alone


def test_parts_of_files_that_changed_since_are_not_taken(
    folder: Path, place: SharedPlace, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        scanned(folder, tmp_path / "lost" / "run", place, Counting(dies_after=8))
    for path in folder.rglob("*.png"):
        path.write_bytes(path.read_bytes())
    result = scanned(folder, tmp_path / "new" / "run", place, Counting())
    assert result.resumed == 0
    assert (
        audit.open(tmp_path / "new" / "run").sql("SELECT count(*) AS n FROM features")["n"][0] == 12
    )


class Full(SharedPlace):
    """A place whose disk fills up."""

    def write(self, name: str, content: bytes) -> None:
        raise MachineError("/shared, given as --parts, took no more: make room there.")

    def below(self, name: str) -> SharedPlace:
        return Full(f"{self.address}/{name}")


def test_a_full_place_ends_the_scan_at_once_by_a_sentence(
    folder: Path, place: SharedPlace, tmp_path: Path
) -> None:
    executor = Counting()
    with pytest.raises(MachineError, match="took no more"):
        scanned(folder, tmp_path / "run", Full(place.address), executor)
    assert executor.opened <= 2  # not the whole dataset
    result = scanned(folder, tmp_path / "run", place, Serial())
    assert (result.total, result.resumed) == (12, 0)


def test_a_part_is_its_rows_and_signatures_or_none(place: SharedPlace, tmp_path: Path) -> None:
    jobs = []
    for name, content in pictures(3).items():
        path = tmp_path / Path(name).name
        path.write_bytes(content)
        jobs.append(FileJob(name, "key", str(path)))
    measured = Measurer(Limits())(jobs)
    name = write_part(place, measured)
    assert waiting_parts(place) == [name]
    back = read_part(place, name)
    assert isinstance(back, Measured)
    assert back.features.equals(measured.features)
    assert back.signatures.equals(measured.signatures)
    assert read_part(place, name, ("whash",)) is None  # rows of other columns
    assert read_part(place, "absent") is None


@pytest.mark.parametrize(
    ("parts", "executor", "sentence"),
    [
        ("{tmp}/shared", "processes", "give --executor ray"),
        ("{tmp}/set/inside", "ray", "lies inside"),
        ("{tmp}/file", "ray", "cannot be written"),
        ("s3://name:secret@bucket/x", "ray", "credentials"),
        ("nothing://x", "ray", "not known"),
    ],
)
def test_a_place_that_cannot_be_used_is_a_sentence(
    folder: Path, tmp_path: Path, parts: str, executor: str, sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(ScanOptions, "_executor", lambda *_: Serial())
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=sentence):
        ScanOptions(executor=executor, parts=parts.format(tmp=tmp_path)).prepare(
            [str(folder)], tmp_path / "run"
        )
