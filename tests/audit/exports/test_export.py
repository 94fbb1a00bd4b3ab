"""Exports: the kept set and its reasons as tables, read again by a scan, nobody's file touched."""

import csv
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.decisions import keeper_rules
from audit.decisions.decisions import decide_findings, decide_samples
from audit.decisions.store import DecisionStore, Entry
from audit.errors import UsageError
from audit.exports.export import TABLES, export_tables
from audit.picture.features import MEASURED
from audit.records import Action
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.sources import open_source
from audit.sources.paths import path_of
from audit.sources.tables import MARK, neutralise
from tests.audit.conftest import Command
from tests.audit.reviewed import CODES, made_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def decided(reviewed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with decisions of every kind."""
    run = Path(shutil.copytree(reviewed_run, tmp_path_factory.mktemp("decided") / "run"))
    decide_samples(run, ["train/dog/wrong.jpg"], Action.RELABEL, "cat", by="anna")
    keeper_rules.apply_rule(
        run, keeper_rules.propose(run, "DUP001", drop_from_splits=["train"]), by="anna"
    )
    keeper_rules.apply_rule(run, keeper_rules.propose(run, "DUP003"), by="anna")
    decide_findings(run, ["FILE001"], Action.DROP, note="an error page", by="anna")
    decide_findings(run, ["LABEL002"], Action.RELABEL, "cat", by="anna")
    decide_samples(run, ["train/dog/3.jpg"], Action.MOVE, "test", by="anna")
    return run


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def every_file(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*") if path.is_file()
    }  # fmt: skip


def test_everything_is_written_and_the_dataset_is_as_it_was(
    reviewed_run: Path, decided: Path, tmp_path: Path
) -> None:
    before = every_file(reviewed_run.parent)
    result = export_tables(decided, tmp_path / "out")
    assert every_file(reviewed_run.parent) == before
    assert {path.name for path in result.files} == {f"{t}.csv" for t in TABLES} | {
        "kept.txt", "quarantine.txt",
    }  # fmt: skip
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        *(path.name for path in result.files), "export.json",
    }  # fmt: skip
    assert (result.kept, result.dropped, result.changed) == (18, 6, 2)
    record = json.loads((tmp_path / "out/export.json").read_text())
    assert record["schema"] == "audit-export/1"
    assert record["generation"] == "gen-0001"
    assert record["files"]["manifest.csv"] == 18


def test_the_manifest_is_the_kept_set_as_decided(
    reviewed_run: Path, decided: Path, tmp_path: Path
) -> None:
    export_tables(decided, tmp_path, "parquet")
    manifest = pl.read_parquet(tmp_path / "manifest.parquet")
    rows = {row["id"]: row for row in manifest.iter_rows(named=True)}
    dropped = {
        "train/cat/copy.jpg", "train/cat/1.jpg", "train/dog/wrong.jpg", "train/dog/0.jpg",
        "train/dog/small.jpg", "train/cat/broken.jpg",
    }  # fmt: skip
    with open_run(decided) as store:
        every = set(store.query("SELECT id FROM samples")["id"])
    assert set(rows) == every - dropped
    assert rows["train/Cat/0.jpg"]["label"] == "cat"
    assert rows["train/dog/3.jpg"]["split"] == "test"
    assert rows["train/dog/2.jpg"] == {
        "id": "train/dog/2.jpg", "path": str(reviewed_run.parent / "pets/train/dog/2.jpg"),
        "split": "train", "label": "dog", "group": None,
    }  # fmt: skip
    changes = pl.read_parquet(tmp_path / "changes.parquet")
    assert changes.select("id", "label_before", "label", "split_before", "split").rows() == [
        ("train/Cat/0.jpg", "Cat", "cat", "train", "train"),
        ("train/dog/3.jpg", "dog", "dog", "train", "test"),
    ]


def test_the_quarantine_says_why_and_by_whom(decided: Path, tmp_path: Path) -> None:
    export_tables(decided, tmp_path)
    rows = {row["id"]: row for row in table(tmp_path / "quarantine.csv")}
    assert len(rows) == 6
    assert rows["train/cat/broken.jpg"]["reason"] == "an error page"
    assert rows["train/cat/broken.jpg"]["findings"] == "FILE001"
    assert rows["train/cat/1.jpg"]["reason"] == (
        "DUP001: test/cat/leak.jpg in test stays, copies in train are dropped"
    )
    assert rows["train/cat/1.jpg"]["findings"] == "DUP001 SPLIT001"
    assert "train/dog/large.jpg stays, the largest of 3 copies" in rows["train/dog/0.jpg"]["reason"]
    assert {row["by"] for row in rows.values()} == {"anna"}


def test_a_manifest_can_be_scanned_again(decided: Path, tmp_path: Path) -> None:
    export_tables(decided, tmp_path / "out")
    source = open_source([str(tmp_path / "out/manifest.csv")])
    scanning.scan(source, tmp_path / "again", jobs=1, checks=CODES)
    columns = "SELECT id, uri, split, label FROM samples ORDER BY id"
    with open_run(tmp_path / "again") as store:
        found = store.query(columns)
        codes = set(store.query("SELECT code FROM findings")["code"])
    told = pl.read_csv(tmp_path / "out/manifest.csv").sort("id")
    assert found.rows() == told.select("id", "path", "split", "label").rows()
    assert codes == {"IMG001"}, "what was decided about is gone"


def test_lists_hold_one_path_a_line_and_scores_every_feature_of_every_sample(
    decided: Path, tmp_path: Path
) -> None:
    result = export_tables(decided, tmp_path, "parquet")
    kept = (tmp_path / "kept.txt").read_text().splitlines()
    gone = (tmp_path / "quarantine.txt").read_text().splitlines()
    assert (len(kept), len(gone)) == (18, 6)
    assert (result.files[tmp_path / "kept.txt"], result.files[tmp_path / "quarantine.txt"]) == (
        18,
        6,
    )
    assert all(Path(path).is_file() for path in kept + gone)
    assert not set(kept) & set(gone)
    scores = pl.read_parquet(tmp_path / "scores.parquet")
    assert scores.columns[:4] == ["sample_id", "path", "split", "label"]
    assert {column.name for column in MEASURED} <= set(scores.columns)
    assert scores.height == 24


# ---- names from strangers ----


def stranger(tmp_path: Path) -> Path:
    images: list[dict[str, Any]] = [
        {"id": "=1+1.jpg", "label": "=cmd|' /C calc'!A1", "@who": "+49 30", "score": -1.5},
        {"id": "b.jpg", "label": "-1", "@who": "@me", "score": 2.0},
        {"id": "c.jpg", "uri": "/pets/two\nlines.jpg", "label": "+1.5e3", "@who": "x",
         "score": 0.0},
        {"id": "-d.jpg", "label": "\tcat", "@who": "-", "score": 0.0},
    ]  # fmt: skip
    return made_run(tmp_path / "run", images)


def test_formulas_are_neutralised_in_csv_and_kept_in_parquet(tmp_path: Path) -> None:
    run = stranger(tmp_path)
    decide_samples(run, ["b.jpg"], Action.DROP, note="=HYPERLINK(0)", by="@anna")
    result = export_tables(run, tmp_path / "out")
    rows = table(tmp_path / "out/manifest.csv")
    assert [row["id"] for row in rows] == ["'=1+1.jpg", "c.jpg", "'-d.jpg"]
    assert [row["label"] for row in rows] == ["'=cmd|' /C calc'!A1", "+1.5e3", "'\tcat"]
    assert [row["'@who"] for row in rows] == ["'+49 30", "x", "'-"]
    assert rows[0]["score"] == "-1.5"
    (gone,) = table(tmp_path / "out/quarantine.csv")
    assert (gone["reason"], gone["by"], gone["label"]) == ("'=HYPERLINK(0)", "'@anna", "-1")
    for name in ("manifest", "quarantine", "scores", "pairs", "changes", "stale"):
        for row in table(tmp_path / f"out/{name}.csv"):
            risky = [cell for cell in (*row, *row.values()) if cell[:1] in ("=", "@", "\t")]
            assert not risky, name
    assert result.neutralised > 0
    exact = export_tables(run, tmp_path / "exact", "parquet")
    assert exact.neutralised == 0
    lines = (tmp_path / "out/kept.txt").read_text().splitlines()
    assert (len(lines), path_of(lines[1])) == (3, "/pets/two\nlines.jpg")  # stays one line
    manifest = pl.read_parquet(tmp_path / "exact/manifest.parquet")
    assert manifest["label"].to_list() == ["=cmd|' /C calc'!A1", "+1.5e3", "\tcat"]
    assert manifest["@who"].to_list() == ["+49 30", "x", "-"]


TEXTS = st.one_of(
    st.text("'=+-@\t\r\n ;,\"\x1c\x85a1", max_size=5),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
    st.sampled_from([MARK, MARK[1:], f"'{MARK}", "-1", "'=x", "''"]),
)
ROLES = ("id", "path", "split", "label", "group")


@settings(max_examples=100)
@given(
    names=st.lists(
        TEXTS.filter(lambda t: t and t.strip().lower() not in (*ROLES, "sample_id")),
        max_size=4, unique_by=str.lower,
    ),
    cells=st.lists(st.tuples(*[st.none() | TEXTS] * 7), min_size=1, max_size=4),
)  # fmt: skip
def test_every_text_and_header_is_read_back_to_the_letter(
    tmp_path: Path, names: list[str], cells: list[tuple[str | None, ...]]
) -> None:
    rows = [
        (str(i), f"/pets/{i}.jpg", *(text or None for text in row[:3]), *row[3 : 3 + len(names)])
        for i, row in enumerate(cells)
    ]
    # One word in every column: without a type of their own, all texts that read as numbers are.
    rows.append(("last", "/pets/last.jpg", None, None, None, *["x"] * len(names)))
    columns = [*ROLES, *names]
    frame = pl.DataFrame(rows, dict.fromkeys(columns, pl.String), orient="row")
    neutralise(frame).write_csv(tmp_path / "m.csv")
    with (tmp_path / "m.csv").open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    risky = [c for row in (header, *lines) for c in row if c[:1] in ("=", "@", "\t", "\r", "\n")]
    assert risky == []
    source = open_source([str(tmp_path / "m.csv")])
    (batch,) = source.batches()
    assert [(s.id, s.uri, s.split, s.label, s.group) for s in batch] == [r[:5] for r in rows]
    if names:
        metadata = source.metadata
        assert metadata is not None
        assert metadata.columns == ["sample_id", *names]
        assert metadata.rows() == [(row[0], *row[5:]) for row in rows]


def test_a_column_of_the_users_that_is_called_like_one_of_ours_is_kept(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("path,Split,split,split_2\na.jpg,train,mine,other\n")
    scanning.scan(open_source([str(tmp_path / "own.csv")]), tmp_path / "run", jobs=1, checks=[])
    export_tables(tmp_path / "run", tmp_path / "out")
    (row,) = table(tmp_path / "out/manifest.csv")
    assert (row["split"], row["split_3"], row["split_2"]) == ("train", "mine", "other")
    (tmp_path / "own.csv").write_text("path,label\na.jpg,'=x\nb.jpg,'\n")
    (batch,) = open_source([str(tmp_path / "own.csv")]).batches()
    assert [sample.label for sample in batch] == ["'=x", "'"]  # classes keep their apostrophe


# ---- stale decisions, and files in the way ----


def test_stale_decisions_are_listed_and_not_applied(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [{}, {}])
    DecisionStore(run).record([Entry("sample", "0.jpg", "another", Action.DROP, None, "", "anna")])
    result = export_tables(run, tmp_path / "out")
    assert (result.kept, result.dropped, result.stale.height) == (2, 0, 1)
    (row,) = table(tmp_path / "out/stale.csv")
    assert (row["subject"], row["reason"]) == ("0.jpg", "its content changed since")


def test_an_export_replaces_its_own_files_and_nobody_elses(tmp_path: Path) -> None:
    run, out = made_run(tmp_path / "run", [{}, {}]), tmp_path / "out"
    export_tables(run, out)
    decide_samples(run, ["0.jpg"], Action.DROP)
    assert export_tables(run, out).kept == 1
    assert len((out / "kept.txt").read_text().splitlines()) == 1
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "manifest.csv").write_text("path\nprecious.jpg\n")
    with pytest.raises(
        UsageError, match="exists: choose another name, or replace it with --replace"
    ):
        export_tables(run, mine)
    assert {p.name: p.read_text() for p in mine.iterdir()} == {
        "manifest.csv": "path\nprecious.jpg\n"
    }
    assert export_tables(run, mine, replace=True).files[mine / "manifest.csv"] == 1


def test_a_table_edited_by_hand_is_kept(tmp_path: Path) -> None:
    run, out = made_run(tmp_path / "run", [{}, {}]), tmp_path / "out"
    export_tables(run, out)
    edited = (out / "manifest.csv").read_text().replace("0.jpg", "better.jpg")
    (out / "manifest.csv").write_text(edited)
    decide_samples(run, ["0.jpg"], Action.DROP)
    with pytest.raises(UsageError, match=r"manifest.csv was edited after the last export"):
        export_tables(run, out)
    assert (out / "manifest.csv").read_text() == edited
    assert export_tables(run, out, replace=True).kept == 1
    assert export_tables(run, out).kept == 1
    record = json.loads((out / "export.json").read_text())
    assert set(record["sha256"]) == set(record["files"])


def test_the_runs_own_files_are_safe_even_from_replace(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [{}, {}])
    (run / "signatures").mkdir()
    (run / "signatures/pairs.parquet").write_bytes(b"precious")
    with pytest.raises(UsageError, match=r"choose another name\."):
        export_tables(run, run / "signatures", "parquet", replace=True)
    assert (run / "signatures/pairs.parquet").read_bytes() == b"precious"


def test_other_formats_and_places_are_refused(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [{}])
    with pytest.raises(UsageError, match="csv or parquet"):
        export_tables(run, tmp_path / "out", "xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        export_tables(run, tmp_path / "file" / "out")
    (tmp_path / "full" / "pairs.csv").mkdir(parents=True)
    with pytest.raises(UsageError, match="is a folder"):
        export_tables(run, tmp_path / "full")
    assert not [p for p in tmp_path.iterdir() if p.name.endswith(".part")]


def test_export_on_the_command_line(decided: Path, tmp_path: Path, command: Command) -> None:
    audit = partial(command, "export", decided)
    code, out, _ = audit("--out", tmp_path / "out", "--format", "parquet")
    assert code == 0
    assert "18 samples kept (2 relabelled or moved), 6 dropped." in out
    code, _, said = audit()
    assert (code, said.count("\n")) == (2, 1)
    assert "Name one output: --out FOLDER, or --plan PLAN.json." in said
    assert audit("--out", tmp_path / "o", "--plan", tmp_path / "plan.json")[0] == 2
