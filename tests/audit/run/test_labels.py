"""The table `labels`: of pictures and of objects, in one; of runs that were made before it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.annotations import measure_boxes
from audit.checking.objects import object_table
from audit.compare import diff
from audit.compare.diff import find_drift
from audit.errors import UsageError
from audit.picture.features import FEATURE_ROW
from audit.report.file_card import card_text
from audit.results.file_details import make_file_card
from audit.results.results import open_results
from audit.run.store import Store
from audit.scanning.measuring import list_source
from audit.sources import open_source
from audit.testing import Case, case_store
from tests.audit.annotations.datasets import annotated, annotated_run, coco, coco_tree
from tests.audit.checks.case_tables import object_tables


def test_each_object_counts_once_and_says_what_it_is(tmp_path: Path) -> None:
    document = coco(2, ((1, 5, 6, 20, 10), (1, 30, 6, 20, 10), (1, 5, 20, 16, 16), (2, 5, 6, 8, 8)))
    boxes = document["annotations"]
    boxes[1] |= {"segmentation": [[30, 6, 50, 6, 50, 16, 30, 16]]}
    boxes[2] |= {"category_id": 2, "keypoints": [6, 22, 2, 9, 24, 2], "num_keypoints": 2}
    document["categories"].append({"id": 2, "name": "dog", "keypoints": ["a", "b"]})
    with annotated(coco_tree(tmp_path / "set", document, 2)) as store:
        measure_boxes(store)
        rows = store.query("FROM labels ORDER BY ALL").rows()
        assert rows == [
            ("images/0.jpg", "cat", 1, "box"), ("images/0.jpg", "cat", 1, "mask"),
            ("images/0.jpg", "dog", 1, "keypoints"), ("images/1.jpg", "cat", 1, "box"),
        ]  # fmt: skip
        side = store.scalar("SELECT side FROM object_labels WHERE label = 'dog'")
        assert 2**side == pytest.approx(16)
        assert store.scalar("SELECT count(*) FROM images WHERE label IS NOT NULL") == 0


CSV = "path,label,split\n0.jpg,cat,a\n1.jpg,dog,a\n2.jpg,cat;dog,a\n3.jpg,,b\n"


def listed(folder: Path, text: str, **how: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Rows of `labels`, of `picture_labels`, and what is said of the column."""
    (folder / "list.csv").write_text(text)
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        list_source(store, open_source([str(folder / "list.csv")], **how), lambda _: None)
        store.execute(
            "INSERT INTO features BY NAME SELECT id AS sample_id, 'ok' AS status FROM samples"
        )
        return (
            store.query("SELECT sample_id, label, kind FROM labels ORDER BY ALL").rows(),
            store.query("SELECT id, label FROM picture_labels ORDER BY ALL NULLS LAST").rows(),
            store.query("SELECT reading FROM label_columns")["reading"].to_list(),
        )


def test_several_labels_of_a_column_are_rows(tmp_path: Path) -> None:
    rows, pictures, said = listed(tmp_path, CSV)
    own = [("0.jpg", "cat"), ("1.jpg", "dog"), ("2.jpg", "cat"), ("2.jpg", "dog")]
    assert rows == [(*row, "column") for row in own]
    assert pictures == [*own, ("3.jpg", None)]
    assert said == ["split at ';': all parts are also single labels"]


def test_what_is_not_sure_stays_one_class_unless_told(tmp_path: Path) -> None:
    text = CSV.replace("1.jpg,dog", "1.jpg,owl")
    rows, _, said = listed(tmp_path, text)
    assert ("2.jpg", "cat;dog", "column") in rows
    assert "not split at ';'" in said[0]
    rows, _, said = listed(tmp_path, text, label_separator=";")
    assert ("2.jpg", "dog", "column") in rows
    assert said == ["split at ';' by [scan] label_separator"]


HOT = "path,cat,dog,owl\n0.jpg,1,0,0\n1.jpg,1.0,1,-1\n2.jpg,,0,0\n3.jpg,0,true,1\n"


@pytest.mark.parametrize("told", ["cat..owl", "cat, dog,owl"])
def test_columns_of_0_and_1_are_classes_where_told(tmp_path: Path, told: str) -> None:
    rows, pictures, said = listed(tmp_path, HOT, one_hot=told)
    own = [("0.jpg", "cat"), ("1.jpg", "cat"), ("1.jpg", "dog"), ("3.jpg", "dog"), ("3.jpg", "owl")]
    assert rows == [(*row, "column") for row in own]
    assert ("2.jpg", None) in pictures
    assert said == ["columns of 0 and 1"]
    rows, *_ = listed(tmp_path, HOT)
    assert not rows  # else they are metadata


@pytest.mark.parametrize(
    ("text", "told", "why"),
    [
        (HOT, "cat,cow", "no column 'cow'"),
        (HOT.replace("-1", "0.7"), "cat..owl", r"line 3: column 'owl' contains '0.7'"),
        (None, "cat..owl", "no source is a manifest"),
    ],
)
def test_columns_that_are_no_classes_are_refused(
    tmp_path: Path, text: str | None, told: str, why: str
) -> None:
    if text is None:
        picture_folder = coco_tree(tmp_path / "set", coco(1), 1)
        with pytest.raises(UsageError, match=why):
            open_source([str(picture_folder)], one_hot=told)
        return
    with pytest.raises(UsageError, match=why):
        listed(tmp_path, text, one_hot=told)


def test_objects_by_unit(tmp_path: Path) -> None:
    images, tables = object_tables(("a", {"car": 2}), ("a", {"car": 1, "bus": 3}), ("b", {}))
    grouped = [{**image, "group_key": "p"} for image in images]
    with case_store(Case("grouped", grouped, tables=tables)) as store:
        table = object_table(store)
        assert table is not None
        assert table.units.rows() == [("a", 2, 2, 6), ("b", 1, 0, 0)]
        assert table.held.select("unit", "label", "n", "pictures").rows() == [
            (0, 0, 3, 1), (0, 1, 3, 2),
        ]  # fmt: skip
        assert (table.labels, table.splits) == (["bus", "car"], ["a", "b"])


@pytest.mark.slow
def test_objects_of_two_runs_are_compared(tmp_path: Path) -> None:
    runs = []
    for name, k in (("before", 40), ("after", 3)):
        boxes = [(i + 1, 5, 6, 20, 10) for i in range(40)]
        document = coco(40, [*boxes, *[(i + 1, 30, 20, 10, 9) for i in range(40)]])
        document["categories"].append({"id": 2, "name": "dog"})
        for entry in document["annotations"][40 : 40 + k]:
            entry["category_id"] = 2
        root = coco_tree(tmp_path / name, document, 40)
        runs.append(annotated_run(root, tmp_path / f"{name}-run"))
    found = {f.code: f for f in find_drift(runs[1], runs[0]).findings}
    assert found["DIST006"].subject == "object:split:run"
    assert "cat 1, dog 1" in card_text(make_file_card(open_results(runs[0]), "images/0.jpg"))
    compared = diff.compare_runs(*runs)
    assert compared.objects.rows() == [("cat", 40, 77), ("dog", 40, 3)]
