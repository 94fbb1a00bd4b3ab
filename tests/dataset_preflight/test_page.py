"""The command: parts that crash or hang, Ctrl-C, bad input, and a training from end to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import audit
import dataset_preflight
from dataset_preflight import cli
from dataset_preflight.foundation.steps import Step
from dataset_preflight.page import parts, runner
from dataset_preflight.page.rows import CODE, DATA, PIPELINE, PRECISION, State
from dataset_preflight.request import Request
from pipeline_profiler.checks.document import checks_json
from pipeline_profiler.checks.runner import CheckReport
from pipeline_profiler.profiling.record.session import Session
from tests.conftest import ROOT, make_tree

PARTS = (DATA, PIPELINE, PRECISION, CODE)
KILLED = "import os; os.kill(os.getpid(), 9)"
HANGS = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and what the other parts would leave."""
    folder = tmp_path_factory.mktemp("results")
    audit.scan(make_tree(folder / "pets"), run=folder / "run", progress=False)
    session = Session.load(ROOT / "sample_data" / "sessions" / "torch-input-bound.json.gz")
    session.save(folder / "measure.json")
    session.results = {"verdict": "precision", "sentence": "BF16 is no faster."}
    session.save(folder / "precision.json")
    (folder / "check.json").write_text(checks_json(CheckReport(), "train.py"))
    return folder


class Canned:
    """Steps that copy the results, but for one."""

    def __init__(self, results: Path, broken: str, code: str, limit_s: float = 0.0) -> None:
        self.results, self.broken, self.code, self.limit_s = results, broken, code, limit_s

    def __call__(self, request: Request) -> Iterator[Step]:
        for part in PARTS:
            name = parts.FILES[part]
            result = request.folder / f"{name}.json"
            source = self.results / ("run" if part == DATA else f"{name}.json")
            target = request.run if part == DATA else str(result)
            copy = "copytree" if part == DATA else "copyfile"
            code = f"import shutil; shutil.{copy}({str(source)!r}, {target!r})"
            if part == self.broken:
                code = self.code
            yield Step(part, [sys.executable, "-c", code], self.limit_s, "x", result)


def request_of(folder: Path) -> Request:
    script = folder / "train.py"
    script.write_text("")
    return Request((str(folder),), str(folder / "out"), ("python", str(script)))


@pytest.mark.slow
@pytest.mark.parametrize(("code", "limit_s"), [(KILLED, 0.0), (HANGS, 2.0)])
@pytest.mark.parametrize("broken", PARTS)
def test_a_part_that_dies_or_hangs_costs_its_row(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, code: str,
    limit_s: float,
) -> None:  # fmt: skip
    monkeypatch.setattr(runner, "make_steps", Canned(results, broken, code, limit_s))
    request = request_of(tmp_path)
    if broken == DATA:
        shutil.copytree(results / "run", request.run)  # of an earlier scan: it is not shown
    page, interrupted = runner.run_page(request, lambda text: None)
    lost = {broken, "Evaluation"} if broken == DATA else {broken}
    assert {row.name for row in page.rows if row.failed} == lost
    assert all(row.state is State.SKIPPED for row in page.rows if row.failed)
    assert page.exit_code() == 3
    assert not interrupted
    document = json.loads((tmp_path / "out" / "preflight.json").read_text())
    assert {row["name"] for row in document["rows"] if row["failed"]} == lost


@pytest.mark.slow
@pytest.mark.parametrize("at", PARTS[1:])
def test_ctrl_c_keeps_the_rows_before(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def interrupt(text: str) -> None:
        if text.startswith(at):
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "make_steps", Canned(results, at, HANGS))
    page, interrupted = runner.run_page(request_of(tmp_path), interrupt)
    assert interrupted
    after = PARTS[PARTS.index(at) :]
    assert {row.name for row in page.rows if row.failed} == set(after)
    assert (tmp_path / "out" / "preflight.html").is_file()


def test_a_page_that_cannot_be_saved_is_shown(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def full(folder: object, outcomes: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner, "make_steps", Canned(results, "", ""))
    monkeypatch.setattr(runner, "write_outcomes", full)
    page, _ = runner.run_page(request_of(tmp_path), lambda text: None)
    assert len(page.rows) == 5
    assert "the page is not saved: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["data", "--", "python", "notes.ipynb"], "is a notebook: run `jupyter nbconvert"),
        (["data", "other"], "Two datasets: look at one at a time"),
        (["data", "--", "python", "absent.py"], "absent.py does not exist."),
        (["data", "--loader", "x.py:f", "--", "python", "train.py"], "not both"),
        (["data", "--step", "x.py:f"], "--step belongs to --loader"),
        (["data", "-o", "page.pdf"], "-o takes names that end in .html"),
        (["absent"], "does not exist: give a folder of images"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: list[str], sentence: str,
) -> None:  # fmt: skip
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("dataset-preflight: ")
    assert sentence in err
    assert "Traceback" not in err


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
torch.set_num_threads(1)
class Pets(Dataset):
    def __init__(self, split):
        self.paths = sorted(Path("pets", split).rglob("*.jpg"))
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        image = Image.open(self.paths[i]).convert("RGB").resize((16, 16))
        return torch.tensor(np.array(image)).permute(2, 0, 1) / 255 - 0.5, i % 3
train, test = DataLoader(Pets("train"), 5, shuffle=True), DataLoader(Pets("test"), 5)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for epoch in range(1000):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in test)
    torch.save(model.state_dict(), "weights.pt")
"""


@pytest.mark.slow
def test_a_training_from_end_to_end_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "QUICK_S", 4.0)
    monkeypatch.setattr(parts, "QUICK_CHECK_S", 10.0)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path / "pets")
    (tmp_path / "train.py").write_text(SCRIPT)
    script = [sys.executable, "train.py", "0.1"]
    page = dataset_preflight.check("pets", script, quick=True, progress=False)
    rows = {row.name: row for row in page.rows}
    assert not [row.failed for row in page.rows if row.failed], str(page)
    assert rows[PIPELINE].evidence["stall"]["low"] > 0.1
    assert rows[PRECISION].sentences
    assert rows[CODE].evidence["passed"] > 3
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"pets", "train.py", "runs"}, "the script's files are held back"

    def times() -> dict[str, int]:
        return {p.name: p.stat().st_mtime_ns for p in Path("runs/pets/preflight").glob("*.json")}

    before = times()
    again = dataset_preflight.check("pets", script, quick=True, again=True, progress=False)
    assert [row.state for row in again.rows] == [row.state for row in page.rows]
    assert {n for n, t in times().items() if t != before[n]} == {"steps.json"}
    (tmp_path / "train.py").write_text(SCRIPT.replace("range(1000)", "range(900)"))
    before = times()
    dataset_preflight.check("pets", script, quick=True, again=True, progress=False)
    assert {n for n, t in times().items() if t != before[n]} == {
        "steps.json", "measure.json", "check.json",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("raise ValueError('bad config')", "ValueError: bad config"),
        ("import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.parse_args()",
         "give its arguments after"),
        ("import torch; torch.zeros(1).cuda()", "it needs a GPU"),
        ("input('name? ')", "give its input by a file"),
        ("import os; os.fork(); print('trains nothing')", "no step of an optimizer"),
    ],
)  # fmt: skip
def test_a_script_that_cannot_train_has_its_sentence_and_other_rows_stand(
    tmp_path: Path, body: str, sentence: str
) -> None:
    make_tree(tmp_path / "pets")
    (tmp_path / "train.py").write_text(body)
    line = [sys.executable, "-m", "dataset_preflight", "pets", "--quick", "--json"]
    ended = subprocess.run(
        [*line, "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 3, ended.stderr
    rows = {row["name"]: row for row in json.loads(ended.stdout)["rows"]}
    assert [rows[name]["state"] for name in (DATA, "Evaluation")] == ["go", "go"]
    assert re.search(sentence, rows[CODE]["sentences"][0]), rows[CODE]
