"""Scans: incremental, resumable, honest about what changed, and never half-visible."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from audit.checking.check import Check, all_checks
from audit.checking.config import Config
from audit.errors import RunError, UsageError
from audit.machine.executors import Executor, Serial
from audit.machine.stopwatch import Stopwatch
from audit.picture.decode import Limits
from audit.picture.measure import FileJob
from audit.records import Action, Finding
from audit.report import collect_report
from audit.run import run_version
from audit.run.run_version import open_run
from audit.run.store import Store
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.scanning.scanning import ScanRequest
from audit.sources import open_source
from audit.sources.folder import FolderReader
from audit.sources.readings import ReadLog, SampleRows
from tests.audit.conftest import Undisturbed
from tests.audit.run.scanned import (
    CHECKS,
    QUICK,
    Watching,
    assert_index,
    read_index,
    rows_of,
    scan,
    value_of,
)
from tests.conftest import picture
from tests.warm import warm_line

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smaller(undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run after a second scan, which lacks a file; not to be changed."""
    run = tmp_path_factory.mktemp("smaller") / "run"
    shutil.copytree(undisturbed.run, run)
    scan_smaller(undisturbed.tree, run)
    return run


@pytest.fixture
def run(undisturbed: Undisturbed, tmp_path: Path) -> Path:
    """A copy of the undisturbed run."""
    return Path(shutil.copytree(undisturbed.run, tmp_path / "run"))


@pytest.fixture
def twice(smaller: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(smaller, tmp_path / "run"))


def scan_smaller(tree: Path, run: Path) -> None:
    source = open_source([str(tree)], exclude=["train/dog/0.jpg"])
    scanning.scan(source, run, jobs=1, checks=CHECKS, config=QUICK)


def assert_fresh(run: Path, tree: Path) -> None:
    """What the run holds is what a first scan of the dataset finds."""
    scan(tree, run.with_name("fresh"))
    assert_index(run, read_index(run.with_name("fresh")))


def test_every_leak_through_a_class_that_is_a_link_is_reported(tree: Path, tmp_path: Path) -> None:
    shutil.rmtree(tree / "test" / "cat")
    (tree / "test" / "cat").symlink_to("../train/cat")
    scanning.scan(open_source([str(tree)]), tmp_path / "run", jobs=1, checks=["SPLIT001"])
    with open_run(tmp_path / "run") as store:
        leaks = store.query("SELECT evidence::VARCHAR AS text FROM findings")["text"]
    assert len(leaks) == 5


def test_a_scan_measures_every_file_in_one_process_or_several(tree: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = scan(tree, run)
    assert (result.total, result.measured, result.kept, result.unchanged) == (24, 24, 0, False)
    with open_run(run) as store:
        counts = store.query("SELECT count(*) FROM images GROUP BY split, label ORDER BY ALL")
        assert counts.to_series().to_list() == [3, 3, 3, 5, 5, 5]
        assert store.scalar("SELECT count(*) FROM images WHERE status = 'ok'") == 24
    assert not (run / "building").exists()
    assert not list(run.rglob("*.wal"))
    scan(tree, tmp_path / "two", jobs=2)
    assert_index(run, read_index(tmp_path / "two"))


def test_embeddings_are_computed_where_a_check_reads_them_and_kept(
    tree: Path, tmp_path: Path
) -> None:
    run, facts = tmp_path / "run", "SELECT value FROM label_facts WHERE key = 'vectors'"
    scan(tree, run, checks=["FILE"])
    assert value_of(run, facts) == '"no embeddings"'
    scanning.recheck(run, checks=["LABEL006"])
    reason = "SELECT completeness FROM judged.check_runs WHERE code = 'LABEL006'"
    assert "no selected check needs embeddings" in value_of(run, reason)
    clock = Stopwatch()
    later = ScanRequest(open_source([str(tree)]), run, QUICK, checks=["LABEL006"], jobs=1)
    assert later.carry_out(clock=clock).measured == 0
    assert {"list", "measure", "pairs", "vectors", "labels", "checks", "publish"} <= set(clock.laps)
    computed = value_of(run, facts)
    assert computed != '"no embeddings"'
    assert scan(tree, run, checks=["FILE"]).unchanged
    assert value_of(run, facts) == computed


@pytest.mark.parametrize("relate", [{}, {"radius": 9}], ids=["unchanged", "changed"])
def test_an_unchanged_dataset_is_not_read_again_and_its_generation_is_opened_once(
    relate: Mapping[str, int], undisturbed: Undisturbed, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read to its end and attached once each, and once to see that it opens, as CURRENT is."""
    executor, before = Watching(), run_version.require(run)
    touched: list[tuple[str, str]] = []
    for owner, name in (
        (run_version, "read_regular"), (Store, "attach"), (Store, "open"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, watched(getattr(owner, name), name, touched))
    config = Config(match={**QUICK.match, **relate})
    result = scan(undisturbed.tree, run, executor=executor, config=config)
    of_measurements = [n for n, path in touched if "gen-0001/measurements" in path]
    assert of_measurements == ["open", "attach"], "that it opens was seen a moment ago"
    assert len([n for n, path in touched if path.endswith("CURRENT")]) == 1
    assert len([n for n, path in touched if "gen-0001/findings" in path]) <= 2
    assert (executor.read, result.unchanged) == ([], not relate)
    assert (run_version.require(run) == before) == (not relate)
    assert relate == {} or result.kept == 24
    assert read_index(run)["samples"].equals(undisturbed.index["samples"])
    with open_run(run) as store:  # in the order of the walk
        ids = store.query("SELECT id FROM samples ORDER BY rowid")["id"].to_list()
    assert ids == [one for rows in open_source([str(undisturbed.tree)]).rows() for one in rows.id]


def watched(original: Callable[..., Any], name: str, touched: list[tuple[str, str]]) -> Any:
    """The function, which notes the path that it is called with."""

    def call(*arguments: Any, **named: Any) -> Any:
        touched.extend((name, str(one)) for one in arguments if isinstance(one, Path))
        return original(*arguments, **named)

    return call


def test_only_what_changed_is_read(tree: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scan(tree, run)
    edited = tree / "train" / "cat" / "0.jpg"
    stat = edited.stat()
    Image.fromarray(picture(99)).save(edited, quality=88)
    # An edit that keeps size and time stamps still shows in the inode's change time.
    os.utime(edited, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (tree / "train" / "cat" / "1.jpg").unlink()
    Image.fromarray(picture(98)).save(tree / "test" / "dog" / "new.jpg")
    executor = Watching()
    result = scan(tree, run, executor=executor)
    assert sorted(executor.read) == ["test/dog/new.jpg", "train/cat/0.jpg"]
    assert (result.measured, result.kept, result.total) == (2, 22, 24)
    assert_fresh(run, tree)


def test_what_is_known_by_its_content_is_not_measured_again(tree: Path, tmp_path: Path) -> None:
    """Deleted files open none of the others; moved ones keep their rows under any name."""
    run, deleted, moved, other = tmp_path / "run", Watching(), Watching(), Watching()
    scan(tree, run)
    (tree / "train/cat/1.jpg").unlink()
    assert scan(tree, run, executor=deleted).kept == 23
    assert (deleted.read, deleted.shown) == ([], [])
    (tree / "train" / "cat").rename(tree / "train" / "lynx")
    (tree / "test/dog/0.jpg").rename(tree / "test/dog/again.jpeg")
    result = scan(tree, run, executor=moved)
    assert (result.measured, result.kept, result.moved) == (0, 23, 5)
    assert (len(moved.read), moved.measured, moved.shown) == (5, [], [])
    gone, new = tree / "train/lynx/0.jpg", tree / "train/lynx/new.jpg"
    new.write_bytes(one_bit_changed(gone.read_bytes()))
    gone.unlink()
    scan(tree, run, executor=other)
    assert other.measured == ["train/lynx/new.jpg"], "of equal size, not of equal content"
    assert_fresh(run, tree)


def one_bit_changed(data: bytes) -> bytes:
    return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]


def test_verify_finds_edits_that_size_and_times_hide(tree: Path, tmp_path: Path) -> None:
    run, executor = tmp_path / "run", Watching()
    scan(tree, run)
    assert scan(tree, run, verify=True).edited_unseen == []
    edited = tree / "train" / "cat" / "0.jpg"
    edited.write_bytes(one_bit_changed(edited.read_bytes()))
    pretend_unchanged(run, "train/cat/0.jpg", edited)
    assert scan(tree, run).unchanged
    result = scan(tree, run, executor=executor, verify=True)
    assert (result.edited_unseen, result.measured) == (["train/cat/0.jpg"], 1)
    assert executor.measured == ["train/cat/0.jpg"]


def pretend_unchanged(run: Path, sample: str, path: Path) -> None:
    """Let a run hold the times that a file has now: as on a file system that keeps none."""
    status, found = path.stat(), run_version.require(run)
    times = [status.st_mtime_ns, status.st_ctime_ns]
    key = " ".join(map(str, [status.st_size, *times]))
    changed = run / "changed.duckdb"  # a reader may hold the version itself open
    shutil.copy(found.measurements, changed)
    with Store.create(changed) as store:
        store.execute(
            "UPDATE samples SET mtime_ns = ?, ctime_ns = ? WHERE id = ?", [*times, sample]
        )
        store.execute("UPDATE features SET file_key = ? WHERE sample_id = ?", [key, sample])
    changed.replace(found.measurements)


def test_other_limits_measure_again(undisturbed: Undisturbed, run: Path) -> None:
    executor = Watching()
    scan(
        undisturbed.tree,
        run,
        executor=executor,
        config=replace(QUICK, limits=Limits(max_pixels=100)),
    )
    assert len(executor.read) == 24
    assert value_of(run, "SELECT count(*) FROM images WHERE error_kind = 'bomb'") == 24


class Stops(Serial):
    """An executor that is interrupted after some chunks."""

    def __init__(self, after: int) -> None:
        self.after = after

    def run(self, work, chunks):  # type: ignore[no-untyped-def]
        for number, (chunk, result) in enumerate(super().run(work, _singles(chunks))):
            if number == self.after:
                raise KeyboardInterrupt
            yield chunk, result


def _singles(chunks):  # type: ignore[no-untyped-def]
    for chunk in chunks:
        yield from ([job] for job in chunk)


@pytest.mark.parametrize("edited", [0, 1], ids=["unchanged", "edited meanwhile"])
def test_an_interrupted_scan_resumes_and_shows_nothing_meanwhile(
    edited: int, tree: Path, tmp_path: Path
) -> None:
    run, executor = tmp_path / "run", Watching()
    with pytest.raises(KeyboardInterrupt):
        scan(tree, run, executor=Stops(10))
    with pytest.raises(RunError, match="no finished scan"):
        run_version.require(run)
    if edited:
        Image.fromarray(picture(97)).save(tree / "test" / "cat" / "0.jpg")
    result = scan(tree, run, executor=executor)
    assert (result.resumed, result.measured) == (10 - edited, 14 + edited)
    assert len(executor.read) == 14 + edited
    assert ("test/cat/0.jpg" in executor.read) == bool(edited)
    assert_fresh(run, tree)


# A scan that stops for good at one moment: at some progress of a phase, or before the system call
# that publishes. It leaves the marker and then waits to be killed.
STOPPING = """
import os, pathlib, sys, time
from audit.scanning import measuring, scanning
from audit.machine.executors import Serial
from audit.sources import open_source
from tests.audit.run.scanned import CHECKS, QUICK, rows_of, value_of

tree, run, marker, moment, count = sys.argv[1:]

def stop():
    pathlib.Path(marker).write_text(str(os.getpid()))
    time.sleep(600)

def progress(step):
    if step.phase == moment and step.done >= int(count):
        stop()

def stops_at(owner, name, reached):
    original = getattr(owner, name)
    def stopping(*args, **options):
        if reached(*map(str, args)):
            stop()
        return original(*args, **options)
    setattr(owner, name, stopping)

class OneByOne(Serial):
    def run(self, work, chunks):
        yield from super().run(work, ([job] for chunk in chunks for job in chunk))

if moment == "rename":
    stops_at(pathlib.Path, "rename", lambda old, new: old.endswith("building"))
if moment == "point":
    stops_at(os, "replace", lambda old, new: new.endswith("CURRENT"))
if moment == "prune":
    stops_at(pathlib.Path, "unlink", lambda path: "gen-" in path)
measuring.APPEND_ROWS = 1
scanning.scan(
    open_source([tree]), pathlib.Path(run), executor=OneByOne(), progress=progress,
    checks=CHECKS, config=QUICK,
)
"""


def kill_at(moment: str, count: int, tree: Path, run: Path) -> None:
    """Scan in a process of its own, wait until it has come that far, and kill it with signal 9."""
    marker = run.with_name(f"{run.name}.reached")
    marker.unlink(missing_ok=True)
    line = [*warm_line("python"), STOPPING, tree, run, marker, moment, count]
    with subprocess.Popen([str(word) for word in line]) as process:
        while not (marker.exists() and marker.read_text()):
            assert process.poll() is None, f"the scan ended before {moment} {count}"
            time.sleep(0.02)
        os.kill(int(marker.read_text()), signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("moment", "count"), [("list", 1), ("measure", 7), ("relate", 0), ("judge", 5), ("rename", 0)]
)
def test_a_first_scan_killed_at_any_moment_shows_nothing_and_goes_on(
    moment: str, count: int, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    kill_at(moment, count, undisturbed.tree, run)
    with pytest.raises(RunError, match="no finished scan"):
        open_run(run)
    result = scan(undisturbed.tree, run)
    if moment == "measure":
        assert result.resumed == count, "what was stored is not read again"
    assert_index(run, undisturbed.index)
    assert not (run / "building").exists()


@pytest.mark.parametrize(("moment", "count"), [("measure", 24), ("judge", 5), ("point", 0)])
def test_a_second_scan_killed_at_any_moment_leaves_the_first_in_force(
    moment: str, count: int, undisturbed: Undisturbed, smaller: Path, twice: Path
) -> None:
    kill_at(moment, count, undisturbed.tree, twice)
    assert_index(twice, read_index(smaller))
    scan(undisturbed.tree, twice)
    assert_index(twice, undisturbed.index)


def test_a_scan_killed_while_it_removes_old_generations_is_published(
    undisturbed: Undisturbed, twice: Path
) -> None:
    kill_at("prune", 0, undisturbed.tree, twice)
    assert_index(twice, undisturbed.index)
    assert len(list(twice.glob("gen-*"))) == 3
    scan_smaller(undisturbed.tree, twice)
    left = sorted(path.name for path in twice.glob("gen-*"))
    assert left == ["gen-0003", "gen-0004"], "the next scan removes what the killed one left"


def test_readers_keep_their_generation_while_a_scan_publishes(tree: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scan(tree, run)
    with open_run(run) as reader:
        (tree / "train/owl/0.jpg").unlink()
        scan(tree, run)
        assert reader.scalar("SELECT count(*) FROM samples") == 24
    with open_run(run) as reader:
        assert reader.scalar("SELECT count(*) FROM samples") == 23


def test_an_unchanged_dataset_is_judged_again_under_new_thresholds(
    undisturbed: Undisturbed, run: Path
) -> None:
    """By a scan, and by a re-check, which opens no image."""
    bright, dark = (
        replace(QUICK, thresholds={"IMG001": {"max_p99": level}}) for level in (1.0, 0.0)
    )
    assert scan(undisturbed.tree, run, config=bright).unchanged
    for config, some in ((None, True), (dark, False), (bright, True)):
        if config:
            scanning.recheck(run, config=config, checks=CHECKS)
        found = value_of(run, "SELECT count(*) FROM findings WHERE code = 'IMG001'")
        assert bool(found) == some
    generation = run_version.require(run).path
    assert len(list(generation.glob("findings-*.duckdb"))) == 2


def test_checks_limit_what_is_judged_not_what_is_measured(tree: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scan(tree, run, checks=["DUP001"])
    with open_run(run) as store:
        assert store.query("SELECT code FROM check_runs")["code"].to_list() == ["DUP001"]
        assert store.scalar("SELECT count(brightness) FROM images") == 24
    with pytest.raises(UsageError, match="NOPE"):
        scan(tree, run, checks=["NOPE"])


def test_progress_reaches_its_total(tree: Path, tmp_path: Path) -> None:
    steps: list[Progress] = []
    (tree / "train/cat/broken.jpg").write_bytes(b"not an image")
    scan(tree, tmp_path / "run", progress=steps.append)
    measured = [s for s in steps if s.phase == "measure"]
    assert (measured[-1].done, measured[-1].total, measured[-1].errors) == (25, 25, 1)


class Crashing(Serial):
    """An executor in which one file kills its worker."""

    def run(self, work, chunks):  # type: ignore[no-untyped-def]
        from audit.machine.executors import Failure

        for chunk in _singles(chunks):
            bad = isinstance(chunk[0], FileJob) and chunk[0].sample_id.endswith("cat/0.jpg")
            yield chunk, Failure("crashed", "the process died (SIGSEGV)") if bad else work(chunk)


def test_a_file_that_crashes_the_decoder_is_a_row_and_is_tried_again(
    tree: Path, tmp_path: Path
) -> None:
    run, executor = tmp_path / "run", Watching()
    crashing: Executor = Crashing()
    scan(tree, run, executor=crashing)
    rows = rows_of(run, "SELECT id, error FROM images WHERE error_kind = 'crashed' ORDER BY id")
    assert [r["id"] for r in rows] == ["test/cat/0.jpg", "train/cat/0.jpg"]
    assert "SIGSEGV" in rows[0]["error"]
    scan(tree, run, executor=executor)
    assert sorted(executor.read) == ["test/cat/0.jpg", "train/cat/0.jpg"]


def test_a_damaged_pointer_or_store_is_one_sentence(run: Path, tmp_path: Path) -> None:
    generation = run_version.require(run)
    generation.findings.write_bytes(b"garbage" * 100)
    with pytest.raises(RunError, match="is damaged"):
        open_run(run)
    (run / "CURRENT").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        open_run(run)
    with pytest.raises(RunError, match="no run at"):
        open_run(tmp_path / "nothing")


def test_store_appends_by_name_and_rolls_back() -> None:
    with Store.memory() as store:
        store.create_findings()
        with contextlib.suppress(ZeroDivisionError), store.transaction():
            store.append("check_runs", [{"code": "DUP001", "n_findings": 3}])
            raise ZeroDivisionError
        assert store.scalar("SELECT count(*) FROM check_runs") == 0
        store.append("check_runs", pa.table({"n_findings": [3], "code": ["DUP001"]}))
        assert store.rows("SELECT code, n_findings FROM check_runs") == [
            {"code": "DUP001", "n_findings": 3}
        ]


def find_and_raise(check: Check, store: Store, params: object) -> Iterator[Finding]:
    """Find something, then raise."""
    sample = str(store.scalar("SELECT min(id) FROM samples"))
    yield Finding(check.code, check.severity, (sample,), "Half a result.", {}, Action.REVIEW, "x")
    raise ValueError("no such column\nand a second line")


def test_a_check_that_raises_is_a_failure_and_is_tried_again_although_nothing_changed(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, two = tmp_path / "run", ["DIST001", "IMG001"]
    with monkeypatch.context() as patched:
        patched.setattr(type(all_checks()["DIST001"]), "find", find_and_raise)
        scan(tree, run, checks=two)
    (failed,) = rows_of(run, "SELECT * FROM failed_checks")
    assert rows_of(run, "SELECT code FROM check_runs") == [{"code": "IMG001"}]
    assert value_of(run, "SELECT count(*) FROM findings WHERE code = 'DIST001'") == 0
    assert (failed["kind"], failed["code"]) == ("check", "DIST001")
    assert failed["name"] == all_checks()["DIST001"].name
    assert failed["error"] == "ValueError: no such column"
    line = Path(__file__).read_text().splitlines()[int(failed["place"].split(":")[1]) - 1]
    assert failed["place"].startswith("test_scanning.py:")
    assert "raise ValueError" in line
    assert "Traceback" in failed["trace"]
    assert scan(tree, run, checks=two).unchanged
    assert rows_of(run, "SELECT code FROM failed_checks") == []
    assert value_of(run, "SELECT count(*) FROM check_runs WHERE code = 'DIST001'") == 1


def test_a_check_whose_column_was_not_measured_is_skipped_and_says_so(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(type(all_checks()["IMG003"]), "features", ("whash",))
    scan(tree, run, checks=["IMG003"])
    (skipped,) = rows_of(run, "SELECT code, reason FROM skipped_checks")
    assert value_of(run, "SELECT count(*) FROM check_runs WHERE code = 'IMG003'") == 0
    assert skipped["code"] == "IMG003"
    assert "did not measure whash" in skipped["reason"]
    report = collect_report(run)
    assert not report.failed
    assert any("IMG003 blurry-image did not run" in line for line in report.completeness)
    scan(tree, run, config=replace(QUICK, hashes=("whash",)), checks=["IMG003"])
    assert rows_of(run, "FROM skipped_checks") == []


def test_a_reader_that_breaks_is_a_failure_and_the_other_roots_are_read(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [f"one={tree / 'train'}", f"two={tree / 'test'}"]
    whole = FolderReader.rows

    def broken(reader: FolderReader, log: ReadLog) -> Iterator[SampleRows]:
        samples = itertools.chain.from_iterable(rows.samples() for rows in whole(reader, log))
        yield SampleRows.of(list(itertools.islice(samples, 2)))
        raise KeyError("a defect")

    def only_one(reader: FolderReader, log: ReadLog) -> Iterator[SampleRows]:
        return broken(reader, log) if reader.name == "one" else whole(reader, log)

    monkeypatch.setattr(FolderReader, "rows", only_one)
    scanning.scan(open_source(roots), tmp_path / "run", jobs=1, checks=CHECKS)
    with open_run(tmp_path / "run") as store:
        (failed,) = store.rows("SELECT kind, name, error FROM failed_readers")
        counts = dict(store.query("SELECT source, count(*) FROM samples GROUP BY 1").iter_rows())
    assert failed == {"kind": "reader", "name": "one", "error": "KeyError: 'a defect'"}
    assert counts == {"one": 2, "two": 9}
    monkeypatch.setattr(FolderReader, "rows", broken)
    with pytest.raises(KeyError):  # nothing is left to publish
        scanning.scan(open_source(roots), tmp_path / "other", jobs=1)


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes exist on Linux only")
def test_names_of_any_bytes_are_scanned(tree: Path, tmp_path: Path) -> None:
    odd = os.fsencode(tree) + b"/train/caf\xe9"
    os.mkdir(odd)
    data = (tree / "train/cat/0.jpg").read_bytes()
    for name in (b"\xff\xfe.jpg", b"a.j\xffpg", b"new\nline.jpg", b"quote'\".jpg"):
        with open(odd + b"/" + name, "wb") as file:
            file.write(data)
    run = tmp_path / "run"
    scan(tree, run)
    with open_run(run) as store:
        rows = store.query("SELECT id, status FROM images WHERE label LIKE 'caf%' ORDER BY id")
    assert "train/caf%E9/%FF%FE.jpg" in rows["id"]
    assert set(rows["status"]) == {"ok"}
    assert scan(tree, run).unchanged


def test_a_camera_name_with_odd_characters_is_stored(tree: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Ma\0ker\ud800".encode("utf-8", "surrogatepass"), "x\0y"
    Image.fromarray(picture(5)).save(tree / "train/cat/exif.jpg", exif=exif)
    run = tmp_path / "run"
    scan(tree, run)
    assert value_of(run, "SELECT status FROM images WHERE id = 'train/cat/exif.jpg'") == "ok"
