"""Ranks of a loader and of a training, in one process."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.ranks import (
    LAUNCHES_ITSELF,
    as_rank,
    depends_on_rank,
    has_ranks,
    rank_words,
    read_anew,
    sample_digests,
    shard_of,
    source_of,
)

pytestmark = pytest.mark.slow


SCRIPT = """
import os
RANK = int(os.environ.get("RANK", "0"))

def make_loader():
    return RANK
"""


@pytest.fixture
def make_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    (tmp_path / "ranked_script.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("ranked_script").make_loader
    del sys.modules["ranked_script"]


def test_this_process_is_each_rank_in_turn(make_loader: Callable[..., Any]) -> None:
    import torch.distributed as dist

    plain = dist.init_process_group
    for rank in range(2):
        with as_rank(rank):
            assert read_anew({"f": make_loader})["f"]() == rank
            dist.init_process_group("nccl")  # the program's own call waits for no other rank
            assert dist.is_initialized()
    assert "RANK" not in os.environ
    assert not dist.is_initialized()
    assert dist.init_process_group is plain


WRITES = """
import os
rank = int(os.environ["RANK"])
torch.manual_seed(1)
torch.manual_seed(seed + rank)
if rank == 0:
    for name in names:
        save(name)
def helper(path):
    if not is_main_process():
        return
    save(path)
@rank_zero_only
def saver(path):
    save(path)
def plain(path):
    save(path)
if verbose:
    save(path)
if step % 10 == 0 and master_process:
    save(path)
if __name__ == "__main__":
    save(path)
"""


@pytest.mark.parametrize(
    ("line", "depends"), [(4, False), (5, True), (8, True), (12, True), (15, True), (17, False),
                          (19, False), (21, True), (23, False)],
)  # fmt: skip
def test_a_line_depends_on_the_rank_by_itself_or_by_what_holds_it(
    line: int, depends: bool, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(WRITES)
    assert depends_on_rank(f"{tmp_path / 'train.py'}:{line}") is depends


def test_what_speaks_of_ranks(make_loader: Callable[..., Any]) -> None:
    def alone() -> int:
        return 3

    def lightning() -> Any:
        import lightning  # type: ignore[import-not-found]

        return lightning

    assert has_ranks([make_loader])
    assert has_ranks([lambda rank=0, world_size=1: 0])
    assert not has_ranks([alone])
    assert LAUNCHES_ITSELF.search(source_of([lightning]))
    assert not LAUNCHES_ITSELF.search(source_of([make_loader]))
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
