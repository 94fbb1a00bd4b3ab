"""The commands on a real run: plan, draw, score, curve, their documents and their errors."""

from __future__ import annotations

import json

import polars as pl
import pytest
from PIL import Image

from audit.errors import UsageError
from audit.interface import open_audit
from audit.scanning.scanning import scan
from audit.sources import open_source
from audit.subset.source import frame_from_run
from tests.audit.subset.commands import call
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
        "test/dog/01.png": "identical pictures with different labels",
        "test/owl/conflict.png": "identical pictures with different labels",
        "test/owl/broken.png": "unreadable file",
        "test/owl/near.jpg": "a near-duplicate is in the training split (SPLIT001)",
    }
    pair = frame.filter(pl.col("sample_id").is_in(["test/dog/00.png", "test/dog/copy.png"]))
    assert pair["duplicate_group"].n_unique() == 1
    assert pair["duplicate_group"].null_count() == 0
    assert len(frame_from_run(run, None)) == len(frame) + 12


def test_plan_draw_score(run, tmp_path):
    plan_path, subset, model = (tmp_path / n for n in ("plan.json", "subset.parquet", "A.csv"))
    text = call("plan", run, "--n", 21, "--output", plan_path)
    assert "21 of 41 units (42 eligible files of 47)" in text
    assert "test/owl/broken.png: unreadable file" in text
    document = json.loads(call("plan", run, "--n", 21, "--json"))
    assert document == json.loads(plan_path.read_text())

    said = call("draw", run, "--plan", plan_path, "--seed", 7, "-o", subset)
    assert "Drew 21 of 41 units" in said
    rows = pl.read_parquet(subset)
    rows.select("sample_id", prediction="label").write_csv(model)
    assert "100.00 %" in call("score", subset, "--predictions", model)

    found = json.loads(call("score", subset, "--predictions", model, "--predictions", model,
                            "--metric", "macro-f1", "--json"))  # fmt: skip
    assert found["comparison"]["estimands"]["full-set"]["verdict"] == "cannot tell"
    assert "10 units" not in call("score", subset, "--predictions", model, "--first", 12)

    frame_from_run(run, "test").select("sample_id", prediction="label").write_csv(model)
    assert "known: the whole set was scored" in call("score", run, "--predictions", model)

    fresh = tmp_path / "fresh.csv"
    note = call("draw", run, "--plan", plan_path, "--seed", 8, "-o", fresh, "--n", 15,
                "--fresh-from", subset)  # fmt: skip
    assert "fresh draw" in note
    assert not set(pl.read_csv(fresh)["sample_id"]) & set(rows["sample_id"])


def test_confidence_travels_with_the_predictions(run, tmp_path):
    model, plan_path, subset = (tmp_path / n for n in ("A.csv", "plan.json", "s.csv"))
    frame = frame_from_run(run, "test")
    frame.select(
        "sample_id", prediction="label", confidence=pl.int_range(pl.len()) / len(frame)
    ).write_csv(model)
    call("plan", run, "--n", 20, "--by", "confidence", "--predictions", model,
         "--merge-strata", "--output", plan_path)  # fmt: skip
    text = call("draw", run, "--plan", plan_path, "--seed", 1, "-o", subset,
                "--predictions", model)  # fmt: skip
    assert "as precise as a simple random sample" in text
    error = call("draw", run, "--plan", plan_path, "--seed", 1, "-o", subset, code=2)
    assert "give the same --predictions" in error


def test_a_draw_is_from_the_split_that_was_planned(run, tmp_path):
    plan, old, rows = (tmp_path / n for n in ("plan.json", "old.json", "rows.csv"))

    def drawn(plan, *more):
        call("draw", run, "--plan", plan, "-o", rows, *more)
        return set(pl.read_csv(rows)["sample_id"].str.split("/").list.first())

    call("plan", run, "--split", "train", "--n", 8, "--output", plan)
    assert json.loads(plan.read_text())["split"] == "train"
    assert drawn(plan) == {"train"}
    assert drawn(plan, "--split", "test") == {"test"}  # what is named counts more
    every = "--split", "all", "--estimand", "full-set", "--n", 50
    call("plan", run, *every, "--output", plan)
    assert drawn(plan) == {"train", "test"}
    old.write_text(json.dumps({**json.loads(plan.read_text()), "split": None}))
    assert drawn(old, "--n", 20) == {"test"}  # a plan that does not say


def test_curve_and_session(run):
    table = json.loads(call("curve", run, "--size", 10, "--size", 41, "--json"))
    assert [p["n"] for p in table["points"]] == [10, 41]
    session = "sample_data/sessions/torch-healthy.json.gz"
    made = json.loads(call("plan", run, "--seconds", 0.2, "--throughput", session, "--json"))
    assert made["n"] == int(0.2 * made["target"]["throughput"]) == 26


def test_label_noise_from_the_audit(run):
    text = call("plan", run, "--detect", 0.2, "--discordant", 0.4, "--label-noise", "auto")
    assert "Label noise: not used" in text


ERRORS = [
    (["plan", "RUN"], "exactly one of"),
    (["plan", "RUN", "--n", "30", "--split", "nope"], "no split 'nope'; its splits: test, train"),
    (["plan", "RUN", "--n", "30", "--by", "colour"], "no column 'colour'"),
    (["plan", "RUN", "--n", "300"], "the eligible set has 41"),
    (["plan", "nowhere", "--n", "30"], "There is no run at nowhere"),
    (["plan", "RUN", "--seconds", "3", "--throughput", "fast"], "neither a number"),
    (["plan", "RUN", "--n", "9", "--label-noise", "much"], "give a rate such as 0.03, or auto"),
    (["plan", "RUN", "--n", "9", "--estimand", "full-set", "--estimand", "generalisation"],
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


def test_the_output_must_be_a_table(run, tmp_path):
    plan_path = tmp_path / "plan.json"
    call("plan", run, "--n", 21, "--output", plan_path)
    error = call("draw", run, "--plan", plan_path, "--seed", 1, "-o", tmp_path / "s.xlsx", code=2)
    assert "name a .parquet or .csv file" in error


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
    for words in (
        ["plan", out, "--n", 4],
        ["curve", out],
        ["score", out, "--predictions", "x.csv"],
    ):
        assert refusal in call(*words, code=2)
    with pytest.raises(UsageError, match="2 of 10 images"):
        open_audit(out).subset(n=4)
    call("plan", out, "--split", "train", "--n", 4)  # no image there has several labels
    assert frame_from_run(out, None, several=True)["label"].null_count() == 2
