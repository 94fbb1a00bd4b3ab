"""Choices: coverage against brute force, doubt and rarity by hand, `draw --choose` on a run."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

import audit
from audit.embeddings.settings import VectorOptions
from audit.errors import UsageError
from audit.subset import coverage
from audit.subset.choice import doubt_of, fill_rarest
from audit.subset.coverage import choose_covering, cost, likeness_to, measure_reach, random_reach
from tests.audit.run.scanned import scan_tree
from tests.audit.subset.frames import call, document
from tests.conftest import picture


def points(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    """Points of length 1."""
    rows = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


NOTHING = np.full(14, -1, np.float32)


def test_the_gain_is_near_the_best_that_any_choice_has() -> None:
    for seed in range(5):
        of = points(14, seed=seed)
        least = min(
            cost(likeness_to(of, of[list(rows)])).mean()
            for rows in itertools.combinations(range(14), 3)
        )
        rows, gains = choose_covering(of, 3, NOTHING)
        reached = cost(likeness_to(of, of[rows])).mean()
        assert 1 - reached >= (1 - 1 / np.e) * (1 - least)
        assert np.isclose(gains.sum(), 1 - reached, atol=1e-5)


def test_what_is_known_counts_as_chosen() -> None:
    of = np.repeat(points(3), [6, 6, 2], axis=0)
    near = likeness_to(of, of[[0, 6]])
    rows, gains = choose_covering(of, 2, near)
    assert rows[0] >= 12, "the first is of the only cluster that nothing covers"
    assert gains[0] > 1e-3
    assert gains[1] < 1e-5, "then nothing is left to cover"
    assert len(set(choose_covering(of, 14, near)[0].tolist())) == 14


def test_a_choice_comes_nearer_than_chance_also_where_few_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coverage, "STANDING", 200)
    monkeypatch.setattr(coverage, "LEAST_ASKED", 16)
    monkeypatch.setattr(coverage, "ASKED_AT_ONCE", 7)
    of, near = points(600, d=8), np.full(600, -1, np.float32)
    rows, _ = choose_covering(of, 30, near)
    assert len(set(rows.tolist())) == 30
    chance = random_reach(of, 30, near, 1)
    assert measure_reach(of, rows, near).mean[1] < chance.mean[0]


def test_random_choices_are_a_range_and_repeat() -> None:
    of = points(300)
    near = np.full(300, -1, np.float32)
    one, again = random_reach(of, 10, near, 1), random_reach(of, 10, near, 1)
    assert one == again
    assert one != random_reach(of, 10, near, 2)
    assert one.largest[0] < one.largest[1] < one.largest[2]
    rows, _ = choose_covering(of, 10, near)
    assert measure_reach(of, rows, near).mean[1] < one.mean[0]
    # blocks change nothing
    of, centres = points(coverage.BLOCK + 7, seed=1), points(coverage.CENTRES + 5, seed=2)
    assert np.allclose(likeness_to(of, centres), (of @ centres.T).max(1), atol=1e-6)


def test_margin_and_entropy() -> None:
    rows = pl.DataFrame(
        {"prob_a": [0.5, 1.0, 0.6], "prob_b": [0.5, 0.0, 0.3], "prob_c": [0.0, 0.0, 0.1]}
    )
    assert doubt_of(rows, "margin").tolist() == pytest.approx([1.0, 0.0, 0.7])
    entropy = doubt_of(rows, "entropy")
    assert entropy.argmax() == 2
    assert entropy[1] == pytest.approx(0)
    confident = pl.DataFrame({"confidence": [0.9, 0.4]})
    assert doubt_of(confident, "margin").tolist() == pytest.approx([0.1, 0.6])
    for table, by, sentence in (
        (confident, "entropy", "prob_"), (pl.DataFrame({"label": ["a"]}), "margin", "--predictions")
    ):  # fmt: skip
        with pytest.raises(UsageError, match=sentence):
            doubt_of(table, by)


def test_the_smallest_cell_comes_first() -> None:
    cells = ["a"] * 9 + ["b"] * 2 + ["c"] * 5
    taken = [cells[i] for i in fill_rarest(cells, {"a": 4, "c": 1}, 7)]
    assert "".join(taken) == "bbcccac"
    assert len(fill_rarest(cells, {}, 99)) == 16
    # a picture counts in each of its cells: the two that hold b count for a
    several = [["a"], ["a", "b"], ["b", "a"], ["a"], ["c"]]
    assert list(fill_rarest(several, {}, 4)) == [0, 1, 4, 2]


SIZES = {"cat": 14, "dog": 8, "owl": 2}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> audit.Run:
    """24 pictures of three classes, a copy of one, 6 without a label; vectors by class."""
    folder = tmp_path_factory.mktemp("choosing")
    names = [f"train/{label}/{n}.png" for label, size in SIZES.items() for n in range(size)]
    names += [f"pool/{n}.png" for n in range(6)]
    with_copy = [*names, "train/cat/copy.png"]
    for number, name in enumerate(with_copy):
        path = folder / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number % len(names), 48, 48)).save(path)
    kinds = [0] * 14 + [1] * 8 + [2] * 2 + [0, 0, 0, 1, 3, 3]
    rows = 6 * np.eye(4)[kinds] + np.random.default_rng(0).normal(size=(30, 4)) / 4
    paths, vectors = [str(folder / "pets" / n) for n in names], folder / "vectors.parquet"
    pl.DataFrame({"path": paths, "vector": rows.tolist()}).write_parquet(vectors)
    split, label = zip(*(n.split("/")[:2] for n in with_copy), strict=True)
    columns = {"path": [f"pets/{n}" for n in with_copy], "split": split,
               "label": [one if one in SIZES else None for one in label]}  # fmt: skip
    pl.DataFrame(columns).write_csv(folder / "pets.csv")
    scan_tree(folder / "pets.csv", folder / "run", vectors=VectorOptions(embeddings=vectors))
    return audit.open(folder / "run")


def test_coverage_of_what_has_no_label_begins_where_no_label_is(found: audit.Run) -> None:
    chosen = found.select(2, unlabelled=True)
    assert chosen.candidates == 6
    assert chosen.known == 24, "the copy and its original are one"
    assert chosen.rows["sample_id"][0].removeprefix("pets/") in ("pool/4.png", "pool/5.png")
    assert chosen.rows["label"].null_count() == 2
    assert chosen.reach is not None
    assert chosen.reach["this choice"].mean[1] < chosen.reach["random choice"].mean[2]
    assert found.select(2, unlabelled=True).rows.equals(chosen.rows)


def test_coverage_takes_each_kind_before_a_second_of_one(found: audit.Run) -> None:
    kinds = {f"pool/{n}.png": kind for n, kind in enumerate(["cat"] * 3 + ["dog"] + ["new"] * 2)}
    rows = [path.split("/")[-2:] for path in found.select(4).rows["path"]]
    assert {kinds.get("/".join(row), row[0]) for row in rows} == {"cat", "dog", "owl", "new"}


def test_rare_classes_first_and_what_it_buys(found: audit.Run) -> None:
    chosen = found.select(6, "rare", split="train")
    assert sorted(chosen.rows["class"].to_list()) == ["cat"] * 2 + ["dog"] * 2 + ["owl"] * 2
    bought = {row["class"]: row for row in chosen.classes.to_dicts()}
    assert bought["owl"]["half_before"] is None
    assert bought["owl"]["half_after"] < bought["owl"]["half_random"]
    assert bought["cat"]["half_after"] > bought["cat"]["half_random"]
    assert chosen.left_out == {"a copy of another candidate": 1}


def test_an_earlier_choice_and_a_drop_are_left_out(found: audit.Run, tmp_path: Path) -> None:
    first = found.select(10, "rare", split="train")
    first.rows.write_csv(tmp_path / "first.csv")
    second = found.select(20, "rare", split="train", fresh_from=tmp_path / "first.csv")
    assert len(second.rows) == 14
    assert not set(second.rows["sample_id"]) & set(first.rows["sample_id"])
    assert len(found.select(50, "rare", listed=tmp_path / "first.csv").rows) == 10
    found.decide(second.rows["sample_id"][0], "drop")
    assert found.select(50, "rare", split="train").left_out["dropped by a decision"] == 1
    found.undo()


def test_doubt_by_predictions_of_either_form(found: audit.Run, tmp_path: Path) -> None:
    ids = found.images.filter(pl.col("split") == "pool")["id"].to_list()
    doubt = [0.5, 0.9, 0.6, 0.99, 0.7, 0.8]
    table = pl.DataFrame({"id": ids, "cat": doubt, "dog": [1 - v for v in doubt]})
    table.write_csv(tmp_path / "p.csv")
    chosen = found.select(2, "uncertainty", unlabelled=True, predictions=tmp_path / "p.csv")
    assert chosen.rows["sample_id"].to_list() == [ids[0], ids[2]]
    table.rename({"cat": "prob_cat", "dog": "prob_dog"}).write_csv(tmp_path / "q.csv")
    same = found.select(2, "uncertainty", unlabelled=True, predictions=tmp_path / "q.csv")
    assert same.rows.equals(chosen.rows)
    assert same.rows["class"].to_list() == ["cat", "cat"]


@pytest.mark.parametrize(
    ("words", "options", "sentence"),
    [
        ((3, "uncertainty"), {}, "--predictions"),
        ((3, "rare"), {"split": "pool"}, "no candidate has one"),
        ((3,), {"split": "val"}, "no split 'val'"),
        ((0,), {}, "--n is 0"),
        ((3,), {"listed": "other.csv"}, "names no file of this run"),
    ],
)
def test_words_that_cannot_be(
    found: audit.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[Any, ...],
    options: dict[str, Any], sentence: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("other.csv").write_text("path\nelsewhere.png\n")
    with pytest.raises(UsageError, match=sentence):
        found.select(*words, **options)


def test_vectors_that_are_gone_are_a_sentence(found: audit.Run) -> None:
    vectors = found.path.parent / "vectors.parquet"
    kept = vectors.rename(vectors.with_suffix(".away"))
    try:
        with pytest.raises(UsageError, match="scan again with --embeddings"):
            found.select(3)
    finally:
        kept.rename(vectors)


def test_rare_classes_of_objects_first(tmp_path: Path) -> None:
    held = ["car", "car", "car", "car bus", "car", "bus tram", ""]
    names = [f"{number}.png" for number in range(len(held))]
    for number, name in enumerate(names):
        Image.fromarray(picture(number, 48, 48)).save(tmp_path / name)
    classes = [{"id": n, "name": name} for n, name in enumerate(("car", "bus", "tram"), 1)]
    of = {one["name"]: one["id"] for one in classes}
    boxes = [(n, of[name]) for n, objects in enumerate(held) for name in objects.split()]
    content = {
        "images": [{"id": n, "file_name": name, "width": 48, "height": 48}
                   for n, name in enumerate(names)],
        "categories": classes,
        "annotations": [{"id": at, "image_id": n, "category_id": c, "bbox": [4 * at, 4, 9, 9]}
                        for at, (n, c) in enumerate(boxes)],
    }  # fmt: skip
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    scan_tree(tmp_path, tmp_path / "run")
    found = audit.open(tmp_path / "run")
    chosen = found.select(2, "rare")
    bought = {row["class"]: (row["free"], row["chosen"]) for row in chosen.classes.to_dicts()}
    assert bought == {"bus": (2, 1), "car": (5, 1), "tram": (1, 1)}, "two images show all three"
    assert sorted(chosen.rows["class"].to_list()) == ["bus; tram", "car"]
    known = found.select(1, "coverage", unlabelled=True)
    assert (known.candidates, known.known) == (1, 6), "what has objects is known"


@pytest.mark.slow
def test_the_command_writes_a_list_that_scan_and_plan_read(
    found: audit.Run, tmp_path: Path
) -> None:
    chosen = tmp_path / "next.csv"
    draw = ["draw", found.path, "--choose", "rare", "-o", chosen]
    words = [*draw, "--split", "train", "--n", 9]
    assert document(*words)["n"] == 9
    assert "9 of 24 candidates chosen by rare" in call(*words)
    call("plan", "--from", chosen, "--split", "all", "--n", 6)
    assert len(scan_tree(chosen, tmp_path / "again")) == 9
    refused = call("draw", found.path, "--choose", "rare", "--n", 9, "-o", "next.pdf", code=2)
    assert refused.count("\n") == 1
    for more, sentence in (
        (["--plan", "plan.json"], "--plan is for random draws"),
        (["--sheet", tmp_path / "sheet.csv"], "--sheet is for random draws"),
        (["--half-width", 0.1], "--half-width is for random draws"),
        (["--target", "this-set"], "--target is for random draws"),
        (["--predictions", "a.csv", "--predictions", "b.csv"], "predictions of one model"),
    ):  # fmt: skip
        error = call(*words, *more, code=2)
        assert sentence in error
        assert error.count("\n") == 1
    assert "--choose takes a run and --n" in call(*draw, code=2)
    from_list = ["draw", "--from", chosen, "--choose", "rare", "--n", 2, "-o", chosen]
    assert "--choose takes a run and --n" in call(*from_list, code=2)


@pytest.mark.slow
def test_the_measure_of_uncertainty_is_a_setting(found: audit.Run, tmp_path: Path) -> None:
    ids = found.images.filter(pl.col("split") == "pool")["id"].to_list()
    shares = {"cat": [0.6, 0.5, 0.9, 0.9, 0.9, 0.9], "dog": [0.2, 0.5, 0.1, 0.1, 0.1, 0.1],
              "owl": [0.2, 0.0, 0.0, 0.0, 0.0, 0.0]}  # fmt: skip
    pl.DataFrame({"id": ids, **shares}).write_csv(model := tmp_path / "p.csv")
    words = ["draw", found.path, "--choose", "uncertainty", "--n", 1, "--unlabelled"]
    words += ["--predictions", model, "-o", tmp_path / "next.csv"]
    for more, first in (([], ids[1]), (["--set", "plan.uncertainty=entropy"], ids[0])):
        call(*words, *more)
        assert pl.read_csv(tmp_path / "next.csv")["sample_id"].to_list() == [first]
