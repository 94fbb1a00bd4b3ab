"""Hashes on request: equal to the library's, stored, exported, measured again when asked for."""

from __future__ import annotations

import re
from pathlib import Path

import imagehash
import numpy as np
import pytest
from PIL import Image

from audit.checking.config import Config, load_config
from audit.errors import UsageError
from audit.picture.features import feature_picture
from audit.picture.hashing import COMPARABLE_HASHES, LIBRARY_HASHES, compute_library_hashes
from audit.run.generations import open_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.sources import open_source
from tests.conftest import picture

ALL = tuple(column.name for column in LIBRARY_HASHES)


def scan(tree: Path, run: Path, *hashes: str) -> scanning.ScanResult:
    source, config = open_source([str(tree)]), Config(hashes=hashes)
    return scanning.scan(source, run, jobs=1, config=config, checks=["DUP"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [(500, 320), (33, 47), (1, 1)])
def test_values_are_those_of_the_library(size: tuple[int, int]) -> None:
    small = feature_picture(picture(3, *size))
    image = Image.fromarray(small)
    values = compute_library_hashes(small, ALL)
    assert tuple(values) == ALL
    for name in COMPARABLE_HASHES:
        bits = getattr(imagehash, name)(image).hash.ravel()
        assert values[name] == int.from_bytes(np.packbits(bits).tobytes(), "big")
    assert values["colorhash"] == str(imagehash.colorhash(image))
    assert values["crop_resistant"] == str(imagehash.crop_resistant_hash(image))


@pytest.mark.slow
def test_they_become_columns_that_sql_reads_and_nothing_without_asking(
    tree: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    scan(tree, run)
    with open_run(run) as store:
        assert not set(ALL) & store.columns("features").keys()
    more = scan(tree, run, "colorhash", "whash")
    assert more.measured == 24  # other columns: every file is read again
    with open_run(run) as store:
        columns = store.columns("images")
        assert (columns["whash"], columns["colorhash"]) == ("UBIGINT", "VARCHAR")
        rows = store.query("SELECT uri, whash, colorhash FROM images ORDER BY id")
    for uri, whash, colorhash in rows.head(3).iter_rows():
        image = Image.fromarray(feature_picture(np.array(Image.open(uri))))
        assert f"{whash:016x}" == str(imagehash.whash(image))
        assert colorhash == str(imagehash.colorhash(image))
    assert rows["whash"].null_count() == 0
    assert scan(tree, run, "whash", "colorhash").unchanged


@pytest.mark.slow
def test_a_scan_that_was_stopped_goes_on_with_other_hashes(tree: Path, tmp_path: Path) -> None:
    def stop(step: Progress) -> None:
        if step.phase == "relate":
            raise KeyboardInterrupt

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        scanning.scan(open_source([str(tree)]), run, jobs=1, progress=stop)
    assert scan(tree, run, "average_hash").resumed == 0
    with open_run(run) as store:
        assert store.scalar("SELECT count(average_hash) FROM images") == 24


@pytest.mark.slow
def test_a_file_without_a_picture_has_null_hashes(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "broken.jpg").write_bytes(b"no picture")
    Image.fromarray(picture(1, 40, 30)).save(folder / "whole.png")
    scan(folder, tmp_path / "run", *ALL)
    with open_run(tmp_path / "run") as store:
        row = store.query("SELECT * FROM images WHERE id = 'broken.jpg'")
    assert row.select(ALL).null_count().sum_horizontal().item() == len(ALL)


@pytest.mark.slow
def test_close_pairs_of_a_further_hash_are_candidates(tree: Path, tmp_path: Path) -> None:
    config = Config(hashes=("whash",), relate_hashes=("whash",), relate={"radius": 20})
    scanning.scan(open_source([str(tree)]), tmp_path / "run", jobs=1, config=config)
    scanning.scan(
        open_source([str(tree)]), tmp_path / "plain", jobs=1, config=Config(relate={"radius": 20})
    )
    counts = []
    for run in ("run", "plain"):
        with open_run(tmp_path / run) as store:
            text = store.scalar("SELECT value FROM relate_facts WHERE key = 'completeness'")
        counts.append(int(re.search(r"bits were found \(([\d,]+)", text)[1].replace(",", "")))  # type: ignore[index]
        assert ("also whash within" in text) == (run == "run")
    assert counts[0] > counts[1]


def test_settings_name_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text('[measure]\nhashes = ["crop_resistant", "whash"]\n')
    assert load_config(path).hashes == ("whash", "crop_resistant")
    path.write_text('[measure]\nhashes = ["phash9"]\n')
    with pytest.raises(UsageError, match=r"phash9.*whash"):
        load_config(path)
    path.write_text('[measure]\nhashes = ["whash"]\n[relate]\nhashes = ["whash"]\n')
    assert load_config(path).relate_hashes == ("whash",)
    path.write_text('[measure]\nhashes = ["colorhash"]\n[relate]\nhashes = ["colorhash"]\n')
    with pytest.raises(UsageError, match=r"\[relate\] hashes has 'colorhash'"):
        load_config(path)
    path.write_text('[relate]\nhashes = ["whash"]\n')
    with pytest.raises(UsageError, match=r"that \[measure\] hashes names"):
        load_config(path)
    path.write_text("[measure]\nhashs = []\n")
    with pytest.raises(UsageError, match="hashs"):
        load_config(path)
