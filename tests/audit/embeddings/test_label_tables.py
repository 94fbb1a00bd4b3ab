"""From a folder to LABEL006: a scan with the built-in vectors and with the user's own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from audit.checking.check import all_checks, make_params
from audit.checking.label_facts import LabelFacts, read_label_facts
from audit.embeddings import label_tables
from audit.embeddings.label_tables import draw_judged
from audit.embeddings.settings import VectorOptions
from audit.errors import UsageError
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.sources import open_source
from audit.testing import Case, case_store
from tests.audit.checks.cases.label_suspect import FACTS
from tests.conftest import picture

pytestmark = pytest.mark.slow

CLASSES = ("cat", "dog", "owl")
OF_LABELS: dict[str, Any] = {"jobs": 1, "checks": ["LABEL006"]}


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 pictures of three classes without any likeness, and one with two labels."""
    root = tmp_path_factory.mktemp("animals")
    for number in range(90):
        folder = root / CLASSES[number % 3]
        folder.mkdir(exist_ok=True)
        Image.fromarray(picture(number, 48, 48)).save(folder / f"{number:02}.png")
    for name in ("cat", "dog"):
        Image.fromarray(picture(500, 48, 48)).save(root / name / "both.png")
    return root


def own_vectors(path: Path, root: Path, wrong: tuple[str, ...]) -> Path:
    """Vectors of each file that show its class, and of those `wrong` another."""
    files = sorted(p.relative_to(root).as_posix() for p in root.rglob("*.png"))
    rng = np.random.default_rng(1)
    shown = [(CLASSES.index(f.split("/")[0]) + (f in wrong)) % 3 for f in files]
    rows = 8 * np.eye(3)[shown] @ rng.normal(size=(3, 12)) + rng.normal(size=(len(files), 12))
    pl.DataFrame({"path": files, "vector": rows.tolist()}).write_parquet(path)
    return path


def scanned(root: Path, run: Path, options: VectorOptions) -> tuple[list[str], str, LabelFacts]:
    """Return the samples of LABEL006 in their order, its completeness, and the facts."""
    scanning.scan(open_source([str(root)]), run, vectors=options, **OF_LABELS)
    with open_run(run) as store:
        found = store.rows(
            "SELECT sample_id FROM findings JOIN finding_samples USING (fingerprint) "
            "WHERE code = 'LABEL006' ORDER BY CAST(evidence ->> 'rank' AS INTEGER)"
        )
        said = store.scalar("SELECT completeness FROM check_runs WHERE code = 'LABEL006'")
        facts = read_label_facts(store)
    assert facts is not None
    return [row["sample_id"] for row in found], said, facts


def test_own_vectors_show_what_is_wrong(animals: Path, tmp_path: Path) -> None:
    wrong = ("cat/00.png", "dog/01.png", "owl/02.png", "cat/03.png")
    path = own_vectors(tmp_path / "v.parquet", animals, wrong)
    found, said, facts = scanned(animals, tmp_path / "run", VectorOptions(embeddings=path))
    assert sorted(found) == sorted(wrong)
    assert "v.parquet" in said
    assert facts.conflicting == 1  # the picture with two labels is left to LABEL005
    # what else the tables hold
    with open_run(tmp_path / "run") as store:
        near = store.rows("SELECT * FROM vector_neighbours WHERE sample_id = 'cat/00.png'")
        places = store.scalar("SELECT count(*) FROM embedding_map")
        sides = store.rows(
            "SELECT side, string_agg(DISTINCT split_part(neighbour_id, '/', 1)) AS classes, "
            "count(*) AS n, min(similarity) AS least FROM label_neighbours "
            "WHERE sample_id = 'cat/00.png' GROUP BY side ORDER BY side"
        )
    assert [row["neighbour_id"].split("/")[0] for row in near].count("dog") >= 4
    assert places == 92
    given, suggested = sides
    assert (given["classes"], given["n"]) == ("cat", 3)
    assert (suggested["classes"], suggested["n"]) == ("dog", 3)
    assert suggested["least"] > given["least"]


def test_a_label_none_of_whose_class_is_among_the_references(
    animals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_tables, "REFERENCES", 1)
    path = own_vectors(tmp_path / "v.parquet", animals, ())
    scanned(animals, tmp_path / "run", VectorOptions(embeddings=path))
    with open_run(tmp_path / "run") as store:
        shown = store.rows("SELECT DISTINCT split_part(neighbour_id, '/', 1) AS label "
                           "FROM label_neighbours")  # fmt: skip
    assert len(shown) == 1


def test_other_vectors_are_related_again_without_measuring(animals: Path, tmp_path: Path) -> None:
    found, said, _ = scanned(animals, tmp_path / "run", VectorOptions())
    assert found == []  # pictures that show nothing of their class
    assert "no better than chance" in said  # than of labels dealt at random
    path = own_vectors(tmp_path / "v.parquet", animals, ("cat/00.png",))
    options = VectorOptions(embeddings=path)
    again, same = (
        scanning.scan(open_source([str(animals)]), tmp_path / "run", vectors=options, **OF_LABELS)
        for _ in range(2)
    )
    assert (again.measured, again.unchanged, same.unchanged) == (0, False, True)


def test_own_probabilities_and_a_class_without_column(animals: Path, tmp_path: Path) -> None:
    files = sorted(p.relative_to(animals).as_posix() for p in animals.rglob("*.png"))
    shown = np.array([(CLASSES.index(f.split("/")[0]) + (f == "cat/00.png")) % 3 for f in files])
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(len(files), 3)) + 6 * np.eye(3)[shown]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    table = pl.DataFrame({"path": files, **{c: p[:, i] for i, c in enumerate(CLASSES)}})
    table.write_parquet(tmp_path / "p.parquet")
    options = VectorOptions(predictions=tmp_path / "p.parquet")
    scanned(animals, tmp_path / "run", options)
    with open_run(tmp_path / "run") as store:
        first = store.rows("SELECT * FROM label_scores ORDER BY label_quality LIMIT 1")[0]
    assert (first["sample_id"], first["suggested_label"]) == ("cat/00.png", "dog")
    table.drop("owl").with_columns(cat=1 - pl.col("dog")).write_parquet(tmp_path / "q.parquet")
    with pytest.raises(UsageError, match="no column for the class 'owl'"):
        scanned(animals, tmp_path / "run2", VectorOptions(predictions=tmp_path / "q.parquet"))


def test_five_pictures_and_a_single_class(tmp_path: Path) -> None:
    for count, name in ((5, "few"), (60, "one class")):
        folder = tmp_path / name / "cat"
        folder.mkdir(parents=True)
        for number in range(count):
            Image.fromarray(picture(number, 40, 40)).save(folder / f"{number}.png")
        found, said, _ = scanned(tmp_path / name, tmp_path / f"run {name}", VectorOptions())
        assert found == []
        assert "Cannot estimate wrong labels" in said


def test_of_many_labels_of_many_classes_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.repeat([0, 1, -1, 2], [600, 300, 50, 11])
    assert draw_judged(labels, 3, 10)[1] == 0
    monkeypatch.setattr(label_tables, "MOST_CELLS", 911)
    drawn, left = draw_judged(labels, 3, 10)
    kept = np.bincount(drawn[drawn >= 0], minlength=3)
    assert kept.tolist() == [200, 100, 10]  # a third of each, but ten
    assert left == 911 - kept.sum()
    assert (drawn[drawn >= 0] == labels[drawn >= 0]).all()
    assert (drawn[labels < 0] == -1).all()


def rows(n: int) -> pl.DataFrame:
    """So many pictures of three classes by turns, as `relate_labels` reads them."""
    names = [f"{i:04d}" for i in range(n)]
    schema = {"representative": pl.String, "group_keys": pl.List(pl.String)}
    frame = pl.DataFrame({"pixel_hash": names, "labels": [[CLASSES[i % 3]] for i in range(n)]})
    return frame.with_columns(*(pl.lit(None, t).alias(name) for name, t in schema.items()))


def test_what_was_not_drawn_is_counted_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_tables, "MOST_CELLS", 3 * 60)
    known = label_tables.label_pictures(rows(90), np.zeros(90, bool))
    assert int((known.labels >= 0).sum()) == 60
    assert known.not_drawn == 30
    facts = replace(FACTS, not_drawn=known.not_drawn).rows()
    check = all_checks()["LABEL006"]
    with case_store(Case("some were drawn", [], tables={"label_facts": facts})) as store:
        assert "30 more were not sampled" in check.completeness(store, make_params(check, {}))


def test_more_classes_than_memory_is_for_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_tables, "MOST_CLASSES", 2)
    reason = label_tables.label_pictures(rows(90), np.zeros(90, bool)).reason
    assert reason.startswith("3 classes exceed the memory limit of 2")
