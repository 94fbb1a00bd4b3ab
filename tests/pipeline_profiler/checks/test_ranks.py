"""Two ranks: as processes with a group between them, what each reads, writes and averages."""

import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.ranks import (
    ask_ranks,
    grouped,
    has_ranks,
    launches_itself,
    overdue,
    rank_words,
    read_anew,
    redirect_writes,
    sample_digests,
    shard_of,
)
from pipeline_profiler.checks.user_code import UsersError

pytestmark = pytest.mark.slow


SCRIPT = """
import os
RANK = int(os.environ.get("RANK", "0"))

def make_loader():
    print("rank", RANK)
    return RANK
"""


@pytest.fixture
def make_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    (tmp_path / "ranked_script.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("ranked_script").make_loader
    del sys.modules["ranked_script"]


def test_a_rank_that_is_read_at_import_is_its_own(
    make_loader: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    found = ask_ranks(lambda rank: read_anew({"f": make_loader})["f"]())
    assert found == [0, 1]
    assert "RANK" not in os.environ
    assert capfd.readouterr().out == ""  # what a rank prints goes nowhere


def test_ranks_speak_to_each_other_and_are_seeded_apart() -> None:
    import torch.distributed as dist

    def job(rank: int) -> tuple[float, float]:
        number = torch.full((1,), float(rank + 1))
        grouped(lambda: dist.all_reduce(number))
        return float(number), float(torch.rand(1))

    (one, first), (two, second) = ask_ranks(job)
    assert (one, two) == (3.0, 3.0)
    assert first != second
    assert not dist.is_initialized()


def raising(rank: int) -> None:
    if rank:
        raise ValueError("no such shard")
    time.sleep(600)  # the other one waits for it


def working(rank: int) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("job", "seconds", "sentence"),
    [
        (raising, 300.0, "Rank 1 of 2 failed with ValueError: no such shard"),
        (lambda rank: time.sleep(600), 0.5, "one waits for the other"),
        (working, 1.0, r"did not end in \d+ s( of CPU time)?\.$"),
        (lambda rank: os._exit(3), 300.0, "ended without an answer"),
    ],
    ids=["raises", "waits for ever", "works for ever", "dies"],
)
def test_ranks_that_fail_are_a_sentence(job: Any, seconds: float, sentence: str) -> None:
    with pytest.raises(UsersError, match=sentence):
        ask_ranks(job, seconds=seconds)


@pytest.mark.parametrize(
    ("wall", "used", "why"),
    [
        (80.0, [(1.0, 78.0), (0.5, 0.0)], ""),  # other programs have the cores
        (80.0, [(25.0, 50.0), (0.5, 0.0)], ""),
        (91.0, [(1.0, 78.0), (0.5, 0.0)], "did not end in 91 s"),
        (80.0, [(31.0, 45.0), (0.5, 0.0)], "did not end in 30 s of CPU time"),
        (32.0, [(1.0, 0.5), (0.5, 0.0)], "did not end in 32 s: one waits for the other"),
        (29.0, [(0.0, 0.0), (0.0, 0.0)], ""),
    ],
)
def test_ranks_without_a_core_are_not_waiting_for_each_other(
    wall: float, used: list[tuple[float, float]], why: str
) -> None:
    assert overdue(wall, used, 30.0) == why


def test_a_rank_with_an_answer_stays_while_the_other_uses_its_connections(tmp_path: Path) -> None:
    note = tmp_path / "process"

    def job(rank: int) -> str:
        if not rank:
            note.with_suffix(".new").write_text(str(os.getpid()))
            note.with_suffix(".new").rename(note)
            return ""
        while not note.exists():
            time.sleep(0.01)
        stat = Path("/proc", note.read_text(), "stat")
        states = ""
        while not states.endswith(("S" * 50, "Z")):  # asleep after its answer, or ended
            states += stat.read_text().rpartition(")")[2].split()[0]
            time.sleep(0.01)
        return states[-1]

    assert ask_ranks(job, seconds=300.0) == ["", "S"]


def test_what_speaks_of_ranks(make_loader: Callable[..., Any]) -> None:
    def alone() -> int:
        return 3

    def lightning() -> Any:
        import lightning  # type: ignore[import-not-found]

        return lightning

    assert has_ranks([make_loader])
    assert has_ranks([lambda rank=0, world_size=1: 0])
    assert not has_ranks([alone])
    assert launches_itself([lightning])
    assert not launches_itself([make_loader])
    assert rank_words(lambda rank=0, world_size=1: 0) == ("rank", "world_size")
    assert rank_words(lambda shard_index, num_shards: 0) == ("shard_index", "num_shards")
    assert rank_words(lambda rank=0: 0) is None


def test_samples_are_known_by_all_their_arrays() -> None:
    pixels, labels = np.arange(12.0).reshape(3, 4), np.array([1, 1, 2])
    one = sample_digests((pixels, labels))
    assert len(set(one)) == 3
    assert sample_digests((pixels[::-1], labels[::-1])) == one[::-1]
    assert sample_digests((pixels, labels + 1))[0] != one[0]


def test_each_rank_has_its_environment_and_leaves_none() -> None:
    def make() -> Any:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return [np.arange(8)[rank::ranks].reshape(-1, 1)]

    before = os.environ.get("RANK")
    shards = [shard_of(LoaderSubject(make), rank, 2) for rank in range(2)]
    assert not set(shards[0].digests) & set(shards[1].digests)
    assert [len(shard.digests) for shard in shards] == [4, 4]
    assert os.environ.get("RANK") == before


def test_files_stay_as_they_are_and_are_read_back(tmp_path: Path) -> None:
    log, made, weights = tmp_path / "log.csv", tmp_path / "new.txt", tmp_path / "weights.pt"
    log.write_text("step,loss\n")
    (tmp_path / "data.txt").write_text("7")
    paths: list[str] = []
    with redirect_writes(paths):
        assert (tmp_path / "data.txt").read_text() == "7"  # reading is not noted
        with log.open("a") as file:
            file.write("1,2.3\n")
        assert log.read_text() == "step,loss\n1,2.3\n"
        made.write_text("anything")
        torch.save({"a": torch.ones(2)}, weights)
        assert torch.load(weights)["a"].tolist() == [1, 1]
        handler = logging.FileHandler(tmp_path / "run.log")
        handler.emit(logging.makeLogRecord({"msg": "said"}))
        handler.close()
    assert log.read_text() == "step,loss\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.txt", "log.csv"]
    assert {Path(path).name for path in paths} == {"log.csv", "new.txt", "weights.pt", "run.log"}


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from torch import distributed

    from pipeline_profiler.checks.ranks import synchronise_on_cpu

    # What is changed for a process of its own is put back behind this test.
    wrapped, name = torch.nn.parallel.DistributedDataParallel, "_passing_sync_batchnorm_handle"
    monkeypatch.setattr(torch.nn.SyncBatchNorm, "forward", torch.nn.SyncBatchNorm.forward)
    monkeypatch.setattr(wrapped, name, getattr(wrapped, name))
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    synchronise_on_cpu()
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False},
                                     {"track_running_stats": False}], ids=str)  # fmt: skip
def test_values_gradients_and_statistics_are_those_of_torch(
    one_rank: None, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    plain, synced = torch.nn.BatchNorm2d(3, **options), torch.nn.SyncBatchNorm(3, **options)
    batches = [torch.randn(4, 3, 5, 5) * 2 + 1 for _ in range(3)]
    for batch in batches:
        outputs = []
        for norm in (plain, synced):
            given = batch.clone().requires_grad_()
            made = norm(given)
            (made**3).sum().backward()
            outputs.append((made.detach(), given.grad))
        for one, other in zip(*outputs, strict=True):
            assert torch.allclose(one, other, atol=1e-4)
    for name, value in plain.state_dict().items():
        assert torch.allclose(value.float(), synced.state_dict()[name].float(), atol=1e-5), name
    assert torch.allclose(plain.eval()(batches[0]), synced.eval()(batches[0]), atol=1e-5)
