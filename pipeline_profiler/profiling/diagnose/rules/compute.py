"""Rules for causes outside the steady loader: cold files, the step itself, the copy, the batch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

import numpy as np

from pipeline_profiler.profiling.diagnose.evidence import Evidence
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import (
    Floats,
    Interval,
    block_interval,
    ratio_of_sums,
)
from pipeline_profiler.profiling.diagnose.rules.rare import main_gc
from pipeline_profiler.profiling.diagnose.window import Steps, Window
from pipeline_profiler.profiling.record.arm import Arm

COLD_SHARE = 0.15
TIMES_LONGER = 1.5
SLOWEST_NS_PER_MB = 2e8  # 5 MB/s: a spinning disk or a network that reads small files
SLOWEST_FAULT_NS = 2e7  # a seek and a queue
TF_RAMP = 20  # steps
BETWEEN_SHARE = 0.05
SYNCED_SHARE = 0.01
_SYNCED = re.compile(r"\bf(data)?sync\(|\bos\.sync\(")
BLOCKED_STEP = 0.15
_SYNC = re.compile(
    r"\.item\(|\.cpu\(|\.tolist\(|\.numpy\(|synchroni[sz]|\.result\(|\.wait\(|block_until|"
    r"\b_?sync|barrier|read_metric|read_loss",
    re.IGNORECASE,
)
_SIDE_WORK = re.compile(
    r"(^|_)(log|metrics?|print|save|checkpoint|write|plot|summary|report|tqdm|progress|callback|"
    r"hook|visuali[sz]e|evaluate|validate)",
    re.IGNORECASE,
)
_SIDE_LINE = re.compile(
    r"\b(print|fsync|flush|write|add_scalars?|add_image|savefig|dump|log|log_metrics|debug|info)\("
    r"|\b(torch|np|numpy)\.save\w*\(|\b(to_csv|to_parquet|imsave|imwrite|copyfile|copy2)\(|\bwandb\."
)
_PREPARING = re.compile(
    r"(^|_)(augment|decod|tokeni[sz]|collat|resiz|crop|flip|rotat|jitter|mixup|cutmix|preprocess)",
    re.IGNORECASE,
)
_PREPARING_LINE = re.compile(
    r"\b(augment\w*|transforms?|tokenizer|tokenize|collate_fn|preprocess\w*|decode\w*)\("
    r"|\bcv2\.|\bImage(Ops|Enhance|Filter|Draw)?\.|\bnp\.(flip\w*|rot90|pad)\("
)
_FORWARD = re.compile(r"\.backward\(|\bforward\b|\w*(model|net)\w*\(", re.IGNORECASE)
SIDE_WORK = {
    "side": ("side work", "do it every N steps, or in a thread; log tensors without reading them"),
    "preparing": (
        "preparing data",
        "move it into the dataset, where the workers do it, or onto the device in batches",
    ),
}
_TRAINING = ("forward", "backward", "optim", "compute", "train", "model", "loss", "update")


def cold_first_pass(e: Evidence) -> Diagnosis | None:
    """The first pass waited longer than the warm ones: for the device, or for the loader itself."""
    first = e.windows.arm(Arm.PILOT)
    if not first or not e.cases:
        return None
    steps = _first_pass(first[0])
    wait = steps.wait.astype(float)
    if len(wait) < 6:
        return None
    # start-up is taken off: it is the same for cold and warm files
    windows = [case.window for case in e.cases]
    warm = float(np.mean([w.input_wait_ns - (w.period_ns - w.steady_ns) for w in windows]))
    megabytes, faults = device_reads(first[0])
    # the slowest device would have taken so long for them; longer waits have another cause
    reading = megabytes * SLOWEST_NS_PER_MB + faults * SLOWEST_FAULT_NS

    def share_of(longer: Floats) -> Interval:
        share = block_interval(np.stack([longer, steps.period], axis=1), 5, ratio_of_sums)
        # one pass against others: two runs differ by this much without any cause
        return share.widened(e.run_to_run_error * (1 - share.value))

    share = share_of(np.minimum(wait - warm, reading))
    times = f"the first pass waited {wait.mean() / 1e6:.1f} ms a step"
    seen: dict[str, float | int | str] = {"first_ms": float(wait.mean()) / 1e6}
    seen |= {"warm_ms": warm / 1e6, "device_mb": megabytes}
    # both bounds: of the step, and against the warm wait, or slow loaders would count as cold
    if share.low >= COLD_SHARE and float(wait.mean()) >= TIMES_LONGER * warm:
        return Diagnosis(
            "PIPE016",
            f"{times}, later ones {warm / 1e6:.1f} ms: files were cold ({megabytes:.1f} MB and "
            f"{faults:.0f} page faults a step from the device)",
            share,
            seen,
            "read ahead, pack small files, or copy the data to local disk",
            about="step",
        )
    totals = first[0].run.totals
    if "device_bytes" not in totals:
        return None  # it may have been the device
    again = _same_steps_later(e, steps)
    # what other programs took of the cores may have held it up by as much, and by no more
    others = (totals.get("others_ns", 0) + totals.get("steal_ns", 0)) / len(first[0].whole)
    share, least = share_of(wait - again), share_of(wait - again - reading - others)
    share = replace(share, low=least.low)
    # each half of it: what the loader does once, at its begin, costs a training nothing
    halves = [half.mean() - others for half in np.array_split(wait, 2)]
    least_half = max(TIMES_LONGER * again, float(wait.mean()) / 4)
    if share.low < COLD_SHARE or min(halves) < least_half:
        return None
    place = e.labels.first_place
    kept = ", or a file system of the network kept the files"
    kept = kept if e.session.environment.get("network_file_systems") else ""
    at = f" (most of it at {place})" if place else ""
    return Diagnosis(
        "PIPE031",
        f"{times}, the same steps later {again / 1e6:.1f} ms, and the device was not what it "
        f"waited for ({megabytes:.1f} MB a step): the loader keeps or prepares something at first "
        f"use{at}{kept}",
        share,
        seen | {"warm_ms": again / 1e6, "at": place},
        "prepare it once and store it where there are few epochs; later epochs do not pay for it",
        about="step",
    )


def _same_steps_later(e: Evidence, first: Steps) -> float:
    """Return the mean wait (ns) of the same steps in later passes, warm-up included."""
    if any(case.window.run.config.get("one_shot") for case in e.cases):
        return math.inf
    rows = [case.window.whole.steps for case in e.cases]
    waits = [steps.wait[np.isin(steps.batch, first.batch) & ~steps.first] for steps in rows]
    joined = np.concatenate(waits)
    return float(joined.mean()) if len(joined) else math.inf


def device_reads(pilot: Window) -> tuple[float, float]:
    """Return megabytes from the block device and major page faults, a step of the first pass."""
    known, steps = pilot.batches.read_bytes, max(1, len(pilot.whole))
    metered = max(0, pilot.run.totals.get("device_bytes", 0)) / steps
    traced = float(known.mean()) if len(known) and known.min() >= 0 else metered
    return traced / 1e6, max(0, pilot.run.totals.get("major_faults", 0)) / steps


def _first_pass(pilot: Window) -> Steps:
    # tf.data's AUTOTUNE starts slowly as well, and again in each iterator
    config = pilot.run.config
    ramp = TF_RAMP if config.get("kind") == "tf" else 2
    # the first two batches of each worker hold imports and first touches
    skip = max(ramp, 2 * int(config.get("workers") or 0))
    window = Window(pilot.run, skip).steps
    later = np.flatnonzero(window.first)
    end = int(later[0]) if len(later) else len(window.batch)
    return Steps(**{field.name: getattr(window, field.name)[:end] for field in fields(Steps)})


def work_between_steps(e: Evidence) -> Diagnosis | None:
    """Main-thread work outside the marked step, or marked side work inside it."""
    if e.observed:  # a loop of the user's own, where they marked the step
        rest = e.share(lambda case: float(np.maximum(case.steps.loop - case.steps.step, 0).mean()))
        if rest.value >= BETWEEN_SHARE:
            return _between(rest, "outside `with rec.step()`", {})
    named = _named_side_work(e)
    if named is not None:
        return named
    kinds = {of: _step_place(e, of) for of in ("side", "preparing")}
    of = max(kinds, key=lambda kind: kinds[kind][1])
    place, part = kinds[of]
    loop = e.share(lambda case: float(case.costs.loop.mean())).scaled(part)
    share = loop.widened(e.labels.step_error(part) * loop.value / part) if part else loop
    # a write that waits for the disk is never meant to be in a step: named from less
    if part < BETWEEN_SHARE and not (_SYNCED.search(place) and share.low >= SYNCED_SHARE):
        return None
    return _between(share, place, {"at": place}, of)


def _between(share: Interval, where: str, seen: dict[str, str], of: str = "side") -> Diagnosis:
    what, fix = SIDE_WORK[of]
    return Diagnosis(
        "PIPE014",
        f"the training process spends {share.value:.1%} of the step on {what}: {where}",
        share,
        seen | {"where": where},
        fix,
        about="step",
    )


def _named_side_work(e: Evidence) -> Diagnosis | None:
    """`with stage("log")` inside the step: any name that is not training itself."""
    stages = {s for case in e.cases for s in case.window.run.spans.stages if s.startswith("step:")}
    sums = {
        name: e.share(lambda case, name=name: case.window.main_stage_ns(name))  # type: ignore[misc]
        for name in stages
        if not any(word in name.lower() for word in _TRAINING)
    }
    name = max(sums, key=lambda n: sums[n].value, default="")
    if not name or sums[name].value < BETWEEN_SHARE:
        return None
    return _between(sums[name], f'stage "{name.removeprefix("step:")}"', {"stage": name})


def _step_place(e: Evidence, of: str) -> tuple[str, float]:
    """The step's most sampled place of a kind (see `_kind`), and that kind's share of it."""
    places = e.labels.step_places()
    begins = _forward_lines(places)
    hits = {place: share for place, share in places.items() if kind_in_step(place, begins) == of}
    return max(hits, key=lambda place: hits[place], default=""), sum(hits.values())


def _forward_lines(places: Iterable[str]) -> dict[str, int]:
    """Return the first line of each outermost function that runs or differentiates the model."""
    begins: dict[str, int] = {}
    for place in places:
        if _FORWARD.search(place):
            function, line = _outermost(place)
            begins[function] = min(line, begins.get(function, line))
    return begins


def _outermost(place: str) -> tuple[str, int]:
    """Return function and line of the outermost frame of a place; line 0 where it has none."""
    innermost, *callers = place.split(" < ")
    at, _, function = innermost.partition(": ")[0].partition(" ")
    name, _, line = (
        callers[-1].rpartition(":") if callers else (function, "", at.rpartition(":")[2])
    )
    return name, int(line) if line.isdigit() else 0


def kind_in_step(place: str, begins: Mapping[str, int]) -> str:
    """Return the kind of a place; after the forward pass of its function nothing is prepared."""
    kind = _kind(place)
    function, line = _outermost(place)
    after = line > begins.get(function, line)
    return "side" if kind == "preparing" and after else kind


def _kind(place: str) -> str:
    """What a place does by its line and names, innermost first: sync, side, preparing or ''."""
    innermost, *callers = place.split(" < ")
    head, _, line = innermost.partition(": ")
    if _SYNC.search(line):
        return "sync"
    if _SIDE_LINE.search(line):
        return "side"
    names = [head.rpartition(" ")[2], *(caller.partition(":")[0] for caller in callers)]
    functions = [_function(name) for name in names]
    # what a model does to its input is training, whatever its functions are called
    in_model = "forward" in functions
    if _PREPARING_LINE.search(line) and not in_model:
        return "preparing"
    # innermost first: what a function is doing counts, not who called it
    for depth, function in enumerate(functions):
        if _SYNC.search(function):
            return "sync"
        if _SIDE_WORK.search(function):
            return "side"
        # the outermost is the step itself, which does more than its name tells
        if _PREPARING.search(function) and depth < len(names) - 1 and not in_model:
            return "preparing"
        if any(word in function.lower() for word in _TRAINING):
            return ""
    return ""


def _function(qualified: str) -> str:
    """The last name; of a callable object that of its class."""
    rest, _, last = qualified.rpartition(".")
    return rest.rpartition(".")[2] if last == "__call__" and rest else last


def collector_in_step(e: Evidence) -> Diagnosis | None:
    """Garbage collection between next() calls."""
    share = e.share(lambda case: main_gc(case, "loop"))
    if share.value < BETWEEN_SHARE:
        return None
    return Diagnosis(
        "PIPE013",
        f"garbage collection outside next() takes {share.value:.1%} of the step",
        share,
        {"where": "the trainer's step"},
        "gc.freeze() after set-up, or gc.disable() in the loop and collect between epochs",
        about="step",
    )


def blocked_step(e: Evidence) -> Diagnosis | None:
    """The step blocks the main thread (a metric read, a barrier): prefetch cannot run ahead."""
    # an emulated step sleeps: all of it would look like waiting for a device
    if e.session.plan.emulate_ms is not None:
        return None
    place, part = _step_place(e, "sync")
    lines = e.session.probes.synchronising_lines
    if lines and not place:
        place = ", ".join(f"{row['at']} ({row['per_step']:.0f} a step)" for row in lines[:3])
    # the device works while the host waits: overlapped, the longer of the two would remain
    blocked = e.share(lambda case: min(held := part * case.costs.loop.mean(), case.period - held))
    if blocked.value < BLOCKED_STEP:
        return None
    return Diagnosis(
        "PIPE015",
        f"the step blocks the training process at {place.partition(' < ')[0]}",
        blocked,
        {"at": place, "share_of_step": part},
        "read metrics every N steps, or accumulate them on the device",
        about="step",
    )


def blocked_step_serial(e: Evidence) -> Diagnosis | None:
    """With the loader in the trainer, a blocking step is what keeps loading from overlapping."""
    return blocked_step(e) if e.workers == 0 and e.config.get("kind") != "tf" else None


def copy_to_device(e: Evidence) -> Diagnosis | None:
    """Host batches against resident ones."""
    copy = e.parts.get("copy")
    if copy is None or copy.low < 0.05:
        return None
    pinned = e.config.get("pin_memory")
    less = "send uint8 and convert there"
    advice = f"pin_memory=True with .to(device, non_blocking=True), or {less}"
    return Diagnosis(
        "PIPE021",
        f"copying batches to the device takes {copy.value:.1%} of the step",
        copy,
        {"pin_memory": str(pinned)},
        f"{less}, or copy the next batch in a stream of its own" if pinned else advice,
    )


def unused_fields(e: Evidence) -> Diagnosis | None:
    """Fields of the batch that no step touched, by the pilot's probe."""
    fields = e.session.probes.unused_fields or {}
    if not fields:
        return None
    unused, total = sum(fields.values()), int(e.session.probes.batch_bytes or 1)
    # in proportion to bytes: of the hand-over the bytes are what grows with them
    value = float(np.mean([c.costs.overhead / c.period for c in e.cases])) * unused / max(total, 1)
    names = ", ".join(f"{name} ({size / 1e6:.2f} MB)" for name, size in fields.items())
    return Diagnosis(
        "PIPE022",
        f"the step never touches {names}: {unused / max(total, 1):.0%} of each batch's bytes",
        Interval(value, 0.0, 2 * value, 1),  # by bytes: their loading is not known apart
        {"bytes": unused, "batch_bytes": total, "fields": names},
        "drop them in the dataset, before collate; their loading and copying goes too",
        about="step",
    )


def compute_bound(e: Evidence) -> Diagnosis | None:
    """What is left: the step itself, where all of the stall's interval is below the threshold."""
    share = e.share(lambda case: case.step_ns)
    beyond = e.above_null
    if e.stall.high >= NOT_BOUND and (beyond is None or beyond.high >= NOT_BOUND):
        return None
    if share.value < 0.5 or e.dear_start:
        return None
    of_all = "" if e.stall.high < NOT_BOUND else "beyond the hand-over that an empty loader costs, "
    places = e.labels.step_places()
    place = max(places, key=lambda name: places[name], default="").partition(" < ")[0]
    where = f", {max(places.values()):.0%} of it at {place}" if place else ""
    return Diagnosis(
        "PIPE000",
        f"the step itself is {share.value:.1%} of the time{where}; {of_all}the loader keeps up",
        share,
        {"step_ms": float(np.mean([case.step_ns for case in e.cases])) / 1e6},
        "a faster loader buys nothing here: profile the step",
        about="step",
    )
