"""What only a GPU can show: events without synchronisation, real memory, fused skips."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest
import torch

from pipeline_profiler.precision.backend_torch import MEMORY_CUDA, TorchBackend
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.trainer import Cell, Recipe, time_window
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.record.session import ProfileError
from tests.pipeline_profiler.precision.fakes import (
    Batches,
    flat_model,
    job,
    overflowing,
    quick,
    refusing,
)

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.cuda]


@contextmanager
def no_wait_for_the_device() -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="ignore"):  # once a process: the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


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
        with no_wait_for_the_device():
            plain(batch)
        taken.append(batch)

    made.step = strict
    window = time_window(made, cycle(batches), 5, 2)
    assert len(taken) == 7
    assert len(window.period_ms) == 5
    assert all(ms > 0 for ms in window.period_ms)


def test_a_fused_optimizer_skips_on_the_device_and_is_counted() -> None:
    cell = Cell("w", 1, "fp16", "dynamic")
    made = TorchBackend("cuda").new_trainer(overflowing, cell, Recipe(lr=2.0**-12))
    for _ in range(6):
        made.step((torch.tensor([[8.0]]), torch.zeros(1)))
    assert (made.skipped(), made.scale()) == ([0, 1, 2, 3], 2.0**12)


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
        assert row["step_ms"]["value"] > 0
    assert [row["batch_size"] for row in found["largest"]] == [64, 64, 64]


def test_real_memory_runs_out_and_the_sweep_goes_on() -> None:
    hungry = refusing(4, lambda: torch.empty(1 << 50, device="cuda"))
    options = quick(batch_sizes=(8, 4), precisions=("fp32",))
    found = measure_precisions(TorchBackend("cuda"), [job(lambda: hungry)], options)
    assert [r["status"] for r in found.results["precision"]["rows"]] == ["oom", "ok"]


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
    assert any("memory limited to 1.0 of" in r for r in session.plan.reasons)
    with pytest.raises(ProfileError, match="is more than"):
        TorchBackend("cuda").limit_memory(2 * total)


def test_the_environment_names_the_card_and_this_build_has_code_for_it() -> None:
    found = environment.describe(gpu=True)["torch"]
    assert all((found["cuda"], found["cudnn"]))
    assert 0 < found["memory_free_bytes"] <= found["memory_total_bytes"]
    assert found["architecture_problem"] == ""


def test_accuracy_is_counted_without_a_wait_for_the_device() -> None:
    made = TorchBackend("cuda").new_trainer(flat_model, Cell("flat", 4, "fp32"), Recipe())
    batches = [made.place(batch) for batch in Batches(4)]
    made.count_correct()
    made.step(batches[0])
    with no_wait_for_the_device():
        made.step(batches[1])
    assert len(made.accuracies()) == 2
