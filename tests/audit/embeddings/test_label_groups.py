"""What belongs together is numbered alike: near-duplicates, groups of a manifest, and chains."""

from __future__ import annotations

import numpy as np
import polars as pl

from audit.embeddings.label_tables import join_frames, number_groups
from audit.embeddings.nearest import Nearest


def rows(*pictures: tuple[str, str | None, list[str]]) -> pl.DataFrame:
    """Pictures by pixel hash, the representative of their near-duplicates, their group keys."""
    keys = pl.List(pl.String)
    schema = {"pixel_hash": pl.String, "representative": pl.String, "group_keys": keys}
    return pl.DataFrame(pictures, schema=schema, orient="row")


def test_near_duplicates_and_group_keys_join_pictures() -> None:
    found = number_groups(
        rows(("a", "a", []), ("b", "a", ["film 1"]), ("c", None, ["film 1"]), ("d", None, []))
    )
    assert found[0] == found[1] == found[2] != found[3]


def test_a_chain_of_groups_is_one() -> None:
    chain = [(f"{n}", None, [f"film {n}", f"film {n + 1}"]) for n in range(40)]
    found = number_groups(rows(*reversed(chain), ("x", None, ["film 99"])))
    assert len(set(found[:-1].tolist())) == 1
    assert found[-1] not in found[:-1]


def test_without_group_keys_units_are_kept() -> None:
    found = number_groups(rows(("a", None, []), ("b", "b", []), ("c", "b", [])))
    assert found[1] == found[2] != found[0]


def test_frames_follow_each_other_and_look_alike() -> None:
    names = ["a/f_001.jpg", "a/f_002.jpg", "a/f_004.jpg", "a/f_009.jpg", "b/f_005.jpg", "x.jpg"]
    near = np.array([[1, 2], [0, 2], [1, 0], [2, 1], [2, 1], [0, 1]])
    found = join_frames(
        pl.Series(names), np.arange(6), Nearest(near, np.zeros((6, 2), np.float32), 6)
    )
    # 9 comes too late, b/5 lies in another folder, and x has no number
    assert found.tolist() == [0, 0, 0, 1, 2, 3]


def test_numbers_alone_join_nothing() -> None:
    names = pl.Series([f"{n}.jpg" for n in range(4)])
    for near in ([[2], [3], [0], [1]], [[3], [0], [1], [2]]):  # far by number; near one way only
        nearest = Nearest(np.array(near), np.zeros((4, 1), np.float32), 4)
        assert join_frames(names, np.arange(4), nearest).tolist() == [0, 1, 2, 3]
