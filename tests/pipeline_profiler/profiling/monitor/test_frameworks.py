"""The documented lines for training frameworks, run where these are installed."""

from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler import Recorder

STEPS, EPOCHS = 4, 2
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("trainers"),
]


def rows() -> list[dict[str, Any]]:
    import torch

    return [{"x": torch.zeros(4), "labels": torch.zeros(1)} for _ in range(STEPS)]


def test_accelerate_prepares_the_loader_first(tmp_path: Path) -> None:
    import accelerate  # type: ignore[import-not-found]
    import torch
    from torch.utils.data import DataLoader

    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows()))  # type: ignore[arg-type]
    rec = Recorder(save_to=tmp_path / "profile.json")
    for _ in range(EPOCHS):
        for batch in rec.watch(loader):
            accelerator.backward(model(batch["x"]).sum())
            optimizer.step()
    rec.end()
    assert rec.steps == STEPS * EPOCHS


def test_lightning_takes_the_watched_loader(tmp_path: Path) -> None:
    import lightning  # type: ignore[import-not-found]
    import torch
    from torch.utils.data import DataLoader

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            return self.layer(batch["x"]).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", **quiet)
    rec = Recorder(save_to=tmp_path / "profile.json")
    trainer.fit(Module(), train_dataloaders=rec.watch(DataLoader(rows())))  # type: ignore[arg-type]
    rec.end()
    assert rec.steps == STEPS * EPOCHS


def test_the_trainer_asks_its_own_method_for_the_loader(tmp_path: Path) -> None:
    import torch
    import transformers  # type: ignore[import-not-found]

    rec = Recorder(save_to=tmp_path / "profile.json")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            out = self.layer(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    class WatchedTrainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return rec.watch(super().get_train_dataloader())

    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    given = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": 1}
    arguments = transformers.TrainingArguments(str(tmp_path), **given, **quiet)
    WatchedTrainer(model=Net(), args=arguments, train_dataset=rows()).train()
    rec.end()
    assert rec.steps == STEPS * EPOCHS
