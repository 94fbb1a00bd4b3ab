"""The training step in torch, at one precision: autocast, loss scaling, events.

FP16 is autocast with a GradScaler, BF16 autocast without one: its exponent has the range of FP32,
so gradients do not underflow. On CUDA the optimizer is the fused kernel: it skips an overflowing
step on the device, where the ordinary one asks the host every step and so would show loader waits
that FP32 hides. Micikevicius et al. 2017, "Mixed Precision Training" (arXiv 1710.03740).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from pipeline_profiler.precision.batches import Batch, Tensor, split_batch
from pipeline_profiler.precision.cell import DYNAMIC, Cell, Recipe
from pipeline_profiler.precision.memory_torch import (
    MEMORY_CPU,
    allocated_in,
    peak_on_gpu,
)
from pipeline_profiler.precision.trainer import Mark, PeakMemory
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

if TYPE_CHECKING:
    from torch import amp, nn, optim

Loss: TypeAlias = "Callable[[Tensor, Tensor], Tensor] | None"
Update: TypeAlias = (
    "bool | Tensor"  # of one step: whether it was applied, or found_inf on the device
)

OPTIMIZERS = ("sgd", "adam", "adamw")
INITIAL_SCALE = 2.0**16  # GradScaler's own default


def import_torch() -> ModuleType:
    """torch, or ProfileError with the command that installs it."""
    try:
        import torch
    except ImportError:
        raise ProfileError(
            "torch is not installed: pip install 'dataset-preflight[torch]'."
        ) from None
    return torch


class DeviceClock:
    """Points in time on the device: CUDA events, or the host's clock where compute blocks it."""

    def __init__(self, device: str, clock: Clock) -> None:
        """`device` is cuda or cpu; the clock gives ns."""
        self._torch = import_torch()
        self.device, self.clock = device, clock

    def mark(self) -> Mark:
        """An event on the compute stream; on the CPU the clock."""
        if self.device != "cuda":
            return self.clock()
        # the host runs ahead of the device, so its clock would time the enqueueing
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            self._torch.cuda.synchronize()

    def periods_ms(self, marks: Sequence[Mark]) -> list[float]:
        """Differences of neighbouring marks; the events are complete by now."""
        pairs = pairwise(marks)
        if self.device == "cuda":
            return [float(a.elapsed_time(b)) for a, b in pairs]
        return [(b - a) / 1e6 for a, b in pairs]


class TorchTrainer(DeviceClock):
    """A torch model, its optimizer and, at FP16, its loss scaler."""

    def __init__(
        self,
        model: object,
        cell: Cell,
        recipe: Recipe,
        device: str,
        clock: Clock,
        optimizer: optim.Optimizer | None = None,
    ) -> None:
        """`model` is a module, or (module, loss) with loss(outputs, targets) -> scalar.

        `optimizer` is the user's own over its parameters; without one the recipe's is made.
        """
        super().__init__(device, clock)
        torch = self._torch
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
        self._losses: list[Tensor] = []
        self._correct: list[Tensor] | None = None
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
        # autocast wants a dtype even where it is off, as for FP32
        dtype = self.dtype or self._torch.bfloat16
        with self._torch.autocast(self.device, dtype=dtype, enabled=self.dtype is not None):
            outputs = self.run(inputs)
            self._note_accuracy(outputs, targets)
            if self.loss is not None:
                return self.loss(outputs, targets)
            return self._torch.nn.functional.cross_entropy(outputs, targets)

    def step(self, batch: Batch) -> None:
        """One training step."""
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
        torch = self._torch
        if self.loss is not None:
            return None
        inputs, _ = self.place(batch)
        dtype = self.dtype or torch.bfloat16
        self.model.eval()
        try:
            with torch.no_grad(), torch.autocast(self.device, dtype, self.dtype is not None):
                outputs = self.model(inputs)
        finally:
            self.model.train()
        return tuple(getattr(outputs, "shape", ()))

    def losses(self) -> list[float]:
        """Losses since `forget`."""
        return [float(loss) for loss in self._losses]

    def skipped(self) -> list[int]:
        """Steps since `forget` that the scaler dropped."""
        return [
            i
            for i, update in enumerate(self._updates)
            # False: step() was never called; else found_inf, which is true where it skipped
            if (update is False if isinstance(update, bool) else bool(update.item()))
        ]

    def forget(self) -> None:
        """Clear losses and skipped steps."""
        self._losses.clear()
        self._updates.clear()

    def nudge(self, share: float) -> bool:
        """Change every weight by about this share of itself."""
        torch = self._torch
        # drawn on the host, so that the same noise is added on every device
        source = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in self.model.parameters():
                noise = torch.randn(weight.shape, generator=source).to(weight.device)
                weight.mul_(1 + share * noise)
        return True

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

    def count_correct(self) -> None:
        """Keep the accuracy of each step from now on."""
        self._correct = []

    def accuracies(self) -> list[float]:
        """Accuracies since `count_correct`; reads the device."""
        return [float(share) for share in self._correct or ()]

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
        held_bytes = self._held_bytes()
        grown = allocated_in(lambda: self.step(batch))
        if grown is None:
            return PeakMemory(None, "n/a: this torch's profiler does not report allocations")
        return PeakMemory(held_bytes + grown, MEMORY_CPU)

    def _held_bytes(self) -> int:
        """Bytes of parameters, buffers and optimizer state between steps."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        for state in self.optimizer.state.values():
            tensors += [v for v in state.values() if self._torch.is_tensor(v)]
        return sum(t.numel() * t.element_size() for t in tensors)


def watch_updates(optimizer: optim.Optimizer, updates: list[Update]) -> None:
    """Note in the last entry that an update was made, or on a fused optimizer its `found_inf`.

    GradScaler calls step() only where it does not skip; a fused kernel is always called, decides
    on the device, and is handed `found_inf`: stored unread, so that the host does not wait for it.
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
    if recipe.optimizer not in OPTIMIZERS:
        names = ", ".join(OPTIMIZERS)
        raise ProfileError(f"No optimizer '{recipe.optimizer}': choose from {names}.")
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    momentum = {"momentum": 0.9} if recipe.optimizer == "sgd" else {}
    fused = True if device == "cuda" else None
    optimizer: optim.Optimizer = kinds[recipe.optimizer](
        parameters, recipe.lr, fused=fused, **momentum
    )
    return optimizer
