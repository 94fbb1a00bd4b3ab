"""The whole sweep on small real models: every bad input is a row, and the others still run."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pipeline_profiler.precision.backend_torch import TorchBackend, TorchTrainer
from pipeline_profiler.precision.data_source import make_sized_loader
from pipeline_profiler.precision.plan import SweepOptions, plan_cells
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.trainer import Recipe
from pipeline_profiler.profiling.measure.watchdog import Guard, StoppedError
from pipeline_profiler.profiling.record.session import ProfileError, Session
from tests.pipeline_profiler.fakes import FakeClock
from tests.pipeline_profiler.precision.fakes import Batches, flat_model, job, quick, refusing

pytestmark = pytest.mark.slow
cross_entropy = torch.nn.functional.cross_entropy
CPU = TorchBackend("cpu")


class Ticking(FakeClock):
    """A clock on which every reading comes 1 ms after the last."""

    def __call__(self) -> int:
        self.advance(1.0)
        return self.now


class TickingTrainer(TorchTrainer):
    """A real trainer whose steps take 100 ms on that clock."""

    def step(self, batch: Any) -> None:
        self.clock.advance(100.0)  # type: ignore[attr-defined]
        super().step(batch)


class TickingBackend(TorchBackend):
    def new_trainer(self, make_model: Any, cell: Any, recipe: Any) -> Any:
        made = super().new_trainer(make_model, cell, recipe)
        made.__class__ = TickingTrainer
        return made


def run(*jobs: Any, **options: Any) -> dict[str, Any]:
    """The results on a clock of its own: what other programs delay is in no rate."""
    clock = Ticking()
    backend = TickingBackend("cpu")
    backend.clock = clock
    session = measure_precisions(backend, jobs or [job()], quick(**options), clock=clock)
    return dict(session.results["precision"])


def by_precision(found: dict[str, Any]) -> dict[str, Any]:
    return {row["precision"]: row for row in found["rows"]}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """What several tests read: two precisions at two sizes."""
    torch.set_num_threads(1)
    return run(batch_sizes=(4, 6))


def test_every_cell_becomes_a_row_with_all_its_figures(plain: dict[str, Any]) -> None:
    asked = [(4, "fp32"), (4, "bf16"), (6, "fp32"), (6, "bf16")]
    assert [(r["batch_size"], r["precision"]) for r in plain["rows"]] == asked
    for row in plain["rows"]:
        assert (row["status"], row["skipped"], row["marks"][-1]["step"]) == ("ok", None, 4)
        assert row["step_ms"]["n"] == 3
        assert min(row[key]["value"] for key in ("preloaded_per_s", "with_loader_per_s")) > 0
        assert row["with_loader_per_s"]["value"] <= plain["loaders"][0]["alone_per_s"]["value"]
        assert row["epoch_s"] > 0
        assert row["peak_bytes"] > 48 * 3 * 4
    assert sum(row["speedup"] is not None for row in plain["rows"]) == 2
    assert plain["loaders"][0]["alone_per_s"]["n"] == 3
    assert plain["crossings"]


def test_every_round_holds_every_cell_with_and_without_the_loader(plain: Any) -> None:
    for number in range(3):
        timed = [w for w in plain["windows"] if w["round"] == number]
        assert len({(w["batch_size"], w["precision"]) for w in timed}) == len(timed) == 4
        through = [p for p in plain["passages"] if p["round"] == number]
        cells = {(p["batch_size"], p["precision"]) for p in through}
        assert len(cells) == len(through) == 6  # two of them the loader alone
        assert (4, "") in cells
    # an epoch of 6 batches is read twice: 8 batches are the fewest of a passage
    assert {p["batches"] for p in plain["passages"]} == {12}


def test_losses_are_those_of_the_first_steps_through_the_loader(plain: Any) -> None:
    full, half = plain["rows"][:2]
    assert full["marks"][-1]["loss"] == pytest.approx(half["marks"][-1]["loss"], rel=0.05)
    losses = plain["cells"][0]["losses"]
    assert sum(losses) / len(losses) == pytest.approx(full["marks"][0]["loss"])


def test_without_an_fp32_row_there_is_no_speed_up(plain: dict[str, Any]) -> None:
    alone = run(precisions=("bf16",))
    assert alone["rows"][0]["marks"] == plain["rows"][1]["marks"]
    assert alone["rows"][0]["speedup"] is None
    assert "no FP32 row" in alone["sentences"][0]


def test_skipped_amp_steps_of_every_phase_are_counted() -> None:
    def overflowing() -> Any:
        model = flat_model()
        return model, lambda outputs, targets: 2e3 * outputs.mean()

    found = run(
        job(overflowing),
        precisions=("fp16",),
        loss_scales=("dynamic", "512", "2"),
        parity_steps=2,
        recipe=Recipe(lr=0.0),
    )
    dynamic, static, low = found["rows"]
    # 2e3 / 12 outputs * 512 is above 65,504, infinite in FP16; with a scale of 2 all fits
    assert dynamic["skipped"] > dynamic["step_ms"]["n"]
    assert dynamic["loss_scale_end"] < 2.0**16
    assert (static["step_ms"], static["loss_scale_end"]) == (None, 512.0)
    # the probe, then in each of 3 rounds warm-up, lead-in, window and 12 batches of the loader
    assert static["skipped"] == 2 + 3 * (2 + 2 + 3 + 12)
    assert (low["skipped"], low["step_ms"]["n"]) == (0, 3)


def real_allocator_failure() -> None:
    torch.empty(1 << 50)


def injected_failure() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("refuse", [real_allocator_failure, injected_failure])
def test_out_of_memory_is_a_row_and_the_sweep_goes_on(refuse: Callable[[], None]) -> None:
    found = run(
        job(lambda: refusing(13, refuse)),
        batch_sizes=(8, 32, 12),
        precisions=("fp32",),
        largest=True,
        largest_limit=500,
    )
    assert [row["status"] for row in found["rows"]] == ["ok", "oom", "ok"]
    assert "out of memory at batch 32" in found["rows"][1]["sentence"]
    assert found["largest"][0]["batch_size"] == 13
    assert not found["largest"][0]["limit_reached"]
    assert any(
        "largest batch that fits is 13, to 2%, found in" in text for text in found["sentences"]
    )


def test_memory_that_runs_out_later_keeps_what_the_probe_found() -> None:
    calls: list[int] = []

    def fail_late() -> None:
        calls.append(1)
        if len(calls) > 20:
            injected_failure()

    late_job = job(lambda: refusing(0, fail_late))
    late, other = run(late_job, job(name="other"), precisions=("fp32",))["rows"]
    assert (late["status"], late["marks"][-1]["step"], other["status"]) == ("oom", 4, "ok")


def test_a_dropped_cell_leaves_no_model_in_memory() -> None:
    alive: list[weakref.ref[Any]] = []

    def remembered() -> Any:
        model = refusing(5, injected_failure)
        alive.append(weakref.ref(model))
        return model

    gc.collect()
    gc.disable()
    try:
        run(job(remembered), batch_sizes=(4, 8), precisions=("fp32", "bf16"))
        assert len(alive) > 8
        assert not [ref for ref in alive if ref() is not None]
    finally:
        gc.enable()


def not_a_number() -> Any:
    model = flat_model()
    with torch.no_grad():
        model[1].bias[0] = float("nan")
    return model


@pytest.mark.parametrize(
    ("make_model", "make_loader", "said"),
    [
        (lambda: torch.nn.Conv2d(3, 3, 1), Batches, "returned shape (4, 3, 4, 4) for 4 samples"),
        (not_a_number, Batches, "the loss is NaN at step 0"),
        (flat_model, lambda size: Batches(size, top=5), "label 4 lies outside [0, 3)"),
        (flat_model, lambda size: Batches(2), "batch 4 is larger than the data (2 samples)"),
        (flat_model, lambda size: [], "the loader gave no batch"),
        (flat_model, lambda size: Batches(8), "gives 8 samples per batch, not 4"),
        (flat_model, lambda size: [(1, 2, 3)], "gave a batch of type tuple"),
        (flat_model, lambda size: 1 / 0, "the loader failed with ZeroDivisionError"),
        (flat_model, lambda size: 3, "No adapter can iterate"),
        (lambda: refusing(0, lambda: {}["head"]), Batches, "KeyError: 'head'"),
        (lambda: None, Batches, "make_model returned NoneType"),
    ],
)
def test_bad_inputs_are_one_sentence_and_other_rows_run(
    make_model: Any, make_loader: Any, said: str
) -> None:
    found = run(job(make_model, make_loader, "bad"), job(name="good"), precisions=("fp32",))
    bad, good = found["rows"]
    assert bad["status"] in ("refused", "failed")
    assert said in bad["sentence"]
    assert "\n" not in bad["sentence"]
    assert (bad["step_ms"], good["status"], good["step_ms"]["n"]) == (None, "ok", 3)
    assert any(said in text for text in found["sentences"])


def test_a_batch_larger_than_a_dataset_is_named_with_its_size() -> None:
    data = torch.utils.data.TensorDataset(torch.randn(10, 3, 4, 4), torch.arange(10) % 3)

    def loader(size: int) -> Any:
        return torch.utils.data.DataLoader(data, size, drop_last=True)

    rows = run(job(make_loader=loader), batch_sizes=(5, 16), precisions=("fp32",))["rows"]
    assert rows[0]["status"] == "ok"
    assert "batch 16 is larger than the data (10 samples)" in rows[1]["sentence"]


def test_precisions_the_device_lacks_are_rows_too() -> None:
    rows = by_precision(run(precisions=("fp32", "tf32", "fp8")))
    assert rows["fp32"]["status"] == "ok"
    assert "a CPU has no TF32" in rows["tf32"]["sentence"]
    assert "no precision 'fp8'" in rows["fp8"]["sentence"]


def test_a_loss_of_the_users_own_judges_shapes_itself() -> None:
    def segmenter() -> Any:
        return torch.nn.Conv2d(3, 3, 1), lambda outputs, targets: outputs.square().mean()

    assert run(job(segmenter), precisions=("fp32",))["rows"][0]["status"] == "ok"


def test_fp16_on_a_cpu_is_measured_and_said_to_be_emulated() -> None:
    options = quick(precisions=("fp32", "fp16"))
    planned, reasons = plan_cells(CPU, [job()], options)
    assert [cell.precision for cell in planned] == ["fp32", "fp16"]
    assert "FP16 is emulated on a CPU" in reasons[0]
    assert plan_cells(CPU, [job()], quick())[1] == []


def test_loss_scales_multiply_fp16_rows_only() -> None:
    options = quick(precisions=("fp32", "fp16"), loss_scales=("dynamic", "64"))
    planned, _ = plan_cells(CPU, [job()], options)
    asked = [("fp32", ""), ("fp16", "dynamic"), ("fp16", "64")]
    assert [(c.precision, c.loss_scale) for c in planned] == asked


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_sizes": ()}, "--batch-sizes"),
        ({"batch_sizes": (0,)}, "--batch-sizes"),
        ({"precisions": ()}, "--precisions is empty"),
        ({"loss_scales": ("much",)}, "--loss-scale takes 'dynamic' or numbers"),
        ({"loss_scales": ("-1",)}, "--loss-scale takes 'dynamic' or numbers"),
    ],
)
def test_options_no_row_could_be_made_of_are_refused(changes: Any, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        run(**changes)


def test_progress_ends_at_the_total_and_the_session_survives_saving(tmp_path: Any) -> None:
    seen: list[tuple[int, int, str]] = []
    options, notes = quick(), ["data: made by hand"]
    made = measure_precisions(
        CPU, [job()], options, notes=notes, progress=lambda *row: seen.append(row)
    )
    assert seen[0][2].startswith("probing flat FP32")
    assert seen[-1][0] == seen[-1][1] > 0
    assert seen == sorted(seen, key=lambda row: row[0])
    back = Session.load(made.save(tmp_path / "s.json"))
    assert back.results["precision"]["rows"] == made.to_json()["precision"]["rows"]
    assert (back.plan.reasons[0], back.results["verdict"]) == (notes[0], "precision")


def test_an_interrupt_leaves_a_partial_session_that_can_be_read() -> None:
    def stop(done: int, total: int, text: str) -> None:
        if text.startswith("round 2"):
            raise KeyboardInterrupt

    with pytest.raises(StoppedError) as stopped:
        measure_precisions(CPU, [job()], quick(), progress=stop)
    session = stopped.value.session
    assert session.partial
    assert session.results["precision"]["rows"][0]["step_ms"]["n"] == 1


def test_a_loader_that_hangs_leaves_a_partial_session_with_where_it_hangs() -> None:
    epochs = []

    class Stuck(Batches):
        def __iter__(self) -> Any:
            epochs.append(1)
            if len(epochs) > 12:
                time.sleep(1000)
            return super().__iter__()

    guard = Guard(limit_s=8.0)
    with pytest.raises(StoppedError, match="Nothing happened for") as stopped:
        measure_precisions(CPU, [job(make_loader=Stuck)], quick(), guard=guard)
    session = stopped.value.session
    assert session.partial
    assert session.results["precision"]["rows"]
    assert "time.sleep(1000)" in session.results["cut_off"]["stacks"][0]["frames"][0]


def test_a_budget_for_too_many_steps_is_refused_with_the_seconds_they_need() -> None:
    with pytest.raises(StoppedError, match=r"flat FP32 x4 alone needs about \d+ s here"):
        measure_precisions(CPU, [job()], quick(steps=10**6, seconds=2.0))


def test_a_loader_that_fails_in_the_middle_of_an_epoch_fails_its_rows() -> None:
    class Broken(Batches):
        reads = 0

        def __iter__(self) -> Any:
            for row in super().__iter__():
                Broken.reads += 1
                if Broken.reads > 30:
                    raise OSError("no such file: 7.jpg")
                yield row

    bad, good = run(job(make_loader=Broken, name="bad"), job(), precisions=("fp32",))["rows"]
    assert (bad["status"], good["status"]) == ("failed", "ok")
    assert "OSError: no such file: 7.jpg" in bad["sentence"]


def test_a_users_loader_is_called_with_the_size_or_rebuilt() -> None:
    data = torch.utils.data.TensorDataset(torch.randn(12, 3, 4, 4), torch.arange(12) % 3)

    def plain() -> Any:
        return torch.utils.data.DataLoader(data, 4)

    assert make_sized_loader(plain, 6).batch_size == 6
    assert make_sized_loader(plain, 4).batch_size == 4
    assert make_sized_loader(lambda batch_size: Batches(batch_size), 5).rows[0][0].shape[0] == 5


def test_defaults_are_those_of_the_published_table() -> None:
    assert SweepOptions().batch_sizes == (64, 128, 256, 512)
    assert SweepOptions().precisions == ("fp32", "tf32", "fp16", "bf16")
