"""The listing of a scan beside that of the generation before: what is stored, and when."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from audit.picture.measure import feature_columns
from audit.run.reuse import PREVIOUS, is_listed_as_before, own_samples, store_samples
from audit.run.store import Store

N, AT_A_TIME = 12_000, 700


def listed(numbers: list[int]) -> pl.DataFrame:
    ids = [f"train/{number}.jpg" for number in numbers]
    columns = {
        "id": ids, "uri": [f"/data/{one}" for one in ids], "source": [""] * len(ids),
        "split": ["train"] * len(ids), "label": [None] * len(ids), "group_key": [None] * len(ids),
        "n_bytes": numbers, "mtime_ns": numbers, "ctime_ns": numbers,
    }  # fmt: skip
    schema = {name: pl.Int64 if name.endswith(("bytes", "_ns")) else pl.String for name in columns}
    return pl.DataFrame(columns, schema=schema)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("listing") / "measurements.duckdb"
    with Store.create(path) as store:
        store.create_measurements(feature_columns(()))
        store.append("samples", listed(list(range(N))))
    return path


def stored_after(now: pl.DataFrame, previous: Path | None, folder: Path) -> tuple[bool, int]:
    """List `now`; return whether that was as before, and the rows stored until they were needed."""
    with Store.create(folder / "building.duckdb") as store:
        store.create_measurements(feature_columns(()))
        frames = [now[start : start + AT_A_TIME] for start in range(0, len(now), AT_A_TIME)]
        if previous is not None:
            store.attach(previous, PREVIOUS)
        assert store_samples(store, frames, compared=previous is not None) == len(now)
        assert_frame_equal(store.query("FROM samples"), now)  # in the order of the source
        same = is_listed_as_before(store)
        n_stored = store.scalar("SELECT count(*) FROM building.main.samples")
        own_samples(store)
        assert_frame_equal(store.query("FROM building.main.samples"), now)
        assert not is_listed_as_before(store)
    return same, n_stored


@pytest.mark.parametrize(
    "now",
    [
        [*range(N)], [*range(N - 1)], [*range(N), N], [-1, *range(1, N)],
        [*range(6000), *range(6001, N)], [*range(N - 1), -1], [1, 0, *range(2, N)], [],
    ],
    ids=["as before", "last gone", "one more", "first", "middle gone", "last", "order", "all gone"],
)  # fmt: skip
def test_what_differs_is_stored_whole_and_in_order_and_else_nothing_until_it_is_needed(
    now: list[int], previous: Path, tmp_path: Path
) -> None:
    expected = (True, 0) if now == [*range(N)] else (False, len(now))
    assert stored_after(listed(now), previous, tmp_path) == expected


def test_a_first_scan_and_a_label_that_was_none_are_stored(previous: Path, tmp_path: Path) -> None:
    third = pl.when(pl.col("n_bytes") == N - 3).then(pl.lit("cat"))
    now = listed(list(range(N))).with_columns(label=third)
    assert stored_after(now, previous, tmp_path) == (False, N)
    (tmp_path / "building.duckdb").unlink()
    assert stored_after(listed([3, 1, 2]), None, tmp_path) == (False, 3)
