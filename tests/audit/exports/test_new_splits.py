"""New splits: units are never torn, classes keep their shares, the seed decides."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from audit.errors import UsageError
from audit.exports.new_splits import (
    SplitRequest,
    assign_splits,
    assign_without_tearing,
    join_units,
    parse_shares,
)
from audit.exports.planning import plan_dataset

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}


def samples(n: int = 400, splits: list[str | None] | None = None) -> pl.DataFrame:
    """Two classes, one of them rare; every tenth picture twice, patients of four pictures."""
    return pl.DataFrame(
        {
            "id": [f"{i}.jpg" for i in range(n)],
            "split": splits or [None] * n,
            "label": ["rare" if i % 10 == 3 else "common" for i in range(n)],
            "group": [f"patient {i // 4}" if i < n // 2 else None for i in range(n)],
            "unit": [f"picture {i - i % 10 if i % 10 == 9 else i}" for i in range(n)],
            "content_hash": [f"hash {i}" for i in range(n)],
            "pixel_hash": [f"pixels {i}" for i in range(n)],
        },
        schema_overrides={"split": pl.String},
    )


PAIRS = [("pixels 300", "pixels 311"), ("pixels 311", "pixels 322"), ("pixels 0", "pixels 399")]


def test_units_stay_whole_and_classes_keep_their_shares() -> None:
    rows, facts = assign_splits(samples(), SplitRequest(SHARES, seed=1), PAIRS)
    units = rows.with_columns(pl.Series("one", join_units(rows, PAIRS)))
    assert units.group_by("one").agg(pl.col("split").n_unique())["split"].max() == 1
    by_id = dict(rows.select("id", "split").iter_rows())
    assert by_id["300.jpg"] == by_id["311.jpg"] == by_id["322.jpg"]
    assert by_id["0.jpg"] == by_id["399.jpg"] == by_id["1.jpg"] == by_id["390.jpg"]
    for label, n in (("rare", 40), ("common", 360)):
        counts = Counter(rows.filter(pl.col("label") == label)["split"])
        for split, share in SHARES.items():
            assert abs(counts[split] - share * n) <= 4, (label, split, counts)
    assert facts["torn"] == 0


def test_what_splits_would_tear_is_joined_until_nothing_is_torn() -> None:
    clips = [[f"{i + 7 * k}.jpg" for k in range(6)] for i in (200, 201, 250)]

    def torn(made: pl.DataFrame) -> list[list[str]]:
        by_id = dict(made.select("id", "split").iter_rows())
        return [clip for clip in clips if len({by_id[name] for name in clip}) > 1]

    assert torn(assign_splits(samples(), SplitRequest(SHARES, seed=1), PAIRS)[0])
    made, facts = assign_without_tearing(samples(), SplitRequest(SHARES, seed=1), PAIRS, torn)
    assert torn(made) == []
    assert 1 <= facts["sequences"] <= 3


def test_what_given_splits_tear_ends_the_search() -> None:
    frame = samples(splits=["train", "test", *[None] * 398])
    clip = ["0.jpg", "1.jpg"]
    _, facts = assign_without_tearing(frame, SplitRequest(SHARES), PAIRS, lambda made: [clip])
    assert (facts["sequences"], facts["torn"]) == (1, 1)


@pytest.mark.slow
def test_numbered_frames_of_a_scene_go_into_one_split(
    sample_data_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(sample_data_run, tmp_path / "run"))
    for seed in range(3):
        plan = plan_dataset(run, splits=SplitRequest(SHARES, seed, resplit=True))
        assert len({file.split for file in plan.files if "clip07_" in file.id}) == 1


def test_the_seed_decides_and_nothing_else() -> None:
    def splits(seed: int, frame: pl.DataFrame) -> dict[str, str]:
        return dict(assign_splits(frame, SplitRequest(SHARES, seed))[0]["id", "split"].iter_rows())

    assert splits(1, samples()) == splits(1, samples())
    assert splits(1, samples()) != splits(2, samples())


def test_given_splits_stay_and_their_units_follow() -> None:
    given: list[str | None] = [None] * 400
    given[0], given[4], given[5] = "holdout", "train", "test"
    frame = samples(splits=given)
    rows, facts = assign_splits(frame, SplitRequest(SHARES), PAIRS)
    by_id = dict(rows.select("id", "split").iter_rows())
    assert by_id["0.jpg"] == by_id["1.jpg"] == by_id["399.jpg"] == "holdout"
    assert (by_id["4.jpg"], by_id["5.jpg"]) == ("train", "test")
    assert facts["torn"] == 1
    again, facts = assign_splits(frame, SplitRequest(SHARES, resplit=True), PAIRS)
    assert set(again["split"]) == set(SHARES)
    assert facts["torn"] == 0


def test_all_given_is_said() -> None:
    with pytest.raises(UsageError, match="--resplit"):
        assign_splits(samples(splits=["train"] * 400), SplitRequest(SHARES))


@pytest.mark.parametrize("text", ["", "train", "train=2", "train=.5,val=.4", "a=.5,a=.5", "a=x"])
def test_shares_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shares(text)


def test_shares_are_read() -> None:
    assert parse_shares("train=.8, val=.1,test=0.1") == SHARES
