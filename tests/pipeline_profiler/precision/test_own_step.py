"""A step of the user's own: a function that is told the precision, or a training's parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pipeline_profiler.checks.user_training import Training
from pipeline_profiler.precision.backend_torch import OwnStep, TorchBackend, read_step
from pipeline_profiler.precision.plan import ModelJob
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.trainer import Cell, Recipe
from pipeline_profiler.profiling.record.session import ProfileError
from tests.pipeline_profiler.precision.fakes import Batches, flat_model, quick

pytestmark = pytest.mark.slow

CPU = TorchBackend("cpu")


class Dicts(Batches):
    """The batches of the Hugging Face form, with three entries."""

    def __iter__(self) -> Any:
        return (
            {"pixels": x, "mask": torch.ones(len(x)), "labels": y} for x, y in super().__iter__()
        )


def make_step() -> Callable[[Any, str], Any]:
    """A step that takes its labels out of the batch, as Hugging Face code does."""
    model = flat_model()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)

    def step(batch: Any, precision: str) -> Any:
        labels = batch.pop("labels")
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(batch["pixels"]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def make_training() -> dict[str, Any]:
    model = flat_model()
    return {
        "model": model,
        "loader": Batches(4),
        "loss": torch.nn.functional.cross_entropy,
        "optimizer": torch.optim.AdamW(model.parameters(), 0.01),
    }


def swept(make: Callable[[], Any], loader: Any) -> dict[str, Any]:
    job = ModelJob("own", lambda: read_step(make()), loader, pairs=False)
    return dict(measure_precisions(CPU, [job], quick()).results["precision"])


def test_a_function_is_timed_at_each_precision_and_its_losses_are_kept() -> None:
    full, half = swept(make_step, Dicts)["rows"]
    assert full["status"] == half["status"] == "ok"
    assert full["loss_last"] < full["loss_first"]
    assert half["loss_last"] == pytest.approx(full["loss_last"], rel=0.05)
    assert full["peak_bytes"] is None


def test_a_training_brings_its_model_loss_and_optimizer() -> None:
    made = read_step(make_training())
    assert isinstance(made, Training)
    trainer = CPU.new_trainer(lambda: made, Cell("own", 4, "fp32"), Recipe())
    before = [p.clone() for p in made.model.parameters()]
    trainer.step(Batches(4).rows[0])
    assert made.optimizer.state  # its own AdamW took the step
    assert any(not torch.equal(a, b) for a, b in zip(before, made.model.parameters(), strict=True))
    assert [row["status"] for row in swept(make_training, Batches)["rows"]] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: flat_model(), "a model alone"),
        (lambda: {"model": flat_model()}, "gave no loader, loss, optimizer"),
        (lambda: make_training() | {"train_step": print}, "its own train_step, which knows no"),
    ],
)
def test_what_is_no_step_is_refused_with_what_to_return(made: Callable[[], Any], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        read_step(made())


def test_a_function_is_told_the_precision_and_gets_containers_of_its_own() -> None:
    told: list[Any] = []
    trainer = CPU.new_trainer(
        lambda: OwnStep(lambda batch, precision: told.append((precision, batch.pop("labels")))),
        Cell("own", 4, "bf16"),
        Recipe(),
    )
    batch = {"labels": torch.zeros(4)}
    trainer.step(batch)
    trainer.step(batch)
    assert [precision for precision, _ in told] == ["bf16", "bf16"]
    assert trainer.losses() == []
