"""What only a GPU can show: events without synchronisation, real memory, fused skips."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_profiler.measure import environment
from pipeline_profiler.precision.backend_torch import TorchBackend
from pipeline_profiler.precision.batches import cycle_batches
from pipeline_profiler.precision.cell import Cell, Recipe
from pipeline_profiler.precision.memory_torch import MEMORY_CUDA
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.timing import time_window
from pipeline_profiler.record.session import ProfileError
from tests.pipeline_profiler.precision.fakes import Batches, flat_model, job, quick

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.cuda]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_nothing_synchronises_inside_the_window(precision: str) -> None:
    backend = TorchBackend("cuda")
    scale = "dynamic" if precision == "fp16" else ""
    made = backend.new_trainer(flat_model, Cell("flat", 4, precision, scale), Recipe())
    batches = [made.place(batch) for batch in Batches(4)]
    made.step(batches[0])
    taken: list[Any] = []
    plain = made.step

    def strict(batch: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            plain(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        taken.append(batch)

    made.step = strict
    window = time_window(made, cycle_batches(batches), 5, 2)
    assert len(taken) == 7
    assert len(window.period_ms) == 5
    assert all(ms > 0 for ms in window.period_ms)


def test_a_fused_optimizer_skips_on_the_device_and_is_counted() -> None:
    def overflowing() -> Any:
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.ones_(model.weight)
        return model, lambda outputs, targets: outputs.sum()

    backend = TorchBackend("cuda")
    made = backend.new_trainer(overflowing, Cell("w", 1, "fp16", "dynamic"), Recipe(lr=2.0**-12))
    for _ in range(6):
        made.step((torch.tensor([[8.0]]), torch.zeros(1)))
    assert made.skipped() == [0, 1, 2, 3]
    assert made.scale() == 2.0**12


def test_every_column_is_filled_and_the_largest_batch_is_found() -> None:
    options = quick(
        batch_sizes=(4,), precisions=("fp32", "fp16", "bf16"), largest=True, largest_limit=64
    )
    found = measure_precisions(TorchBackend("cuda"), [job()], options).results["precision"]
    for row in found["rows"]:
        assert row["status"] == "ok"
        assert row["peak_bytes"] > 0
        assert row["peak_how"] == MEMORY_CUDA
        assert row["peak_bytes"] <= row["reserved_bytes"] <= row["occupied_bytes"]
        assert row["step"]["p95_ms"] > 0
    assert [row["batch_size"] for row in found["largest"]] == [64, 64, 64]


def test_real_memory_runs_out_and_the_sweep_goes_on() -> None:
    def hungry() -> Any:
        class Hungry(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = flat_model()

            def forward(self, x: Any) -> Any:
                if len(x) > 4:
                    torch.empty(1 << 50, device=x.device)
                return self.inner(x)

        return Hungry()

    found = measure_precisions(
        TorchBackend("cuda"), [job(hungry)], quick(batch_sizes=(8, 4), precisions=("fp32",))
    ).results["precision"]
    assert [row["status"] for row in found["rows"]] == ["oom", "ok"]


def test_a_smaller_card_is_replayed_by_the_memory_limit() -> None:
    def wide() -> Any:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5_000_000))

    total = torch.cuda.get_device_properties(0).total_memory
    try:
        # weights, gradients and momentum of 240 million numbers need 2.9 GB
        session = measure_precisions(
            TorchBackend("cuda"),
            [job(wide), job(name="small")],
            quick(precisions=("fp32",), memory_limit=1 << 30, largest=False),
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    found = session.results["precision"]
    assert [row["status"] for row in found["rows"]] == ["oom", "ok"]
    assert any("memory limited to 1.0 of" in r.sentence for r in session.plan.reasons)
    with pytest.raises(ProfileError, match="is more than"):
        TorchBackend("cuda").limit_memory(2 * total)


def test_the_environment_names_the_card_and_this_build_has_code_for_it() -> None:
    torch_part = environment.describe()["torch"]
    assert torch_part["cuda"]
    assert torch_part["cudnn"]
    assert 0 < torch_part["memory_free_bytes"] <= torch_part["memory_total_bytes"]
    assert torch_part["architecture_problem"] == ""


def test_accuracy_is_counted_without_a_wait_for_the_device() -> None:
    made = TorchBackend("cuda").new_trainer(flat_model, Cell("flat", 4, "fp32"), Recipe())
    batches = [made.place(batch) for batch in Batches(4)]
    made.count_correct()
    made.step(batches[0])
    torch.cuda.set_sync_debug_mode("error")
    try:
        made.step(batches[1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(made.accuracies()) == 2
