"""Inside the process of a script: waits for its training, asks the checks, leaves the answers."""

from __future__ import annotations

import atexit
import base64
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline_profiler.checks.check import Answer, Check, Judgement, all_checks, select_checks
from pipeline_profiler.checks.document import place_of, plain_value
from pipeline_profiler.checks.runner import (
    PATIENT,
    CheckReport,
    CheckResult,
    ProgressLine,
    run_check,
    run_checks,
)
from pipeline_profiler.checks.user_code import Patience, explain_error, short_place
from preflight.check_contract import named_checks

VARIABLE = "PIPELINE_PROFILER_WATCH"  # as for `watch`: one hook reads both orders
HOOKS = {
    "torch": "pipeline_profiler.checks.caught_run:hook_torch",
    "keras.src.models.model": "pipeline_profiler.checks.caught_run:hook_keras",
}
OF_EACH = ("TRAIN006", "TRAIN009", "TRAIN016", "TRAIN024", "TRAIN025", "TRAIN046")  # exact, cheap
REACH = 0.35  # of the budget, to reach the second epoch in
LOADER = 0.35  # of what is left, for the checks of the loader


@dataclass(frozen=True)
class CheckOrder:
    """What the process is told. `only`, `skip`: words as typed; folder: for the answers."""

    folder: str
    home: str
    seconds: float
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    seed: int = 0
    hold: str = ""  # where writes go, if Python's own hooks are to redirect them
    hooks: Mapping[str, str] = field(default_factory=lambda: dict(HOOKS))


def chosen_checks(order: CheckOrder, families: Sequence[str] = ("LOAD", "TRAIN")) -> list[Check]:
    """The checks of these families that were asked for; ProfileError for an unknown word."""
    found: list[Check] = []
    for family in families:
        mine = all_checks(family).values()
        others = all_checks({"LOAD": "TRAIN"}.get(family, "LOAD")).values()
        only, skip = (  # what names no check is refused
            [w for w in words if named_checks(mine, w) or not named_checks(others, w)]
            for words in (order.only, order.skip)
        )
        if only or not order.only:
            found += select_checks(family, only, skip)
    return found


def hook_torch(torch: Any) -> None:
    """Catch what the script does with torch."""
    order = read_order()
    if order is None:
        return
    from pipeline_profiler.checks.caught_torch import Caught

    reach, began = REACH * order.seconds, time.monotonic()

    def end(caught: Caught) -> None:
        spent = min(time.monotonic() - began, time.process_time())
        leave(order, examine_torch(caught, order, spent))

    caught = Caught(Patience(reach, PATIENT * reach), end)
    caught.hook(torch)
    atexit.register(_at_end, caught)


def hook_keras(module: Any) -> None:
    """Capture the first `fit` of a model of Keras, or the steps of a loop around a tape."""
    order = read_order()
    if order is None:
        return
    from pipeline_profiler.checks.caught_keras import KerasRecorder

    patience = Patience(REACH * order.seconds, PATIENT * REACH * order.seconds)
    recorder = KerasRecorder(patience, lambda caught: leave(order, examine_keras(caught, order)))
    recorder.hook(module.Model, module.backend.backend())
    atexit.register(recorder.end)


def read_order() -> CheckOrder | None:
    """The order, for the process that trains: no worker, and of several ranks the first."""
    first = os.environ.get("RANK", "0") == "0"
    if multiprocessing.parent_process() is not None or not first:
        return None
    told = json.loads(os.environ[VARIABLE])
    return CheckOrder(**{**told, "only": tuple(told["only"]), "skip": tuple(told["skip"])})


def _at_end(caught: Any) -> None:
    if caught.facts.steps or caught.loaders or caught.first:
        caught.end()


def examine_torch(caught: Any, order: CheckOrder, spent: float) -> dict[str, Any]:
    """Ask the checks of loader and training about what was caught."""
    from pipeline_profiler.checks.loader_subject import LoaderSubject
    from pipeline_profiler.checks.training_subject import TrainingSubject

    def subject_of(training: Any) -> TrainingSubject:
        make, loaded = training.training, training.loaded
        return TrainingSubject(
            make, order.seed, unseeded=caught.unseeded, caught=not loaded, facts=training.facts
        )

    train, evaluated = caught.loader_of("train"), caught.loader_of("eval")
    subjects: dict[str, Any] = {"TRAIN": subject_of(caught)}
    if train is not None:
        again = evaluated.again if evaluated is not None else None
        declares = caught.pretrained if caught.loaded else None
        subjects["LOAD"] = LoaderSubject(
            train.again, again, make_model=declares, seed=order.seed, entered=caught.entered,
            evaluations=sum((seen.kind == "eval") + seen.late for seen in caught.loaders.values()),
            unseeded=caught.unseeded,
        )  # fmt: skip
    facts = caught.facts
    facts.places |= {"loader": train.place if train else "",
                     "eval_loader": evaluated.place if evaluated else ""}  # fmt: skip
    missing = list(_given_by(caught, train, evaluated))
    rows = [(None, inputs, targets) for _, inputs, targets in caught.entered()[0]]
    shown = LoaderSubject(list, entered=lambda: (rows, []))
    trainings = [training for training in caught.trainings if training.steps] or [caught]
    others = [(subject_of(t), t.facts.places) for t in trainings if t is not caught]
    number, place = trainings.index(caught) + 1, short_place(facts.places.get("model", ""))
    subjects["others"] = others
    subjects["judged"] = f"Judged: training {number} of {len(trainings)}, {place}." * bool(others)
    return _asked(subjects, order, spent, shown) | {
        "places": facts.places, "unreached": facts.unreached(), "missing": missing,
    }  # fmt: skip


def _given_by(caught: Any, train: Any, evaluated: Any) -> list[str]:
    """What could not be caught, each with the lines that would give it."""
    found = []
    if caught.why and not caught.steps:
        found.append(
            f"model and loss: {caught.why}. Two lines give them, `def make_model(): return ...` "
            "and `def make_loss(): return ...`, in a file with make_loader and make_optimizer"
        )
    if train is None and caught.steps:
        found.append(
            "the loader: the batches come from no DataLoader. `def make_loader(): return ...` "
            "gives it to check"
        )
    if train is not None and evaluated is None and caught.facts.evaluations:
        found.append("the loader for evaluation: it is no DataLoader")
    return found


def examine_keras(caught: Any, order: CheckOrder) -> dict[str, Any]:
    """Ask the checks about a captured training of Keras."""
    from pipeline_profiler.checks.caught_keras import SCALES, unseeded_sentence
    from pipeline_profiler.checks.keras_subject import KerasSubject
    from pipeline_profiler.checks.loader_subject import LoaderSubject

    layers = caught.model._flatten_layers() if caught.model is not None else ()
    kinds, unseeded = [type(layer).__name__ for layer in layers], unseeded_sentence()
    loads = LoaderSubject(
        lambda: [] if caught.loader is None else caught.loader,
        caught.make_eval,
        seed=order.seed,
        made_anew=False,
        scaled_later=next((kind for kind in kinds if kind in SCALES), ""),
        entered=None if caught.model is None else caught.entered,
        unseeded=unseeded,
    )
    trains = KerasSubject(caught.training, order.seed, unseeded=unseeded)
    subjects: dict[str, Any] = {"LOAD": loads} if caught.loader is not None else {}
    subjects |= {"TRAIN": trains} if caught.model is not None else {}
    unreached = [] if caught.make_eval else ["an evaluation (no data for validation)"]
    unreached += ["a later fit, if there is one"] if caught.batches is None else []
    return _asked(subjects, order, 0.0, loads) | {
        "places": caught.facts.places, "unreached": unreached, "missing": caught.missing,
    }  # fmt: skip


def _asked(
    subjects: Mapping[str, Any], order: CheckOrder, spent: float, shown: Any
) -> dict[str, Any]:
    """Return the results of both families; the inputs of `shown` are drawn as a grid."""
    from pipeline_profiler.checks.loader_subject import model_grid
    from pipeline_profiler.profiling.record.errors import ProfileError

    merged, progress = CheckReport(ended=subjects.get("judged", "")), ProgressLine()
    left = max(order.seconds / 3, order.seconds - spent)
    sys.stderr.write("\n")
    for family in ("LOAD", "TRAIN"):
        try:
            checks = chosen_checks(order, (family,))
        except ProfileError:  # the words were looked at before the script was started
            continue
        if family not in subjects or not checks:
            continue
        budget = left * (LOADER if family == "LOAD" else 1.0)
        busy = time.process_time()
        report = run_checks(checks, subjects[family], budget, order.seed, progress=progress)
        merged.results += report.results
        merged.ended = " ".join(filter(None, (merged.ended, report.ended)))
        merged.interrupted = merged.interrupted or report.interrupted
        merged.seconds += report.seconds
        left = max(left / 3, left - min(report.seconds, time.process_time() - busy))
        if merged.interrupted:
            break
    for subject, places in subjects.get("others", ()):
        for number, found in enumerate(merged.results):
            asked = found.check.recorded or found.check.code in OF_EACH
            if not asked or found.answer.judgement is Judgement.FAIL:
                continue
            other = run_check(found.check, subject, order.seed)
            if other.answer.judgement is Judgement.FAIL:
                place = place_of(other, CheckReport(places=places))
                evidence = {**other.answer.evidence, "place": place}
                answer = replace(other.answer, evidence=evidence)
                merged.results[number] = replace(other, answer=answer)
    progress.clear()
    merged.grid = model_grid(shown)
    notes = list(getattr(subjects.get("TRAIN"), "notes", []))
    error = getattr(sys, "last_value", None)
    explained = explain_error("Your script", error) if isinstance(error, BaseException) else ""
    return {**report_form(merged), "notes": notes, "error": explained}


def report_form(report: CheckReport) -> dict[str, Any]:
    """A report as JSON can hold it."""
    return {
        "results": [
            (r.check.code, plain_value(vars(r.answer)), r.seconds, r.broken, r.users)
            for r in report.results
        ],
        "ended": report.ended, "interrupted": report.interrupted, "seconds": report.seconds,
        "grid": base64.b64encode(report.grid or b"").decode(),
    }  # fmt: skip


def read_report(told: Mapping[str, Any]) -> CheckReport:
    """The report that a process left."""
    known = {**all_checks("LOAD"), **all_checks("TRAIN")}
    results = []
    for code, answer, *rest in told["results"]:
        answer |= {"judgement": Judgement(answer["judgement"]), "causes": tuple(answer["causes"])}
        results.append(CheckResult(known[code], Answer(**answer), *rest))
    grid = base64.b64decode(told["grid"]) or None
    return CheckReport(results, told["ended"], told["interrupted"], told["seconds"], grid=grid)


def leave(order: CheckOrder, told: Mapping[str, Any]) -> None:
    """Write the answers and end the process: nothing of the script runs after this."""
    path = Path(order.folder, f"{os.getpid()}.part")
    path.write_text(json.dumps(told))
    path.rename(path.with_suffix(".json"))
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
