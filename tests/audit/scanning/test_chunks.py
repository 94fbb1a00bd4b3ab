"""Files are handed to workers in their order, some at a time: by number, and by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from audit.picture.decode import Limits
from audit.picture.measure import Measurer
from audit.scanning.measuring import CHUNK_FILES, PART_CHUNKS, PARTS, cut_chunks, measure_pending


def test_chunks_end_at_a_number_of_files_or_of_bytes() -> None:
    rows = [(f"{n}.png", "key", f"{n}.png", size) for n, size in enumerate([1, 1, 9, 0, -1, 5, 1])]
    names = [[job.sample_id for job in chunk] for chunk in cut_chunks(rows, 3, 9)]
    assert names == [["0.png", "1.png", "2.png"], ["3.png", "4.png", "5.png"], ["6.png"]]
    assert [len(chunk) for chunk in cut_chunks(rows, 9, 10)] == [3, 4]


@dataclass
class Counting:
    """An executor that does nothing, and says how many files the chunks hold."""

    sizes: list[int] = field(default_factory=list)

    def run(self, work: Any, chunks: Any) -> Any:
        self.sizes += map(len, chunks)
        return iter(())


class Rows:
    """A table of pending files, without a database."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.store, self.rows = self, rows

    def pages(self, _: str) -> Any:
        return iter(self.rows)

    def flush(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize(
    ("n", "n_bytes", "most"),
    [
        (PARTS * 3, 900, CHUNK_FILES),
        (PARTS * 100, 900, 100),
        (PARTS * 10_000, 900, CHUNK_FILES * PART_CHUNKS),
        (PARTS * 100, 16 << 20, 2),
    ],
)
def test_a_large_dataset_has_larger_chunks_but_no_more_bytes(
    n: int, n_bytes: int, most: int
) -> None:
    rows: Any = Rows([(f"{at}.png", "", f"{at}.png", n_bytes) for at in range(2000)])
    executor = Counting()
    measure_pending(rows, executor, Measurer(Limits()), lambda _: None, done=0, total=n)
    assert max(executor.sizes) == most
    assert sum(executor.sizes) == 2000
