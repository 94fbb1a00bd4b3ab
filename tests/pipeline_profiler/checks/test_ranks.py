"""Ranks in the text of a program, and samples by their bytes."""

from pathlib import Path

import numpy as np
import pytest

from pipeline_profiler.checks.loader_subject import sample_digests
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
def plain(path):
    save(path)
if verbose:
    save(path)
"""


@pytest.mark.parametrize(
    ("line", "depends"),
    [(4, False), (5, True), (8, True), (12, True), (15, True), (17, False), (19, False)],
)
def test_a_line_depends_on_the_rank_by_itself_or_by_what_holds_it(
    line: int, depends: bool, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(WRITES)
    assert depends_on_rank(f"{tmp_path / 'train.py'}:{line}") is depends


def test_samples_are_known_by_all_their_arrays() -> None:
    pixels, labels = np.arange(12.0).reshape(3, 4), np.array([1, 1, 2])
    digests = sample_digests((pixels, labels))
    assert len(set(digests)) == 3
    assert sample_digests((pixels[::-1], labels[::-1])) == digests[::-1]
    assert sample_digests((pixels, labels + 1))[0] != digests[0]
