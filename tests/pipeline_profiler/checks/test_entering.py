"""What enters the model beside what the loader gives; facts of a training; a script with both."""

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
Subset = torch.utils.data.Subset

from pipeline_profiler.checks.caught_tape import KeptStates, recording_mode  # noqa: E402
from pipeline_profiler.checks.check import Judgement  # noqa: E402
from pipeline_profiler.checks.document import parse_checks  # noqa: E402
from pipeline_profiler.checks.loader import two_loaders  # noqa: E402
from pipeline_profiler.checks.loader_subject import LoaderSubject  # noqa: E402
from pipeline_profiler.checks.training_subject import TrainingSubject  # noqa: E402
from pipeline_profiler.cli.main import command_line  # noqa: E402
from tests.pipeline_profiler.checks.conftest import judged  # noqa: E402
from tests.pipeline_profiler.checks.toys import (  # noqa: E402
    ChangedImages,
    ToyImages,
    toy_loader,
    toy_training,
)
from tests.pipeline_profiler.conftest import UNCOMPILED, UNRECORDED  # noqa: E402

pytestmark = pytest.mark.slow
Change = Callable[[Any], Any]
PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE


def stepped(given: Change, step: Change, evaluated: Change | None = None) -> LoaderSubject:
    """Pictures changed by the loader, by the user's step, and by the evaluation if there is one."""
    sets = [ToyImages(seed=seed) for seed in range(2)]
    for dataset in sets:
        dataset.pixels = given(dataset.pixels)
    loader, other = (toy_loader(dataset) for dataset in sets)
    steps = [(batch, step(batch[0]), batch[1]) for batch in loader]
    seen = [(batch, (evaluated or step)(batch[0]), None) for batch in other]
    make_eval = None if evaluated is None else lambda: other
    return LoaderSubject(lambda: loader, make_eval, entered=lambda: (steps, seen))


def as_bytes(pixels: Any) -> Any:
    return np.clip(pixels * 40 + 128, 0, 255).astype(np.uint8)


def as_numbers(pixels: Any) -> Any:
    return (pixels.float() - 128) / 40


def with_nan(pixels: Any) -> Any:
    return np.where(pixels > pixels.max() - 1e-6, np.nan, pixels).astype(np.float32)


JUDGED = {
    "bytes become numbers": ("LOAD008", (as_bytes, as_numbers), PASS),
    "bytes stay large": ("LOAD008", (as_bytes, lambda x: x.float()), FAIL),
    "an axis too many": ("LOAD008", (lambda x: x * 99, lambda x: x.flatten(1)), INCONCLUSIVE),
    "no number stays": ("LOAD008", (with_nan, lambda x: x * 1.01), FAIL),
    "zeros with noise": ("LOAD008", (lambda x: x * 0, lambda x: x + torch.randn(x.shape)), FAIL),
    "evaluated as it was trained": ("LOAD013", (as_bytes, as_numbers, as_numbers), PASS),
    "evaluated on bytes": ("LOAD013", (as_bytes, as_numbers, lambda x: x.float()), FAIL),
}


@pytest.mark.parametrize(("code", "changes", "judgement"), JUDGED.values(), ids=JUDGED)
def test_inputs_are_judged_where_they_enter_the_model(
    code: str, changes: tuple[Change, ...], judgement: Judgement
) -> None:
    answer = judged(code, stepped(*changes)).answer
    assert answer.judgement is judgement, answer.sentence
    assert answer.sentence.endswith(".")
    if "constant" not in answer.sentence and judgement is not INCONCLUSIVE:
        assert answer.sentence.startswith("As it enters the model: ")


def test_nothing_is_judged_twice_that_enters_as_it_was_given() -> None:
    assert stepped(lambda x: x, lambda x: x).at_model is None
    changed = stepped(as_bytes, as_numbers).at_model
    assert changed is not None
    assert changed.batches[0].inputs is not None
    assert changed.batches[0].inputs.dtype == np.float32


@pytest.mark.parametrize("threshold", [0.5, 99.0])
def test_masks_that_are_all_zero_prove_nothing_of_the_best_output(threshold: float) -> None:
    data = ChangedImages(lambda pixels, label: (pixels, (pixels[0] > threshold).astype(np.int64)))
    net, loss = torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.functional.cross_entropy
    subject = TrainingSubject(lambda: toy_training(deepcopy(net), loss, loader=toy_loader(data)))
    answer = judged("TRAIN020", subject).answer
    assert answer.judgement is PASS
    form = "The loss is cross-entropy of logits, and outputs are logits."
    assert (answer.sentence == form) is (threshold == 99.0), answer.sentence


def test_targets_that_a_step_makes_are_not_those_of_the_loader() -> None:
    loader = toy_loader(ToyImages())
    steps = [(batch, batch[0] * 2, batch[1] * 0) for batch in loader]
    subject = LoaderSubject(lambda: loader, entered=lambda: (steps, []))
    assert judged("LOAD011", subject).answer.judgement is PASS


READS = {
    "a shallow copy": (lambda s: dict(s), 1),
    "let go": (lambda s: None, 0),
    "saved": (lambda s: (s, torch.save({"model": s}, io.BytesIO())), 0),
    "cloned": (lambda s: (s, {name: value.clone() for name, value in s.items()}), 0),
}


@pytest.mark.parametrize(("use", "live"), READS.values(), ids=READS)
def test_a_state_that_was_read_is_no_live_one(use: Any, live: int) -> None:
    net, states = torch.nn.Linear(3, 2), KeptStates()
    taken = net.state_dict()
    states.take(net, taken, "", "train.py:9")
    with recording_mode(lambda: None, states):
        kept = use(taken)
    del taken
    assert states.live() == ["train.py:9"] * live
    del kept


FUNCTIONS = """
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from tests.pipeline_profiler.checks.toys import ToyImages

def make_loader(augment=True):
    data = ToyImages(96)
    if augment:
        data.pixels[:, [0, 2]], data.pixels[:, 1] = 0, 1
    return DataLoader(data, 32, shuffle=True)

make_eval_loader = lambda: DataLoader(ToyImages(90), 40)
make_model = lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4))
make_loss = nn.CrossEntropyLoss
make_optimizer = lambda model: optim.SGD(model.parameters(), lr=1e-6)


def train_step(model, batch, loss, optimizer):
    x = batch[0] * 255
    value = loss(model(x), batch[1])
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return value


def evaluate(model, loader):
    means = [float((model(x * 255).argmax(1) == y).float().mean()) for x, y in loader]
    return sum(means) / len(means)
"""
SCRIPT = f"""{FUNCTIONS}
model, loader = make_model(), make_loader()
loss, optimizer = make_loss(), make_optimizer(model)
for epoch in range(50):
    for batch in loader:
        train_step(model, batch, loss, optimizer)
"""


def line_of(part: str) -> str:
    return f"train.py:{1 + FUNCTIONS.partition(part)[0].count(chr(10))}"


def test_an_unmodified_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("check", *UNRECORDED, "--json", "--only", "LOAD008", "--yes", "--", "train.py")
    done = subprocess.run(
        [sys.executable, "-m", "pipeline_profiler", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": UNCOMPILED},
    )  # fmt: skip
    (check,) = json.loads(done.stdout)["checks"]
    assert "As it enters the model: " in check["sentence"]
    assert (check["verdict"], check["place"]) == ("failed", line_of("loss(model(x)"))


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Run a command of checks on the functions in this process; returns its document."""
    (tmp_path / "train.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*words: str) -> dict[str, Any]:
        command_line([words[0], *UNRECORDED, "--json", *words[1:]])
        return dict(json.loads(capsys.readouterr().out))

    yield call
    sys.modules.pop("train", None)  # the next test has another file of this name


def test_the_line_is_that_of_the_evaluation_and_of_the_call_of_the_model(
    called: Callable[..., dict[str, Any]],
) -> None:
    found = called("check", "--only", "TRAIN024", "train.py")
    assert found["failed"] == ["TRAIN024"], found["checks"]
    assert found["checks"][0]["place"] == line_of("def evaluate")
    loaders = ("--eval", "train.py:make_eval_loader", "train.py:make_loader")
    found = called("check", "--only", "LOAD008", *loaders)
    assert "As it enters the model: " in found["checks"][0]["sentence"]
    assert found["checks"][0]["place"] == line_of("loss(model(x)")


@pytest.mark.parametrize("word", ["train.py", "train.py:make_loader"])
def test_the_grid_shows_what_enters_the_model(
    tmp_path: Path, called: Callable[..., dict[str, Any]], word: str
) -> None:
    code = "LOAD008" if "make" in word else "TRAIN005"
    for output in ("x.json", "x.html", "x.md"):
        called("check", word, "--only", code, "-o", output, "--images", "x.png")
    png = (tmp_path / "x.png").read_bytes()
    with Image.open(io.BytesIO(png)) as grid:
        assert grid.getpixel((40, 40)) == (0, 255, 0)
        caption = grid.convert("L").crop((0, 94, 96, 110))
        assert min(caption.tobytes()) < 99  # the label is written below
    assert parse_checks((tmp_path / "x.json").read_bytes(), "x.json")["grid"] == png
    for page in ("x.html", "x.md"):
        shown = (tmp_path / page).read_text()
        encoded = shown.partition("data:image/png;base64,")[2].rstrip(")\n").partition('"')[0]
        assert base64.b64decode(encoded) == png
        assert code in shown


TWICE = "train_set.dataset.transform = a\nval_set.dataset.transform = b\n"
COPIED = "val_set.dataset = copy.copy(val_set.dataset)\nval_set.dataset.transform = b\n"


@pytest.mark.parametrize(
    ("text", "bases", "found"),
    [(TWICE, 1, FAIL), (COPIED, 2, PASS), (TWICE.replace("= b", "= a"), 1, PASS)],
)
def test_one_dataset_has_one_transform(
    text: str, bases: int, found: Judgement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_loaders, "own_files", lambda: {"/a/train.py": text})
    data = [ToyImages(64) for _ in range(bases)]
    parts = (Subset(data[0], range(32)), Subset(data[-1], range(32, 64)))
    train, held = (lambda part=part: toy_loader(part) for part in parts)
    answer = judged("LOAD013", LoaderSubject(train, held)).answer
    assert answer.judgement is found, answer.sentence
    assert answer.evidence.get("place") == ("/a/train.py:2" if found is FAIL else None)
