"""Generated parts of the documents are current: Python API, notebook, outputs and pictures."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.test_docs import imported

make_python = imported(ROOT / "docs" / "make_python.py", "make_python")


def test_the_page_is_current() -> None:
    assert make_python.PAGE.read_text(encoding="utf-8") == make_python.page()


def test_everything_public_has_a_word() -> None:
    assert "None" not in [line.strip() for line in make_python.page().splitlines()]


make_output = imported(ROOT / "docs" / "make_output.py", "make_output")


@pytest.mark.slow
@pytest.mark.parametrize("page", make_output.PAGES, ids=lambda path: path.name)
def test_outputs_in_the_documents_are_current(page: Path, sample_data_run: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert make_output.rewritten(text, sample_data_run) == text, "run `make docs`"


@pytest.mark.slow
def test_pictures_show_a_scan_with_the_counts_of_today(sample_data_run: Path) -> None:
    pictures = imported(ROOT / "docs" / "screenshots" / "make.py", "make_pictures")
    today = pictures.counts(sample_data_run)
    for path in sorted((ROOT / "docs" / "screenshots").glob("*.png")):
        with Image.open(path) as picture:
            assert picture.info.get("Counts") == today, f"{path.name}: run `make pictures`"
            assert re.fullmatch(r"[0-9a-f]{12}", str(picture.info.get("Commit"))), path.name


@pytest.mark.slow
def test_the_notebook_runs(sample_data_run: Path, tmp_path: Path) -> None:
    shutil.copytree(sample_data_run, tmp_path / "run")
    made = make_python.notebook(tmp_path / "run")
    kept = json.loads(make_python.NOTEBOOK.read_text(encoding="utf-8"))
    for now, then in zip(made["cells"], kept["cells"], strict=True):
        assert now["source"] == then["source"]
        if now["cell_type"] == "code":
            assert [sorted(o["data"]) for o in now["outputs"]] == [
                sorted(o["data"]) for o in then["outputs"]
            ]
    assert str(tmp_path) not in json.dumps(made)
    assert str(ROOT) not in json.dumps(kept)
