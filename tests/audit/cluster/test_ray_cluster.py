"""A cluster of two nodes: what it answers is what one machine answers, lost nodes included."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import audit
from audit.cluster import ray_cluster
from audit.cluster.ray_cluster import RayCluster
from audit.errors import MachineError, UsageError
from audit.machine.executors import Failure, Serial
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer
from audit.scanning.scanning import scan
from audit.sources import open_source
from tests.audit.sources.packed_sets import pictures, write_folder

pytestmark = [
    pytest.mark.slow,
    # Ray says of its own release to come that it will leave processors' variables alone
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]


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
    scan(open_source([str(folder)]), tmp_path / "one", executor=Serial())
    audit.scan(folder, tmp_path / "two", executor="ray", parts=shared if parts else None)
    one, two = audit.open(tmp_path / "one"), audit.open(tmp_path / "two")
    for question in (
        "SELECT * EXCLUDE (file_key) FROM features ORDER BY sample_id",
        "SELECT * FROM pairs ORDER BY a, b",
        "SELECT * FROM groups ORDER BY representative, position",
        "SELECT * FROM relate_facts ORDER BY key",
    ):
        assert one.sql(question).equals(two.sql(question))
    assert one.findings["fingerprint"].equals(two.findings["fingerprint"])
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
