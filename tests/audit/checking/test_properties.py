"""Which columns of a manifest and words of file names are properties, and which name the class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from audit.checking.properties import PropertyTable, property_table
from audit.testing import Case, case_store

RNG = np.random.default_rng(0)
LABELS = [("ant", "bee", "cow", "dog")[i % 4] for i in range(200)]


def table(
    labels: Sequence[str | None] = LABELS,
    name: Callable[[int], str] = "{:04d}".format,
    **columns: Any,
) -> PropertyTable:
    images = [{"id": f"{name(i)}.jpg", "label": label} for i, label in enumerate(labels)]
    rows = [
        {"sample_id": images[i]["id"], **{k: v[i] for k, v in columns.items()}}
        for i in range(len(images))
    ]
    with case_store(Case("", images, tables={"metadata": rows} if columns else {})) as store:
        return property_table(store)


def names(found: PropertyTable) -> set[str]:
    return {p.source for p in found.properties}


FINER = [f"{label} {i % 3}" for i, label in enumerate(LABELS)]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([f"code {x}" for x in LABELS], id="a synonym"),
        pytest.param([["ant", "bee", "cow", "dog"].index(x) for x in LABELS], id="a number"),
        pytest.param(FINER, id="a finer class"),
        pytest.param([x in ("ant", "bee") for x in LABELS], id="a coarser class"),
    ],
)
def test_a_column_that_names_the_class_is_left_out_and_listed(values: list[Any]) -> None:
    found = table(column=values)
    assert found.left_out == ["column"]
    assert names(found) == set()


def test_a_column_called_label_is_left_out_whatever_it_holds() -> None:
    assert table(Label2=[str(i % 3) for i in range(200)]).left_out == ["Label2"]


def test_columns_that_say_something_else_are_properties() -> None:
    found = table(
        site=[("north", "south")[int(x)] for x in RNG.integers(0, 2, 200)],
        age=RNG.uniform(20, 80, 200).tolist(),
        row=list(range(200)),  # a number of its own for each picture
        row_of_shard=[i % 70 for i in range(200)],  # which begins again
        note=[f"note {i}" for i in range(200)],
    )
    assert names(found) == {"column site", "column age"}
    years = table(year=RNG.integers(0, 40, 200).tolist())
    assert names(years) == {"column year"}
    assert found.left_out == []


def test_two_sites_for_two_classes_are_a_property_and_two_numbers_a_code() -> None:
    labels = [("healthy", "ill")[i % 2] for i in range(100)]
    assert names(table(labels, site=[("north", "south")[i % 2] for i in range(100)])) == {
        "column site"
    }
    assert table(labels, site=[i % 2 for i in range(100)]).left_out == ["site"]


def test_words_of_names_that_spell_the_class_are_no_property() -> None:
    words = {"ant": "formica", "bee": "apis", "cow": "bos", "dog": "canis"}
    spelt = table(name=lambda i: f"{words[LABELS[i]]}_{i}")
    assert names(spelt) == set()
    assert spelt.left_out == ["words of file names"]
    own = table(name=lambda i: f"{LABELS[i]}_{i}")
    assert (names(own), own.left_out) == (set(), [])
    scanned = table(name=lambda i: f"{'scan' if i % 3 == 0 else 'photo'}_{i}")
    assert names(scanned) == {"file name"}


def test_words_of_names_without_any_label_are_properties() -> None:
    found = table([None] * 60, name=lambda i: f"{'scan' if i % 3 == 0 else 'photo'}_{i}")
    assert names(found) == {"file name"}


def test_a_unit_counts_once_and_has_the_mean_of_its_pictures() -> None:
    images = [
        {"label": "ant", "brightness": 0.2, "group_key": "p1"},
        {"label": "ant", "brightness": 0.6, "group_key": "p1"},
        {"label": "bee", "brightness": 0.1, "group_key": "p1"},
        {"label": "ant", "brightness": 0.9, "pixel_hash": "a" * 32},
        {"label": "ant", "brightness": 0.9, "pixel_hash": "a" * 32},
    ]
    with case_store(Case("", images)) as store:
        found = property_table(store).by_unit()
    column = [p.name for p in found.properties].index("brightness")
    rows = zip(found.label, found.values[:, column], strict=True)
    assert sorted((found.labels[k], round(float(v), 6)) for k, v in rows) == [
        ("ant", 0.4), ("ant", 0.9), ("bee", 0.1),
    ]  # fmt: skip
