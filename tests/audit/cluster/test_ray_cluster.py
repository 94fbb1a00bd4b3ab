"""A cluster of two nodes: what it answers is what one machine answers, lost nodes included."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import audit
from audit.checking.config import Config
from audit.cluster import ray_cluster
from audit.cluster.measured_parts import (
    FEATURES,
    SIGNATURES,
    PartWriter,
    read_part,
    waiting_parts,
    write_part,
)
from audit.cluster.ray_cluster import RayCluster
from audit.cluster.shared_place import SharedPlace
from audit.errors import MachineError, UsageError
from audit.machine.executors import Failure, Serial
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measured, Measurer
from audit.scanning.options import ScanOptions
from audit.scanning.scanning import ScanResult, scan
from audit.sources import open_source
from tests.audit.sources.packed_sets import pictures, write_folder

pytestmark = [
    pytest.mark.slow,
    # Ray says of its own release to come that it will leave processors' variables alone
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]
CHECKS = ("DUP", "FILE", "SPLIT001")
FACTS = (
    "SELECT * EXCLUDE (file_key) FROM features ORDER BY sample_id",
    "SELECT * FROM pairs ORDER BY a, b",
    "SELECT * FROM groups ORDER BY representative, position",
    "SELECT * FROM relate_facts ORDER BY key",
)


def facts(run: Path) -> list[Any]:
    opened = audit.open(run)
    return [opened.findings["fingerprint"].to_list(), *[opened.sql(q).rows() for q in FACTS]]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    import ray  # half a second, which a process without these tests need not pay
    from ray.cluster_utils import Cluster

    # A lost node is noticed after ten seconds, not after half a minute. Not sooner: a node that
    # other tests kept from a core for so long would count as lost, and Ray ends the driver of a
    # lost node, which is this process, without a word.
    noticed = {"health_check_period_ms": 500, "health_check_failure_threshold": 20}
    cluster = Cluster(True, head_node_args={"num_cpus": 1, "_system_config": noticed})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_no_cluster_is_a_sentence() -> None:  # the first: a process has one cluster
    with pytest.raises(UsageError, match="There is no Ray cluster"):
        RayCluster("127.0.0.1:1")


def slow_squares(items: Sequence[int]) -> list[int]:
    time.sleep(0.3)
    return [item * item for item in items]


def dies_of_three(items: Sequence[int]) -> list[int]:
    for item in items:
        if item == 3:
            os._exit(9)
    return list(items)


def test_each_chunk_is_answered_once_when_a_node_is_lost(nodes: Any) -> None:
    chunks = [[i, i + 1] for i in range(0, 60, 2)]
    answers, lost = [], nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    for chunk, outcome in RayCluster().run(slow_squares, iter(chunks)):
        answers.append((chunk, outcome))
        if len(answers) == 4:
            nodes.remove_node(lost, allow_graceful=False)
    assert sorted(answers) == [(c, [i * i for i in c]) for c in chunks]


def test_an_item_that_kills_its_process_is_found(nodes: Any) -> None:
    answers = list(RayCluster().run(dies_of_three, [[1, 2, 3, 4], [5]]))
    guilty = [(items, o) for items, o in answers if isinstance(o, Failure)]
    assert [(list(items), o.kind) for items, o in guilty] == [([3], "crashed")]
    rest = [i for items, o in answers if not isinstance(o, Failure) for i in items]
    assert sorted(rest) == [1, 2, 4, 5]


@pytest.mark.parametrize("parts", [False, True])
def test_a_scan_equals_that_of_one_machine_row_for_row(
    nodes: Any, parts: bool, tmp_path: Path
) -> None:
    folder, shared = write_folder(tmp_path / "set", pictures(30)), tmp_path / "shared"
    (folder / "train/cat/cut.png").write_bytes(next(iter(pictures().values()))[:100])
    scan(open_source([str(folder)]), tmp_path / "one", executor=Serial(), checks=CHECKS)
    config = Config(executor="ray", parts=str(shared) if parts else None)
    audit.scan(folder, tmp_path / "two", config=config, checks=CHECKS)
    assert facts(tmp_path / "two") == facts(tmp_path / "one")
    assert not parts or list(shared.iterdir()) == []


def test_errors_of_the_work_are_the_callers(nodes: Any) -> None:
    measure = Measurer(Limits())
    with pytest.raises(AttributeError):
        list(RayCluster().run(measure, [[FileJob("a", "k", 7)]]))  # type: ignore[arg-type]


class Silent:
    """What is asked of Ray, where nobody listens at the head's address."""

    @staticmethod
    def get_runtime_context() -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:1")

    @staticmethod
    def cluster_resources() -> dict[str, float]:
        return {"CPU": 2.0}


def test_a_head_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[Any] = []
    monkeypatch.setattr(ray_cluster, "WATCH_S", 0.01)
    monkeypatch.setattr(ray_cluster, "_forget", forgotten.append)
    head = ray_cluster._Head(Silent)
    assert head.wanted == 2 * ray_cluster.AHEAD
    until = time.monotonic() + 300
    while not head.lost and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(MachineError, match=r"127\.0\.0\.1:1 was lost: start the cluster again"):
        head.check()
    assert forgotten == [Silent]


# ---- parts ----


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "set", pictures(12))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The facts of a scan without parts."""
    folder = tmp_path_factory.mktemp("alone")
    source = open_source([str(write_folder(folder / "set", pictures(12)))])
    scan(source, folder / "run", executor=Serial(), checks=CHECKS)
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
    return scan(open_source([str(folder)]), run, executor=executor, parts=place, checks=CHECKS)


def parts_below(place: SharedPlace) -> list[Path]:
    assert place.folder is not None
    return sorted(place.folder.rglob("*.parquet"))


def test_by_way_of_parts_equals_and_leaves_nothing(
    folder: Path, place: SharedPlace, tmp_path: Path, alone: list[Any]
) -> None:
    scanned(folder, tmp_path / "run", place, Serial())
    assert facts(tmp_path / "run") == alone
    assert parts_below(place) == []


@pytest.fixture
def left(folder: Path, place: SharedPlace, tmp_path: Path) -> SharedPlace:
    """The place with the parts of eight files; their head is gone, and its disk with its run."""
    with pytest.raises(KeyboardInterrupt):
        scanned(folder, tmp_path / "lost" / "run", place, Counting(dies_after=8))
    assert len(parts_below(place)) == 8
    return place


def test_what_nodes_measured_outlives_the_head(
    folder: Path, left: SharedPlace, tmp_path: Path, alone: list[Any]
) -> None:
    again = Counting()
    result = scanned(folder, tmp_path / "run", left, again)
    assert (result.total, result.resumed, again.opened) == (12, 8, 4)
    assert facts(tmp_path / "run") == alone
    assert parts_below(left) == []


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
    folder: Path, left: SharedPlace, tmp_path: Path, alone: list[Any]
) -> None:
    rows = [path for path in parts_below(left) if path.name.endswith(FEATURES)]
    kept = [path for path in parts_below(left) if path.name.endswith(SIGNATURES)]
    rows[0].write_bytes(rows[0].read_bytes()[:-9])
    content = bytearray(kept[1].read_bytes())
    content[len(content) // 2] ^= 1
    kept[1].write_bytes(content)
    result = scanned(folder, tmp_path / "run", left, Counting())
    damaged = {rows[0].name.removesuffix(FEATURES), kept[1].name.removesuffix(SIGNATURES)}
    assert result.resumed == 8 - 2 * len(damaged)
    assert facts(tmp_path / "run") == alone


def test_parts_of_files_that_changed_since_are_not_taken(
    folder: Path, left: SharedPlace, tmp_path: Path
) -> None:
    for path in folder.rglob("*.png"):
        path.write_bytes(path.read_bytes())
    result = scanned(folder, tmp_path / "run", left, Counting())
    assert result.resumed == 0
    assert audit.open(tmp_path / "run").sql("SELECT count(*) AS n FROM features")["n"][0] == 12


class Full(SharedPlace):
    """A place whose disk fills up."""

    def write(self, name: str, content: bytes) -> None:
        raise MachineError("/shared, given as scan.parts, took no more: make room there.")

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
        ("{tmp}/shared", "processes", "set executor"),
        ("{tmp}/set/inside", "ray", "is inside the dataset"),
        ("{tmp}/file", "ray", "cannot be written"),
        ("s3://name:secret@bucket/x", "ray", "credentials"),
        ("nothing://x", "ray", "not known"),
    ],
)
def test_a_place_that_cannot_be_used_is_a_sentence(
    folder: Path, tmp_path: Path, parts: str, executor: str, sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("audit.scanning.options._executor", lambda _: Serial())
    (tmp_path / "file").write_text("")
    config = Config(executor=executor, parts=parts.format(tmp=tmp_path))
    with pytest.raises(UsageError, match=sentence):
        ScanOptions(config=config).prepare([str(folder)], tmp_path / "run")
