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

torch = pytest.importorskip("torch")
Subset = torch.utils.data.Subset

from pipeline_profiler.checks.batches import as_array  # noqa: E402
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
    changed_images,
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
    "no number becomes 0": ("LOAD008", (with_nan, lambda x: x.nan_to_num()), PASS),
    "no number stays": ("LOAD008", (with_nan, lambda x: x * 1.01), FAIL),
    "moved to the front": (
        "LOAD008",
        (lambda x: x.transpose(0, 2, 3, 1).copy(), lambda x: x.permute(0, 3, 1, 2)),
        PASS,
    ),
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
    same = stepped(lambda x: x, lambda x: x)
    assert same.at_model is None
    assert not judged("LOAD008", same).answer.sentence.startswith("As it enters")
    changed = stepped(as_bytes, as_numbers).at_model
    assert changed is not None
    assert changed.batches[0].inputs is not None
    assert changed.batches[0].inputs.dtype == np.float32


def test_inputs_of_a_step_of_functions_are_seen() -> None:
    def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
        value = loss(model(x * 2), y)
        value.backward()
        return value

    subject = TrainingSubject(lambda: toy_training(train_step=train_step))
    given, inputs, _ = subject.recorded.entered()[0][0]
    assert torch.equal(inputs, given[0] * 2)


def placed(target: Any, loss: Any, last: Any) -> TrainingSubject:
    """Pictures with `target(pixels)`: masks, boxes or one label for all."""

    data = ChangedImages(lambda pixels, label: (pixels, target(pixels)))
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), *last)
    return TrainingSubject(lambda: toy_training(deepcopy(net), loss, loader=toy_loader(data)))


def binary(outputs: Any, masks: Any) -> Any:
    return torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1), masks.float())


def flat_boxes(outputs: Any, boxes: Any) -> Any:
    return (outputs[:, None] - boxes).abs().mean()  # (B, 1, 4) and (B, 4)


def bright(pixels: Any) -> Any:
    return (pixels[0] > 0.5).astype(np.int64)


ENTROPY, L1 = torch.nn.functional.cross_entropy, torch.nn.functional.smooth_l1_loss
MASKS, ONE, ALIKE = ([torch.nn.Conv2d(8, count, 1)] for count in (3, 1, 1))
torch.nn.init.normal_(ALIKE[0].weight, 0, 1e-5)  # first outputs that are all nearly 0
BOXES = [torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 8, 4)]
PLACED = {
    "masks of classes": (bright, ENTROPY, MASKS, PASS),
    "masks of one logit": (bright, binary, ONE, PASS),
    "outputs that are alike at the start": (bright, binary, ALIKE, PASS),
    "boxes": (lambda x: x[0, 0, :4].copy(), L1, BOXES, PASS),
    "boxes beside all others": (lambda x: x[0, 0, :4].copy(), flat_boxes, BOXES, FAIL),
    "masks of classes, all zero": (lambda x: 0 * bright(x), ENTROPY, MASKS, INCONCLUSIVE),
    "masks of one logit, all zero": (lambda x: 0 * bright(x), binary, ONE, INCONCLUSIVE),
    "boxes that are all one": (lambda x: np.full(4, 0.5, "f4"), L1, BOXES, INCONCLUSIVE),
    "one class": (lambda x: 1, ENTROPY, [*BOXES[:1], torch.nn.Linear(512, 4)], INCONCLUSIVE),
}


@pytest.mark.parametrize(("target", "loss", "last", "judgement"), PLACED.values(), ids=PLACED)
def test_a_loss_pairs_masks_and_boxes_and_targets_that_are_one_prove_nothing(
    target: Any, loss: Any, last: Any, judgement: Judgement
) -> None:
    subject = placed(target, loss, last)
    answer = judged("TRAIN020", subject).answer
    assert answer.judgement is judgement, answer.sentence


def test_one_class_proves_nothing_about_one_batch() -> None:
    answer = judged("TRAIN003", placed(*PLACED["one class"][:3])).answer
    assert answer.judgement is INCONCLUSIVE, answer.sentence


READS = {
    "held": (lambda s: s, 1),
    "a shallow copy": (lambda s: dict(s), 1),
    "let go": (lambda s: None, 0),
    "saved": (lambda s: (s, torch.save({"model": s}, io.BytesIO())), 0),
    "copied": (lambda s: (s, deepcopy(s)), 0),
    "cloned": (lambda s: (s, {name: value.clone() for name, value in s.items()}), 0),
}


@pytest.mark.parametrize(("classes", "found"), [(4, PASS), (1, FAIL)])
def test_targets_that_a_step_makes_are_not_those_of_the_loader(
    classes: int, found: Judgement
) -> None:
    loader = toy_loader(changed_images(labels=lambda y: y % classes))
    steps = [(batch, batch[0] * 2, batch[1] * 0) for batch in loader]
    subject = LoaderSubject(lambda: loader, entered=lambda: (steps, []))
    assert judged("LOAD011", subject).answer.judgement is found


def test_a_sparse_tensor_is_no_array() -> None:
    rows = torch.eye(3)
    assert as_array(rows) is not None
    assert as_array(rows.to_sparse()) is None
    assert as_array([rows, rows.to_sparse()]) is None


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


def seeded() -> Any:
    torch.manual_seed(7)
    return toy_training()


def loaded() -> Any:
    made, kept = toy_training(), toy_training()
    with torch.no_grad():
        for number, parameter in enumerate(kept.model.parameters()):
            parameter.copy_(
                torch.linspace(-0.1, 0.1, parameter.numel()).view_as(parameter) * number
            )
    made.model.load_state_dict(kept.model.state_dict())
    return made


@pytest.mark.parametrize(
    ("make", "caught", "one_start", "said"),
    [
        (toy_training, False, False, "outputs of zero have"),
        (toy_training, True, True, "outputs of zero have"),
        (seeded, False, True, "outputs of zero have"),
        (loaded, False, False, "so they are pretrained"),
    ],
    ids=["any seed", "caught", "its own seed", "a checkpoint"],
)
def test_a_seed_inside_makes_nothing_pretrained(
    make: Any, caught: bool, one_start: bool, said: str
) -> None:
    subject = TrainingSubject(make, caught=caught)
    assert subject.one_start is one_start
    answer = judged("TRAIN001", subject).answer
    assert answer.judgement is PASS
    assert said in answer.sentence


SCRIPT = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
labels = torch.from_numpy(np.random.default_rng(0).choice(3, 400, p=[0.7, 0.2, 0.1]))
pixels = torch.rand(400, 3, 8, 8) * 0.6
for row, label in enumerate(labels):
    pixels[row, :, 2 * label : 2 * label + 2] += 0.4
data = TensorDataset((pixels - 0.5) / 0.25, labels)
train = DataLoader(Subset(data, range(320)), 32, shuffle=True)
val = DataLoader(Subset(data, range(FIRST, 400)), 40)
counts = torch.bincount(labels).float()
loss_function = nn.CrossEntropyLoss(weight=WEIGHT)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(50):
    model.train()
    for x, y in train:
        loss = loss_function(model(STEP), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(sum(int((model(STEP).argmax(1) == y).sum()) for x, y in val))
"""


def command(folder: Path, *words: str) -> dict[str, Any]:
    """The document that a command of checks prints in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "pipeline_profiler", words[0], *UNRECORDED, "--json", *words[1:]],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": UNCOMPILED},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return {"err": done.stderr} | json.loads(done.stdout)


def write_script(folder: Path, first: str, weight: str, step: str) -> str:
    """Write `SCRIPT` with these words as train.py; return its text."""
    text = SCRIPT.replace("FIRST", first).replace("WEIGHT", weight).replace("STEP", step)
    (folder / "train.py").write_text(text)
    return text


CODES = ["LOAD008", "LOAD013", "LOAD020", "TRAIN041"]


@pytest.mark.parametrize(
    ("words", "trained", "failed"),
    [
        (("300", "counts / counts.sum()", "x - 9"), "x * 99", CODES),
        (("320", "counts.sum() / (3 * counts)", "x * 1.01"), "x * 1.01", []),
    ],
    ids=["planted", "healthy"],
)
def test_an_unmodified_script(
    tmp_path: Path, words: tuple[str, ...], trained: str, failed: list[str]
) -> None:
    text = write_script(tmp_path, *words)
    text = text.replace(f"model({words[2]}), y)", f"model({trained}), y)")
    (tmp_path / "train.py").write_text(text)
    checks = ("--only", ",".join(CODES), "--yes", "--", "train.py")
    found = command(tmp_path, "check", *checks)
    assert sorted(found["failed"]) == failed, found["checks"]
    assert {c["verdict"] for c in found["checks"]} == ({"failed"} if failed else {"passed"})
    places = {check["code"]: check["place"] for check in found["checks"]}
    lines = [line_of(text, part) for part in ("loss = loss_function(", "print(sum(")]
    assert not failed or [places["LOAD008"], places["LOAD013"]] == lines


SPLIT = """
from torch import nn, optim
from parts import Images, make_eval_loader
from torch.utils.data import DataLoader


def make_loader(augment=True):
    return DataLoader(Images(augment), 32, shuffle=True)


make_model = lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 3))
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
PARTS = """
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, augment=False):
        made = torch.Generator().manual_seed(0)
        self.labels = torch.arange(90) % 3
        self.pixels = torch.rand(90, 3, 8, 8, generator=made) * 0.8
        self.augment = augment

    def __len__(self):
        return 90

    def __getitem__(self, row):
        pixels = self.pixels[row].clone()
        if self.augment:
            pixels[:] = torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1)
        return pixels, self.labels[row]


def make_eval_loader():
    return DataLoader(Images(), 40)
"""


def line_of(text: str, part: str) -> str:
    return f"train.py:{1 + text.partition(part)[0].count(chr(10))}"


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    """A file of factories whose loader for evaluation stands in another file."""
    (tmp_path / "train.py").write_text(SPLIT)
    (tmp_path / "parts.py").write_text(PARTS)
    return tmp_path


@pytest.fixture
def called(
    functions: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Run a command of checks beside these files in this process; returns its document."""
    monkeypatch.chdir(functions)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*words: str) -> dict[str, Any]:
        command_line([words[0], *UNRECORDED, "--json", *words[1:]])
        return dict(json.loads(capsys.readouterr().out))

    yield call
    for name in ("train", "parts"):  # the next test has other files of these names
        sys.modules.pop(name, None)


def test_the_line_is_that_of_the_evaluation_and_of_the_call_of_the_model(
    called: Callable[..., dict[str, Any]],
) -> None:
    found = called("check", "--only", "TRAIN024", "train.py")
    assert found["failed"] == ["TRAIN024"], found["checks"]
    assert found["checks"][0]["place"] == line_of(SPLIT, "def evaluate")
    loaders = ("--eval", "parts.py:make_eval_loader", "train.py:make_loader")
    found = called("check", "--only", "LOAD008", *loaders)
    assert "As it enters the model: " in found["checks"][0]["sentence"]
    assert found["checks"][0]["place"] == line_of(SPLIT, "value = loss(model(x)")


GREEN = "torch.stack([0 * x[:, 0], 0 * x[:, 0] + 1, 0 * x[:, 0]], 1)"


@pytest.mark.parametrize("ran", ["a script", "functions", "check"])
def test_the_grid_shows_what_enters_the_model(
    functions: Path, called: Callable[..., dict[str, Any]], ran: str
) -> None:
    from PIL import Image

    words = ["check", "train.py"] if ran == "functions" else ["check"]
    if ran == "check":
        words = [ran, "train.py:make_loader"]
    if ran == "a script":
        write_script(functions, "320", "None", GREEN)
        words += ["--yes", "--", "train.py"]
    code = "LOAD008" if ran == "check" else "TRAIN005"
    pages = () if ran == "a script" else ("x.html", "x.md")  # written by the same code
    for output in ("x.json", *pages):
        options = ("--only", code, "-o", output, "--images", "x.png")
        if ran == "a script":
            command(functions, words[0], *options, *words[1:])
        else:
            called(words[0], *options, *words[1:])
    png = (functions / "x.png").read_bytes()
    with Image.open(io.BytesIO(png)) as grid:
        assert grid.getpixel((40, 40)) == (0, 255, 0)
        caption = grid.convert("L").crop((0, 94, 96, 110))
        assert min(caption.tobytes()) < 99  # the label is written below
    assert parse_checks((functions / "x.json").read_bytes(), "x.json").grid is not None
    for page in pages:
        shown = (functions / page).read_text()
        encoded = shown.partition("data:image/png;base64,")[2].rstrip(")\n").partition('"')[0]
        assert base64.b64decode(encoded).startswith(png[:8])
        assert code in shown


TWICE = "train_set.dataset.transform = a\nval_set.dataset.transform = b\n"
COPIED = "val_set.dataset = copy.copy(val_set.dataset)\nval_set.dataset.transform = b\n"


@pytest.mark.parametrize(
    ("text", "bases", "found"),
    [(TWICE, 1, FAIL), (TWICE, 2, PASS), (COPIED, 2, PASS), (TWICE.replace("= b", "= a"), 1, PASS)],
)  # fmt: skip
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
