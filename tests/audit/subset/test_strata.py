"""Units, strata, and who gets the next unit: the U.S. House as a published case."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.subset.source import select_eligible
from audit.subset.strata import (
    Strata,
    allocate,
    cut_points,
    evaluated_files,
    form_units,
    merged_names,
    order_units,
    scale_for_classes,
    stratum_names,
)
from tests.audit.subset.frames import made_set


def small(**columns):
    n = len(next(iter(columns.values())))
    base = {
        "sample_id": [f"f{i}" for i in range(n)],
        "content_hash": [f"{i:02d}" for i in range(n)],
        "label": ["a"] * n,
    }
    return pl.DataFrame({**base, **columns})


def test_exclusions_are_listed_with_their_reason():
    frame = small(
        label=["a", None, "b", "b"], excluded_reason=[None, None, "unreadable file", None]
    )
    found = select_eligible(frame)
    assert found.files["sample_id"].to_list() == ["f0", "f3"]
    assert found.excluded.rows() == [("f1", "f1", "no label"), ("f2", "f2", "unreadable file")]
    assert found.n_all == 4


def test_a_duplicate_group_is_one_unit_of_its_size():
    frame = small(
        label=["a", "a", "a", "b"], content_hash=["9", "3", "5", "1"],
        duplicate_group=["g", "g", None, None],
    )  # fmt: skip
    files = select_eligible(frame).files
    found = form_units(files, Strata())
    rows = {r["unit_id"]: r for r in found.table.iter_rows(named=True)}
    assert rows["g"]["size"] == 2
    assert rows["g"]["unit_key"] == "3"  # the smallest member hash
    assert {k: r["size"] for k, r in rows.items()} == {"g": 2, "f2": 1, "f3": 1}
    every = evaluated_files(files, found, pl.Series(range(3)))
    assert sorted(files["sample_id"][every["file"]].to_list()) == ["f1", "f2", "f3"]


def test_deduplicated_keeps_one_file_a_picture():
    frame = small(content_hash=["9", "3", "5"], duplicate_group=["g", "g", None])
    found = select_eligible(frame, deduplicated=True)
    assert found.files["sample_id"].to_list() == ["f1", "f2"]
    assert "deduplicated" in found.excluded["reason"][0]


def test_user_groups_are_taken_whole_and_vote_for_their_stratum():
    frame = small(label=["b", "a", "a", "b", "c"], patient=["p", "p", "p", "q", None])
    files = select_eligible(frame).files
    found = form_units(files, Strata(), "patient")
    rows = {r["unit_id"]: r for r in found.table.iter_rows(named=True)}
    assert (rows["p"]["size"], rows["p"]["stratum"], rows["p"]["unit_key"]) == (3, "a", "p")
    assert (rows["q"]["stratum"], rows["f4"]["stratum"]) == ("b", "c")
    assert rows["f4"]["unit_key"] == "04"  # a file without a group is known by its hash
    assert found.whole
    place = found.table["unit_id"].to_list().index("p")
    taken = evaluated_files(files, found, pl.Series([place]))
    assert files["sample_id"][taken["file"]].to_list() == ["f0", "f1", "f2"]


def test_a_tied_vote_goes_to_the_first_name():
    found = form_units(
        select_eligible(small(label=["b", "a"], patient=["p", "p"])).files, Strata(), "patient"
    )
    assert found.table["stratum"].to_list() == ["a"]
    assert found.strata == ["a"]  # b has files but no unit: it is no stratum


def test_strata_are_label_times_columns():
    frame = select_eligible(made_set(400, 3)).files
    edges = cut_points(frame, ["camera", "brightness"])
    assert set(edges) == {"brightness"}
    assert len(edges["brightness"]) == 3
    names = stratum_names(frame, Strata(("camera", "brightness"), edges))
    assert names.n_unique() == 3 * 2 * 4
    row = frame.row(0, named=True)
    assert names[0].startswith(f"{row['label']} / camera={row['camera']} / brightness=(")


def test_merged_names_are_applied():
    strata = Strata(merged={"class0": "class0 + class1", "class1": "class0 + class1"})
    names = stratum_names(select_eligible(made_set(60, 3)).files, strata)
    assert sorted(names.unique().to_list()) == ["class0 + class1", "class2"]


def test_single_units_are_merged_with_their_own_label_first():
    names = ["a / x", "a / y", "b / x", "b / y", "c / x"]
    found = merged_names(names, [1, 5, 1, 4, 9], ["a", "a", "b", "b", "c"])
    assert found == {
        "a / x": "a / x + a / y", "a / y": "a / x + a / y",
        "b / x": "b / x + b / y", "b / y": "b / x + b / y",
    }  # fmt: skip
    assert merged_names(["a", "b"], [3, 2], ["a", "b"]) == {}


def test_merging_to_a_limit():
    found = merged_names([f"s{i}" for i in range(6)], [2, 3, 4, 5, 6, 7], list("abcdef"), at_most=3)
    left = {found.get(f"s{i}", f"s{i}") for i in range(6)}
    assert len(left) == 3
    assert set(merged_names(["a", "b"], [1, 1], ["a", "b"]).values()) == {"a + b"}


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (pl.DataFrame({"id": ["a"], "label": ["x"]}), "no column 'sample_id'"),
        (small(sample_id=["a", "a"]), "more than once, such as 'a'"),
        (small(sample_id=["a", None]), "no sample_id"),
        (small(label=[None, None]), "No file is eligible"),
    ],
)
def test_bad_frames(frame, sentence):
    with pytest.raises(UsageError, match=sentence):
        select_eligible(frame)


def test_bad_columns():
    files = select_eligible(small(x=[float("nan"), 1.0])).files
    with pytest.raises(UsageError, match="'x' is NaN for 1 of 2"):
        cut_points(files, ["x"])
    with pytest.raises(UsageError, match=r"no column 'y'.*There are: label"):
        form_units(files, Strata(("y",)))


# U.S. Census Bureau, 2020 apportionment: population of each state and seats of 435. The method of
# equal proportions is Wright's (2012) exact allocation with one unit first in each stratum.
HOUSE_2020 = {
    "AL": (5030053, 7), "AK": (736081, 1), "AZ": (7158923, 9), "AR": (3013756, 4),
    "CA": (39576757, 52), "CO": (5782171, 8), "CT": (3608298, 5), "DE": (990837, 1),
    "FL": (21570527, 28), "GA": (10725274, 14), "HI": (1460137, 2), "ID": (1841377, 2),
    "IL": (12822739, 17), "IN": (6790280, 9), "IA": (3192406, 4), "KS": (2940865, 4),
    "KY": (4509342, 6), "LA": (4661468, 6), "ME": (1363582, 2), "MD": (6185278, 8),
    "MA": (7033469, 9), "MI": (10084442, 13), "MN": (5709752, 8), "MS": (2963914, 4),
    "MO": (6160281, 8), "MT": (1085407, 2), "NE": (1963333, 3), "NV": (3108462, 4),
    "NH": (1379089, 2), "NJ": (9294493, 12), "NM": (2120220, 3), "NY": (20215751, 26),
    "NC": (10453948, 14), "ND": (779702, 1), "OH": (11808848, 15), "OK": (3963516, 5),
    "OR": (4241500, 6), "PA": (13011844, 17), "RI": (1098163, 2), "SC": (5124712, 7),
    "SD": (887770, 1), "TN": (6916897, 9), "TX": (29183290, 38), "UT": (3275252, 4),
    "VT": (643503, 1), "VA": (8654542, 11), "WA": (7715946, 10), "WV": (1795045, 2),
    "WI": (5897473, 8), "WY": (577719, 1),
}  # fmt: skip


def test_the_house_of_representatives():
    people = np.array([v[0] for v in HOUSE_2020.values()])
    assert people.sum() == 331_108_434
    seats = allocate(people, np.ones(50), 435, first=1)
    assert seats.tolist() == [v[1] for v in HOUSE_2020.values()]
    order, _ = order_units(people, np.ones(50), 436, first=1)
    names = list(HOUSE_2020)
    assert (names[order[434]], names[order[435]]) == ("MN", "NY")  # New York missed by 89 people


def one_by_one(sizes, scale, n):
    held = np.minimum(sizes, 2)
    while held.sum() < n:
        priority = np.where(held < sizes, sizes * scale / np.sqrt(held * (held + 1.0)), -1)
        held[priority.argmax()] += 1
    return held


SETS = st.lists(
    st.tuples(st.integers(2, 300), st.sampled_from([0.1, 0.3, 0.5, 1.0])), min_size=1, max_size=12
)


@pytest.mark.slow
@given(SETS, st.floats(0, 1))
@settings(max_examples=150)
def test_equal_to_the_one_by_one_rule(strata, share):
    sizes, scale = (np.array(column) for column in zip(*strata, strict=True))
    least = int(np.minimum(sizes, 2).sum())
    n = least + round(share * (int(sizes.sum()) - least))
    expected = one_by_one(sizes, scale, n)
    assert allocate(sizes, scale, n).tolist() == expected.tolist()
    order, number = order_units(sizes, scale, n)
    assert np.bincount(order, minlength=sizes.size).tolist() == expected.tolist()
    for h in range(sizes.size):
        assert number[order == h].tolist() == list(range(expected[h]))


@pytest.mark.slow
@given(SETS)
@settings(max_examples=60)
def test_the_sequence_does_not_depend_on_where_it_stops(strata):
    sizes, scale = (np.array(column) for column in zip(*strata, strict=True))
    total = int(sizes.sum())
    whole = order_units(sizes, scale, total)
    for n in {2, total // 3, total // 2, total - 1} - {0}:
        part = order_units(sizes, scale, n)
        assert part[0].tolist() == whole[0][:n].tolist()
        assert part[1].tolist() == whole[1][:n].tolist()


def test_exact_where_rounding_is_not():
    """No allocation of 30 units has less variance: every neighbour is worse."""
    sizes, scale, n = np.array([47, 61, 41]), np.array([10.0, 8.0, 5.0]), 30

    def variance(held):
        return float(((sizes * scale) ** 2 / held).sum())

    best = allocate(sizes, scale, n)
    for i in range(3):
        for j in range(3):
            if i != j and best[i] > 2:
                other = best + np.eye(3, dtype=int)[j] - np.eye(3, dtype=int)[i]
                assert variance(other) >= variance(best)


def test_steered_to_classes():
    sizes, classes = np.array([900, 60, 40, 1000]), np.array([0, 1, 1, 2])
    scale = scale_for_classes(sizes, classes, np.array([50.0, 50.0, 0.0]))
    held = allocate(sizes, scale, 102)
    assert held[3] == 2
    assert abs(held[0] - 50) <= 1
    assert abs(held[1] + held[2] - 50) <= 1
    assert abs(held[1] - 30) <= 1
