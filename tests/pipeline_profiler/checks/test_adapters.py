"""The documented adapters, as they stand in docs/check.md, on real libraries."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pipeline_profiler.cli.main import command_line
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


LIGHTNING = """
import torch, lightning
from tests.pipeline_profiler.checks.toys import ToyImages, toy_loader

class MyModule(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4), *END)
        self.criterion = torch.nn.CrossEntropyLoss()
    def forward(self, pixels):
        return self.net(pixels)
    def training_step(self, batch, index):
        value = self.criterion(self(batch[0]), batch[1])
        self.log("loss", value)
        return value
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 50)]

class MyData(lightning.LightningDataModule):
    def setup(self, stage):
        self.pictures = ToyImages()
    def train_dataloader(self):
        return toy_loader(self.pictures)
"""
TRAINER = """
import tempfile, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 128
    def __getitem__(self, number):
        label = number % 2
        tokens = torch.full((6,), 3 + label) + torch.tensor([0, 2, 4, 0, 2, 4])
        mask = torch.ones(6, dtype=torch.long)
        return {"input_ids": tokens, "attention_mask": mask, "labels": label}

def make_trainer():
    size = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=2, **size))
    model.classifier = torch.nn.Sequential(model.classifier, *END)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], learning_rate=1e-3,
        per_device_train_batch_size=16,
    )
    return Trainer(model=model, args=args, train_dataset=Rows())
"""
PARTS = {"lightning": LIGHTNING, "transformers": TRAINER}


def adapters() -> dict[str, str]:
    text = (ROOT / "docs" / "check.md").read_text()
    blocks = [t.content for t in MarkdownIt().parse(text) if t.type == "fence" and t.info == "py"]
    return dict(zip(PARTS, blocks, strict=True))


@pytest.fixture(params=PARTS)
def library(request: pytest.FixtureRequest, trainers: None) -> Iterator[str]:
    yield request.param
    sys.modules.pop("my_project", None)


def test_an_adapter_has_ten_lines_or_so() -> None:
    for text in adapters().values():
        assert len([line for line in text.splitlines() if line.strip()]) <= 16
        compile(text, "checked.py", "exec")


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("twice", [False, True])
def test_a_set_up_is_checked_through_its_adapter(
    library: str, twice: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = "[torch.nn.Softmax(1)]" if twice else "[]"
    (tmp_path / "my_project.py").write_text(f"import torch\nEND = {end}\n{PARTS[library]}")
    script = tmp_path / f"checked_{library}_{twice}.py"
    script.write_text(adapters()[library])
    codes = "TRAIN001,TRAIN006,TRAIN010,TRAIN015,TRAIN020"
    code = command_line(["check", str(script), "--only", codes, "--json"])
    document = json.loads(capsys.readouterr().out)
    said = [entry["sentence"] for entry in document["checks"]]
    assert code == int(twice), said
    assert ("TRAIN010" in document["failed"][:1]) is twice, said
    assert document["summary"]["passed"] >= (2 if twice else 4), said
