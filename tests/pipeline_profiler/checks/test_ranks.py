"""Ranks in the text of a program."""

from pathlib import Path

import pytest

from pipeline_profiler.checks.ranks import depends_on_rank

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
if verbose:
    save(path)
"""
DEPENDS = {4: False, 5: True, 8: True, 12: True, 15: True, 17: False}


@pytest.mark.parametrize("line", DEPENDS)
def test_a_line_depends_on_the_rank_by_itself_or_by_its_block(line: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRITES)
    assert depends_on_rank(f"{tmp_path / 'train.py'}:{line}") is DEPENDS[line]
