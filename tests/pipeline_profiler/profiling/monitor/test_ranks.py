"""Ranks: made sessions in which the late one is known, and two real processes with gloo."""

from pathlib import Path

import pytest

from pipeline_profiler.cli import main
from pipeline_profiler.profiling.monitor.ranks import join_lines, join_ranks
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Run, Session
from tests.conftest import ROOT
from tests.pipeline_profiler.fakes import MS
from tests.pipeline_profiler.profiling.monitor.scripts import HEAD, watch, write_script

STEPS = 40

RANKS = """
import torch.distributed as dist

def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in DataLoader(Items(40, 0.06 if rank else 0.0), 2):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()

main()
"""


def rank_session(rank: int, wait_ms: float, own_ms: float, step_ms: float) -> Session:
    """Steps of equal length, in which a rank waits, works, and is in its backward till the end."""
    run = Run(Arm.WARM, totals={"rank": rank})
    for i in range(STEPS):
        start, wait, own = round(i * step_ms * MS), round(wait_ms * MS), round(own_ms * MS)
        rest = round(step_ms * MS) - wait - own
        run.spans.add("wait", i, -1, start, wait)
        run.spans.add("step:backward", i, -1, start + wait + own, rest)
        run.spans.add("loop", i, -1, start + wait, own + rest)
    return Session([run])


def test_the_rank_whose_loader_is_late_is_told_from_those_that_wait_for_it() -> None:
    joined = join_ranks([rank_session(0, 1, 5, 50), rank_session(1, 31, 5, 50)])
    assert joined.straggler == 1
    assert joined.late.value == pytest.approx(30 / 50)
    assert joined.by_loader == 1.0
    assert [row.wait_ms for row in joined.rows] == [1, 31]
    assert [row.collective_ms for row in joined.rows] == [30, 0]
    assert [row.last for row in joined.rows] == [0, 1]


def test_a_rank_that_computes_longer_is_not_blamed_on_its_loader() -> None:
    joined = join_ranks([rank_session(0, 2, 25, 40), rank_session(1, 2, 5, 40)])
    assert joined.straggler == 0
    assert joined.by_loader == 0.0
    assert "its own work" in join_lines([rank_session(0, 2, 25, 40), rank_session(1, 2, 5, 40)])[-1]


def test_equal_ranks_have_no_straggler() -> None:
    lines = join_lines([rank_session(0, 5, 5, 40), rank_session(1, 5, 5, 40)])
    assert lines[-1].startswith("No rank holds the others up")


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ProfileError, match="same rank"):
        join_ranks([rank_session(0, 1, 1, 9), rank_session(0, 1, 1, 9)])
    with pytest.raises(ProfileError, match="no rank's"):
        join_ranks([rank_session(0, 1, 1, 9), Session()])


@pytest.mark.slow
def test_two_real_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_script(tmp_path, RANKS, HEAD)
    words = ("--", "torchrun", "--nproc-per-node", "2", "--standalone", path)
    ended = watch(tmp_path, *words, paths=str(ROOT))  # DistributedDataParallel asks the compiler
    assert ended.returncode == 0, ended.stderr
    assert "Rank 1 is the straggler" in ended.stderr
    files = sorted(str(file) for file in tmp_path.glob("*.json"))
    assert [Path(file).name for file in files] == ["profile-rank0.json", "profile-rank1.json"]
    assert main.command_line(["report", *files]) == 0
    said = capsys.readouterr().out
    assert "Rank 1 is the straggler" in said
    assert "its loader" in said


def test_joined_ranks_are_a_page_with_a_bar_a_rank_on_one_scale(tmp_path: Path) -> None:
    files = [str(tmp_path / f"rank{i}.json") for i in range(2)]
    for rank, (path, wait) in enumerate(zip(files, (1, 31), strict=True)):
        rank_session(rank, wait, 5, 50).save(path)
    page = tmp_path / "ranks.html"
    assert main.command_line(["report", *files, "-o", str(page)]) == 0
    text = page.read_text()
    assert "Rank 1 is the straggler" in text
    assert text.count("collective: ") == 1  # rank 1 waits for nobody
    assert "0, collective: 30 ms" in text
    assert main.command_line(["report", *files, "-o", str(tmp_path / "ranks.md")]) == 2
