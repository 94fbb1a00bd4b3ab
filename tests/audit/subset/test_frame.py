"""The eligible set and its units: exclusions, duplicate groups, user groups, strata."""

from __future__ import annotations

import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset.frame import select_eligible
from audit.subset.strata import Strata, cut_points, merged_names, stratum_names
from audit.subset.units import evaluated_files, form_units
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
