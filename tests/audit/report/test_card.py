"""The data card and Croissant: what they say of a run, and that the forms are those of others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import blake3
import polars as pl
import pytest
from markdown_it import MarkdownIt

import audit
from audit.decisions.label_sample import draw_labels, share_of_sample
from audit.errors import UsageError
from audit.report import collect_report, render
from audit.report.card import NO_LICENCE, to_card, to_croissant
from audit.results.costs import Cost, leaked_cost, mislabelled_cost, overstatement, repeated_cost
from audit.results.run_report import collect_facts
from tests.audit.conftest import Command
from tests.audit.reviewed import findings, made_hash, made_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits, two classes, a leak; a manifest with licences; a decision."""
    same = {"pixel_hash": made_hash(7, 32), "content_hash": made_hash(7, 64)}
    images = [
        {"id": f"{split}/{label}/{n}.jpg", "split": split, "label": label, "License": "CC0 *1*"}
        for split in ("train", "test")
        for n, label in enumerate(("cat", "d|og", "cat"))
    ]
    images[0] |= same
    images[3] |= same | {"License": "own"}
    made = made_run(tmp_path_factory.mktemp("card") / "run", images, ["DUP001", "SPLIT001"])
    audit.open(made).decide("train/cat/2.jpg", "drop")
    return made


def test_a_card_has_counts_issues_costs_decisions_and_the_way_back(run: Path) -> None:
    report = collect_report(run)
    text = to_card(report, collect_facts(report))
    assert MarkdownIt("commonmark").enable("table").render(text).count("<table>") == 3
    for said in (
        "Files: 6", "Licence: CC0 \\*1\\* (5), own (1)", "| test | 3 |", "| d\\|og | 1 | 1 |",
        "| SPLIT001 | split-overlap | 1 error | 2 |", "overstated by up to 33.3 points",
        "- drop: 1 sample", "audit scan", collect_facts(report).list_hash,
    ):  # fmt: skip
        assert said in text, said
    assert "Licence: MIT (6)" in to_card(report, collect_facts(report, "MIT"))


def test_the_hash_is_that_of_the_list(run: Path) -> None:
    images = audit.open(run).images.sort("id").select("id", "content_hash", "split", "label")
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in images.iter_rows())
    wanted = blake3.blake3(lines.encode()).hexdigest()
    assert collect_facts(collect_report(run)).list_hash == wanted


def test_a_card_of_a_clean_list_says_so(tmp_path: Path) -> None:
    report = collect_report(made_run(tmp_path / "run", [{}, {}], ["DUP001"]))
    text = to_card(report, collect_facts(report))
    assert "1 check ran without findings." in text
    assert NO_LICENCE in text
    assert "Impact on the evaluation" not in text


def test_the_command_prints_or_writes_a_card(run: Path, tmp_path: Path, command: Command) -> None:
    assert "# Data card of pets" in command("report", run, "--section", "card")[1]
    path = tmp_path / "card.md"
    assert command("report", run, "-o", path, "--licence", "CC BY 4.0")[0] == 0
    assert "Licence: CC BY 4.0 (6)" in path.read_text()
    assert json.loads((tmp_path / "card.croissant.json").read_text())["license"] == ["CC BY 4.0"]
    assert command("report", run, "-o", path)[0] == 0  # an older one is replaced


def test_python_writes_a_card_too_and_no_place_of_the_run(run: Path, tmp_path: Path) -> None:
    path = audit.open(run).card(tmp_path / "c.md", "MIT")
    assert "Licence: MIT (6)" in Path(path).read_text()
    assert (tmp_path / "c.croissant.json").exists()
    report = collect_report(run)
    told = tuple(mislabelled_cost("test", 3, None, run))
    text = to_card(replace(report, costs=told), collect_facts(report))
    assert "suspected labels give no estimate of the accuracy" in text
    assert str(run.parent) not in text


@pytest.mark.parametrize(
    "words",
    [("--licence", "MIT"), ("--section", "card", "--json"), ("--licence", "MIT", "-o", "x.html")],
)
def test_what_is_no_card_is_a_sentence(run: Path, words: tuple[str, ...], command: Command) -> None:
    code, _, refused = command("report", run, *words)
    assert (code, refused.count("\n")) == (2, 1)


def as_croissant(run: Path) -> dict[str, Any]:
    report = collect_report(run)
    layout = replace(report.dataset.layout, name="split/class/file")
    report = replace(report, dataset=replace(report.dataset, layout=layout))
    return to_croissant(report, collect_facts(report))


def test_croissant_has_its_published_form(run: Path) -> None:
    document = as_croissant(run)
    assert document["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert {"name", "description", "license", "distribution", "recordSet"} <= set(document)
    parts = [*document["distribution"], *document["recordSet"]]
    fields = [field for part in parts for field in part.get("field", ())]
    assert [p["@id"] for p in parts] == ["pictures", "split_names", "class_names", "samples"]
    known = {thing["@id"] for thing in (*parts, *fields)}
    assert len(known) == len(parts) + len(fields)
    for field in fields:
        named = [field[key] for key in ("references", "source") if key in field]
        assert {n.get("field", n.get("fileSet"))["@id"] for n in named} <= known
    splits = [record["split_names/name"] for record in parts[1]["data"]]
    assert splits == ["train", "test"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_croissant_is_read_by_its_own_library(run: Path, tmp_path: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant")
    (tmp_path / "croissant.json").write_text(json.dumps(as_croissant(run)))
    found = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert not found.metadata.ctx.issues.errors


# ---- costs ----


CODES = ["DUP", "SPLIT001"]


def test_the_bound_is_that_of_a_model_that_is_right_on_all_it_has_seen() -> None:
    # 97 of 1,000 seen and right, 803 of the 903 others right: 0.9 is measured, 0.8893 is true
    assert overstatement(0.097, 0.9) == pytest.approx(0.9 - 803 / 903)
    assert overstatement(0.097, 0.097) == pytest.approx(0.097)  # nothing else right: all of it
    assert overstatement(0.0, 0.9) == 0
    assert overstatement(0.95, 0.9) == 0.9
    assert overstatement(1.0, 0.9) == 0.9


def test_leaked_pictures_cost_accuracy() -> None:
    (cost,) = leaked_cost("test", 97, 1000, ["train"])
    assert cost.message == (
        "97 of 1,000 images of test (9.7%, 95% CI 8.0 to 11.7) are also in train: an "
        "accuracy on test may be overstated by up to 9.7 points, an accuracy of 90% by up to 1.1."
    )
    assert not list(leaked_cost("test", 0, 1000, ["train"]))


def test_copies_cost_independent_pictures() -> None:
    # 60 alone and 20 units of two: 100 * 100 / (60 + 20 * 4)
    (cost,) = repeated_cost("test", 100, 80, 140)
    assert cost.numbers["effective"] == pytest.approx(10_000 / 140)
    # Wilson at one half: z / (2 sqrt(n + z^2))
    assert cost.numbers["half_width"] == pytest.approx(
        0.5 * 1.959964 / (71.42857 + 3.841459) ** 0.5
    )
    assert "has 71 effective images" in cost.message
    assert "± 11.3 points, not ± 9.62" in cost.message
    assert not list(repeated_cost("test", 100, 100, 100))


def test_wrong_labels_set_a_ceiling_where_their_share_has_an_interval() -> None:
    drawn = share_of_sample(4, 100, 1000)
    (cost,) = mislabelled_cost("test", 7, drawn, Path("run"))
    assert (cost.numbers["ceiling"], cost.numbers["high"]) == (0.96, 1 - drawn.low)
    assert "would reach an accuracy of 96.0% on test" in cost.message
    (cost,) = mislabelled_cost("test", 7, None, Path("my run"))
    assert cost.numbers["ceiling"] is None
    assert "suspected labels give no estimate of the accuracy" in cost.message
    assert "`audit decide 'my run' --draw-labels 200" in cost.message
    assert not list(mislabelled_cost("test", 0, None, Path("run")))


def costly_image(number: int, split: str, same: int | None = None) -> dict[str, Any]:
    pixels = made_hash(number if same is None else same, 64)
    return {"id": f"{split}/{number}.jpg", "split": split, "label": "cat", "pixel_hash": pixels,
            "content_hash": pixels}  # fmt: skip


@pytest.fixture(scope="module")
def costly_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten pictures in train, ten in test: one of train's, two copies of each other, seven more."""
    images = [costly_image(n, "train") for n in range(10)] + [
        costly_image(n, "test") for n in range(10, 17)
    ]
    images += [
        costly_image(17, "test", same=3),
        costly_image(18, "test", same=10),
        costly_image(19, "test", same=11),
    ]
    return made_run(tmp_path_factory.mktemp("cost") / "run", images, CODES)


def kinds(costly_run: Path) -> dict[str, Cost]:
    return {cost.kind: cost for cost in collect_report(costly_run).costs}


def test_costs_of_a_run_and_in_every_form(costly_run: Path) -> None:
    costs = kinds(costly_run)
    assert set(costs) == {"leaked", "repeated"}
    assert costs["leaked"].numbers["share"] == 0.1
    assert costs["repeated"].numbers["different"] == 8
    assert costs["repeated"].numbers["effective"] == pytest.approx(100 / (6 + 2 * 4))
    report = collect_report(costly_run)
    for form in ("txt", "md", "html", "json"):
        text = " ".join("".join(render(report, form)).split())
        assert "overstated by up to 10.0 points" in text, form
    document = json.loads("".join(render(report, "json")))
    assert [c["kind"] for c in document["costs"]] == ["leaked", "repeated"]


def test_the_headline_of_a_leak_counts_images_of_the_evaluation_alone(costly_run: Path) -> None:
    """One of ten in test is leaked; the image of train that it copies is not counted."""
    (leaked,) = (one for one in collect_report(costly_run).first if one.name == "leaked")
    assert leaked.message.startswith(
        "1 image of test is also in training data (1 duplicate group): accuracy on test is up to "
        "10.0 points too high (95% CI "
    )
    assert leaked.files == 2


def test_what_was_waived_costs_nothing(costly_run: Path, tmp_path: Path) -> None:
    decided = audit.open(shutil.copytree(costly_run, tmp_path / "run"))
    decided.decide(list(findings(costly_run, "SPLIT001")), "false-positive")
    assert set(kinds(decided.path)) == {"repeated"}
    decided.decide(["DUP001", "DUP002", "DUP003"], "false-positive")
    assert not kinds(decided.path)


def test_a_clean_run_and_one_without_splits_cost_nothing(tmp_path: Path) -> None:
    clean = made_run(
        tmp_path / "clean", [costly_image(n, s) for n, s in enumerate(["train", "test"] * 3)], CODES
    )
    assert not kinds(clean)
    assert "costs" not in "".join(render(collect_report(clean), "html"))
    whole = [costly_image(n, "x", same=1) | {"split": None} for n in range(3)]
    assert not kinds(made_run(tmp_path / "whole", whole, CODES))


def test_a_reviewed_draw_is_read_by_split(
    costly_run: Path, tmp_path: Path, command: Command
) -> None:
    path = tmp_path / "drawn.csv"
    drawn = draw_labels(costly_run, 17, 0)
    drawn.with_columns(wrong=pl.when(pl.col("id") == "test/12.jpg").then(pl.lit("yes"))
                       .otherwise(pl.lit("no"))).write_csv(path)  # fmt: skip
    costs = {c.kind: c for c in collect_report(costly_run, reviewed=path).costs}
    # 17 different pictures, all drawn: eight in test, of which one is wrong, and no doubt left
    assert costs["mislabelled"].numbers["ceiling"] == pytest.approx(7 / 8)
    assert costs["mislabelled"].numbers["low"] == pytest.approx(7 / 8)
    with pytest.raises(UsageError, match="cannot be read"):
        collect_report(costly_run, reviewed=tmp_path / "none.csv")
    out = command("report", costly_run, "--reviewed", path)[1]
    assert "1 of 8 labels of test drawn at random are wrong" in " ".join(out.split())
