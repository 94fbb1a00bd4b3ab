"""torch as a backend: its training step at each precision, and the flags that make it so.

TF32 is off for FP32, also for convolutions, unlike torch's default; flags are put back after each
piece of work. FP16 is autocast with a GradScaler, BF16 without (Micikevicius et al. 2017, arXiv
1710.03740). On CUDA the optimizer is fused, because others synchronise with the host at each step.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline_profiler.checks.user_training import Training, as_training, checked
from pipeline_profiler.precision.trainer import (
    DYNAMIC,
    Backend,
    Batch,
    Cell,
    Flags,
    MakeModel,
    Mark,
    PeakMemory,
    Recipe,
    Tensor,
    Trainer,
    import_framework,
    split_batch,
)
from pipeline_profiler.profiling.measure.preloaded_batches import is_tensor, mapped
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stages import Clock

if TYPE_CHECKING:
    from torch import amp, nn, optim

MEMORY_CUDA = "torch.cuda.max_memory_allocated over the first steps"
MEMORY_CPU = (
    "most bytes alive in torch's CPU allocator in one step, by its profiler; oneDNN's scratch "
    "space and the loader are not in it"
)


def peak_on_gpu() -> PeakMemory:
    """Most that training allocated and reserved since the last reset, and what is occupied now."""
    import torch

    torch.cuda.synchronize()
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    try:
        occupied = torch.cuda.device_memory_used()
    except Exception:  # noqa: BLE001 - no NVML, or one that does not know this device (MIG)
        free, total = torch.cuda.mem_get_info()
        occupied = total - free
    return PeakMemory(int(allocated), MEMORY_CUDA, int(reserved), int(occupied))


def traced_memory() -> Any:
    """Return a context that records the allocations on the CPU."""
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], profile_memory=True)


def most_alive(recorded: Any) -> int | None:
    """Return the most bytes alive above the start; None where torch reports no allocations."""
    events = getattr(getattr(recorded, "profiler", None), "kineto_results", None)
    if events is None:
        return None
    # Sorted by time, because threads report separately; the number keeps the order of events with
    # the same nanosecond, where a release and the next allocation must not change places.
    changes = sorted(
        (event.start_ns(), number, event.nbytes())
        for number, event in enumerate(events.events())
        if event.name() == "[memory]"
    )
    # The peak is the highest running sum, not the sum of allocations: buffers are reused.
    alive = most = 0
    for _, _, grown in changes:
        alive += grown
        most = max(most, alive)
    return most if changes else None


Loss: TypeAlias = "Callable[[Tensor, Tensor], Tensor] | None"
Update: TypeAlias = "bool | Tensor"  # whether a step was applied, or found_inf on the device

INITIAL_SCALE = 2.0**16  # GradScaler's own default


def import_torch() -> ModuleType:
    """torch, or ProfileError with the command that installs it."""
    return import_framework("torch", "torch")


class DeviceTrainer(Trainer):
    """Points in time on the device: CUDA events, or the host's clock where compute blocks it."""

    def mark(self) -> Mark:
        """An event on the compute stream; on the CPU the clock."""
        if self.device != "cuda":
            return super().mark()
        # the host runs ahead of the device, so its clock would time the enqueueing
        event = import_torch().cuda.Event(enable_timing=True)
        event.record()
        return event

    def synchronise(self) -> None:
        if self.device == "cuda":
            import_torch().cuda.synchronize()

    def periods_ms(self, marks: Sequence[Mark]) -> list[float]:
        """Differences of neighbouring marks; the events are complete by now."""
        if self.device == "cuda":
            return [float(a.elapsed_time(b)) for a, b in pairwise(marks)]
        return super().periods_ms(marks)


class TorchTrainer(DeviceTrainer):
    """A torch model, its optimizer and, at FP16, its loss scaler."""

    def __init__(
        self, model: object, cell: Cell, recipe: Recipe, device: str, clock: Clock
    ) -> None:
        """`model`: a module, (module, loss) with loss(outputs, targets) -> scalar, or a training.

        A training brings an optimizer over the parameters; without one the recipe's is made.
        """
        super().__init__(device, clock)
        torch, optimizer = import_torch(), None
        self._torch = torch
        if isinstance(model, Training):
            optimizer, model = model.optimizer, (model.model, model.loss)
        self.model: nn.Module
        self.loss: Loss
        self.model, self.loss = model if isinstance(model, tuple) else (model, None)
        if not isinstance(self.model, torch.nn.Module):
            raise ProfileError(
                f"make_model returned {type(self.model).__name__}: return a torch module, or "
                "(module, loss)."
            )
        self.recipe = recipe
        self.format = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.model.to(device=device, memory_format=self.format).train()
        self.dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(cell.precision)
        # on a move to the device parameters keep their identity: an own optimizer still holds them
        self.optimizer = optimizer or make_optimizer(recipe, list(self.model.parameters()), device)
        self.static = None if cell.loss_scale in ("", DYNAMIC) else float(cell.loss_scale)
        self.scaler: amp.GradScaler | None = None
        if cell.precision == "fp16":
            self.scaler = torch.amp.GradScaler(device, init_scale=self.static or INITIAL_SCALE)
        self.run = torch.compile(self.model) if recipe.compile else self.model
        self._updates: list[Update] = []
        watch_updates(self.optimizer, self._updates)

    def place(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Both tensors on the device, without waiting for the copy."""
        inputs, targets = split_batch(batch)
        inputs = inputs.to(self.device, non_blocking=True)
        if self.recipe.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=self._torch.channels_last)
        return inputs, targets.to(self.device, non_blocking=True)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss; what autocast does, it does here."""
        with self._autocast():
            outputs = self.run(inputs)
            self._note_accuracy(outputs, targets)
            if self.loss is not None:
                return self.loss(outputs, targets)
            return self._torch.nn.functional.cross_entropy(outputs, targets)

    def _autocast(self) -> Any:
        # autocast wants a dtype even where it is off, as for FP32
        dtype = self.dtype or self._torch.bfloat16
        return self._torch.autocast(self.device, dtype=dtype, enabled=self.dtype is not None)

    def step(self, batch: Batch) -> None:
        inputs, targets = self.place(batch)
        # None instead of zeros: the next backward writes its gradients instead of adding to them
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(inputs, targets)
        self._updates.append(False)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            # The loss is enlarged before the backward pass, because small gradients underflow in
            # FP16, and the gradients are divided before the update; where one became infinite the
            # update is skipped and a dynamic scale halves.
            enlarged: Tensor = self.scaler.scale(loss)
            enlarged.backward()
            self.scaler.step(self.optimizer)
            self.scaler.update(self.static)  # a static scale stays what it is, after a skip too
        # detached but not read: float(loss) here would wait for the device at every step
        self._losses.append(loss.detach())

    def outputs(self, batch: Batch) -> tuple[int, ...] | None:
        """Shape of the outputs, asked in evaluation mode: no weight and no statistic changes."""
        if self.loss is not None:
            return None
        inputs, _ = self.place(batch)
        self.model.eval()
        try:
            with self._torch.no_grad(), self._autocast():
                outputs = self.model(inputs)
        finally:
            self.model.train()
        return tuple(getattr(outputs, "shape", ()))

    def skipped(self) -> list[int]:
        # False: step() was never called; else found_inf, which is true where it skipped
        missed = (u is False if isinstance(u, bool) else bool(u.item()) for u in self._updates)
        return [i for i, was_missed in enumerate(missed) if was_missed]

    def forget(self) -> None:
        super().forget()
        self._updates.clear()

    def scale(self) -> float | None:
        return None if self.scaler is None else float(self.scaler.get_scale())

    def start_at(self, scale: float) -> None:
        if self.scaler is not None and self.static is None:
            self.scaler = self._torch.amp.GradScaler(self.device, init_scale=scale)

    def _note_accuracy(self, outputs: Tensor, targets: Tensor) -> None:
        is_tensor = self._torch.is_tensor
        if self._correct is None or not (is_tensor(outputs) and is_tensor(targets)):
            return
        if outputs.dim() == 2 and targets.dim() == 1 and not targets.is_floating_point():
            hits = outputs.detach().argmax(1) == targets
            self._correct.append(hits.float().mean())

    def peak_memory(self, batch: Batch) -> PeakMemory:
        """Most that training allocates, on the device or in torch's CPU allocator."""
        if self.device == "cuda":
            return peak_on_gpu()
        # the profiler does not see the freeing of what was allocated before it started
        self.optimizer.zero_grad(set_to_none=True)
        # parameters, buffers and optimizer state between steps
        tensors = [*self.model.parameters(), *self.model.buffers()]
        for state in self.optimizer.state.values():
            tensors += [v for v in state.values() if self._torch.is_tensor(v)]
        held_bytes = sum(t.numel() * t.element_size() for t in tensors)
        with traced_memory() as recorded:
            self.step(batch)
        grown = most_alive(recorded)
        if grown is None:
            return PeakMemory(None, "not measured: this torch does not report allocations")
        return PeakMemory(held_bytes + grown, MEMORY_CPU)


def watch_updates(optimizer: optim.Optimizer, updates: list[Update]) -> None:
    """Note in the last entry that an update was made, or on a fused optimizer its `found_inf`.

    A fused kernel decides on the device: `found_inf` is stored unread, without synchronisation.
    """

    def note(called: optim.Optimizer, args: object, kwargs: object) -> None:
        overflow = getattr(called, "found_inf", None)
        # a copy, because GradScaler reuses the tensor in its next step
        updates[-1] = True if overflow is None else overflow.clone()

    # holds the list, not the trainer: no cycle keeps a dropped model in memory
    optimizer.register_step_pre_hook(note)


def make_optimizer(recipe: Recipe, parameters: list[nn.Parameter], device: str) -> optim.Optimizer:
    """SGD with momentum, Adam or AdamW; fused on CUDA, where GradScaler then needs no host."""
    torch = import_torch()
    if not parameters:
        raise ProfileError("The model has no parameters: there is nothing to train.")
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    make = kinds[recipe.optimizer]
    momentum = {"momentum": 0.9} if recipe.optimizer == "sgd" else {}
    fused = True if device == "cuda" else None
    optimizer: optim.Optimizer = make(parameters, recipe.lr, fused=fused, **momentum)
    if fused and momentum:
        # where the first step overflows, torch's fused SGD begins with whatever lay in memory
        for weight in parameters:
            optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return optimizer


@dataclass(frozen=True)
class OwnStep:
    """`call(batch, precision)` trains one step."""

    call: Callable[[Batch, str], object]


def read_step(made: object, loader: object = None) -> OwnStep | Training:
    """What `make_step()` returned; `loader` stands in for one that a training lacks."""
    torch = import_torch()
    if isinstance(made, torch.nn.Module):
        raise ProfileError(
            "make_step returned a model alone: return a function step(batch, precision), or "
            "{'model', 'loader', 'loss', 'optimizer'}."
        )
    if callable(made) and not hasattr(made, "optimizer"):
        return OwnStep(made)
    training = checked(as_training(made, loader))
    own = [name for name in ("train_step", "split_batch") if getattr(training, name) is not None]
    if own:
        raise ProfileError(
            f"make_step returned a training with its own {own[0]}, which takes no precision: "
            "return a function step(batch, precision) instead."
        )
    return training


class OwnStepTrainer(DeviceTrainer):
    """A function of the user's as a trainer: what lies inside it cannot be seen or changed."""

    def __init__(self, own: OwnStep, cell: Cell, device: str, clock: Clock) -> None:
        super().__init__(device, clock)
        self._call, self._precision = own.call, cell.precision

    def place(self, batch: Batch) -> Any:
        """The batch with its tensors on the device; the function's own `.to()` finds them there."""
        return mapped(
            batch,
            lambda _, part: part.to(self.device, non_blocking=True) if is_tensor(part) else part,
        )

    def step(self, batch: Batch) -> None:
        """One call, with containers of its own: a step may take its labels out of the batch."""
        loss: Any = self._call(mapped(batch, lambda _, part: part), self._precision)
        if is_tensor(loss) and loss.numel() == 1:
            self._losses.append(loss.detach())
        elif isinstance(loss, float):
            self._losses.append(loss)

    def peak_memory(self, batch: Batch) -> PeakMemory:
        """On a GPU the device's count."""
        return peak_on_gpu() if self.device == "cuda" else super().peak_memory(batch)


GIB = 1 << 30
AMPERE = (8, 0)  # compute capability; the first generation with TF32 and BF16


class TorchBackend(Backend):
    """torch on the GPU where there is one, else on the CPU."""

    name = "torch"

    def __init__(self, device: str | None = None) -> None:
        torch = import_torch()
        if device == "cuda" and not torch.cuda.is_available():
            raise ProfileError("torch sees no GPU: leave --device out, or give --device cpu.")
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.device_name = torch.cuda.get_device_name() if self.device == "cuda" else "CPU"

    def refusal(self, precision: str) -> str:
        """Why this device does not have the precision; '' when it has it."""
        fixes = {"tf32": "TF32: leave tf32 out.", "bf16": "BF16: use fp16."}
        refused = super().refusal(precision)
        if refused or self.device == "cpu" or precision not in fixes:
            return refused
        is_older = import_torch().cuda.get_device_capability() < AMPERE
        older = f"{self.device_name} is older than Ampere and has no {fixes[precision]}"
        return older if is_older else ""

    @contextmanager
    def using(self, precision: str) -> Iterator[None]:
        torch = import_torch()
        cudnn = torch.backends.cudnn
        before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
        allowed = precision == "tf32"
        # two switches: the first covers matrix products only, convolutions follow cuDNN's own
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        cudnn.allow_tf32 = allowed
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            cudnn.allow_tf32 = before[1]

    def flags(self, precision: str) -> Flags:
        torch = import_torch()
        with self.using(precision):
            return {
                "matmul_precision": torch.get_float32_matmul_precision(),
                "tf32_matmul": torch.get_float32_matmul_precision() != "highest",
                "tf32_convolution": bool(torch.backends.cudnn.allow_tf32),
                "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
                "deterministic": torch.are_deterministic_algorithms_enabled(),
                "autocast": {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "off"),
                "threads": torch.get_num_threads(),
            }

    def new_trainer(self, make_model: MakeModel, cell: Cell, recipe: Recipe) -> DeviceTrainer:
        torch = import_torch()
        torch.manual_seed(recipe.seed)
        if self.device == "cuda":
            # the peak belongs to this cell, not to the hungriest one before it
            torch.cuda.reset_peak_memory_stats()
        made = make_model()
        if isinstance(made, OwnStep):
            return OwnStepTrainer(made, cell, self.device, self.clock)
        return TorchTrainer(made, cell, recipe, self.device, self.clock)

    def resized(self, batch: Batch, size: int) -> Batch:
        """The batch with its samples repeated up to `size`."""
        inputs, targets = split_batch(batch)
        order = import_torch().arange(size) % len(inputs)
        return inputs.cpu()[order], targets.cpu()[order]

    def limit_memory(self, limit_bytes: int) -> str:
        """Cap torch's allocator on the GPU; a CPU has nothing to cap."""
        if self.device != "cuda":
            return "--memory-limit does nothing on a CPU, which has no memory of its own to limit."
        cuda = import_torch().cuda
        total = int(cuda.get_device_properties(cuda.current_device()).total_memory)
        if limit_bytes > total:
            raise ProfileError(
                f"--memory-limit {limit_bytes / GIB:.1f} GiB is more than {self.device_name} has "
                f"({total / GIB:.1f} GiB): give less."
            )
        cuda.set_per_process_memory_fraction(limit_bytes / total)
        return (
            f"memory limited to {limit_bytes / GIB:.1f} of {total / GIB:.1f} GiB: rows above it "
            "are out of memory. The limit holds for torch's allocator; CUDA's own context, some "
            "hundred MiB, comes on top."
        )

    def release(self) -> None:
        """Return cached blocks, so that the next cell starts from an empty device."""
        if self.device == "cuda":
            # a model in a reference cycle keeps its memory until the collector finds it
            gc.collect()
            import_torch().cuda.empty_cache()
