"""`watch --track-predictions` records the predictions of a batch, and changes no training."""

from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli.watch import sample_ids
from pipeline_profiler.profiling.monitor.prediction_grid import MOST, PredictionGrid
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report.sections import predictions
from tests.pipeline_profiler.profiling.monitor.scripts import watch, write_script

torch = pytest.importorskip("torch")

SCRIPT = """
torch.manual_seed(0)
x = torch.randn(320, 4)
y = (x[:, 0] > 0).long()
y[0] = 1 - y[0]
loader = DataLoader(torch.utils.data.TensorDataset(x, y), 32)
model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.ReLU(inplace=True),
                            torch.nn.Dropout(0.3), torch.nn.Linear(4, 2))
optimizer = torch.optim.Adam(model.parameters(), 0.02)
for epoch in range(9):
    for a, b in loader:
        loss = torch.nn.functional.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item(), [p.sum().item() for p in model.state_dict().values()], model.training)
print(y[:6].tolist())
"""


CHOSEN = """
import random
from torch.utils.data import Dataset
class Points(Dataset):
    def __init__(self):
        self.x = torch.randn(96, 2, 2)
        self.y = (self.x[:, 0, 0] > 0).long()
    def __len__(self):
        return 96
    def __getitem__(self, i):
        return {"x": self.x[i] + 0.01 * random.random(), "y": self.y[i]}
torch.manual_seed(0)
random.seed(0)
data = Points()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.3)
for epoch in range(4):
    for batch in DataLoader(data, 16, shuffle=True, num_workers=WORKERS):
        loss = torch.nn.functional.cross_entropy(model(batch["x"].view(-1, 4)), batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item(), random.random(), torch.rand(()).item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_chosen_samples_are_followed_by_index(tmp_path: Path, workers: int) -> None:
    script = write_script(tmp_path, CHOSEN.replace("WORKERS", str(workers)))
    plain = watch(tmp_path, "-o", "plain.json", "--", script)
    drawn = watch(tmp_path, "--track-predictions", "95,2,40", "-o", "ids.json", "--", script)
    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stdout == plain.stdout
    session = Session.load(tmp_path / "ids.json")
    kept = session.results["predictions"]
    torch.manual_seed(0)
    x = torch.randn(96, 2, 2)
    assert kept.get("samples") == [95, 2, 40], kept["ended"]
    assert kept["labels"] == (x[[95, 2, 40], 0, 0] > 0).long().tolist()
    assert kept["steps"] == list(range(25))
    section = predictions(session)
    assert section is not None
    assert "3 samples of the dataset, 25 times in 24 steps" in section.lines[0]
    assert section.head == ("sample", *(f"step {n}" for n in (0, 6, 12, 18, 24)))
    assert [row[0] for row in section.rows] == ["95", "2", "40"]
    assert section.rows[1][-1].split()[0] == f"{kept['values'][-1][1]:.3g}"
    assert "sample 95, step 0" in section.chart()


@pytest.mark.parametrize(
    ("indices", "scale", "said"),
    [([0, 99], 1, "IndexError"), ([0], 0.5, "the inputs of the model are no part of the batch")],
)
def test_samples_that_cannot_be_made_end_it(indices: list[int], scale: float, said: str) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.arange(8) % 2)
    made = PredictionGrid(torch, indices, lambda start, end: None)
    made.iterator = iter(torch.utils.data.DataLoader(data, 4))
    made.batch = next(made.iterator)
    made._take(torch.nn.Linear(3, 2), (made.batch[0] * scale,), {})
    assert said in made.document()["ended"]


@pytest.mark.parametrize(
    ("text", "wanted"), [("8", 8), ("4,17", [4, 17]), ("4,", [4]), ("-1,3", [-1, 3])]
)
def test_the_option_takes_a_number_or_indices(text: str, wanted: int | list[int]) -> None:
    assert sample_ids(text) == wanted


@pytest.mark.slow
def test_a_watched_training_is_the_same_and_its_predictions_are_drawn(tmp_path: Path) -> None:
    script = write_script(tmp_path, SCRIPT)
    plain = watch(tmp_path, "-o", "plain.json", "--", script)
    drawn = watch(tmp_path, "--track-predictions", "6", "-o", "grid.json", "--", script)
    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stdout == plain.stdout
    assert predictions(Session.load(tmp_path / "plain.json")) is None
    session = Session.load(tmp_path / "grid.json")
    kept = session.results["predictions"]
    assert kept["steps"] == list(range(0, 91, 2))
    assert str(kept["labels"]) in plain.stdout
    section = predictions(session)
    assert section is not None
    said = "\n".join(section.lines)
    assert "6 examples of the first batch, 46 times in 90 steps" in said
    assert "Never right: 0 (class" in said
    assert section.chart().count("<rect") == 6 * 46


def grid(model: Any, inputs: Any, labels: Any, steps: int, rate: float = 0.1) -> dict[str, Any]:
    """What is kept of some steps, the hooks left out."""
    left_out: list[tuple[int, int]] = []
    made = PredictionGrid(torch, 4, lambda *stretch: left_out.append(stretch))
    made.batch = (inputs, labels)
    made._take(model, (inputs,), {})
    made._keep()
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        made._stepped(optimizer, (), {})
    other = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    made._stepped(other, (), {})
    assert made.steps == steps
    assert len(left_out) >= len(made.rows)
    return made.document()


class FullyShardedDataParallel(torch.nn.Linear):  # type: ignore[misc]
    pass


def test_what_is_kept() -> None:
    inputs, labels = torch.randn(8, 3), torch.arange(8) % 2
    kept = grid(torch.nn.Linear(3, 2), inputs, labels, 1000)
    assert len(kept["steps"]) < MOST
    assert kept["steps"][-1] > 950
    assert kept["labels"] == [0, 1, 0, 1]
    assert {b - a for a, b in zip(kept["steps"], kept["steps"][1:], strict=False)} == {16}
    numbers = grid(torch.nn.Linear(3, 1), inputs, labels.float(), 3)
    assert "labels" not in numbers
    assert [len(row) for row in numbers["values"]] == [4] * 4
    wrapped = torch.nn.DataParallel(torch.nn.Linear(3, 1))
    assert len(grid(wrapped, inputs, labels.float(), 1)["values"]) == 2
    flat = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Flatten(0))
    assert grid(flat, inputs, labels, 1)["values"][0] != []


def test_a_model_that_cannot_be_called_alone_ends_it() -> None:
    inputs = torch.randn(8, 3)
    shared = PredictionGrid(torch, 4, lambda start, end: None)
    shared._take(FullyShardedDataParallel(3, 2), (inputs,), {})
    assert "several ranks" in shared.document()["ended"]
    assert shared.model is None

    class Whole(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if len(x) != 8:
                raise ValueError("eight or nothing")
            return super().forward(x)

    kept = PredictionGrid(torch, 4, lambda start, end: None)
    kept._take(Whole(3, 2), (inputs,), {})
    kept._keep()
    assert kept.document()["ended"] == "ValueError at step 0: eight or nothing"
