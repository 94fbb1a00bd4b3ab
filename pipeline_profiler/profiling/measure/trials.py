"""Try the first recommended setting before it is recommended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline_profiler.profiling.diagnose.finding import Diagnosis
from pipeline_profiler.profiling.diagnose.verdict import (
    WORTH_NAMING,
    diagnose_session,
    seconds_of_trial,
)
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure.arms import Bench, run_arm
from pipeline_profiler.profiling.measure.preloaded_batches import Preloaded
from pipeline_profiler.profiling.measure.watchdog import describe_failure
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Session

TRIAL_SHARE = 0.2  # of the budget
MOST_RUNS = 2  # of one setting: its spread is taken from the loader as it is


def try_first_advice(
    bench: Bench, session: Session, preloaded: Preloaded, deadline_ns: int, budget_s: float
) -> None:
    """Try what would be recommended first, while the time for it lasts."""
    end = min(deadline_ns, bench.clock() + int(TRIAL_SHARE * budget_s * 1e9))
    while bench.settings().get("kind") == "torch":
        advice, seconds = untried(session)
        if advice is None or not advice.change:
            return
        left = (end - bench.clock()) / 1e9
        if seconds > left:
            return
        bench.run_end_ns = end
        _tell(bench, session, advice)
        done = len(session.runs)
        try:
            for number in range(MOST_RUNS):
                if (end - bench.clock()) / 1e9 < seconds:
                    break
                run = run_arm(bench, Arm.TRIAL, number, session, preloaded, session.probes.change)
                session.runs.append(run)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - made for one setting alone
            del session.runs[done:]
            _note_failure(session, advice, error)
            return
        if not any(len(Window.of(run)) for run in session.arm(Arm.TRIAL)[-MOST_RUNS:]):
            return  # too slow to be timed in what was left: it stays a prediction
        _note_a_loss(session, advice)


def untried(session: Session) -> tuple[Diagnosis | None, float]:
    """The first advice where nobody has tried it yet, and the seconds that one run would take."""
    try:
        found = diagnose_session(session)
    except ProfileError:
        return None, 0.0
    shown = [cause for cause in found.causes if cause.share.low > 0]
    # the file begins with the most specific, the screen with the largest: either may be the first
    by_size = sorted(shown, key=lambda cause: -cause.share.low)
    for cause in [*found.causes[:1], *by_size[:1]]:
        if cause.change and not cause.tried:
            return cause, seconds_of_trial(found.evidence)
    return None, 0.0


def _tell(bench: Bench, session: Session, advice: Diagnosis) -> None:
    words = _words(advice.change or {})
    text = f"The trial setting (the real loader with {words}) tests the first advice."
    plan, probes = session.plan, session.probes
    arms = plan.arms if Arm.TRIAL in plan.arms else (*plan.arms, Arm.TRIAL)
    session.plan = replace(plan, arms=arms, reasons=(*plan.reasons, text))
    probes.change = dict(advice.change or {})
    promised = _period_ms(session, Arm.WARM) * (1 - advice.share.value)
    probes.promised = (probes.promised or {}) | dict.fromkeys(probes.change, promised)
    bench.tell(text)


def _note_failure(session: Session, advice: Diagnosis, error: BaseException) -> None:
    """The user's loader does not work with this setting: that is no advice, and ends no run."""
    raised = describe_failure(error, 0).rstrip(".")
    failed = dict.fromkeys(advice.change or {}, raised[0].lower() + raised[1:])
    session.probes.failed = (session.probes.failed or {}) | failed
    session.probes.change = None


def _note_a_loss(session: Session, advice: Diagnosis) -> None:
    """What was tried and is no advice any more is still told."""
    still = [cause for cause in diagnose_session(session).causes if cause.code == advice.code]
    if still and still[0].share.low > 0:
        return
    now, tried = (_period_ms(session, arm) for arm in (Arm.WARM, Arm.TRIAL))
    promised = list((session.probes.promised or {}).values())[-1]
    unsure = bool(still) and still[0].share.value >= WORTH_NAMING
    said = "in too few runs to be sure of it" if unsure else "and is not recommended"
    session.notes.append(
        f"{_words(advice.change or {})} was tried {said}: {now:.2f} ms a step became {tried:.2f}, "
        f"predicted {promised:.2f}."
    )


def _period_ms(session: Session, arm: Arm) -> float:
    """Mean step period of an arm; of the trials those of the last setting."""
    runs = session.arm(arm)
    last = [run for run in runs if run.config == runs[-1].config]
    periods = [Window.of(run).epoch_period_ns / 1e6 for run in last if len(Window.of(run))]
    return sum(periods) / max(1, len(periods))


def _words(change: Any) -> str:
    names = {"workers": "num_workers", "prefetch": "prefetch_factor"}
    return ", ".join(f"{names.get(name, name)}={value}" for name, value in change.items())
