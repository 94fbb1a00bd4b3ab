"""What a rank reads: by parameters, by the environment; digests of samples."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.rank_shards import rank_words, sample_digests, shard_of


def test_a_factory_says_how_it_takes_its_rank() -> None:
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
