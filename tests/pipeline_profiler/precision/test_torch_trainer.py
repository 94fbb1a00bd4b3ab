"""The torch trainer: what overflows is skipped, counted and leaves the weights alone, exactly.

The hand-made model is w * x under FP16 autocast with loss w * x, so its gradient is x and the
scaled gradient x * scale in FP16: infinite above 65,504. Each number below follows from that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pipeline_profiler.checks.user_training import Training
from pipeline_profiler.precision.backend_torch import (
    MEMORY_CPU,
    OwnStep,
    TorchBackend,
    TorchTrainer,
    make_optimizer,
    read_step,
    watch_updates,
)
from pipeline_profiler.precision.plan import ModelJob
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.trainer import Cell, Recipe
from pipeline_profiler.profiling.record.session import ProfileError
from tests.pipeline_profiler.precision.fakes import Batches, flat_model, overflowing, quick

pytestmark = pytest.mark.slow

CPU = TorchBackend("cpu")
LR = 2.0**-12


def trainer(precision: str, scale: str = "", **recipe: Any) -> TorchTrainer:
    return CPU.new_trainer(overflowing, Cell("w", 1, precision, scale), Recipe(lr=LR, **recipe))


def flat(batches: Any = (), **recipe: Any) -> TorchTrainer:
    """A small classifier after these batches."""
    made = CPU.new_trainer(flat_model, Cell("flat", 4, "fp32"), Recipe(**recipe))
    for batch in batches:
        made.step(batch)
    return made


def train(made: TorchTrainer, x: float, steps: int) -> list[float]:
    """Weights after each step."""
    batch = torch.tensor([[x]]), torch.zeros(1)
    weights = []
    for _ in range(steps):
        made.step(batch)
        weights.append(float(made.model.weight.detach()))
    return weights


def test_a_dynamic_scale_halves_until_the_gradient_fits() -> None:
    made = trainer("fp16", "dynamic")
    weights = train(made, 8.0, 7)
    # 8 * 2^16, 2^15, 2^14, 2^13 overflow; 8 * 2^12 = 32768 fits
    assert made.skipped() == [0, 1, 2, 3]
    assert made.scale() == 2.0**12
    assert weights[:4] == [1.0] * 4
    # three steps were taken, and they are FP32's first three to the last bit
    assert weights[4:] == train(trainer("fp32"), 8.0, 3)


def test_a_dynamic_scale_doubles_after_2000_clean_steps() -> None:
    made = trainer("fp16", "dynamic")
    train(made, 0.25, 2001)
    assert made.skipped() == [0]  # 2^16 itself is infinite in FP16
    assert made.scale() == 2.0**16
    train(made, 0.25, 1)
    assert made.skipped() == [0, 2001]


@pytest.mark.parametrize(("x", "skips"), [(8.0, []), (1000.0, [0, 1, 2])])
def test_a_static_scale_stays_whatever_is_skipped(x: float, skips: list[int]) -> None:
    made = trainer("fp16", "128")
    weights = train(made, x, 3)
    assert made.skipped() == skips
    assert made.scale() == 128.0
    assert weights == ([1.0] * 3 if skips else train(trainer("fp32"), x, 3))


def test_a_found_scale_is_where_a_later_trainer_begins() -> None:
    made = trainer("fp16", "dynamic")
    made.start_at(2.0**12)
    train(made, 8.0, 3)
    assert made.skipped() == []
    static = trainer("fp16", "128")
    static.start_at(2.0**12)
    assert static.scale() == 128.0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_only_fp16_is_scaled(precision: str) -> None:
    made = trainer(precision)
    train(made, 1000.0, 3)
    assert made.scale() is None
    assert made.skipped() == []


def test_forget_clears_the_counts() -> None:
    made = trainer("fp16", "dynamic")
    train(made, 8.0, 2)
    made.forget()
    train(made, 8.0, 3)
    assert made.skipped() == [0, 1]
    assert len(made.losses()) == 3


def test_a_fused_optimizer_reports_its_skips_without_being_asked() -> None:
    made = trainer("fp16", "dynamic")
    made.optimizer = torch.optim.SGD(made.model.parameters(), LR, momentum=0.9, fused=True)
    watch_updates(made.optimizer, made._updates)
    weights = train(made, 8.0, 5)
    assert all(not isinstance(update, bool) for update in made._updates)
    assert made.skipped() == [0, 1, 2, 3]
    assert weights[3] == 1.0
    assert weights[4] != 1.0


def test_a_skipped_first_step_leaves_a_fused_optimizer_nothing() -> None:
    """torch's fused SGD makes its momentum in the first step, and where it overflows fills none."""
    weight = torch.nn.Parameter(torch.ones(1000))
    optimizer = make_optimizer(Recipe(lr=1.0), [weight], "cuda")
    optimizer.grad_scale, optimizer.found_inf = torch.ones(1), torch.ones(1)
    rubbish = torch.full((1000,), 7.0)
    del rubbish  # what lies in memory where the next 1,000 floats are made
    weight.grad = torch.full((1000,), torch.inf)
    optimizer.step()
    optimizer.found_inf = torch.zeros(1)
    weight.grad = torch.full((1000,), 0.5)
    optimizer.step()
    assert weight.tolist() == [0.5] * 1000


def test_losses_are_the_same_from_the_same_seed() -> None:
    one, again, other = (flat(Batches(4), seed=seed).losses() for seed in (3, 3, 4))
    assert one == again
    assert one != other


def test_asking_for_outputs_changes_nothing() -> None:
    def normalised() -> Any:
        return torch.nn.Sequential(torch.nn.BatchNorm2d(3), flat_model())

    made = CPU.new_trainer(normalised, Cell("n", 4, "bf16"), Recipe())
    before = {k: v.clone() for k, v in made.model.state_dict().items()}
    assert made.outputs(Batches(4).rows[0]) == (4, 3)
    assert all(torch.equal(v, before[k]) for k, v in made.model.state_dict().items())
    assert made.model.training


def test_peak_memory_on_a_cpu_counts_weights_state_and_what_the_step_allocates() -> None:
    def wide() -> Any:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 100_000))

    made = CPU.new_trainer(wide, Cell("wide", 4, "fp32"), Recipe())
    batch = Batches(4).rows[0]
    made.step(batch)
    peak = made.peak_memory(batch)
    assert peak.peak_how == MEMORY_CPU
    assert peak.reserved_bytes is peak.occupied_bytes is None
    held = 49 * 100_000 * 4 * 3  # weights, gradients, momentum
    assert peak.peak_bytes is not None
    assert held <= peak.peak_bytes <= 2 * held


def test_accuracy_is_counted_only_once_asked_for() -> None:
    def certain() -> Any:
        model = flat_model()
        torch.nn.init.zeros_(model[1].weight)
        with torch.no_grad():
            model[1].bias.copy_(torch.tensor([5.0, 0.0, 0.0]))  # class 0 for everything
        return model

    made = CPU.new_trainer(certain, Cell("flat", 6, "fp32"), Recipe(lr=0.0))
    batch = Batches(6).rows[0]
    made.step(batch)
    assert made.accuracies() == []
    made.count_correct()
    made.step(batch)
    assert made.accuracies() == pytest.approx([1 / 3])


def test_flags_are_set_for_the_precision_and_put_back() -> None:
    def flags() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = flags()
    with CPU.using("tf32"):
        assert flags() == ("high", True)
    with CPU.using("fp32"):
        assert flags() == ("highest", False)
    assert before == flags()
    said = CPU.flags("fp32")
    assert said["tf32_matmul"] is said["tf32_convolution"] is False
    assert CPU.flags("bf16")["autocast"] == "bfloat16"


def test_refusals_say_what_to_do() -> None:
    assert CPU.refusal("fp32") == ""
    assert CPU.refusal("fp16") == ""
    assert "leave tf32 out" in CPU.refusal("tf32")
    assert "choose from fp32, tf32, fp16, bf16" in CPU.refusal("fp7")


def test_channels_last_reaches_weights_and_batches() -> None:
    def convolution() -> Any:
        layers = torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.LazyLinear(3)
        model = torch.nn.Sequential(*layers)
        model(torch.zeros(1, 3, 4, 4))
        return model

    made = CPU.new_trainer(convolution, Cell("c", 4, "fp32"), Recipe(channels_last=True))
    inputs, _ = made.place(Batches(4).rows[0])
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert made.model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_bad_makers_get_a_sentence() -> None:
    makers = {"returned int: return a torch module": lambda: 3, "no parameters": torch.nn.ReLU}
    for sentence, make in makers.items():
        with pytest.raises(ProfileError, match=sentence):
            CPU.new_trainer(make, Cell("x", 4, "fp32"), Recipe())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_every_optimizer_learns(optimizer: str) -> None:
    losses = flat(Batches(4).rows[:1] * 30, optimizer=optimizer, lr=0.05).losses()
    assert losses[-1] < losses[0] / 2


def test_marks_are_the_injected_clock_on_a_cpu() -> None:
    ticks = iter([5_000_000, 9_000_000])
    backend = TorchBackend("cpu")
    backend.clock = lambda: next(ticks)
    made = backend.new_trainer(flat_model, Cell("f", 4, "fp32"), Recipe())
    assert made.periods_ms([made.mark(), made.mark()]) == [4.0]
    assert CPU.clock is time.perf_counter_ns


# ---- a step of the user's own: a function that is told the precision, or a training's parts ----


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
    (mark,), (half_mark,) = full["marks"], half["marks"]
    assert (mark["step"], mark["accuracy"]) == (4, None)  # inside a function it cannot be seen
    assert half_mark["loss"] == pytest.approx(mark["loss"], rel=0.05)
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
        (lambda: make_training() | {"train_step": print}, "its own train_step, which takes no"),
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
