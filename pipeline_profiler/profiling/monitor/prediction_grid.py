"""`watch --track-predictions`: predictions for some samples, while the model trains.

After a step of its optimizer the model is called with the same inputs again: in eval mode, without
gradients, its random numbers put back. At most MOST steps are stored; above, every second is
dropped and the distance doubles. Sharded models (FSDP) are skipped.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from pipeline_profiler.profiling.measure.preloaded_batches import (
    copied,
    is_tensor,
    mapped,
    parts_of,
)
from pipeline_profiler.profiling.record.stage_hooks import Undo

MOST = 64  # steps
WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
}
SHARED_OUT = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")


class PredictionGrid:
    """The model's outputs for some samples; leave_out(start, end): ns outside the step.

    wanted: indices in the dataset of the training loader, or how many samples of its first batch.
    """

    def __init__(
        self, torch: Any, wanted: int | Sequence[int], leave_out: Callable[[int, int], None]
    ) -> None:
        self.torch, self.wanted, self.leave_out = torch, wanted, leave_out
        self.pid = os.getpid()
        self.model: Any = None
        self.given: tuple[Any, Any] = ((), {})
        self.labels: Any = None  # (N,) whole numbers, where the batch holds them
        self.batch: Any = None
        self.iterator: Any = None  # of the loader that gave it
        self.held: set[int] = set()  # the model's parameters
        self.steps, self.every = 0, 1
        self.rows: list[tuple[int, list[float], list[int]]] = []  # step, values, guesses
        self.ended, self.inside = "", False

    def hook(self, replace: Callable[[Any, str, Any], None], undo: list[Undo]) -> None:
        """Put the hooks in; `replace` sets an attribute and `undo` takes things back."""
        import torch.utils.data.dataloader as loading
        from torch.optim.optimizer import register_optimizer_step_post_hook

        torch, module = self.torch, self.torch.nn.Module
        iterator: Any = loading._BaseDataLoaderIter
        call, deliver = module.__call__, iterator.__next__

        @functools.wraps(call)
        def __call__(part: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if self.inside or torch.compiler.is_compiling() or not torch.is_grad_enabled():
                return call(part, *args, **kwargs)
            trained = any(p.requires_grad for p in part.parameters())
            if trained:
                put_back()
                self._take(part, args, kwargs)
            self.inside = True
            try:
                return call(part, *args, **kwargs)
            finally:
                self.inside = False
                if trained and not self.ended:
                    self._keep()

        @functools.wraps(deliver)
        def __next__(self_: Any) -> Any:  # noqa: N807
            self.batch, self.iterator = deliver(self_), self_
            return self.batch

        def put_back() -> None:
            if module.__call__ is __call__:
                module.__call__ = call
            if iterator.__next__ is __next__:
                iterator.__next__ = deliver

        replace(module, "__call__", __call__)
        replace(iterator, "__next__", __next__)
        undo.append(register_optimizer_step_post_hook(self._stepped).remove)

    def _take(self, model: Any, args: Any, kwargs: Any) -> None:
        """The first call of a step: keep what it was given, before it may be changed in place."""
        kinds = {kind.__name__ for kind in type(model).__mro__}
        if kinds & set(SHARED_OUT):
            self.ended = "the weights lie in parts on several ranks"
            return
        while (inner := WRAPPERS.get(type(model).__name__)) is not None:
            model = getattr(model, inner)
        self.model, self.held = model, {id(p) for p in model.parameters()}
        first = next((t for t in _tensors((args, kwargs)) if t.ndim), None)
        size = len(first) if first is not None else 0
        self._try(lambda: self._select(args, kwargs, size))
        self.batch = self.iterator = None

    def _select(self, args: Any, kwargs: Any, size: int) -> None:
        """Set `given` and `labels` to the rows of the wanted samples."""
        wanted = self.wanted

        def of_batch(part: Any) -> bool:
            return bool(is_tensor(part) and part.ndim and len(part) == size)

        rows = {at: part for at, part in parts_of(self.batch) if of_batch(part)}
        chosen = {} if isinstance(wanted, int) else dict(parts_of(self._made(wanted)))

        def select(value: Any) -> Any:
            if isinstance(wanted, int) or not of_batch(value):
                return copied(value[:wanted] if of_batch(value) else value)
            for at, part in rows.items():
                if part.numel() == value.numel() and part.to(value).view_as(value).equal(value):
                    form = chosen[at].shape if part.ndim == value.ndim else (-1, *value.shape[1:])
                    return copied(chosen[at].to(value).reshape(form))
            raise ValueError("the inputs of the model are no part of the batch")

        self.given = mapped((args, kwargs), lambda _, part: select(part))
        flat = [at for at, part in rows.items() if part.ndim == 1 and not part.is_floating_point()]
        count = wanted if isinstance(wanted, int) else len(wanted)
        self.labels = (chosen or rows)[flat[-1]][:count].tolist() if flat else None

    def _made(self, indices: Sequence[int]) -> Any:
        """Return a batch of samples of the loader's dataset, made without its proxies."""
        dataset, collate = self.iterator._dataset, self.iterator._collate_fn
        dataset, collate = getattr(dataset, "_inner", dataset), getattr(collate, "collate", collate)
        state, drawn = random.getstate(), np.random.get_state()
        try:
            with sys.modules["torch"].random.fork_rng([]):
                return collate([dataset[index] for index in indices])
        finally:
            random.setstate(state)
            np.random.set_state(drawn)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.model is None or self.ended or os.getpid() != self.pid:
            return
        if not any(id(p) in self.held for g in optimizer.param_groups for p in g["params"]):
            return
        self.steps += 1
        if self.steps % self.every == 0:
            self._keep()
        if len(self.rows) >= MOST:
            del self.rows[1::2]
            self.every *= 2

    def _keep(self) -> None:
        self._try(lambda: self.rows.append((self.steps, *self._judged(self._answer()))))

    def _try(self, action: Callable[[], None]) -> None:
        """Do it outside the time of the step; an error ends the recording."""
        start, self.inside = perf_counter_ns(), True
        try:
            action()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the training goes on without
            text = " ".join(str(error).split())[:120]
            self.ended = f"{type(error).__name__} at step {self.steps}: {text}"
        finally:
            self.inside = False
        self.leave_out(start, perf_counter_ns())

    def _answer(self) -> Any:
        torch, (args, kwargs) = self.torch, self.given
        modes = [(part, part.training) for part in self.model.modules()]
        devices = sorted({p.device.index for p in self.model.parameters() if p.is_cuda})
        with torch.no_grad(), torch.random.fork_rng(devices):
            for part, _ in modes:
                part.training = False
            try:
                return self.model(*args, **kwargs)
            finally:
                for part, trained in modes:
                    part.training = trained

    def _judged(self, out: Any) -> tuple[list[float], list[int]]:
        """(the right class's probability, the likeliest class); else (mean output, [])."""
        logits = getattr(out, "logits", None)
        found = _tensors(out) if logits is None else [logits]
        main = next(t for t in found if t.ndim and t.is_floating_point()).float()
        if self.rows and len(main) != len(self.rows[0][1]):
            raise ValueError("the outputs have no row for each example")
        labels = self.labels
        if labels and main.ndim == 2 and min(labels) >= 0 and max(labels) < main.shape[1] > 1:
            sums = main.sum(1)
            done = bool((main >= 0).all() and ((sums - 1).abs() < 1e-3).all())
            chances = main if done else main.softmax(1)
            right = [row[label] for row, label in zip(chances.tolist(), labels, strict=True)]
            return right, main.argmax(1).tolist()
        return main.reshape(len(main), -1).mean(1).tolist(), []

    def document(self) -> dict[str, Any]:
        """Steps, values of each example by step; labels and guesses where classes are known."""
        if not self.rows:
            return {"steps": [], "values": [], "ended": self.ended or "no step was seen"}
        steps, values, guesses = zip(*self.rows, strict=True)
        classes = {"labels": self.labels, "guesses": list(guesses)} if guesses[0] else {}
        if not isinstance(self.wanted, int):
            classes["samples"] = list(self.wanted)
        return {"steps": list(steps), "values": list(values), "ended": self.ended, **classes}


def _tensors(value: Any) -> list[Any]:
    return [part for _, part in parts_of(value) if is_tensor(part)]
