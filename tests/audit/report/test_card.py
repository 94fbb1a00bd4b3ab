"""The data card and Croissant: what they say of a run, and that the forms are those of others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import blake3
import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

import audit
from audit.cli.main import app
from audit.report import collect_report
from audit.report.card import NO_LICENCE, collect_facts, to_card, to_croissant
from audit.report.cost import mislabelled_cost
from tests.audit.reviewed import made_hash, made_run


def report_command(*words: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, words)])


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
    audit.open(made).decide("train/cat/0.jpg", "drop")
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
    assert "1 check ran and found nothing." in text
    assert NO_LICENCE in text
    assert "What they cost" not in text


def test_the_command_prints_or_writes_a_card(run: Path, tmp_path: Path) -> None:
    assert "# Data card of pets" in report_command(run, "--card").output
    path = tmp_path / "card.md"
    answer = report_command(run, "-o", path, "--licence", "CC BY 4.0")
    assert answer.exit_code == 0, answer.output
    assert "Licence: CC BY 4.0 (6)" in path.read_text()
    assert json.loads((tmp_path / "card.croissant.json").read_text())["license"] == ["CC BY 4.0"]
    assert report_command(run, "--card", "-o", path).exit_code == 0  # an older one is replaced


def test_python_writes_a_card_too_and_no_place_of_the_run(run: Path, tmp_path: Path) -> None:
    path = audit.open(run).card(tmp_path / "c.md", "MIT")
    assert "Licence: MIT (6)" in Path(path).read_text()
    assert (tmp_path / "c.croissant.json").exists()
    report = collect_report(run)
    told = tuple(mislabelled_cost("test", 3, None, run))
    text = to_card(replace(report, costs=told), collect_facts(report))
    assert "Suspicion alone does not give the accuracy" in text
    assert str(run.parent) not in text


@pytest.mark.parametrize(
    "words", [("--licence", "MIT"), ("--card", "--json"), ("--card", "-o", "x.html")]
)
def test_what_is_no_card_is_a_sentence(run: Path, words: tuple[str, ...]) -> None:
    answer = report_command(run, *words)
    assert isinstance(answer.exception, audit.errors.UsageError), answer.output


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
