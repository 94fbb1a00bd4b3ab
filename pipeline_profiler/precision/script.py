"""Inside the process of a script: blocks of its steps at several precisions, timed.

A step runs from the end of one optimizer.step() to the next: every training loop has that end, with
any loader, closure or gradient accumulation, and all work between two ends has one precision. The
next() of a loader does not do: wrappers that prefetch call it before the step of an earlier batch.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

from dataset_preflight.foundation.text import format_number
from pipeline_profiler.checks.caught_run import CheckOrder, leave, read_order
from pipeline_profiler.checks.caught_torch import Hooks
from pipeline_profiler.checks.runner import ProgressLine
from pipeline_profiler.checks.user_code import explain_error, short_place, user_place
from pipeline_profiler.precision.backend_torch import (
    OwnStep,
    OwnStepTrainer,
    TorchBackend,
    most_alive,
    traced_memory,
)
from pipeline_profiler.precision.estimate import (
    LOOKS,
    is_inconclusive,
    is_settled,
    paired_ratio,
    window_mean,
    windows_to_settle,
)
from pipeline_profiler.precision.trainer import (
    LEAD_IN,
    PRECISION_NAMES,
    PRECISIONS,
    Cell,
    count_samples,
    timed_steps,
)
from pipeline_profiler.profiling.adapters.device_gaps import DeviceGaps
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.measure.environment import describe
from pipeline_profiler.profiling.measure.preloaded_batches import is_tensor, mapped
from pipeline_profiler.profiling.measure.watchdog import is_own_code
from pipeline_profiler.profiling.monitor.process import process_rank
from pipeline_profiler.profiling.record.session import ProfileError

HEAD = ("precision", "step time", "speed-up", "without data wait", "samples/s", "peak memory")
HALVES = {"bf16": "bfloat16", "fp16": "float16"}  # autocast dtypes
WARM_UP_STEPS = 4
ROUND_S, ROUNDS_OF_BUDGET = 3.0, 30  # a round lasts so long, or this part of the budget
HOOKS = {"torch": "pipeline_profiler.precision.script:hook_precision"}
CLIPS = ("clip_grad_norm_", "clip_grad_value_")
RANKS = "The script trains in several processes: start one process, on one device."


@dataclass
class Kind:
    """A precision: medians of its blocks by round, ms; `wait_ms`: in next() of a loader."""

    name: str
    step_ms: dict[int, float] = field(default_factory=dict)
    wait_ms: dict[int, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    skipped: int = 0  # steps whose update the GradScaler dropped


@dataclass
class ScriptRun:
    """What was measured of a script; the first kind is its own precision."""

    kinds: list[Kind] = field(default_factory=lambda: [Kind("own")])
    own: str = "its own precision"
    casts: bool = False  # by an autocast of its own
    model: str = ""
    device: str = ""
    device_name: str = ""
    steps: int = 0
    block_steps: int = 0
    seconds: float = 0.0
    samples: int = 0  # of a step; 0 where no loader gives them
    in_flight: int = 0  # batches that the workers of the loader have ready or at work
    left_out: list[str] = field(default_factory=list)

    def ratio(self, kind: Kind) -> Interval:
        """Return how many times as fast as the script's own precision a kind is."""
        return paired_ratio(self.kinds[0].step_ms, kind.step_ms) or window_mean([])


def hook_precision(torch: Any) -> None:
    """Measure the script of this process, unless it is a worker or one of several ranks."""
    order = read_order()
    if multiprocessing.parent_process() is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if order is not None:
            leave(order, {"problem": RANKS, "results": {}})
        os._exit(0)
    if order is not None:
        blocks = ScriptBlocks(order)
        blocks.hook(torch)
        atexit.register(blocks.end)


class ScriptBlocks(Hooks):
    """Switches the precision of a running script at the ends of its steps, and times them."""

    def __init__(self, order: CheckOrder, on_end: Callable[..., None] = leave) -> None:
        self.order, self.on_end, self.run = order, on_end, ScriptRun()
        self.own = self.kind = self.run.kinds[0]
        self.plan, self.ended, self.began = self._plan(), False, 0.0
        self.undo = []
        self.optimizers: dict[int, Any] = {}  # the first one ends the steps
        self.models: dict[int, Any] = {}  # called by the loop itself
        self.inside = False  # a call of a model
        self.casts_off = False  # an autocast of the script has no effect now
        self.ours: Any = None  # the autocast of a kind
        self.casts: dict[str, Any] = {}  # device -> dtype of an autocast of the script
        self.compiled = self.problem = ""
        self.samples: Counter[int] = Counter()  # by step
        self.waits: Counter[int] = Counter()  # ns by step
        self.gaps: DeviceGaps | None = None
        self.flags = contextlib.ExitStack()  # TF32 on or off
        self.skips: set[int] = set()  # steps whose update was dropped
        self.scaler: Any = None  # of FP16
        self.scaled: dict[int, Any] = {}  # optimizer -> what the scaler takes it for
        self.unscaled: set[int] = set()  # those among them, to be clipped
        self.due = False  # an update of the scale

    def hook(self, torch: Any) -> None:
        """Put the hooks in, before the script imports what they replace."""
        import torch.utils.data.dataloader as loading
        from torch.optim import optimizer

        self.torch, clip = torch, torch.nn.utils.clip_grad
        os.register_at_fork(after_in_child=self.unhook)
        self.wrap(torch.nn.Module, "__call__", self._call)
        self.wrap(torch.autocast, "__enter__", self._enter)
        self.wrap(torch, "compile", self._compile)
        self.wrap(torch.autograd, "backward", self._backward)
        self.wrap(loading._BaseDataLoaderIter, "__next__", self._next)
        for owner, name in itertools.product((clip, torch.nn.utils), CLIPS):
            self.wrap(owner, name, self._clip)
        self.undo.append(optimizer.register_optimizer_step_pre_hook(self._before_step).remove)
        self.undo.append(optimizer.register_optimizer_step_post_hook(self._after_step).remove)

    def end(self) -> None:
        """End the measurement, once; without a step there is none."""
        if self.ended or not self.run.steps:
            return
        self.unhook()
        run, error, name = self.run, getattr(sys, "last_value", None), os.path.basename(sys.argv[0])
        run.seconds = time.perf_counter() - self.began
        results = script_results(run, name, self.order.seconds) if self.own.step_ms else {}
        problem = self.problem or f"{name} ended after {run.steps} steps: let it train more epochs."
        if isinstance(error, BaseException):
            kind = PRECISION_NAMES.get(self.kind.name, run.own)
            problem = explain_error(f"Your script in {kind}", error)
        elif results:
            problem = ""
        self.on_end(self.order, {"problem": problem, "results": results, "environment": describe()})

    def _plan(self) -> Iterator[None]:
        """What happens at the ends of the steps; at each `yield` the script makes a step."""
        run, draw, progress = self.run, random.Random(self.order.seed), ProgressLine()
        for _ in range(WARM_UP_STEPS):
            begin = time.perf_counter()
            yield
        run.block_steps = timed_steps(time.perf_counter() - begin)
        self.problem = self._choose()
        if self.problem:
            return
        for kind in run.kinds:
            yield from self._try(kind)
        run.samples = round(statistics.median(self.samples.values() or [0]))
        every = min(ROUND_S, self.order.seconds / ROUNDS_OF_BUDGET)
        open_kinds = run.kinds[1:]
        for number in range(1, LOOKS[-1] + 1):
            # states of the host last for seconds: rounds back to back would be alike
            start, kinds = time.perf_counter(), [self.own, *open_kinds]
            for kind in draw.sample(kinds, len(kinds)):
                # workers have batches ready, of which a block of a faster precision would live
                lead_in = every / len(kinds) if run.in_flight else 0.0
                yield from self._block(kind, number, time.perf_counter() + lead_in)
            progress(f"precision: {number} rounds, {run.steps} steps of the script")
            open_kinds = [kind for kind in open_kinds if not is_settled(run.ratio(kind), number)]
            if not open_kinds:
                break
            self._use(self.own)
            while time.perf_counter() < start + every:
                yield
        progress.clear()

    def _use(self, kind: Kind) -> None:
        """Train at this precision from now on, the device idle."""
        self.clock.synchronise()
        self.flags.close()
        if self.run.device == "cuda":
            self.torch.cuda.reset_peak_memory_stats()
            if kind.name in ("fp32", "tf32"):
                self.flags.enter_context(self.backend.using(kind.name))
        self.kind = kind
        self.casts_off = self.run.casts and kind is not self.own

    def _try(self, kind: Kind) -> Iterator[None]:
        """Make the first steps at a precision; on a CPU, measure the peak memory of one more."""
        self._use(kind)
        for _ in range(LEAD_IN):
            yield
        if self.run.device == "cuda":
            return
        states = [v for o in self.optimizers.values() for s in o.state.values() for v in s.values()]
        weights = [t for m in self.models.values() for t in (*m.parameters(), *m.buffers())]
        held = {id(t): t.nbytes for t in (*weights, *states) if is_tensor(t)}
        with traced_memory() as recorded:
            yield
        grown = most_alive(recorded)
        kind.peak_bytes = None if grown is None else sum(held.values()) + grown

    def _block(self, kind: Kind, number: int, ready: float) -> Iterator[None]:
        """Make lead-in steps, up to the time `ready` at least, then those that are timed."""
        self._use(kind)
        end = self.run.steps + LEAD_IN
        while self.run.steps < end or time.perf_counter() < ready:
            yield
        first, marks = self.run.steps, [self.clock.mark()]
        for _ in range(self.run.block_steps):
            yield
            marks.append(self.clock.mark())
        self.clock.synchronise()  # at the edges of the block only
        if self.run.device == "cuda":
            kind.peak_bytes = self.torch.cuda.max_memory_allocated()
        periods = dict(enumerate(self.clock.periods_ms(marks), first))
        if self.gaps is not None:
            self.waits.update(dict(self.gaps.resolved()))  # adds them up
        counted = periods.keys() - self.skips
        kind.skipped += len(periods) - len(counted)
        if counted:
            kind.step_ms[number] = statistics.median(periods[step] for step in counted)
            kind.wait_ms[number] = statistics.median(self.waits[s] / 1e6 for s in counted)

    def _choose(self) -> str:
        """Fill in the precisions to compare; return why there are none."""
        torch, run, only = self.torch, self.run, self.order.only
        weights = [p for model in self.models.values() for p in model.parameters()]
        device = next((p.device.type for p in weights if p.device.type != "cpu"), "cpu")
        others = {f"torch.{name}" for name in (*HALVES.values(), "float64")}
        unusual = sorted({str(p.dtype) for p in weights} & others)
        problems = {
            RANKS: process_rank(None) is not None,
            f"{self.compiled} calls torch.compile, but steps run uncompiled here: leave it "
            "out.": self.compiled,
            "No call of a torch module was seen: call the model as `model(inputs)`.": not weights,
            f"The model is on {device}: train it on cpu or cuda.": device not in ("cpu", "cuda"),
            f"The weights are {' and '.join(unusual)}: load them in FP32, where autocast "
            "starts.": unusual,
        }
        if problem := next((text for text, applies in problems.items() if applies), ""):
            return problem
        self.backend = TorchBackend(device)
        # never stepped: it has the marks of the device
        self.clock = OwnStepTrainer(OwnStep(print), Cell("", 1, ""), device, self.backend.clock)
        run.model, run.device = type(next(iter(self.models.values()))).__name__, device
        run.own, run.device_name = "FP32", self.backend.device_name
        names = [name for name in PRECISIONS if name != "tf32" or device == "cuda"]
        if cast := self.casts.get(device):
            run.casts, names = True, [name for name in names if name not in HALVES]
            run.own = next(PRECISION_NAMES[p] for p, name in HALVES.items() if name in str(cast))
        elif device == "cuda":
            products = torch.get_float32_matmul_precision() != "highest"
            both = products + torch.backends.cudnn.allow_tf32
            run.own = ("FP32", "TF32 in part", "TF32")[both]
        for name in names:
            refusal = self.backend.refusal(name)
            if name == "fp16" and device == "cpu" and not only:
                refusal = "a CPU has no arithmetic for it."
            if refusal:
                run.left_out.append(f"{PRECISION_NAMES[name]} is left out: {refusal}")
            elif PRECISION_NAMES[name] != run.own and (not only or name in only):
                run.kinds.append(Kind(name))
        self.gaps = DeviceGaps(torch.cuda) if device == "cuda" else None
        nothing = f"{run.own} has nothing to compare with: --precisions takes {', '.join(names)}."
        return "" if run.kinds[1:] else nothing

    def _call(self, plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Put autocast, or none, around a model that the loop itself calls."""
        if self.inside or next(module.parameters(), None) is None:
            return plain(module, *args, **kwargs)
        self.inside = True
        try:
            if not self.run.device and self.torch.is_grad_enabled():
                self.models[id(module)] = module
            half = HALVES.get(self.kind.name, "")
            if not half and not self.casts_off:
                return plain(module, *args, **kwargs)
            dtype = getattr(self.torch, half or "bfloat16")
            self.ours = self.torch.autocast(self.run.device, dtype=dtype, enabled=bool(half))
            with self.ours:
                result = plain(module, *args, **kwargs)
            # the loss is computed in FP32, as autocast around it would
            return mapped(
                result, lambda _, t: t.float() if is_tensor(t) and t.dtype is dtype else t
            )
        finally:
            self.inside = False

    def _enter(self, plain: Any, context: Any) -> Any:
        result, torch = plain(context), self.torch
        if context is not self.ours and torch.is_autocast_enabled(context.device):
            if torch.is_grad_enabled():
                self.casts[context.device] = torch.get_autocast_dtype(context.device)
            if self.casts_off:
                torch.set_autocast_enabled(context.device, False)
        return result

    def _compile(self, plain: Any, model: Any = None, **kwargs: Any) -> Any:
        whole = isinstance(getattr(model, "__self__", model), self.torch.nn.Module)
        if whole or is_own_code(sys._getframe(2).f_code.co_filename):
            self.compiled = short_place(user_place()) or "The script"
        return plain(model, **kwargs)

    def _next(self, plain: Any, iterator: Any) -> Any:
        if not self.torch.is_grad_enabled():
            return plain(iterator)
        if self.gaps is not None:
            self.gaps.asked()
        step, start = self.run.steps, time.perf_counter_ns()
        batch = plain(iterator)
        wall = time.perf_counter_ns() - start
        if self.gaps is not None:
            self.gaps.delivered(step, wall)
        else:
            self.waits[step] += wall
        if not self.run.samples:
            self.run.in_flight = iterator._num_workers * getattr(iterator, "_prefetch_factor", 0)
            with contextlib.suppress(ProfileError, IndexError):
                self.samples[step] += count_samples(batch)
        return batch

    def _backward(self, plain: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        self.scaled.clear()
        if self.kind.name != "fp16":
            return plain(tensors, *args, **kwargs)
        self.scaler = self.scaler or self.torch.amp.GradScaler(self.run.device)
        if self.due:
            self.scaler.update()
            self.due = False
            self.unscaled.clear()
        # in place of the optimizers, whose steps are under way when the scaler is asked
        self.scaled = {
            number: SimpleNamespace(param_groups=optimizer.param_groups, step=lambda: True)
            for number, optimizer in self.optimizers.items()
        }
        return plain(self.scaler.scale(tensors), *args, **kwargs)

    def _clip(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        for number in self.scaled.keys() - self.unscaled:
            self.scaler.unscale_(self.scaled[number])
            self.unscaled.add(number)
        return plain(*args, **kwargs)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """Unscale the gradients, or drop them where one overflowed."""
        if self.ended or not (self.scaled or self.kind.name == "fp16"):
            return None
        closure = args[1] if args[1:] else kwargs.get("closure")
        if closure is not None:  # it has the backward pass
            with self.torch.enable_grad():
                loss = closure()
            args, kwargs = (optimizer, lambda: loss), {}
        if (scaled := self.scaled.pop(id(optimizer), None)) is not None:
            self.due = True
            if not self.scaler.step(scaled):
                self.skips.add(self.run.steps)
                for parameter in (p for group in scaled.param_groups for p in group["params"]):
                    parameter.grad = None
        return args, kwargs

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.ended:
            return
        self.optimizers.setdefault(id(optimizer), optimizer)
        if optimizer is not next(iter(self.optimizers.values())):
            return
        self.began = self.began or time.perf_counter()
        self.run.steps += 1
        is_late = time.perf_counter() - self.began > self.order.seconds
        if is_late or next(self.plan, True):  # None until the plan is over
            self.end()


# ---- what the blocks show: the answer, a row for each precision, how it was measured ----


def script_results(run: ScriptRun, script: str, seconds: float) -> dict[str, Any]:
    """Return the results of a session; `seconds`: the time budget."""
    ratios = {kind.name: run.ratio(kind) for kind in run.kinds[1:]}
    queue = f" ({run.in_flight} batches in flight)" if run.in_flight else ""
    skipped = sum(kind.skipped for kind in run.kinds)
    lines = [
        f"{script}: {run.model} on {run.device_name}, {run.steps} steps in {run.seconds:.0f} s, "
        f"{len(run.kinds[0].step_ms)} rounds.",
        f"End to end with the script's loader{queue}; a script has no preloaded batches.",
        *([f"FP16: {skipped} steps skipped by the GradScaler."] if "fp16" in ratios else []),
        *run.left_out,
    ]
    table = {"head": HEAD, "rows": [_row(run, kind) for kind in run.kinds], "lines": lines}
    speedups = {name: asdict(ratio) for name, ratio in ratios.items() if math.isfinite(ratio.high)}
    return {
        "verdict": "precision",
        "sentence": _answer(run, ratios, seconds),
        "precision-script": table | asdict(run) | {"speedups": speedups},
    }


def _answer(run: ScriptRun, ratios: dict[str, Interval], seconds: float) -> str:
    sound = {name: ratio for name, ratio in ratios.items() if not is_inconclusive(ratio)}
    if not sound:
        return _inconclusive(run, ratios, seconds)
    best = max(sound, key=lambda name: sound[name].value)
    ratio, name = sound[best], f"{PRECISION_NAMES[best]}{' (autocast)' if best in HALVES else ''}"
    subject, verb, base = name, "would make", run.own
    if run.casts:  # the gain of the autocast that it has, which is the inverse
        ratio = Interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.n)
        subject, verb, base = f"The script's own {run.own} autocast", "makes", name
    ends = f"95% CI {ratio.low:.2f} to {ratio.high:.2f}"
    if ratio.low <= 1 <= ratio.high:
        return f"{subject} is no faster than {base} beyond the noise: {ratio.value:.2f}x ({ends})."
    word = "" if ratio.low > 1 else "slower, "
    return f"{subject} {verb} this training {word}{ratio.value:.2f}x as fast as {base} ({ends})."


def _inconclusive(run: ScriptRun, ratios: dict[str, Interval], seconds: float) -> str:
    rounds = len(run.kinds[0].step_ms)
    if run.seconds < seconds:
        return f"Inconclusive: the script ended after {run.steps} steps. Let it train more epochs."
    more = max(map(windows_to_settle, ratios.values())) * run.seconds / rounds
    return (
        f"Inconclusive: {more:.0f} s more would settle it, so give --seconds {seconds + more:.0f}."
    )


def _row(run: ScriptRun, kind: Kind) -> tuple[str, ...]:
    own = run.kinds[0]
    if not kind.step_ms:
        return (PRECISION_NAMES.get(kind.name, run.own), "not measured", *[""] * (len(HEAD) - 2))
    before, after = ({n: ms - k.wait_ms[n] for n, ms in k.step_ms.items()} for k in (own, kind))
    step, alone = window_mean([*kind.step_ms.values()]), window_mean([*after.values()])
    gain = paired_ratio(before, after)
    times = f" {gain.value:.2f}x" if gain and kind is not own else ""
    ratio = run.ratio(kind)
    ends = f" ({ratio.low:.2f} to {ratio.high:.2f})" if math.isfinite(ratio.high) else ""
    return (
        f"{run.own} (own)" if kind is own else PRECISION_NAMES[kind.name],
        f"{format_number(step.value)} ms",
        f"{ratio.value:.2f}x{ends}" if times else "",
        f"{format_number(alone.value)} ms{times}" if run.samples else "not measured",
        f"{1e3 * run.samples / step.value:,.0f}" if run.samples else "",
        f"{kind.peak_bytes / 1e6:,.1f} MB" if kind.peak_bytes else "not measured",
    )
