"""The schedule: a first pass to learn the pace, a plan with its reasons, then blocks of arms.

Arms of one block run in random order right after each other; every automatic choice (which arms,
how many steps and repeats, which probes) is kept in the plan as a sentence. What ends a
measurement early leaves a partial session that can be read like any other.
"""

from __future__ import annotations

import random
import time
import traceback
from typing import Any

from pipeline_profiler import cold_cache, environment, metrics, probes
from pipeline_profiler.adapters import module_for
from pipeline_profiler.arms import Bench, Options, buffered, drive, null_run, run_arm
from pipeline_profiler.session import ProfileError, Recorder, Run, Session

WARMUP_STEPS = 20
BUFFERS_IN_WINDOW = 10
PILOT_SECONDS, QUICK_PILOT_SECONDS = 6.0, 2.5


class StoppedError(ProfileError):
    """The measurement ended early; `session` holds what it has."""

    def __init__(self, text: str, session: Session, interrupted: bool = False) -> None:
        """Keep the session beside the sentence."""
        super().__init__(text)
        self.session, self.interrupted = session, interrupted


def pilot(bench: Bench, options: Options, session: Session) -> tuple[Run, list[Any]]:
    """First pass over the loader: how long steps take, which batches to keep; arm "P"."""
    recorder = Recorder(bench.clock, arm="P")
    seconds = QUICK_PILOT_SECONDS if options.quick else PILOT_SECONDS
    session.runs.append(recorder.run)
    steps = 60 if options.quick else 120
    kept = drive(bench, bench.loader(), recorder, steps, seconds)
    recorder.run.warmup = min(buffered(recorder.run), recorder.steps // 2)
    if not kept:
        raise ProfileError(
            "The loader gave no batch: check that its dataset is not empty and that drop_last "
            "does not drop the only batch."
        )
    return recorder.run, kept


def make_plan(first: Run, options: Options, loader: Any) -> dict[str, Any]:
    """Arms, steps and repeats with the reason for each, and the seconds they will take."""
    period = metrics.period_ns(first) / 1e9
    reasons = ["D (batches in hand) and W (the real loader) give the stall."]
    arms = ["D", "W"]
    if environment.has_cuda():
        arms.insert(1, "H")
        reasons.append("H (host batches) tells the copy to the device apart.")
    else:
        reasons.append("H is n/a: no GPU, so nothing is copied to one.")
    arms, reasons = _shadow_arm(arms, reasons, first)
    files = list(options.files) or module_for(loader).files(loader)
    arms, reasons = _cold_arm(arms, reasons, options, files)
    alone = float(metrics.steps(first).loop.mean()) / 1e9
    # B runs in every other block, and Z may join the others
    loading = 0.5 + sum(arm in "WC" for arm in arms) + (first.config.get("kind") == "torch")
    cycle = period * loading + alone * sum(arm in "DHX" for arm in arms)
    fixed = _fixed_seconds(first, options)
    steps, repeats, warmup, why = _fit(first, options, cycle, max(options.budget - fixed, 2.0))
    seconds = cycle * (steps + warmup) * repeats + fixed
    return {
        "arms": arms,
        "repeats": repeats,
        "steps": steps,
        "warmup": warmup,
        "seconds": round(seconds, 1),
        "reasons": [*reasons, *why],
        "files": files,
        "seed": options.seed,
        "emulate_ms": options.emulate_ms,
    }


def _fixed_seconds(first: Run, options: Options) -> float:
    """Stack samples, empty loader, and the start of the workers in each repeat of an arm."""
    start = max(metrics.time_to_first_batch_ns(first), default=0) / 1e9
    probing = 5.5 if options.quick else 10.0
    if first.config.get("kind") == "tf":
        probing += options.budget / 4
    return min(probing + start * 3 * options.repeats, 0.6 * options.budget)


def _shadow_arm(arms: list[str], reasons: list[str], first: Run) -> tuple[list[str], list[str]]:
    config = first.config
    if config.get("kind") == "torch" and config.get("workers"):
        return [*arms, "X"], [*reasons, "X (loader beside the step) tells contention apart."]
    if config.get("kind") == "tf":
        return [*arms, "X"], [*reasons, "X (loader beside the step) tells contention apart."]
    why = "X is left out: this loader runs inside the training thread, so contention and "
    return arms, [*reasons, why + "preparation are one number."]


def _cold_arm(
    arms: list[str], reasons: list[str], options: Options, files: list[str]
) -> tuple[list[str], list[str]]:
    if not options.cold:
        return arms, reasons
    refusal = cold_cache.refuse(files)
    if refusal:
        return arms, [*reasons, f"C is left out: {refusal}"]
    return [*arms, "C"], [*reasons, f"C (cold files): {len(files)} files leave the page cache."]


def _fit(
    first: Run, options: Options, cycle_s: float, budget: float
) -> tuple[int, int, int, list[str]]:
    """(steps, repeats, warm-up, reasons) that fit the budget; `cycle_s`: one step of every arm."""
    held = buffered(first)
    warmup = max(WARMUP_STEPS, 2 * held)
    repeats = min(options.repeats, 4) if options.quick else options.repeats
    wanted = min(options.steps, 100) if options.quick else options.steps
    floor = max(2 * WARMUP_STEPS, BUFFERS_IN_WINDOW * held)
    reasons = []
    if cycle_s * repeats * warmup > budget / 4:
        warmup = max(3, 2 * held)
        reasons.append(f"Warm-up is {warmup} steps, not {WARMUP_STEPS}: steps are slow.")
    affordable = int(budget / (cycle_s * repeats)) - warmup
    if affordable < floor and repeats > 4:
        repeats = 4
        affordable = int(budget / (cycle_s * repeats)) - warmup
        reasons.append(
            f"4 repeats instead of {options.repeats}: more would not fit {budget:.0f} s."
        )
    steps = max(min(wanted, affordable), min(floor, wanted), 10)
    if steps < wanted:
        reasons.append(
            f"{steps} steps instead of {wanted}: all arms shall end within {budget:.0f} s."
        )
    if steps < BUFFERS_IN_WINDOW * held:
        reasons.append(
            f"The window ({steps} steps) is shorter than {BUFFERS_IN_WINDOW} x the {held} batches "
            "in flight: part of it measures the buffer; give more --steps."
        )
    return steps, repeats, warmup, reasons


def measure(bench: Bench, options: Options) -> Session:
    """Run all arms; raises StoppedError with the partial session when something ends it early."""
    session = Session(created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    try:
        _measure(bench, options, session)
    except KeyboardInterrupt:
        session.partial = True
        session.notes.append("Interrupted: this session is partial.")
        raise StoppedError("Interrupted.", session, interrupted=True) from None
    except ProfileError:
        raise
    except Exception as error:
        session.partial = True
        text = f"{type(error).__name__} while measuring: {_last_line(error)}"
        session.notes.append(text)
        session.notes.append("".join(traceback.format_exception(error))[-6000:])
        raise StoppedError(text, session) from error
    return session


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def _measure(bench: Bench, options: Options, session: Session) -> None:
    loader = bench.loader()
    first, kept = pilot(bench, options, session)
    if first.config.get("one_shot") and hasattr(bench.loader(), "__next__"):
        bench._loader = None
    plan = session.plan = make_plan(first, options, loader)
    _refuse_short(first, plan)
    session.environment = environment.describe()
    bench.progress(announcement(plan))
    session.runs.append(probes.sample_stacks(bench, options))
    plan |= probes.probe_fields(bench, kept, options)
    if first.config.get("kind") == "tf":
        probes.try_interventions(bench, options, session)
    rng = random.Random(options.seed)
    session.runs.append(null_run(bench, kept))
    for block in range(plan["repeats"]):
        order = list(plan["arms"]) + (["B"] if block % 2 == 0 and _repeatable(first) else [])
        rng.shuffle(order)
        for arm in order:
            bench.progress(f"block {block + 1} of {plan['repeats']}: arm {arm}")
            session.runs.append(run_arm(bench, arm, block, plan, kept))
        if block == 0 and plan["repeats"] > 2:
            probes.try_a_change(bench, session, plan)
    session.runs.append(null_run(bench, kept))
    plan["repeatable"] = probes.repeatable(bench)
    plan |= probes.on_device(bench, kept, plan["steps"])
    plan["slow_samples"] = probes.slow_samples(bench, session)
    session.environment["load_after"] = environment.describe()["load"]


def _repeatable(first: Run) -> bool:
    return not first.config.get("one_shot")


def _refuse_short(first: Run, plan: dict[str, Any]) -> None:
    taken = len(metrics.steps(first, 0).batch)
    if first.config.get("one_shot") and taken < plan["warmup"]:
        raise ProfileError(
            f"The loader was exhausted after {taken} batches, before the warm-up of "
            f"{plan['warmup']} was over: give a loader that can be iterated again (a list, a "
            "DataLoader, an object with __iter__), or one with more batches."
        )


def announcement(plan: dict[str, Any]) -> str:
    """What will run, for how long, and why."""
    head = (
        f"about {plan['seconds']:.0f} s: {plan['repeats']} repeats of arms "
        f"{' '.join(plan['arms'])}, {plan['steps']} steps each after {plan['warmup']} of warm-up"
    )
    return "\n".join([head, *(f"  {reason}" for reason in plan["reasons"])])
