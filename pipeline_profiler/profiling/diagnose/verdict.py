"""Evidence -> verdict and causes, the first of them the one to fix.

The interval of the stall decides the verdict (bands of 5% and 20%, as the TensorFlow profiler).
Causes overlap: first comes the most specific one that ends most of the stall by itself.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose.contention import (
    Contention,
    measure_contention,
    other_programs,
)
from pipeline_profiler.profiling.diagnose.disturbance import DISTURBED
from pipeline_profiler.profiling.diagnose.evidence import (
    Evidence,
    gather,
    mean_or_nan,
    measured_share,
    trials_of,
)
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import FIRST_LOOK, Interval, repeats_to_settle
from pipeline_profiler.profiling.diagnose.joint import Together, replay_together
from pipeline_profiler.profiling.diagnose.loading import Loading, describe_loading
from pipeline_profiler.profiling.diagnose.rules import compute, loader, rare, stages
from pipeline_profiler.profiling.diagnose.throughput import measure_throughput
from pipeline_profiler.profiling.record.arm import REPORTED
from pipeline_profiler.profiling.record.session import ProfileError, Session

Rule = Callable[[Evidence], Diagnosis | None]
_PACKAGE = Path(__file__).parents[2]  # as frames say it: links stay


@dataclass(frozen=True, slots=True)
class FailedRule:
    """A rule that raised: its name, the error, and where."""

    rule: str
    error: str  # the type
    text: str
    at: str  # file:line, the file as a path below the package
    trace: str  # the traceback, for --trace; not saved, as it holds the machine's paths

    def as_dict(self) -> dict[str, str]:
        """One entry of `failed_rules` in a session file."""
        return {"rule": self.rule, "error": self.error, "text": self.text, "at": self.at}


def run_rules(
    rules: Sequence[Rule], evidence: Evidence, failed: list[FailedRule]
) -> list[tuple[int, Diagnosis]]:
    """Return causes by the position of their rule; a rule that raises joins `failed`."""
    causes = []
    for position, rule in enumerate(rules):
        try:
            if (cause := rule(evidence)) is not None:
                causes.append((position, cause))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other rules still count
            failed.append(_failed(rule, error))
    return causes


def _failed(rule: Rule, error: Exception) -> FailedRule:
    frames = traceback.extract_tb(error.__traceback__)
    # the innermost frame of this package: below it lies numpy, above it this file
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    frame = own[-1] if len(own) > 1 else frames[-1]
    path = Path(frame.filename)
    file = path.relative_to(_PACKAGE).as_posix() if path.is_relative_to(_PACKAGE) else path.name
    return FailedRule(
        rule=rule.__name__,
        error=type(error).__name__,
        text=str(error),
        at=f"{file}:{frame.lineno}",
        trace="".join(traceback.format_exception(error)),
    )


HIGH, MODERATE = 0.20, NOT_BOUND
ENOUGH = 0.60  # share of the stall whose removal makes a cause sufficient by itself
WORTH_NAMING = 0.03
MIN_START = 0.005  # of the step, from which epoch starts are reported
TO_DECIDE = "to decide"  # name of the condition that an inconclusive verdict has
QUICK_SECONDS, MAX_SECONDS = 30.0, 300.0  # of a quick measurement, and of one that is advised


class Verdict(StrEnum):
    """Whether the loader keeps the step waiting; the values are the file's."""

    HIGH = "input-bound high"
    MODERATE = "input-bound moderate"
    NOT_BOUND = "not input-bound"
    INCONCLUSIVE = "inconclusive"

    @property
    def bound(self) -> bool:
        """Whether the loader is what the step waits for."""
        return self in (Verdict.HIGH, Verdict.MODERATE)


# from the most to the least specific; order decides between sufficient causes only
INPUT_RULES: tuple[Rule, ...] = (
    loader.intervention,
    rare.worker_startup,
    rare.collector_pauses,
    rare.slow_sampler,
    compute.blocked_step_serial,
    rare.idle_worker,
    rare.slow_worker,
    rare.straggler_samples,
    rare.periodic_stall,
    loader.oversubscribed,
    loader.heavy_transfer,
    rare.isolated_stall,
    loader.shallow_prefetch,
    loader.too_few_workers_at_par,
    stages.dominant_stage,
    loader.too_few_workers,
    stages.largest_stage,
)
COMPUTE_RULES: tuple[Rule, ...] = (
    compute.cold_first_pass,
    compute.work_between_steps,
    compute.collector_in_step,
    compute.blocked_step,
    compute.copy_to_device,
    compute.unused_fields,
    compute.compute_bound,
)


@dataclass(frozen=True)
class Conclusion:
    """Verdict, stall and ordered causes of a session."""

    verdict: Verdict
    sentence: str
    stall: Interval
    causes: tuple[Diagnosis, ...]
    more_repeats: int
    evidence: Evidence
    contention: Contention
    loading: Loading | None = None
    together: Together | None = None
    failed_rules: tuple[FailedRule, ...] = ()

    def as_results(self) -> dict[str, Any]:
        """The contract's keys for the session file and `run --json`."""
        with_floor = self.evidence.with_floor
        rates = measure_throughput(self.evidence.session, self.evidence.windows)
        return {
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "epoch_sentence": _epoch_sentence(self.evidence),
            "conditions": _conditions(self.evidence, self.verdict, self.more_repeats),
            "stall": self.stall.as_dict(),
            "more_repeats": self.more_repeats,
            "causes": [cause.as_dict() for cause in self.causes],
            "failed_rules": [rule.as_dict() for rule in self.failed_rules],
            # mean period (ms) and repeats of each arm; n/a arms are None, not 0
            "arms": {
                arm: {"period_ms": sum(ns) / len(ns) / 1e6, "repeats": len(ns)} if ns else None
                for arm, ns in ((arm, self.evidence.periods.get(arm)) for arm in REPORTED)
            },
            "recording_share": self.evidence.recording.share,
            "null_ms": self.evidence.floor_ns / 1e6 or None,
            "stall_with_null": with_floor.as_dict() if with_floor else None,
            "machine": asdict(self.evidence.machine),
            "throughput": rates and rates.as_dict(),
            "parts": {k: v.as_dict() for k, v in self.evidence.parts.items()},
            "contention": self.contention.share and self.contention.share.as_dict(),
            "contention_sentence": self.contention.sentence,
            "loading": self.loading and asdict(self.loading),
            "together": self.together and self.together.as_dict(),
        }


def verdict_of(stall: Interval) -> tuple[Verdict, int]:
    """(verdict, more repeats needed) by the bands, read off the interval."""
    # the end of the interval, not its middle: noise alone shall never make a verdict
    if stall.low >= HIGH:
        return Verdict.HIGH, 0
    if stall.low >= MODERATE:
        return Verdict.MODERATE, 0
    if stall.high < MODERATE:
        return Verdict.NOT_BOUND, 0
    return Verdict.INCONCLUSIVE, repeats_to_settle(stall, abs(stall.value - MODERATE))


def diagnose_session(session: Session) -> Conclusion:
    """Judge a session; pure, so thresholds may change and old sessions be judged again."""
    evidence = gather(session)
    if not evidence.cases:
        raise ProfileError(
            "The session holds fewer than 5 timed steps: record more, such as "
            "--set measure.steps=100."
        )
    verdict, more = _decide(evidence)
    # a stall that is large by its value is explained too, even where its interval is wide
    stalled = verdict.bound or evidence.stall.value >= MODERATE or evidence.dear_start
    failed: list[FailedRule] = []
    # what comes after the windows costs as much where they do not wait
    inside = run_rules(INPUT_RULES if stalled else (rare.idle_worker,), evidence, failed)
    later = any(c.code == "PIPE032" and c.share.low >= MODERATE for _, c in inside)
    if later and not verdict.bound:
        verdict, more = Verdict.INCONCLUSIVE, 0
    beside = run_rules(COMPUTE_RULES, evidence, failed)
    contention = measure_contention(evidence)
    if stalled and (cause := other_programs(evidence, contention.share)) is not None:
        inside.insert(0, (-1, cause))  # more specific than every rule
    if verdict.bound:
        inside = [(index, _within_stall(cause, evidence.stall)) for index, cause in inside]
    rows = [(index, describe_trial(cause, evidence)) for index, cause in inside]
    causes = [*ranked(rows, evidence.stall), *(cause for _, cause in beside)]
    ordered = tuple(_first_of_each(order(causes, verdict, evidence.stall)))
    return Conclusion(
        verdict=verdict,
        sentence=_sentence(verdict, evidence),
        stall=evidence.stall,
        causes=ordered,
        more_repeats=more,
        evidence=evidence,
        contention=contention,
        loading=describe_loading(evidence),
        together=replay_together(evidence, ordered),
        failed_rules=tuple(failed),
    )


def _within_stall(cause: Diagnosis, stall: Interval) -> Diagnosis:
    """Return the cause with a share of at most the stall: loading costs no more than that."""
    share, most = cause.share, max(stall.value, 0.0)
    limited = replace(share, value=min(share.value, most), low=min(share.low, most))
    return replace(cause, share=limited)


def deciding_side(session: Session) -> str:
    """Where the interval of three undisturbed blocks or more lies if it decides; else ''."""
    evidence = gather(session)
    (verdict, _), stall = _decide(evidence), evidence.stall
    if stall.n < FIRST_LOOK or verdict == Verdict.INCONCLUSIVE:
        return ""
    if verdict == Verdict.NOT_BOUND:
        above_null = " without an empty loader's cost" if stall.high >= MODERATE else ""
        return f"below {MODERATE:.0%}{above_null}"
    if verdict == Verdict.MODERATE:
        return f"between {MODERATE:.0%} and {HIGH:.0%}" if stall.high < HIGH else ""
    return f"above {HIGH:.0%}"


def _decide(evidence: Evidence) -> tuple[Verdict, int]:
    """Return (verdict, more repeats needed) by the stall and the cost of an empty loader."""
    verdict, more = verdict_of(evidence.stall)
    beyond = evidence.above_null
    # around 5 % the hand-over of an empty loader decides: what every loader costs is nothing that
    # the user could fix, so what is beyond it is judged instead
    unsure = verdict in (Verdict.INCONCLUSIVE, Verdict.MODERATE)
    if unsure and beyond is not None and beyond.high < MODERATE:
        verdict, more = Verdict.NOT_BOUND, 0
    if verdict == Verdict.NOT_BOUND and evidence.dear_start:
        verdict = Verdict.INCONCLUSIVE  # no repeat would show how often that start comes
    return verdict, more


def describe_trial(cause: Diagnosis, e: Evidence) -> Diagnosis:
    """Return the cause with the result of its trial, or with the seconds that a trial takes."""
    if not cause.change:
        # a line of code, or what was changed and timed, needs no such word
        known = cause.evidence.get("at") or "baseline_ms" in cause.evidence
        return cause if known else replace(cause, next=f"{cause.next} (not tried)")
    setting = next(iter(cause.change))
    if raised := (e.session.probes.failed or {}).get(setting):
        # the cause stands, the advice does not
        fix = f"no other setting: {cause.next} was tried, and {raised}"
        return replace(cause, next=fix, change=None, tried=True)
    runs, share = trials_of(e, setting), measured_share(e, setting)
    if share is None:
        seconds = seconds_of_trial(e)
        more = f": {math.ceil(seconds)} more seconds" if seconds else ""
        return replace(cause, next=f"{cause.next} (predicted, not tried{more})")
    tried = float(np.mean([window.epoch_period_ns for window in runs])) / 1e6
    promised = e.session.probes.promised or {}
    guess = f", predicted {promised[setting]:.2f}" if setting in promised else ""
    said = f"{cause.cause}; tried: {e.period / 1e6:.2f} ms a step became {tried:.2f}{guess}"
    return replace(cause, cause=said, tried=True)


def seconds_of_trial(e: Evidence) -> float:
    """What one run with a changed setting takes; 0 where no plan says how long a run is."""
    plan = e.session.plan
    starts = [ns for case in e.cases for ns in case.window.first_batch_ns[:1]]
    return (
        mean_or_nan(starts or [0]) / 1e9 + (plan.warmup + plan.steps) * e.period / 1e9
        if plan.steps
        else 0.0
    )


def ranked(rows: Sequence[tuple[int, Diagnosis]], stall: Interval) -> list[Diagnosis]:
    """Return sure, sufficient causes by specificity, other sure ones by low end, then the rest.

    An untried number of workers follows a stage that is most of the loading.
    """
    known = INPUT_RULES.index(stages.dominant_stage)

    def place(row: tuple[int, Diagnosis]) -> tuple[int, float]:
        index, cause = row
        # an interval that holds nothing is no ground to fix anything, however high its point
        if cause.share.low <= 0:
            return 2, -cause.share.low
        # measured against at least 5 %: of a tiny stall anything would be enough
        if cause.share.value >= ENOUGH * max(stall.value, MODERATE):
            predicted = cause.code == "PIPE006" and cause.change and not cause.tried
            return 0, max(index, known + 0.5) if predicted else index
        return 1, -cause.share.low

    worth = [row for row in rows if row[1].share.value >= WORTH_NAMING]
    return [cause for _, cause in sorted(worth, key=place)]


def order(causes: list[Diagnosis], verdict: Verdict, stall: Interval) -> list[Diagnosis]:
    """Causes outside the loader come first when they are larger than the whole stall."""
    bound = verdict.bound

    def place(cause: Diagnosis) -> int:
        # "compute-bound" says that nothing was found, so it comes after whatever was
        if cause.code == "PIPE000":
            return 2
        # nothing that may be nothing stands before it where no stall is sure
        if not bound and cause.share.low <= 0 and cause.code != "PIPE022":
            return 3
        if cause.about == "input" or (bound and cause.code == "PIPE015"):
            return 1
        # by its low end, against the high end of the stall: a swap needs to be sure
        outweighs = cause.share.low > max(0.0, stall.high if bound else MODERATE)
        return 0 if outweighs else 1 if not bound else 2

    return sorted(causes, key=place)  # stable: rules keep their order inside a class


def _first_of_each(causes: Sequence[Diagnosis]) -> list[Diagnosis]:
    first: dict[str, Diagnosis] = {}
    for cause in causes:
        # no cause is worth more than all of the step
        share = replace(cause.share, high=min(cause.share.high, 1.0))
        first.setdefault(cause.code, replace(cause, share=share))
    return list(first.values())


def _sentence(verdict: Verdict, e: Evidence) -> str:
    """Return the verdict in at most 20 words."""
    s = e.stall
    head = f"{verdict}: {'input wait' if e.observed else 'data stall'} {s.value:.1%} of the step"
    if not math.isfinite(s.half_width):
        return f"{head}, interval unknown (one repeat)."
    low, high = 100 * s.low, 100 * min(s.high, 1.0)
    now = " on this machine now" if e.machine.others >= DISTURBED else ""
    return f"{head} (95% CI {low:.1f} to {high:.1f}){now}."


def _epoch_sentence(e: Evidence) -> str:
    """Return what epoch starts cost, or could cost where the length of an epoch is unknown."""
    starts = [case.window.epoch_start_ns for case in e.cases]
    start, spread = mean_or_nan(starts), mean_or_nan([case.costs.startup for case in e.cases])
    if e.observed or not start > 0:
        return ""
    steps = max(case.window.epoch_steps for case in e.cases)
    if steps and spread >= MIN_START * e.period:
        return (
            f"Epoch starts take {spread / e.period:.1%} of the step ({start / 1e6:.0f} ms before "
            f"each {steps} steps)."
        )
    if not e.dear_start:
        return ""
    # below this length the start alone would make it input-bound
    enough = start * (1 - MODERATE) / (MODERATE * e.period)
    return (
        f"The length of an epoch is unknown: each start costs {start / 1e6:.0f} ms, {MODERATE:.0%} "
        f"of an epoch of {enough:.0f} steps (`--set measure.epoch_steps=N`)."
    )


def _conditions(e: Evidence, verdict: Verdict, more: int) -> list[dict[str, str]]:
    """Return what limits the verdict, as rows of name and text."""
    machine, null = e.machine, e.floor_ns or e.null_ns
    texts = {TO_DECIDE: _to_decide(e, more) if verdict == Verdict.INCONCLUSIVE else ""}
    if e.floor_ns and e.with_floor:
        texts["empty loader"] = (
            f"{null / 1e6:.2f} ms in next(), subtracted from the data stall "
            f"({e.with_floor.value:.1%} with it)"
        )
    elif null and verdict == Verdict.NOT_BOUND and e.stall.high >= MODERATE:
        texts["empty loader"] = f"{null / e.period:.1%} of the step by itself"
    texts["measured steps"] = _measured_steps(e)
    if machine.others >= DISTURBED:
        texts["other programs"] = f"{machine.others:.0%} of the cores during the measurement"
    if machine.left_out:
        texts["repeats left out"] = (
            f"{machine.left_out} of {machine.blocks}, disturbed by other programs"
        )
    return [{"name": name, "text": text} for name, text in texts.items() if text]


def _to_decide(e: Evidence, more: int) -> str:
    """Return the command that would make the interval decide."""
    if e.observed:
        return "more steps: let the script run longer"
    if not more:
        return ""
    seconds = max(e.session.plan.seconds, QUICK_SECONDS) + more * 2 * seconds_of_trial(e)
    if seconds > MAX_SECONDS:
        busy = e.machine.others >= DISTURBED
        return "measure on a quieter machine" if busy else "the data stall is too close to 5%"
    repeats = "repeat" if more == 1 else "repeats"
    return f"the same command with `--seconds {math.ceil(seconds)}` (about {more} more {repeats})"


def _measured_steps(e: Evidence) -> str:
    """Return which steps of a stream's epoch were measured; "" for all of them."""
    windows = [case.window.steps.batch for case in e.cases]
    first, last = min(int(ids[0]) for ids in windows) + 1, max(int(ids[-1]) for ids in windows) + 1
    steps = max(case.window.epoch_steps for case in e.cases)
    # a dataset with an index is read from another batch on in each block, or is shuffled
    by_index = e.config.get("kind") == "torch" and not e.config.get("iterable_dataset")
    if e.observed or by_index or (steps and last >= steps):
        return ""
    return f"{first} to {last}" + (f" of an epoch of {steps}" if steps else " of an epoch")
