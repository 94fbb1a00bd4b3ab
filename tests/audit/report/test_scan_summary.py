"""What a scan prints last and its report show of a scanned folder: examples and notes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from audit.browse import findings as browse
from audit.report import Report, collect_report, to_text
from audit.report.screen import to_screen
from audit.run import generations
from audit.scanning import scanning
from audit.sources import open_source
from tests.conftest import make_tree


def scanned(root: Path, run: Path, codes: list[str]) -> Report:
    scanning.scan(open_source([str(root)]), run, jobs=1, checks=codes)
    return collect_report(run)


@pytest.mark.parametrize("other", ["dev", "val", "test"])
def test_the_example_of_a_leak_shows_an_image_of_each_split(tmp_path: Path, other: str) -> None:
    root = make_tree(tmp_path / "data")
    for split in {path.name for path in root.iterdir() if path.is_dir()} - {"train"}:
        shutil.move(root / split, root / other)
    for name in ("train/cat/a.jpg", "train/cat/b.jpg", f"{other}/cat/c.jpg"):
        shutil.copy(root / "train/cat/0.jpg", root / name)
    report = scanned(root, tmp_path / "run", ["SPLIT001"])
    (leaked,) = report.first
    both = {f"{other}/cat/c.jpg", "train/cat/0.jpg"}
    assert set(leaked.example) == both
    assert leaked.example_text in to_screen(report, width=200)
    (check,) = report.checks
    assert {member.id for member in check.worst[0].members[:2]} == both
    assert all(name in to_text(report, width=200) for name in both)
    with generations.open_run(tmp_path / "run") as store:
        browse.index(store)
        (cards,) = browse.members_of(store, [leaked.fingerprint], most=2).values()
    assert {card.id for card in cards} == both
