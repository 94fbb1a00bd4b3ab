"""Ranks as processes: the user's file read anew, a group between them, errors as sentences."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.checking.rank_processes import (
    ask_ranks,
    grouped,
    has_ranks,
    launches_itself,
    read_anew,
)
from pipeline_profiler.checking.user_calls import UsersError

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

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


def test_ranks_speak_to_each_other() -> None:
    import torch.distributed as dist

    def job(rank: int) -> float:
        number = torch.full((1,), float(rank + 1))
        grouped(lambda: dist.all_reduce(number))
        return float(number)

    assert ask_ranks(job) == [3.0, 3.0]
    assert not dist.is_initialized()


def test_ranks_are_seeded_apart() -> None:
    one, two = ask_ranks(lambda rank: float(torch.rand(1)))
    assert one != two


def test_what_a_rank_raises_is_a_sentence() -> None:
    def job(rank: int) -> int:
        if rank:
            raise ValueError("no such shard")
        time.sleep(60)  # the other one waits for it
        return 0

    with pytest.raises(UsersError, match="Rank 1 of 2 failed with ValueError: no such shard"):
        ask_ranks(job)


def test_ranks_that_wait_for_ever_are_ended() -> None:
    with pytest.raises(UsersError, match="did not end"):
        ask_ranks(lambda rank: time.sleep(60), seconds=0.5)


def test_a_rank_that_dies_is_a_sentence() -> None:
    with pytest.raises(UsersError, match="ended without an answer"):
        ask_ranks(lambda rank: os._exit(3))


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
