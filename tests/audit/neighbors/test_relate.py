"""The relate stage: near-duplicates of a scan, whatever the order, the kills and the additions."""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

import audit
from audit.checking.config import Config
from audit.errors import RunError, UsageError
from audit.exports.export import export_tables
from audit.machine.executors import Item, Result, Serial
from audit.neighbors import search
from audit.neighbors.pairs.signature_store import load_signatures, write_signatures
from audit.neighbors.pairs.stored_pairs import load_pair_cache
from audit.picture.decode import Limits
from audit.picture.features import FEATURE_ROW
from audit.picture.measure import signature_table
from audit.picture.signatures import make_signature
from audit.records import Severity
from audit.report.file_card import pair_text
from audit.results.export_tables import COLUMNS
from audit.results.image_search import find_overlap
from audit.results.pair_details import show_pair
from audit.results.results import open_results
from audit.run import run_version
from audit.run.run_version import open_run
from audit.run.store import Store
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.sources import open_source
from tests.conftest import make_tree, picture

pytestmark = pytest.mark.slow

NAMED = """
    SELECT DISTINCT p.* EXCLUDE (a, b), x.id AS a, y.id AS b FROM pairs p
    JOIN images x ON x.pixel_hash = p.a JOIN images y ON y.pixel_hash = p.b ORDER BY ALL
"""


class Backwards:
    """Runs chunks last first, each file by itself: what another schedule would do."""

    def run(
        self, work: Callable[[Sequence[Item]], Result], chunks: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result]]:
        items = [item for chunk in chunks for item in chunk]
        for item in reversed(items):
            yield [item], work([item])


def with_copies(tree: Path) -> Path:
    """The small dataset with a mirrored copy in train and a recompressed one in test."""
    cat = Image.open(tree / "train/cat/0.jpg")
    ImageOps.mirror(cat).save(tree / "train/cat/mirrored.jpg", quality=80)
    Image.open(tree / "train/dog/1.jpg").save(tree / "test/dog/again.jpg", quality=50)
    return tree


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `pets` and a `run` of them, which no test changes."""
    folder = tmp_path_factory.mktemp("related")
    scan(with_copies(make_tree(folder / "pets")), folder / "run")
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


@pytest.fixture
def pets(tree: Path) -> Path:
    """The dataset again, for tests that change it."""
    return with_copies(tree)


def scan(root: Path, run: Path, **options: object) -> scanning.ScanResult:
    options = {"executor": Serial(), "checks": ["DUP", "SPLIT001"], **options}
    return scanning.scan(open_source([str(root)]), run, **options)  # type: ignore[arg-type]


def related(run: Path) -> tuple[pl.DataFrame, ...]:
    with open_run(run) as store:
        groups = store.query("SELECT * FROM groups ORDER BY ALL")
        return store.query(NAMED), groups, store.query("SELECT * FROM relate_facts ORDER BY key")


def codes(run: Path) -> dict[str, list[tuple[str, ...]]]:
    with open_run(run) as store:
        rows = store.rows(
            "SELECT code, list(sample_id ORDER BY sample_id) AS ids FROM findings "
            "JOIN finding_samples USING (fingerprint) GROUP BY fingerprint, code ORDER BY ids"
        )
    found: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        found.setdefault(row["code"], []).append(tuple(row["ids"]))
    return found


def completeness(run: Path, code: str) -> str:
    with open_run(run) as store:
        return str(store.scalar("SELECT completeness FROM check_runs WHERE code = ?", [code]))


def test_a_scan_finds_what_was_copied_and_nothing_else(pets: Path, tmp_path: Path) -> None:
    scan(pets, tmp_path / "run", checks=None)
    found = codes(tmp_path / "run")
    assert found["DUP003"] == [("train/cat/0.jpg", "train/cat/mirrored.jpg")]
    assert found["SPLIT001"] == [("test/dog/again.jpg", "train/dog/1.jpg")]
    pairs, groups, _ = related(tmp_path / "run")
    assert pairs.height == 2
    assert "mirrored" in pairs["transformation"].to_list()
    assert groups["position"].to_list() == [0, 1, 0, 1]
    leak = completeness(tmp_path / "run", "SPLIT001")
    assert leak.startswith("Split test: 1 of 10 samples (10.0%, 95% CI 1.8% to 40.4%)")
    sizes = completeness(tmp_path / "run", "DUP003")
    assert "train 15 of 16 (least: 5 of 6 in cat)" in sizes
    assert "log odds" in sizes


def test_neither_order_nor_cutting_shows_in_the_result(made: Path, tmp_path: Path) -> None:
    scan(made / "pets", tmp_path / "two", executor=Backwards())
    for one, two in zip(related(made / "run"), related(tmp_path / "two"), strict=True):
        assert one.equals(two)


def test_a_new_file_joins_its_group(pets: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scan(pets, run)
    cat = Image.open(pets / "train/cat/0.jpg")
    cat.resize((72, 54)).save(pets / "train/cat/small.jpg", quality=90)
    result = scan(pets, run)
    assert result.measured == 1
    assert result.kept == 26
    members = ("train/cat/0.jpg", "train/cat/mirrored.jpg", "train/cat/small.jpg")
    assert codes(run)["DUP003"] == [members]
    scan(pets, tmp_path / "afresh")
    *both, facts = zip(related(run), related(tmp_path / "afresh"), strict=True)
    # only what says what was remembered differs
    remembered = pl.col("key").str.contains("completeness|calibration|recall")
    both.append(tuple(one.filter(~remembered) for one in facts))  # type: ignore[arg-type]
    for kept, afresh in both:
        assert kept.equals(afresh)


@pytest.mark.parametrize("phase", ["measure", "relate", "judge"])
def test_a_killed_scan_resumes_with_its_signatures(phase: str, made: Path, tmp_path: Path) -> None:
    run, pets = tmp_path / "run", made / "pets"

    def kill(step: Progress) -> None:
        if step.phase == phase and step.done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan(pets, run, progress=kill, executor=Backwards())
    parts = sorted((run / "signatures").iterdir())
    assert parts
    result = scan(pets, run)
    assert result.resumed > 0
    assert set(parts) <= set((run / "signatures").iterdir())
    for resumed, whole in zip(related(run), related(made / "run"), strict=True):
        assert resumed.equals(whole)
    assert json.loads(dict(related(run)[2].iter_rows())["missing_signatures"]) == 0


@pytest.mark.parametrize("lost", [True, False])
def test_lost_and_changed_signatures_are_made_again(lost: bool, made: Path, run: Path) -> None:
    (part,) = (run / "signatures").iterdir()
    whole = part.read_bytes()
    part.write_bytes(whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:])
    if lost:
        part.unlink()
    result = scan(made / "pets", run)
    assert (result.measured, result.unchanged) == (result.total, False)
    assert part.read_bytes() == whole
    for now, then in zip(related(run)[:2], related(made / "run")[:2], strict=True):
        assert now.equals(then)
    assert json.loads(dict(related(run)[2].iter_rows())["missing_signatures"]) == 0


def test_labels_that_differ_within_a_group_make_an_error(pets: Path, tmp_path: Path) -> None:
    Image.open(pets / "train/cat/0.jpg").save(pets / "train/dog/cat.jpg", quality=60)
    scan(pets, tmp_path / "run")
    with open_run(tmp_path / "run") as store:
        (row,) = store.rows("SELECT severity, message, evidence FROM findings WHERE code='DUP003'")
    assert row["severity"] == Severity.ERROR
    assert "labels differ (cat 2, dog 1)" in row["message"]
    assert json.loads(row["evidence"])["pictures"] == 3


def test_what_was_decided_is_carried_over(pets: Path, tmp_path: Path) -> None:
    """Checks and rejected pairs come from the previous generation, whatever became of the files."""
    scan(pets, tmp_path / "run")
    with open_run(tmp_path / "run") as store:
        before = set(load_pair_cache(store).rejected_pairs.tolist())
    Image.fromarray(picture(99)).save(pets / "train/cat/new.jpg")
    scan(pets, tmp_path / "run")
    assert "by an earlier scan" in completeness(tmp_path / "run", "DUP003")
    with open_run(tmp_path / "run") as store:
        assert before & set(load_pair_cache(store).rejected_pairs.tolist())


def test_what_was_found_is_carried_over_too(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.neighbors.search.KEPT_FROM", 0)
    searched: list[int] = []
    whole = search.find_nearest
    monkeypatch.setattr(
        search, "find_nearest", lambda *a, **k: (searched.append(1), whole(*a, **k))[1]
    )
    for seed in range(90):
        Image.fromarray(picture(seed + 200)).save(pets / f"train/cat/{seed + 200}.jpg")
    with_copies(pets)
    scan(pets, tmp_path / "run")
    (pets / "train/dog/1.jpg").unlink()
    Image.open(pets / "train/cat/210.jpg").save(pets / "test/cat/copy.jpg", quality=60)
    searched.clear()
    scan(pets, tmp_path / "run")
    assert not searched
    scan(pets, tmp_path / "fresh")
    assert searched
    for again, fresh in zip(related(tmp_path / "run")[:2], related(tmp_path / "fresh")[:2],
                            strict=True):  # fmt: skip
        assert again.equals(fresh)


def test_the_recall_is_measured_on_request(pets: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    scan(pets, run)
    assert "was not measured" in completeness(run, "DUP003")
    scanning.recheck(run, recall=True)
    said = completeness(run, "DUP003")
    assert "Expected recall on synthetic copies" in said
    assert "not measured" not in said
    for path in pets.rglob("*.jpg"):
        path.unlink()
    scanning.recheck(run, recall=True)
    assert "was not measured" in completeness(run, "DUP003")


def test_other_settings_relate_again(made: Path, run: Path) -> None:
    pets, seen = made / "pets", []
    assert scan(pets, run, progress=lambda step: seen.append(step.phase)).unchanged
    assert "relate" not in seen
    turned = Config(match={"turned": True})
    assert not scan(pets, run, config=turned).unchanged
    assert "in eight orientations" in completeness(run, "DUP003")
    assert scan(pets, run, config=turned).unchanged


def test_the_pair_cache_reads_what_is_stored() -> None:
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        rows = [
            {"a": "0a" * 16, "b": "0b" * 16, "same": True, "contrast": 0.8},
            {"a": "0a" * 16, "b": "0c" * 16, "same": False, "contrast": 0.0},
            {"a": "0a" * 16, "b": "0d" * 16, "same": None, "contrast": None},
        ]
        store.append("rechecks", rows)
        store.append("rejected_pairs", pl.DataFrame({"pair": [7, 2**64 - 1]}, {"pair": pl.UInt64}))
        known = load_pair_cache(store)
        seen = {b[-1:].hex(): contrast for (_, b), contrast in known.rechecks.items()}
        assert seen == pytest.approx({"0b": 0.8, "0c": 0.0, "0d": np.nan}, nan_ok=True)
        assert known.rejected_pairs.tolist() == [7, 2**64 - 1]


# ---- signatures on disk ----


def test_parts_are_named_by_content_and_found_again(tmp_path: Path) -> None:
    records = [make_signature(picture(seed)) for seed in range(4)]
    names = ["d", "b", "a", "b"]
    first = write_signatures(
        tmp_path, signature_table(names, [records[0], records[1], records[2], records[1]])
    )
    again = write_signatures(
        tmp_path, signature_table(["a", "b", "d"], [records[2], records[1], records[0]])
    )
    assert first == again
    table, found = load_signatures(tmp_path, ["a", "x", "d"])
    assert found.tolist() == [True, False, True]
    assert table[0] == records[2]
    assert table[2] == records[0]
    assert write_signatures(tmp_path, signature_table([], [])) is None


def test_damaged_parts_and_those_of_another_version_count_as_absent(tmp_path: Path) -> None:
    part = write_signatures(tmp_path, signature_table(["a"], [make_signature(picture(1))]))
    assert part is not None
    table = pq.read_table(part)
    pq.write_table(table.replace_schema_metadata({"signature_version": "0"}), part)
    (part.parent / "broken.parquet").write_bytes(b"PAR1 and no more")
    assert not load_signatures(tmp_path, ["a"])[1].any()


# ---- what reads the tables ----


def test_pairs_are_exported_and_formulas_neutralised(pets: Path, tmp_path: Path) -> None:
    twin = pets / "train/=cmd|calc"
    twin.mkdir()
    (twin / "0.jpg").write_bytes((pets / "train/owl/0.jpg").read_bytes())
    scan(pets, tmp_path / "run")
    written = export_tables(tmp_path / "run", tmp_path / "tables", "parquet")
    assert written.files[tmp_path / "tables" / "pairs.parquet"] == 3
    table = pl.read_parquet(tmp_path / "tables" / "pairs.parquet")
    assert tuple(table.columns) == COLUMNS
    assert table["kind"].to_list() == ["bytes", "near", "near"]
    assert {table.row(0, named=True)[k] for k in ("label_a", "label_b")} == {"owl", "=cmd|calc"}
    export_tables(tmp_path / "run", tmp_path / "texts")
    assert "'=cmd|calc" in (tmp_path / "texts" / "pairs.csv").read_text().splitlines()[1]
    with pytest.raises(UsageError, match="csv or parquet"):
        export_tables(tmp_path / "run", tmp_path / "sheets", "xlsx")


def test_new_images_are_looked_up_in_a_run(made: Path, tmp_path: Path) -> None:
    pets, new = made / "pets", tmp_path / "new"
    new.mkdir()
    (new / "bytes.jpg").write_bytes((pets / "train/owl/2.jpg").read_bytes())
    Image.open(pets / "train/owl/3.jpg").save(new / "pixels.png")
    ImageOps.mirror(Image.open(pets / "test/cat/1.jpg")).save(new / "near.jpg", quality=70)
    Image.fromarray(picture(77)).save(new / "other.jpg")
    (new / "broken.jpg").write_bytes(b"\xff\xd8 no picture")
    found = find_overlap(open_source([str(new)]), made / "run", Serial(), Limits())
    assert [(m.new, m.library, m.kind) for m in found.matches] == [
        ("bytes.jpg", "train/owl/2.jpg", "bytes"),
        ("near.jpg", "test/cat/1.jpg", "near"),
        ("pixels.png", "train/owl/3.jpg", "pixels"),
    ]
    assert found.matches[1].transformation.startswith("mirrored")
    assert (found.new_images, found.without_picture) == (5, 1)
    assert json.loads(found.document())["matches"][0]["library"] == "train/owl/2.jpg"
    run = audit.open(made / "run")
    for match in found.matches:
        row = run.find(new / match.new).row(0, named=True)
        assert (row["id"], row["kind"], row["score"]) == (match.library, match.kind, match.score)
        assert row["transformation"] == match.transformation
    twins = run.find(pets / "train/cat/0.jpg")
    assert twins["kind"].to_list() == ["bytes", "near"]
    assert twins["id"].to_list() == ["train/cat/0.jpg", "train/cat/mirrored.jpg"]
    assert run.find(new / "other.jpg").is_empty()
    with pytest.raises(UsageError, match="contains no image"):
        run.find(new / "broken.jpg")
    with pytest.raises(UsageError, match="contains no image"):
        run.find(new / "absent.jpg")


def test_nothing_is_near_where_all_is_there_already(made: Path, tmp_path: Path) -> None:
    only = tmp_path / "new"
    only.mkdir()
    (only / "bytes.jpg").write_bytes((made / "pets/train/owl/2.jpg").read_bytes())
    found = find_overlap(open_source([str(only)]), made / "run", Serial(), Limits())
    assert [m.kind for m in found.matches] == ["bytes"]
    with pytest.raises(RunError):
        find_overlap(open_source([str(only)]), tmp_path / "none", Serial(), Limits())


def test_the_evidence_between_two_files(made: Path) -> None:
    near = show_pair(open_results(made / "run"), "cat/mirrored.jpg", "train/cat/0.jpg")
    far = show_pair(open_results(made / "run"), "train/cat/0.jpg", "train/owl/0.jpg")
    assert (near.kind, near.grouped, far.kind) == ("near", True, "different")
    assert -np.inf < far.score < near.threshold <= near.score < np.inf
    assert near.transformation.startswith("mirrored")
    assert "near-duplicates (verified)" in pair_text(near)


def copied(run: Path, to: Path) -> tuple[Path, Path]:
    """Return a copy of a run that no reader holds open, and its measurements."""
    shutil.copytree(run, to)
    (measured,) = to.glob(f"gen-*/{run_version.MEASUREMENTS}")
    return to, measured


def test_show_prints_the_score_that_decided_and_its_parts(made: Path, tmp_path: Path) -> None:
    names = ("cat/mirrored.jpg", "train/cat/0.jpg")
    computed = show_pair(open_results(made / "run"), *names).thumbnail_score
    run, measured = copied(made / "run", tmp_path / "stored")
    with duckdb.connect(str(measured)) as store:
        (a, b) = store.execute("SELECT a, b FROM pairs LIMIT 1").fetchone()
        store.execute("UPDATE pairs SET score = 0.86")
        store.execute("DELETE FROM rechecks")
    said = pair_text(show_pair(open_results(run), *names))
    assert re.search(r"match score +\+0\.86 \(threshold [+-]\d+\.\d\d\), stored by the scan", said)
    assert f"thumbnails {computed:+.2f}, other checks {0.86 - computed:+.2f}" in said
    run, measured = copied(made / "run", tmp_path / "computed")
    with duckdb.connect(str(measured)) as store:
        store.execute("DELETE FROM rechecks")
        store.execute("DELETE FROM pairs")
        store.execute("INSERT INTO rechecks (a, b, same) VALUES (?, ?, false)", [a, b])
        store.execute("UPDATE groups SET position = position + 1, score = 0.5")
    said = pair_text(show_pair(open_results(run), *names))
    assert f"{computed:+.2f} (threshold" in said
    assert "of the thumbnails, computed now" in said
    assert re.search(r"full-resolution check +different images, decides", said)
    assert re.search(r"decided by +the scores against \S+: \+0\.50 and \+0\.50", said)
