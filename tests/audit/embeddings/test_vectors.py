"""Vectors and probabilities that are given, what they group and rank, and pictures like one."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from audit.checking.check import all_checks, make_params
from audit.embeddings.known_neighbours import AXES, UMAP, place_on_map
from audit.embeddings.label_tables import join_frames, judge_several, number_groups
from audit.embeddings.nearest import (
    ISOLATION,
    Nearest,
    compare_axes,
    distance_scores,
    nearest_places,
)
from audit.embeddings.ridge import decompose
from audit.embeddings.vectors import PictureVectors, match_rows, read_probabilities, read_vectors
from audit.errors import UsageError
from audit.picture.features import FEATURE_ROW
from audit.results.similar import similar_pictures
from audit.run.store import Store
from audit.statistics.outlying import chances_of_largest
from audit.testing import Case, case_store

SAMPLES = pl.DataFrame({"id": ["a.jpg", "b.jpg"], "uri": ["/d/a.jpg", "/d/b.jpg"]})


def vectors(path: Path, rows: list[list[float]], names: list[str] | None = None) -> Path:
    pl.DataFrame({"path": names or ["a.jpg", "b.jpg"], "vector": rows}).write_parquet(path)
    return path


def test_vectors_are_read_from_lists_columns_and_npy(tmp_path: Path) -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    listed = vectors(tmp_path / "a.parquet", rows)
    wide = tmp_path / "b.parquet"
    pl.DataFrame({"id": ["a.jpg", "b.jpg"], "x": [1.0, 3.0], "y": [2.0, 4.0]}).write_parquet(wide)
    saved = tmp_path / "c.npy"
    np.save(saved, np.array(rows))
    saved.with_suffix(".txt").write_text("a.jpg\nb.jpg\n")
    for path in (listed, wide, saved):
        names, found = read_vectors(path)
        assert names == ["a.jpg", "b.jpg"]
        np.testing.assert_array_equal(found, rows)


def test_rows_are_found_by_id_and_by_place() -> None:
    path = Path("f.parquet")
    assert match_rows(path, ["b.jpg", "a.jpg"], SAMPLES).tolist() == [1, 0]
    assert match_rows(path, ["/d/b.jpg"], SAMPLES).tolist() == [-1, 0]


BAD_VECTORS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "lengths": (lambda d: vectors(d / "f.parquet", [[1.0, 2.0], [3.0]]), "others have"),
    "nan": (lambda d: vectors(d / "f.parquet", [[1.0, float("nan")], [3.0, 1.0]]), "NaN"),
    "no paths": (lambda d: (np.save(d / "f.npy", np.zeros((2, 2))), d / "f.npy")[1], "f.txt"),
    "another kind": (lambda d: d / "f.pkl", "neither .npy nor .parquet"),
    "damaged": (
        lambda d: (d.joinpath("f.npy").write_bytes(b"x"), d / "f.npy")[1],
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", BAD_VECTORS)
def test_vectors_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    make, said = BAD_VECTORS[name]
    with pytest.raises(UsageError, match=said):
        read_vectors(make(tmp_path))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"cat": [0.5, 2.0], "dog": [0.5, 1.0]}, "sum to 3"),
        ({"cat": [0.5, -0.5], "dog": [0.5, 1.5]}, "softmax"),
        ({"cat": [1.0, 1.0]}, "one column of probabilities per class"),
    ],
    ids=["sums", "negative", "one class"],
)
def test_probabilities_that_are_none(
    rows: dict[str, list[float]], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.csv"
    pl.DataFrame({"path": ["a.jpg", "b.jpg"], **rows}).write_csv(path)
    with pytest.raises(UsageError, match=said):
        read_probabilities(path)


def test_paths_that_match_nothing_or_twice() -> None:
    with pytest.raises(UsageError, match=r"No path of f\.parquet"):
        match_rows(Path("f.parquet"), ["z.jpg"], SAMPLES)
    with pytest.raises(UsageError, match="twice"):
        match_rows(Path("f.parquet"), ["a.jpg", "a.jpg"], SAMPLES)


NAMES = ("boat", "cat", "dog")


def judged(damaged):
    """Suspects of 600 pictures with two labels or more; of each tenth picture one is turned."""
    rng = np.random.default_rng(2)
    truth = rng.random((600, 3)) < 0.5
    truth[truth.sum(1) < 2] = True
    p = np.clip(np.where(truth, 0.93, 0.07) + rng.normal(0, 0.05, truth.shape), 0.001, 0.999)
    given, ids = truth.copy(), [f"{i:04d}.jpg" for i in range(600)]
    wrong = range(0, 600, 10) if damaged else ()
    for i in wrong:
        given[i, i // 10 % 3] ^= True
    held = [
        {"sample_id": ids[i], "label": NAMES[k].title()}
        for i, k in zip(*given.nonzero(), strict=True)
    ]
    case = Case("several", [{"id": i, "label": None} for i in ids], tables={"several_labels": held})
    found = PictureVectors(
        pl.DataFrame({"id": ids}),
        np.zeros((1, 600, 1), np.float32),
        "",
        p.astype(np.float32),
        NAMES,
    )
    check = all_checks()["LABEL008"]
    with case_store(case) as store:
        rows = judge_several(store, found)
        assert (rows["error_chance"] >= 0.05).all()
        store.append("several_scores", rows)
        findings = list(check.find(store, make_params(check, {})))
    return {s for f in findings for s in f.sample_ids}, {ids[i] for i in wrong}


def test_turned_labels_are_named_and_nothing_else():
    found, wrong = judged(True)
    assert found <= wrong
    assert len(found) >= 0.75 * len(wrong)


def test_right_labels_are_left_alone():
    assert judged(False)[0] == set()


def test_probabilities_of_several_labels_need_not_sum_to_one(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("path,a,b\n1.jpg,.9,.8\n")
    with pytest.raises(UsageError, match=r"sum to 1\.7"):
        read_probabilities(path)
    assert read_probabilities(path, several=True)[2].tolist() == [
        [np.float32(0.9), np.float32(0.8)]
    ]
    path.write_text("path,a,b\n1.jpg,1.9,.8\n")
    with pytest.raises(UsageError, match="no probabilities"):
        read_probabilities(path, several=True)


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


@pytest.fixture(scope="module")
def store() -> Store:
    """a is nearest to b, c counts a among its own; a2 is a copy of a, z has no vector."""
    made = Store.memory()
    made.create_measurements(FEATURE_ROW)
    ids = ("a", "a2", "b", "c", "z")
    made.append("samples", [{"id": i, "uri": i, "label": "cat", "n_bytes": 1} for i in ids])
    made.append("features", [{"sample_id": i, "status": "ok", "pixel_hash": i[0]} for i in ids])
    near = (("a", "b", 0.8), ("b", "a", 0.8), ("c", "a", 0.9), ("c", "b", 0.2))
    made.append(
        "vector_neighbours",
        [
            {"sample_id": one, "position": 0, "neighbour_id": other, "similarity": alike}
            for one, other, alike in near
        ],
    )
    return made


@pytest.mark.parametrize("sample", ["a", "a2"])
def test_both_directions_the_most_alike_first(store: Store, sample: str) -> None:
    found = similar_pictures.__wrapped__(store, sample)
    assert found.select("sample_id", "similarity").rows() == [("c", 0.9), ("b", 0.8)]
    assert found["label"].to_list() == ["cat", "cat"]
    assert similar_pictures.__wrapped__(store, sample, 1)["sample_id"].to_list() == ["c"]


@pytest.mark.parametrize("sample", ["z", "no such sample"])
def test_a_picture_without_neighbours(store: Store, sample: str) -> None:
    assert similar_pictures.__wrapped__(store, sample).is_empty()


RATE = 0.01


def scores_of(points: np.ndarray, units: np.ndarray | None = None) -> np.ndarray:
    own = np.arange(len(points)) if units is None else units
    axes = compare_axes(decompose((points - points.mean(0)).astype(np.float32)))
    return distance_scores(axes, nearest_places(axes, own, ISOLATION))


def smallest_chance(points: np.ndarray) -> float:
    return float(chances_of_largest(np.sort(scores_of(points))[::-1]).min())


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 32))


def heavy(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 32)) / np.sqrt(rng.chisquare(1, (n, 1)))


def skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.exp(rng.normal(size=(n, 32)))


def columns(rng: np.random.Generator, n: int) -> np.ndarray:
    """A body of many columns and a tail of one: distances have heavier tails farther out."""
    return rng.standard_t(3, size=(n, 64))


@pytest.mark.slow
@pytest.mark.parametrize("make", [normal, heavy, skewed, columns])
def test_chances_of_sets_without_outliers_are_large(make: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(3)
    found = sum(smallest_chance(make(rng, (60, 250)[i % 2])) <= RATE for i in range(30))
    assert found <= 2  # of 30 sets at 1 %: 3 and more come by chance in one of 300 runs


@pytest.mark.parametrize("together", [1, 3, 6])
def test_planted_outliers_rank_first(together: int) -> None:
    points = normal(np.random.default_rng(together), 230)
    points[:together] += 36 * np.eye(32)[0]
    order = np.argsort(-scores_of(points))
    assert set(order[:together]) == set(range(together))
    assert smallest_chance(points) <= RATE


def test_copies_of_an_outlier_do_not_hide_it() -> None:
    rng = np.random.default_rng(9)
    points, units = normal(rng, 100), np.arange(100)
    points[:12] = 40 * np.eye(32)[0] + 0.01 * rng.normal(size=(12, 32))
    assert set(np.argsort(-scores_of(points))[:12]) != set(range(12))
    units[:12] = 0
    assert set(np.argsort(-scores_of(points, units))[:12]) == set(range(12))


def test_two_clouds_lie_apart() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 12)) + 9 * (np.arange(120) % 2)[:, None]
    places, how = place_on_map(decompose((points - points.mean(0)).astype(np.float32)))
    assert how == (UMAP if importlib.util.find_spec("umap") else AXES)
    middles = np.stack([places[i::2].mean(0) for i in range(2)])
    spread = max(places[i::2].std(0).max() for i in range(2))
    assert np.linalg.norm(middles[0] - middles[1]) > 4 * spread


def test_one_direction_only() -> None:
    line = np.linspace(-1, 1, 20)[:, None] * np.ones((1, 3))
    places, how = place_on_map(decompose(line.astype(np.float32)))
    assert (how, places.shape) == (AXES, (20, 2))
    assert np.isfinite(places).all()
