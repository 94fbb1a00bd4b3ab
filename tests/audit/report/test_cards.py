"""`show`: which file is meant, and that its card says what the run knows."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from audit.errors import UsageError
from audit.report.file_card import card_text
from audit.results.file_details import FileCard, Rank, make_file_card
from audit.results.results import open_results
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.sources import open_source
from tests.audit.reviewed import made_run

pytestmark = pytest.mark.slow


def picture(path: Path, level: int, size: tuple[int, int] = (32, 32)) -> Path:
    """Write a noisy PNG of a mean grey level."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(level).integers(-20, 20, (size[1], size[0], 3))
    Image.fromarray(np.clip(noise + level, 0, 255).astype(np.uint8)).save(path)
    return path


def scan(data: list[str], run: Path) -> Path:
    scanning.scan(open_source(data), run, jobs=1, checks=["DUP", "FILE001"])
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("show")
    for i in range(10):
        picture(root / "data" / "train" / "cat" / f"{i}.png", 40 + 10 * i)
        picture(root / "data" / "train" / "dog" / f"{i + 20}.png", 42 + 10 * i)
    cat = root / "data" / "train" / "cat"
    (root / "data" / "test" / "cat").mkdir(parents=True)
    (root / "data" / "test" / "cat" / "leak.png").write_bytes((cat / "3.png").read_bytes())
    with Image.open(cat / "3.png") as image:
        image.save(root / "data" / "train" / "dog" / "same.bmp")
    (cat / "evil\x1b[2J.png").write_bytes(b"")
    scan([str(root / "data")], root / "run")
    return root


@pytest.fixture(scope="module")
def card(folder: Path) -> FileCard:
    return make_file_card(open_results(folder / "run"), "train/cat/3.png")


def test_a_file_is_found_by_id_path_and_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, wanted = folder / "run", "train/cat/3.png"
    monkeypatch.chdir(folder / "data")
    for words in (wanted, str(folder / "data" / wanted), "./train/cat/3.png", "cat/3.png", "3.png"):
        assert make_file_card(open_results(run), words).sample.id == wanted
    assert make_file_card(open_results(run), "2.png").sample.id == "train/cat/2.png", "a whole name"
    with pytest.raises(UsageError, match=r"no file 'train/cat/03\.png'.*train/cat/3\.png"):
        make_file_card(open_results(run), "train/cat/03.png")
    with pytest.raises(UsageError, match=r"Similar: .*leak\.png"):
        make_file_card(open_results(run), "laek.png")


def test_several_files_are_named_and_manifest_columns_shown(tmp_path: Path) -> None:
    rows = [{"id": f"c{i}/a.png", "label": f"c{i}", "camera": f"{i}"} for i in range(7)]
    run = made_run(tmp_path / "run", rows)
    with pytest.raises(UsageError, match=r"matches 7 files: c0/a\.png.* and 2 more"):
        make_file_card(open_results(run), "a.png")
    card = make_file_card(open_results(run), "c3/a.png")
    assert (card.sample.label, dict(card.metadata)) == ("c3", {"camera": "3"})
    assert "camera" in card_text(card)


def test_several_roots_are_found_without_their_name(tmp_path: Path) -> None:
    picture(tmp_path / "one" / "cat" / "1.png", 50)
    picture(tmp_path / "two" / "cat" / "2.png", 60)
    run = scan([f"train={tmp_path / 'one'}", f"test={tmp_path / 'two'}"], tmp_path / "run")
    assert make_file_card(open_results(run), "cat/2.png").sample.id == "test:cat/2.png"
    assert make_file_card(open_results(run), "test:cat/2.png").sample.split == "test"


def test_ranks_equal_a_plain_count(folder: Path, card: FileCard) -> None:
    with open_run(folder / "run") as store:
        frame = store.query("SELECT label, brightness, width, contrast FROM images")
    checked = [m for m in card.measurements if m.name in ("brightness", "width", "contrast")]
    assert len(checked) == 3
    for m in checked:
        for rank, mask in (
            (m.in_dataset, np.ones(frame.height, bool)),
            (m.in_class, (frame["label"] == "cat").to_numpy()),
        ):
            values = frame[m.name].to_numpy()[mask]
            values = values[~np.isnan(values.astype(float))]
            below, equal = int((values < m.value).sum()), int((values == m.value).sum())
            assert rank == Rank(below, equal, len(values))
    # half of the equal ones count
    assert [Rank(0, 1, 1).percentile, Rank(3, 4, 10).percentile] == [50, 50]
    assert Rank(9, 1, 10).percentile == 95


def test_every_measurement_has_its_meaning(card: FileCard) -> None:
    assert len(card.measurements) > 25
    assert all(m.doc for m in card.measurements)
    assert card.value("width") == 32
    assert card.value("nothing") is None
    assert (card.class_size, card.dataset_size) == (12, 23)


def test_twins_by_bytes_and_by_pixels_and_the_findings_that_concern_it(
    folder: Path, card: FileCard
) -> None:
    assert [(t.id, t.same_bytes) for t in card.twins] == [
        ("test/cat/leak.png", True),
        ("train/dog/same.bmp", False),
    ]
    assert {f.code for f in card.findings} == {"DUP001", "DUP002"}
    assert card.n_findings == len(card.findings)
    leak = next(f for f in card.findings if f.code == "DUP001")
    assert leak.sample_ids == ("test/cat/leak.png", "train/cat/3.png")
    other = make_file_card(open_results(folder / "run"), "train/cat/4.png")
    assert (other.n_twins, other.findings) == (0, ())


def test_text_says_it_all(card: FileCard) -> None:
    text = card_text(card, width=120)
    for part in (
        "train/cat/3.png", "class  cat", "2 findings for this image", "DUP001 byte-identical",
        "with test/cat/leak.png", "train/dog/same.bmp (train, dog): same pixels, different bytes",
        "brightness", "mean luma", "class cat: 12 files; all: 23 files", "audit explain DUP001",
    ):  # fmt: skip
        assert part in text
    assert "\x1b" not in text


def test_an_unreadable_file_with_a_hostile_name(folder: Path) -> None:
    with open_run(folder / "run") as store:
        name = store.scalar("SELECT id FROM samples WHERE n_bytes = 0")
    card = make_file_card(open_results(folder / "run"), name)
    text = card_text(card, color=True)
    assert "\x1b[2J" not in text
    assert "evil\\x1b[2J.png" in text
    assert "the file has no bytes" in text
    assert card.twins == ()


def test_what_became_of_the_file_is_said(tmp_path: Path) -> None:
    path = picture(tmp_path / "data" / "a" / "1.png", 50)
    run = scan([str(tmp_path / "data")], tmp_path / "run")
    assert make_file_card(open_results(run), "1.png").on_disk == "unchanged"
    os.utime(path, ns=(1, 1))
    assert "scan again" in card_text(make_file_card(open_results(run), "1.png"))
    path.unlink()
    assert make_file_card(open_results(run), "1.png").on_disk == "absent"
