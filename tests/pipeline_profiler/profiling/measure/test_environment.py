"""What the environment says of a card, from the strings that torch and the driver give."""

from pathlib import Path

import pytest
import torch

from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.environment import architecture_problem, driver_version
from pipeline_profiler.profiling.record.session import Session

HAS_CUDA = environment.has_cuda
BUILD = ["sm_75", "sm_80", "sm_86", "sm_90", "compute_90"]


@pytest.mark.parametrize(
    ("capability", "built", "has_code"),
    [
        ((7, 5), BUILD, True),
        ((8, 9), BUILD, True),  # runs the code of 8.6
        ((12, 0), BUILD, True),  # by the PTX of 9.0
        ((9, 0), ["sm_90a"], True),
        ((10, 3), ["sm_100f"], True),
        ((9, 0), [], True),  # a build that does not tell
        ((9, 0), ["gfx90a"], True),  # another vendor
        ((7, 0), BUILD, False),
        ((12, 0), ["sm_80", "sm_90"], False),
        ((9, 0), ["sm_100a"], False),
        ((10, 3), ["sm_100a"], False),
        ((8, 0), ["sm_86"], False),
    ],
)
def test_a_card_without_code_is_named_with_what_there_is(
    capability: tuple[int, int], built: list[str], has_code: bool
) -> None:
    problem = architecture_problem(capability, built)
    assert (problem == "") == has_code
    assert has_code or f"sm_{capability[0]}{capability[1]} (only {built[0]}" in problem


def test_the_driver_is_read_from_its_kernel_module(tmp_path: Path) -> None:
    told = tmp_path / "version"
    told.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23\n")
    assert driver_version(told) == "570.86.15"


def test_a_gpu_has_measured_what_the_documents_show() -> None:
    root = Path(environment.__file__).parents[2]
    session = Session.load(root / "on_a_gpu.json")
    found = session.results["on_a_gpu"]
    assert (found["pretended"], found["tests"]["passed"]) == (False, 16)
    assert {row["status"] for row in session.results["precision"]["rows"]} == {"ok", "dropped"}
    assert (
        found["device"].removeprefix("NVIDIA ") in (root.parent / "docs/benchmarks.md").read_text()
    )


def test_a_gpu_that_nothing_uses_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else batches in hand would go to it, and the step stands on the CPU."""
    monkeypatch.setattr(environment, "has_cuda", HAS_CUDA)
    for used in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda used=used: used)
        assert environment.has_cuda() == used
