"""The training step in torch, at one precision: autocast, loss scaling, events, memory.

FP32 here means IEEE single throughout: TF32 is off for matrix products *and* convolutions, which
is not torch's default (it leaves TF32 on for convolutions); TF32 has a row of its own. FP16 is
autocast with a GradScaler, BF16 autocast without one. On CUDA the optimizer is the fused kernel:
it skips an overflowing step on the device, where the ordinary one asks the host every step and
so would show loader waits that FP32 hides. Micikevicius et al. 2017, "Mixed Precision Training".
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from pipeline_profiler.precision.trainer import DYNAMIC, PRECISIONS, Cell, Recipe, pair
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

OPTIMIZERS = ("sgd", "adam", "adamw")
INITIAL_SCALE = 2.0**16  # GradScaler's own default
AMPERE = (8, 0)
MEMORY_CUDA = "torch.cuda.max_memory_allocated over the first steps"
MEMORY_CPU = (
    "most bytes alive in torch's CPU allocator in one step, by its profiler; oneDNN's scratch "
    "space and the loader are not in it"
)


class TorchBackend:
    """torch on the GPU where there is one, else on the CPU."""

    name = "torch"

    def __init__(self, device: str | None = None, clock: Clock = time.perf_counter_ns) -> None:
        """`device` "cuda" or "cpu"; the clock (ns) is what CPU steps are timed with."""
        torch = _torch()
        if device == "cuda" and not torch.cuda.is_available():
            raise ProfileError("torch sees no GPU: leave --device out, or give --device cpu.")
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.clock = clock
        self.device_name = torch.cuda.get_device_name() if self.device == "cuda" else "CPU"

    def refusal(self, precision: str) -> str:
        """Why this device has no such precision; '' when it has."""
        torch = _torch()
        known = ", ".join(PRECISIONS)
        if precision not in PRECISIONS:
            return f"there is no precision '{precision}': choose from {known}."
        if self.device == "cpu":
            return "" if precision != "tf32" else "a CPU has no TF32: leave tf32 out, or use a GPU."
        if precision == "tf32" and torch.cuda.get_device_capability() < AMPERE:
            return f"{self.device_name} is older than Ampere and has no TF32: leave tf32 out."
        if precision == "bf16" and torch.cuda.get_device_capability() < AMPERE:
            return f"{self.device_name} is older than Ampere and has no BF16: use fp16."
        return ""

    @contextmanager
    def using(self, precision: str) -> Iterator[None]:
        """Set what the precision means, and put the old flags back."""
        torch = _torch()
        cudnn = torch.backends.cudnn
        before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
        allowed = precision == "tf32"
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        cudnn.allow_tf32 = allowed
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            cudnn.allow_tf32 = before[1]

    def flags(self, precision: str) -> dict[str, Any]:
        """The flags as they are set during steps of this precision."""
        torch = _torch()
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

    def trainer(self, make_model: Callable[[], Any], cell: Cell, recipe: Recipe) -> TorchTrainer:
        """A new model from the recipe's seed."""
        torch = _torch()
        torch.manual_seed(recipe.seed)
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        return TorchTrainer(make_model(), cell, recipe, self.device, self.clock)

    def resized(self, batch: Any, size: int) -> Any:
        """The batch with its samples repeated up to `size`."""
        inputs, targets = pair(batch)
        order = _torch().arange(size) % len(inputs)
        return inputs.cpu()[order], targets.cpu()[order]

    def release(self) -> None:
        """Return cached blocks, so that the next cell starts from an empty device."""
        if self.device == "cuda":
            gc.collect()
            _torch().cuda.empty_cache()


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ProfileError(
            "torch is not installed: pip install 'dataset-preflight[torch]'."
        ) from None
    return torch


class TorchTrainer:
    """A torch model, its optimizer and, at FP16, its loss scaler."""

    def __init__(self, made: Any, cell: Cell, recipe: Recipe, device: str, clock: Clock) -> None:
        """`made` is a module, or (module, loss) with loss(outputs, targets) -> scalar."""
        torch = self._torch = _torch()
        self.model, self.loss = made if isinstance(made, tuple) else (made, None)
        if not isinstance(self.model, torch.nn.Module):
            raise ProfileError(
                f"make_model returned {type(self.model).__name__}: return a torch module, or "
                "(module, loss)."
            )
        self.device, self.clock, self.recipe = device, clock, recipe
        self.format = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.model.to(device=device, memory_format=self.format).train()
        self.dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(cell.precision)
        self.optimizer = make_optimizer(recipe, list(self.model.parameters()), device)
        self.static = None if cell.loss_scale in ("", DYNAMIC) else float(cell.loss_scale)
        self.scaler: Any = None
        if cell.precision == "fp16":
            self.scaler = torch.amp.GradScaler(device, init_scale=self.static or INITIAL_SCALE)
        self.run = torch.compile(self.model) if recipe.compile else self.model
        self._losses: list[Any] = []
        self._updates: list[Any] = []  # one a step: True, or found_inf on the device
        watch_updates(self.optimizer, self._updates)

    def place(self, batch: Any) -> tuple[Any, Any]:
        """Both tensors on the device, without waiting for the copy."""
        inputs, targets = pair(batch)
        inputs = inputs.to(self.device, non_blocking=True)
        if self.recipe.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=self._torch.channels_last)
        return inputs, targets.to(self.device, non_blocking=True)

    def forward(self, inputs: Any, targets: Any) -> Any:
        """The loss; what autocast does, it does here."""
        dtype = self.dtype or self._torch.bfloat16
        with self._torch.autocast(self.device, dtype=dtype, enabled=self.dtype is not None):
            outputs = self.run(inputs)
            if self.loss is not None:
                return self.loss(outputs, targets)
            return self._torch.nn.functional.cross_entropy(outputs, targets)

    def step(self, batch: Any) -> None:
        """One training step."""
        inputs, targets = self.place(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(inputs, targets)
        self._updates.append(False)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update(self.static)  # a static scale stays what it is, after a skip too
        self._losses.append(loss.detach())

    def outputs(self, batch: Any) -> tuple[int, ...] | None:
        """Shape of the outputs, asked in evaluation mode: no weight and no statistic changes."""
        torch = self._torch
        if self.loss is not None:
            return None
        inputs, _ = self.place(batch)
        dtype = self.dtype or torch.bfloat16
        self.model.eval()
        try:
            with torch.no_grad(), torch.autocast(self.device, dtype, self.dtype is not None):
                made = self.model(inputs)
        finally:
            self.model.train()
        return tuple(getattr(made, "shape", ()))

    def mark(self) -> Any:
        """An event on the compute stream; on the CPU the clock."""
        if self.device != "cuda":
            return self.clock()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            self._torch.cuda.synchronize()

    def periods_ms(self, marks: list[Any]) -> list[float]:
        """Differences of neighbouring marks; the events are complete by now."""
        pairs = pairwise(marks)
        if self.device == "cuda":
            return [float(a.elapsed_time(b)) for a, b in pairs]
        return [(b - a) / 1e6 for a, b in pairs]

    def losses(self) -> list[float]:
        """Losses since `forget`."""
        return [float(loss) for loss in self._losses]

    def skipped(self) -> list[int]:
        """Steps since `forget` that the scaler dropped."""
        return [
            i
            for i, update in enumerate(self._updates)
            if (update is False if isinstance(update, bool) else bool(update.item()))
        ]

    def forget(self) -> None:
        """Start losses and skipped steps anew."""
        self._losses.clear()
        self._updates.clear()

    def nudge(self, share: float) -> None:
        """Change every weight by about this share of itself."""
        torch = self._torch
        source = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in self.model.parameters():
                noise = torch.randn(weight.shape, generator=source).to(weight.device)
                weight.mul_(1 + share * noise)

    def scale(self) -> float | None:
        """The loss scale; reads the device."""
        return None if self.scaler is None else float(self.scaler.get_scale())

    def start_at(self, scale: float) -> None:
        """Begin with this scale where it is a dynamic one."""
        if self.scaler is not None and self.static is None:
            self.scaler = self._torch.amp.GradScaler(self.device, init_scale=scale)

    def graphs(self) -> int:
        """Graphs that torch.compile made in this process."""
        if not self.recipe.compile:
            return 0
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])

    def peak_bytes(self, batch: Any) -> tuple[int | None, str]:
        """Peak of what training allocates, on the device or in torch's CPU allocator."""
        if self.device == "cuda":
            self._torch.cuda.synchronize()
            return int(self._torch.cuda.max_memory_allocated()), MEMORY_CUDA
        # the profiler does not see the freeing of what was allocated before it started
        self.optimizer.zero_grad(set_to_none=True)
        held = self._held()
        grown = _allocated_in(lambda: self.step(batch))
        if grown is None:
            return None, "n/a: this torch's profiler does not report allocations"
        return held + grown, MEMORY_CPU

    def _held(self) -> int:
        """Bytes of parameters, buffers and optimizer state between steps."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        for state in self.optimizer.state.values():
            tensors += [v for v in state.values() if self._torch.is_tensor(v)]
        return sum(t.numel() * t.element_size() for t in tensors)


def watch_updates(optimizer: Any, updates: list[Any]) -> None:
    """Note in the last entry that an update was made, or on a fused optimizer what it found.

    GradScaler calls step() only where it does not skip; a fused kernel is always called, decides
    on the device, and is handed `found_inf`: kept as it is, so that nobody waits for it.
    """

    def note(called: Any, args: Any, kwargs: Any) -> None:
        found = getattr(called, "found_inf", None)
        updates[-1] = True if found is None else found.clone()

    # holds the list, not the trainer: no cycle keeps a dropped model in memory
    optimizer.register_step_pre_hook(note)


def make_optimizer(recipe: Recipe, parameters: list[Any], device: str) -> Any:
    """SGD with momentum, Adam or AdamW; fused on CUDA, where GradScaler then needs no host."""
    torch = _torch()
    if not parameters:
        raise ProfileError("The model has no parameters: there is nothing to train.")
    fused = True if device == "cuda" else None
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, recipe.lr, momentum=0.9, fused=fused)
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, recipe.lr, fused=fused)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, recipe.lr, fused=fused)
    known = ", ".join(OPTIMIZERS)
    raise ProfileError(f"No optimizer '{recipe.optimizer}': choose from {known}.")


def _allocated_in(work: Callable[[], None]) -> int | None:
    """Most bytes alive above the start while `work` ran, by torch's allocation events."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    events = getattr(getattr(recorded, "profiler", None), "kineto_results", None)
    if events is None:
        return None
    rows = sorted(
        (e.start_ns(), i, e.nbytes())
        for i, e in enumerate(events.events())
        if e.name() == "[memory]"
    )
    alive = most = 0
    for _, _, grown in rows:
        alive += grown
        most = max(most, alive)
    return most if rows else None
