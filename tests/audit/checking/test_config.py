"""audit.toml, running checks, and which columns are properties."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.checking.check import select_checks
from audit.checking.config import load_config
from audit.checking.properties import PropertyTable, property_table
from audit.checking.runner import MemoryGauge
from audit.errors import UsageError
from audit.report import collect_report
from audit.run import run_version
from audit.testing import Case, case_store
from tests.audit.reviewed import made_run


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "audit.toml"
    path.write_text(text)
    return path


def test_settings_are_read(tmp_path: Path) -> None:
    relate = "[match]\nradius = 8\nturned = true\n"
    text = f"[scan]\nmax_pixels = 5\n{relate}[checks.IMG001]\nmax_p99 = 0.2\n"
    config = load_config(written(tmp_path, text))
    assert config.limits.max_pixels == 5
    assert config.match == {"radius": 8, "turned": True}
    assert config.thresholds == {"IMG001": {"max_p99": 0.2}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[match]\nradius = 64", "radius is 64: write a whole number, 0 to 20"),
        ("[match]\nnearest = true", "nearest is True: write a whole number"),
        ('[match]\nturned = "yes"', "turned is 'yes': write true or false"),
        ("[match]\nrechecks = -1", "rechecks is -1: write a whole number"),
        (
            "[match]\nradios = 6",
            "has no 'radios'. Did you mean 'radius'? It may have hashes, nearest, radius, "
            "rechecks, turned",
        ),
        ("[scan]\nmax_pixel = 6", "[scan] has no 'max_pixel'"),
        (
            "[check]\n",
            "Did you mean 'checks'? It may have checks, expect, match, measure, plan, plugins",
        ),
        ("[scan", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_gets_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"audit\.toml") as error:
        load_config(written(tmp_path, text))
    assert said in str(error.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_config(tmp_path / "none.toml")


def test_a_retired_code_is_noted_and_has_no_effect(tmp_path: Path) -> None:
    text = "[checks.DIST005]\nrate = 0.1\n[checks.IMG001]\nmax_p99 = 0.2\n"
    text += "[expect]\nDIST005 = 0\nfiles = 3\n[expect.test]\nDIST010 = 0\n"
    config = load_config(written(tmp_path, text))
    assert config.thresholds == {"IMG001": {"max_p99": 0.2}}
    assert config.expect == {"files": 3, "test": {}}
    assert [note.split(":")[0] for note in config.notes] == [
        "DIST005 was retired", "DIST010 was retired",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="DIST005 was retired: use DIST004"):
        select_checks(["DIST005"])


GREY = {"channels_equal": True, "channel_spread": 0.0, "saturation": 0.0}
PICTURES = [{} for _ in range(60)] + [
    {"id": "one channel.png", "mode": "L", **GREY},
    {"id": "three channels.jpg", **GREY},
]


def named(run: Path, code: str) -> list[str]:
    with run_version.open_run(run) as store:
        sql = "SELECT sample_id FROM finding_samples JOIN findings USING (fingerprint) "
        return list(store.query(sql + "WHERE code = ? ORDER BY ALL", [code])["sample_id"])


# Whatever the order in which they are asked for: the one that gives way runs last.
@pytest.mark.parametrize("codes", [("FILE007", "IMG007"), ("IMG007", "FILE007")])
def test_a_grey_file_is_told_once(tmp_path: Path, codes: tuple[str, ...]) -> None:
    run = made_run(tmp_path / "run", PICTURES, codes)
    assert named(run, "FILE007") == ["one channel.png"]
    assert named(run, "IMG007") == ["three channels.jpg"]
    (said,) = [c.completeness for c in collect_report(run).checks if c.code == "IMG007"]
    assert said.endswith(" FILE007 reports 1 more.")


def test_a_check_alone_names_every_file(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", PICTURES, ["IMG007"])
    assert named(run, "IMG007") == ["one channel.png", "three channels.jpg"]


def test_every_check_keeps_its_time_and_memory(tmp_path: Path) -> None:
    timing = collect_report(made_run(tmp_path / "run", PICTURES, ["IMG", "DUP001"])).timing
    assert set(timing["checks_memory_bytes"]) == set(timing["checks_s"])
    assert "DUP001" in timing["checks_s"]
    assert all(growth >= 0 for growth in timing["checks_memory_bytes"].values())


def test_the_gauge_sees_memory_that_is_gone_again() -> None:
    size = 1 << 28
    with MemoryGauge() as gauge:
        np.ones(size, np.uint8)
        grown = gauge.growth()
        gauge.start()
        assert gauge.growth() < size // 2
    assert grown > size * 0.9


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
