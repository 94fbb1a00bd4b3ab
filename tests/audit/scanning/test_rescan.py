"""A second scan says what a first one of the same files would say, row for row."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
from PIL import Image, ImageOps

from audit.checking.config import Config
from audit.embeddings import known_neighbours, nearest, vectors
from audit.machine.executors import Serial
from audit.neighbors import search, strangers
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.sources import open_source
from tests.audit.neighbors.test_strangers import digit
from tests.conftest import picture

pytestmark = pytest.mark.slow

TABLES = (
    "samples", "features", "pairs", "groups", "label_scores", "vector_neighbours", "embedding_map",
    "label_facts", "finding_samples",
)  # fmt: skip
# Checks that read what is related anew: the others read samples and features alone, which are
# compared, and are asked after the last change.
OF_RELATIONS = ("DUP", "SPLIT", "LABEL", "DIST")
FINDINGS = "SELECT * FROM findings ORDER BY ALL"
# only what says what was remembered may differ
FACTS = (
    "SELECT * FROM relate_facts WHERE key NOT IN ('completeness', 'calibration') "
    "AND key NOT LIKE 'recall%' ORDER BY key"
)
KINDS = 3


def written(pixels: np.ndarray, path: Path, quality: int = 92) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=quality)


def drawing(seed: int) -> np.ndarray:
    """A scene tinted by its kind, a digit, or a scene with a common frame."""
    if seed % 4 == 3:
        return digit(seed)
    scene = picture(seed, 64, 64).astype(np.float64)
    scene[..., seed % KINDS] *= 0.55
    board = np.clip(scene, 0, 255).astype(np.uint8)
    return cv2.copyMakeBorder(board, 9, 9, 9, 9, cv2.BORDER_CONSTANT, value=(9, 9, 9))


def make_set(root: Path, labelled: bool, n: int = 100) -> None:
    """Write pictures, one in twelve of them twice."""
    for seed in range(n):
        folder = f"{'test' if seed % 5 == 0 else 'train'}/k{seed % KINDS}" if labelled else "all"
        written(drawing(seed), root / folder / f"{seed:03}.jpg")
        if seed % 12 == 0:
            written(drawing(seed), root / folder / f"copy{seed:03}.jpg", quality=60)


def edit(path: Path, seed: int) -> None:
    pixels = np.asarray(Image.open(path).convert("RGB"))
    written(cv2.GaussianBlur(pixels, (0, 0), 0.8), path, quality=80 + seed % 9)


def files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.jpg"))


def add(root: Path) -> None:
    folder = files(root)[0].parent
    for seed in range(300, 306):
        written(drawing(seed), folder / f"n{seed}.jpg")
    ImageOps.mirror(Image.open(files(root)[3])).save(folder / "mirror.jpg", quality=75)


def remove(root: Path) -> None:
    for path in files(root)[::19]:
        path.unlink()


def change_some(root: Path) -> None:
    for seed, path in enumerate(files(root)[::23]):
        edit(path, seed)


def edit_copies_away(root: Path) -> None:
    for seed, path in enumerate(sorted(root.rglob("copy*.jpg"))[::2]):
        written(drawing(500 + seed), path)


def remove_from_pool(root: Path) -> None:
    """Remove the picture that stands first among those that strangers are taken from."""

    def code(path: Path) -> bytes:
        with open_run(root.parent / "run") as store:
            name = str(path.relative_to(root))
            key = store.scalar("SELECT pixel_hash FROM images WHERE id = ?", [name])
        return hashlib.blake2b(bytes.fromhex(key), digest_size=8).digest()[::-1]

    min(files(root), key=code).unlink()


def a_bit_of_all(root: Path) -> None:
    remove(root)
    change_some(root)
    add(root)


def relabel(root: Path) -> None:
    for path in files(root)[5:50:9]:
        kind = int(path.parent.name[1:]) if path.parent.name != "all" else 0
        (root / "train" / f"k{(kind + 1) % KINDS}").mkdir(parents=True, exist_ok=True)
        path.rename(root / "train" / f"k{(kind + 1) % KINDS}" / f"moved_{path.name}")


# What is added, edited and removed at once is what each does alone, and more.
CHANGES = (edit_copies_away, remove_from_pool, a_bit_of_all, relabel)
UNLABELLED = (remove_from_pool, a_bit_of_all)


def scan(root: Path, run: Path, checks: Sequence[str] | None = OF_RELATIONS) -> None:
    config = Config(match={"gate_from": 50})
    source = open_source([str(root)])
    scanning.scan(source, run, config=config, executor=Serial(), checks=checks)


def said(run: Path) -> dict[str, pl.DataFrame]:
    with open_run(run) as store:
        found = {name: store.query(f"SELECT * FROM {name} ORDER BY ALL") for name in TABLES}
        return {**found, "findings": store.query(FINDINGS), "facts": store.query(FACTS)}


@pytest.fixture(autouse=True)
def kept_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep and carry over what only large sets keep, with a pool that changes."""
    for module in (search, vectors, known_neighbours):
        monkeypatch.setattr(module, "KEPT_FROM", 0)
    for name in ("REFERENCES", "DISTANCE_REFERENCES"):
        monkeypatch.setattr(nearest, name, 80)
    monkeypatch.setattr(strangers, "POOL", 40)


@pytest.mark.parametrize(
    ("labelled", "changes"), [(True, CHANGES), (False, UNLABELLED)], ids=["labelled", "unlabelled"]
)
def test_a_later_scan_equals_a_first_one(
    labelled: bool, changes: Sequence[Callable[[Path], None]], tmp_path: Path
) -> None:
    root, run = tmp_path / "set", tmp_path / "run"
    make_set(root, labelled)
    scan(root, run)
    for change in changes:  # what was carried over is carried on
        change(root)
        checks = None if change is changes[-1] else OF_RELATIONS
        scan(root, run, checks)
        scan(root, tmp_path / change.__name__, checks)
        again, fresh = said(run), said(tmp_path / change.__name__)
        assert len(fresh["pairs"]), "nothing to compare"
        different = [name for name in fresh if not again[name].equals(fresh[name])]
        assert not different, change.__name__
