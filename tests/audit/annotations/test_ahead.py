"""Parts that are worked on ahead come in order; what a reader that fails has added is not kept."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from audit.annotations.sink import Sink, look_ahead
from audit.picture.features import FEATURE_ROW
from audit.run.store import Store


def test_each_part_comes_with_its_result() -> None:
    assert list(look_ahead(range(5), lambda n: n * n)) == [(n, n * n) for n in range(5)]
    assert list(look_ahead([], abs)) == []


def test_what_the_work_raises_is_raised_at_its_part() -> None:
    done = look_ahead([2, 1, 0, 1], lambda n: 1 // n)
    assert [next(done), next(done)] == [(2, 0), (1, 1)]
    with pytest.raises(ZeroDivisionError):
        next(done)


def test_no_more_than_the_next_part_is_taken() -> None:
    taken = []

    def parts() -> Iterator[int]:
        for n in range(9):
            taken.append(n)
            yield n

    next(look_ahead(parts(), abs))
    assert taken == [0, 1]


def test_a_reader_that_fails_leaves_nothing_of_its_file() -> None:
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        sink = Sink(store)
        sink.add("annotation_problems", {"kind": "truncated", "file": "before"})
        with pytest.raises(ValueError, match="broken"):
            _fail_to_read(sink)
        with sink.whole():
            sink.add("categories", {"file": "b", "label": "dog"})
        assert store.scalar("SELECT count(*) FROM annotations") == 0
        assert store.query("SELECT file FROM categories")["file"].to_list() == ["b"]
        assert store.scalar("SELECT count(*) FROM annotation_problems") == 1


def _fail_to_read(sink: Sink) -> None:
    with sink.whole():
        sink.add_frame("annotations", pl.DataFrame({"file": ["a"], "image_key": ["0"]}))
        sink.add("categories", {"file": "a", "label": "cat"})
        raise ValueError("broken")
