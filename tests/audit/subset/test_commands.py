"""The commands on a real run: plan, draw, score, their documents and their errors."""

import json

import polars as pl
import pytest
from PIL import Image

from audit.errors import UsageError
from audit.interface import open_audit
from audit.scanning.scanning import scan
from audit.sources import open_source
from audit.subset.source import frame_from_run
from tests.audit.subset.frames import call, document
from tests.conftest import picture

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A scanned set: 3 classes of 14 in test, with a leak, a conflict, a copy and a broken file."""
    root = tmp_path_factory.mktemp("pets")
    seed = 0
    for split, count in (("train", 4), ("test", 14)):
        for label in ("cat", "dog", "owl"):
            folder = root / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(picture(seed, 48, 40)).save(folder / f"{number:02d}.png")
                seed += 1
    test = root / "test"
    Image.open(root / "train/cat/00.png").save(test / "cat/leak.png")
    Image.open(root / "train/owl/00.png").save(test / "owl/near.jpg", quality=85)
    Image.open(test / "dog/00.png").save(test / "dog/copy.png", compress_level=1)
    Image.open(test / "dog/01.png").save(test / "owl/conflict.png", compress_level=1)
    (test / "owl" / "broken.png").write_bytes((test / "owl/00.png").read_bytes()[:40])
    out = tmp_path_factory.mktemp("run") / "run"
    scan(open_source([str(root)]), out, jobs=1, checks=["SPLIT001"])
    return out


def test_what_a_run_leaves_out(run):
    frame = frame_from_run(run, "test")
    out = {r["sample_id"]: r["excluded_reason"] for r in frame.iter_rows(named=True)}
    assert {k: v for k, v in out.items() if v} == {
        "test/cat/leak.png": "also in the training split",
        "test/dog/01.png": "identical images with different labels",
        "test/owl/conflict.png": "identical images with different labels",
        "test/owl/broken.png": "unreadable file",
        "test/owl/near.jpg": "a near-duplicate is in the training split (SPLIT001)",
    }
    pair = frame.filter(pl.col("sample_id").is_in(["test/dog/00.png", "test/dog/copy.png"]))
    assert pair["duplicate_group"].n_unique() == 1
    assert pair["duplicate_group"].null_count() == 0
    assert len(frame_from_run(run, None)) == len(frame) + 12


def test_plan_draw_score(run, tmp_path):
    plan, subset, model, fresh = (
        tmp_path / name for name in ("plan.json", "subset.parquet", "A.csv", "fresh.csv")
    )
    text = call("plan", run, "--n", 21, "--output", plan)
    assert "21 of 41 units (42 eligible files of 47)" in text
    assert "test/owl/broken.png: unreadable file" in text
    assert document("plan", run, "--n", 21) == json.loads(plan.read_text())

    said = call("draw", run, "--plan", plan, "--seed", 7, "-o", subset)
    assert "Drew 21 of 41 units" in said
    rows = pl.read_parquet(subset)
    rows.select("sample_id", prediction="label").write_csv(model)
    models = ["--predictions", model]
    assert "100.00%" in call("score", subset, *models)
    found = document("score", subset, *models, *models, "--metric", "macro-f1")
    assert found["comparison"]["estimands"]["full-set"]["verdict"] == "inconclusive"
    assert "10 units" not in call("score", subset, *models, "--first", 12)

    frame_from_run(run, "test").select("sample_id", prediction="label").write_csv(model)
    assert "known: the whole set was scored" in call("score", run, *models)

    words = ["draw", run, "--plan", plan, "--seed", 8, "--n", 15, "--exclude-drawn", subset]
    assert "fresh draw" in call(*words, "-o", fresh)
    assert not set(pl.read_csv(fresh)["sample_id"]) & set(rows["sample_id"])
    refused = call("draw", run, "--plan", plan, "--seed", 1, "-o", tmp_path / "s.xlsx", code=2)
    assert "name a .parquet or .csv file" in refused


def test_confidence_travels_with_the_predictions(run, tmp_path):
    model, plan = tmp_path / "A.csv", tmp_path / "plan.json"
    frame = frame_from_run(run, "test")
    confidence = pl.int_range(pl.len()) / len(frame)
    frame.select("sample_id", prediction="label", confidence=confidence).write_csv(model)
    strata = ["--by", "confidence", "--set", "plan.merge_strata=true"]
    call("plan", run, "--n", 20, *strata, "--output", plan, "--predictions", model)
    draw = ["draw", run, "--plan", plan, "--seed", 1, "-o", tmp_path / "s.csv"]
    assert "as precise as a simple random sample" in call(*draw, "--predictions", model)
    assert "give the same --predictions" in call(*draw, code=2)


def test_a_draw_is_from_the_split_that_was_planned(run, tmp_path):
    plan, old, rows = (tmp_path / n for n in ("plan.json", "old.json", "rows.csv"))

    def drawn(plan, *more):
        call("draw", run, "--plan", plan, "-o", rows, *more)
        return set(pl.read_csv(rows)["sample_id"].str.split("/").list.first())

    call("plan", run, "--split", "train", "--n", 8, "--output", plan)
    assert json.loads(plan.read_text())["split"] == "train"
    assert drawn(plan) == {"train"}
    assert drawn(plan, "--split", "test") == {"test"}  # what is named counts more
    every = "--split", "all", "--target", "this-set", "--n", 50
    call("plan", run, *every, "--output", plan)
    assert drawn(plan) == {"train", "test"}
    old.write_text(json.dumps({**json.loads(plan.read_text()), "split": None}))
    assert drawn(old, "--n", 20) == {"test"}  # a plan that does not say


def test_sizes_session_and_label_noise(run):
    table = document("plan", run, "--sizes", "10,41")
    assert [p["n"] for p in table["points"]] == [10, 41]
    assert table["worth"] == 0.001
    words = ["plan", run, "--sizes", "auto", "--set", "plan.min_gain=0.5"]
    assert document(*words)["worth"] == 0.5
    assert len(document(*words)["points"]) > 10
    assert "In points:" in call(*words)
    session = "sample_data/sessions/torch-healthy.json.gz"
    made = document("plan", run, "--seconds", 0.2, "--throughput", session)
    assert made["n"] == int(0.2 * made["target"]["throughput"]) == 26
    noise = ["--set", "plan.label_noise=auto"]
    text = call("plan", run, "--detect", 0.3, "--set", "plan.disagreement=0.4", *noise)
    assert "Label noise: not used" in text


def test_assumptions_are_settings_of_a_file_or_of_the_call(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "other.toml"
    words = ["plan", run, "--half-width", 0.2]
    plain = document(*words)["n"]
    config.write_text("[plan]\nexpected = 0.95\nlabel_strata = false\n")
    by_file = document(*words, "--config", config)
    assert by_file["n"] < plain
    assert [s["name"] for s in by_file["strata"]] == ["all"]
    (tmp_path / "audit.toml").write_text(config.read_text())
    assert document(*words) == by_file
    by_call = ["--set", "plan.expected=0.5", "--set", "plan.label_strata=true"]
    assert document(*words, *by_call)["n"] == plain
    config.write_text("[plan]\nlooks = 2\n")
    assert "[plan] has no 'looks'" in call(*words, "--config", config, code=2)


def test_the_mean_of_a_column_is_planned_and_drawn_as_it_is_scored(run, tmp_path):
    subset, losses = tmp_path / "s.csv", tmp_path / "loss.csv"
    frame = frame_from_run(run, "test")
    frame.select("sample_id", loss=pl.int_range(pl.len()) * 0.5).write_csv(losses)
    deviation, mean = ["--set", "plan.deviation=8"], ["--metric", "mean:loss"]
    goal = [*mean, "--half-width", 4, *deviation]
    n = document("plan", run, *goal)["n"]
    assert 17 <= n <= 21  # (1.96 x 8 / 4)^2 = 15.4, and more for Student's quantile
    assert document("plan", run, *goal, "--target", "this-set")["n"] < n
    text = call("draw", run, *goal, "-o", subset)
    assert f"`audit subset score {subset} --predictions MODEL.csv --metric mean:loss`" in text
    found = document("score", subset, "--predictions", losses, *mean)
    assert (found["n_units"], found["measures"][0]["what"]) == (n, "mean loss")
    assert document("plan", run, *mean, "--n", 12)["n"] == 12
    # the deviation is of no other metric
    words = ["plan", run, "--half-width", 0.2]
    assert document(*words, *deviation) == document(*words)


def test_a_drawn_subset_keeps_its_planned_comparisons(run, tmp_path):
    subset, model = tmp_path / "s.csv", tmp_path / "m.csv"
    frame_from_run(run, "test").select("sample_id", prediction="label").write_csv(model)
    planned = ["--set", "plan.comparisons=4"]
    call("draw", run, "--n", 21, *planned, "-o", subset)
    words = ["score", subset, "--predictions", model]
    assert document(*words) == document(*words, *planned)
    other = call(*words, "--set", "plan.comparisons=2", code=2)
    assert "this subset was planned for 4" in other


ERRORS = [
    (["plan", "RUN"], "exactly one of"),
    (["plan", "RUN", "--n", "30", "--split", "nope"], "no split 'nope'; its splits: test, train"),
    (["plan", "RUN", "--n", "30", "--by", "colour"], "no column 'colour'"),
    (["plan", "RUN", "--n", "300"], "the eligible set has 41"),
    (["plan", "nowhere", "--n", "30"], "There is no run at nowhere"),
    (["plan", "RUN", "--seconds", "3", "--throughput", "fast"], "neither a number"),
    (["plan", "RUN", "--n", "9", "--set", "plan.label_noise=much"],
     "[plan] label_noise is 'much': write a number or auto"),
    (["plan", "RUN", "--n", "9", "--set", "plan.power=high"], "[plan] power is 'high'"),
    (["plan", "RUN", "--n", "9", "--set", "plan.power=1.5"], "[plan] power is 1.5"),
    (["plan", "RUN", "--n", "9", "--set", "plan.comparisons=0"], "[plan] comparisons is 0"),
    (["plan", "RUN", "--n", "9", "--set", "plan.comparisons=1.5"], "[plan] comparisons is 1.5"),
    (["plan", "RUN", "--n", "9", "--set", "plan.merge_strata=2"], "write true or false"),
    (["plan", "RUN", "--n", "9", "--set", "plan.allocation=best"],
     "write proportional or equal or neyman"),
    (["plan", "RUN", "--n", "9", "--set", "plan.looks=2"], "no setting 'plan.looks'"),
    (["plan", "RUN", "--sizes", "many"], "--sizes is 'many'"),
    (["plan", "RUN", "--sizes", "10,4000"], "Sizes must lie between"),
    (["plan", "RUN", "--sizes", "10", "--n", "9"], "--n is for a plan of a single size"),
    (["plan", "RUN", "--sizes", "10", "-o", "p.json"], "--output is for a plan of a single size"),
    (["plan", "RUN", "--sizes", "10", "--metric", "map"], "--sizes is for metrics of images"),
    (["plan", "RUN", "--metric", "mean:loss", "--half-width", "2"], "--set plan.deviation=NUMBER"),
    (["plan", "RUN", "--metric", "mean:loss", "--detect", "2"], "needs --n, or --half-width"),
    (["plan", "RUN", "--metric", "mean:loss", "--n", "9", "--half-width", "2"], "exactly one of"),
    (["score", "RUN"], "Name what to score: --predictions FILE, or --answers SHEET"),
    (["score", "RUN", "--predictions", "a.csv", "--metric", "mean:loss", "--metric", "accuracy"],
     "is scored alone"),
    (["score", "RUN", "--predictions", "a.csv", "--predictions", "b.csv", "--metric", "mean:loss"],
     "is scored alone"),
    (["score", "RUN", "--predictions", "a.csv", "--metric", "mean:loss", "--by-class"],
     "--by-class is for metrics of classes"),
    (["plan", "RUN", "--n", "9", "--target", "this-set", "--target", "new-data"],
     "names two targets"),
    (["draw", "RUN", "--plan", "none.json", "--seed", "1", "-o", "s.csv"], "cannot be read"),
    (["score", "none.csv", "--predictions", "x.csv"], "none.csv does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "sentence"), ERRORS)
def test_errors_are_one_sentence(run, args, sentence):
    error = call(*[run if a == "RUN" else a for a in args], code=2)
    assert sentence in error
    assert "Traceback" not in error
    assert error.count("\n") == 1


def test_images_with_several_labels_are_refused(tmp_path):
    lines = ["path,label,split"]
    for k in range(16):
        Image.fromarray(picture(900 + k, 40, 40)).save(tmp_path / f"{k:02d}.png")
        label = "sea;tree" if k in (3, 5) else ("sea", "tree")[k % 2]
        lines.append(f"{k:02d}.png,{label},{'train' if k >= 10 else 'test'}")
    (tmp_path / "set.csv").write_text("\n".join(lines))
    out = tmp_path / "run"
    scan(open_source([str(tmp_path / "set.csv")]), out, jobs=1, checks=["SPLIT001"])
    refusal = "2 of 10 images have several labels, such as '03.png' (sea, tree)"
    for command, *words in (
        ["plan", "--n", 4],
        ["plan", "--sizes", "auto"],
        ["score", "--predictions", "x.csv"],
    ):
        assert refusal in call(command, out, *words, code=2)
    with pytest.raises(UsageError, match="2 of 10 images"):
        open_audit(out).subset(n=4)
    call("plan", out, "--split", "train", "--n", 4)  # no image there has several labels
    assert frame_from_run(out, None, several=True)["label"].null_count() == 2
