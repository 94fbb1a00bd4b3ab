"""Estimated GPU memory: against a measured step on a CPU, the stored GPU rows, and exact parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli import main
from pipeline_profiler.precision import memory
from pipeline_profiler.precision.backend_torch import TorchBackend, TorchTrainer
from pipeline_profiler.precision.models import SHIPPED
from pipeline_profiler.precision.plan import ModelJob, SweepOptions
from pipeline_profiler.precision.trainer import Cell, Recipe
from pipeline_profiler.profiling.record.session import ProfileError

torch = pytest.importorskip("torch")
STORED = Path(memory.__file__).parents[1] / "on_a_gpu.json"


def images(size: int = 2) -> tuple[Any, Any]:
    return torch.zeros(size, 3, 32, 32), torch.zeros(size, dtype=torch.long)


def small() -> Any:
    nn = torch.nn
    conv = nn.Conv2d(3, 32, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32768, 4))


def peak(
    make: Callable[[], Any] = small, size: int = 8, precision: str = "fp32", **recipe: Any
) -> int:
    return memory.estimate_peak(make, Cell("m", size, precision), Recipe(**recipe), images())


def test_the_estimate_is_what_a_step_allocates_on_a_cpu() -> None:
    for make, size in ((small, 64), (partial(SHIPPED["resnet18"], 10), 8)):
        trainer = TorchBackend("cpu").new_trainer(make, Cell("m", size, "fp32"), Recipe())
        assert isinstance(trainer, TorchTrainer)
        batch = images(size)
        trainer.step(batch)  # the momentum is there from now on
        measured = trainer.peak_memory(batch).peak_bytes
        assert measured is not None
        own = sum(part.nbytes for part in batch)
        estimate = peak(make, size) - memory.CUBLAS_HOPPER_BYTES
        assert estimate == pytest.approx(measured + own, rel=0.1)


@pytest.mark.parametrize(("precision", "error"), [("tf32", 0.03), ("fp16", 0.03), ("bf16", 0.03)])
def test_stored_rows_of_an_h100_are_met(precision: str, error: float) -> None:
    cells = json.loads(STORED.read_text())["precision"]["cells"]
    stored = {
        (c["model"], c["batch_size"]): c["peak_bytes"] for c in cells if c["precision"] == precision
    }
    for size in (128, 512):
        found = peak(partial(SHIPPED["resnet18"], 10), size, precision)
        assert found == pytest.approx(stored["resnet18", size], rel=error)


def test_adam_adds_one_more_state_than_sgd() -> None:
    weights = sum(p.nbytes for p in small().parameters())
    assert peak(optimizer="adam") - peak(optimizer="sgd") == weights


def test_a_tied_weight_is_counted_once_and_a_frozen_weight_has_no_state() -> None:
    def layers(is_tied: bool = False, trains: bool = True) -> Any:
        first, second = (torch.nn.Linear(3072, 3072, bias=False) for _ in range(2))
        second.weight = first.weight if is_tied else second.weight
        first.weight.requires_grad_(trains)
        return torch.nn.Sequential(torch.nn.Flatten(), first, second)

    weight = 3072 * 3072 * 4
    apart = peak(layers)
    assert apart - peak(partial(layers, is_tied=True)) >= weight
    # neither momentum nor gradient
    assert apart - peak(partial(layers, trains=False)) == pytest.approx(2 * weight, rel=0.02)


def test_tensor_cores_copy_to_nhwc_unless_the_model_is_channels_last() -> None:
    resnet = partial(SHIPPED["resnet18"], 10)
    assert peak(resnet, 128, "tf32") > 1.01 * peak(resnet, 128)
    for precision in ("tf32", "bf16"):
        nhwc = peak(resnet, 128, precision, channels_last=True)
        assert peak(resnet, 128, precision) > 1.01 * nhwc


def test_autocast_runs_normalisation_in_fp32_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def normed() -> Any:
        norms = [torch.nn.LayerNorm(256) for _ in range(6)]
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 256), *norms)

    on_a_gpu = peak(normed, 4096, "bf16")
    monkeypatch.setattr(memory, "FP32_NAMES", set())
    assert on_a_gpu - peak(normed, 4096, "bf16") >= 6 * 4096 * 256 * 2  # bytes that FP32 adds


def test_the_largest_batch_fits_and_a_larger_one_does_not() -> None:
    options, room = SweepOptions(batch_sizes=(64, 128), precisions=("fp32", "bf16")), 1 << 30
    job = ModelJob("m", small, lambda size: [])
    rows = memory.estimate_table(job, options, images(), room)
    assert [list(row.peak_bytes) for row in rows] == [[64, 128]] * 2
    for row in rows:
        assert peak(size=row.largest_batch, precision=row.precision) <= room * 1.01
        assert peak(size=int(1.05 * row.largest_batch), precision=row.precision) > room
    older = memory.estimate_table(job, options, images(), room, "t4")
    assert [row.precision for row in older] == ["fp32"]
    less = memory.CUBLAS_HOPPER_BYTES - memory.CUBLAS_BYTES
    assert rows[0].peak_bytes[64] - older[0].peak_bytes[64] == less
    assert "batch 128 0.09 GB" in memory.format_rows(older, room)
    assert "(does not fit)" in memory.format_rows(older, 1 << 20)


def test_the_largest_batch_is_right_where_only_a_small_batch_is_estimated() -> None:
    make = partial(SHIPPED["resnet18"], 10)
    options, room = SweepOptions(batch_sizes=(4,), precisions=("fp32",)), 8 << 30
    (row,) = memory.estimate_table(ModelJob("m", make, lambda size: []), options, images(), room)
    assert peak(make, row.largest_batch) == pytest.approx(room, rel=0.05)


def test_usable_memory_is_that_of_the_card_or_the_limit() -> None:
    assert memory.memory_room("h100", None) == int(0.95 * ((81559 - 1250) << 20))
    assert memory.memory_room("h100", 1 << 30) == int(0.95 * (1 << 30))
    assert memory.memory_room(None, 100 << 30) == int(0.95 * (100 << 30))
    with pytest.raises(ProfileError, match=r"--gpu is one of a100, .*not 'h1000'"):
        memory.memory_room("h1000", None)


def test_a_model_that_reads_values_is_one_sentence() -> None:
    class Reads(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.flatten(1)[:, : int(x.sum().item())]

    with pytest.raises(ProfileError, match=r"Cannot estimate the memory of m FP32 x8 \("):
        peak(lambda: torch.nn.Sequential(torch.nn.Linear(32, 32), Reads()))
    with pytest.raises(ProfileError, match=r"^make_model returned str: return a torch module"):
        peak(lambda: "no model")


def run(*words: str) -> int:
    return main.command_line(["precision", *words])


def test_the_command_prints_estimates_and_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ("resnet18", "--batch-sizes", "64", "--precisions", "fp16")
    assert run(*sizes, "--gpu", "h100") == 0
    assert "an estimate" in (text := capsys.readouterr().out)
    assert "resnet18 FP16: batch 64 0.35 GB; largest batch 33," in text
    assert run(*sizes, "--memory-limit", "21GiB", "--device", "cpu", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["estimate"] is True
    assert document["rows"][0]["largest_batch"] == pytest.approx(9296, rel=0.06)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpu", "h1000"), "--gpu is one of"),
        (("--gpu", "h100", "--precisions", "fp8"), "there is no precision 'fp8'"),
        (("--gpu", "h100", "--compile"), "--gpu needs an eager torch model"),
        (("--gpu", "h100", "--batch-sizes", "0"), "--batch-sizes takes whole numbers above 0"),
    ],
)
def test_wrong_options_are_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "Traceback" not in err
