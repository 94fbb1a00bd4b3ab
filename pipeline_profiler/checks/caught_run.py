"""Inside the process of a script: waits for its training, runs the checks, leaves the answers."""

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

from dataset_preflight.foundation.check_contract import named_checks
from dataset_preflight.foundation.ending import end_process
from pipeline_profiler.checks.check import (
    EXACT,
    Answer,
    Check,
    Judgement,
    all_checks,
    select_checks,
)
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

VARIABLE = "PIPELINE_PROFILER_WATCH"  # as for `watch`: one hook reads both orders
HOOKS = {
    "torch": "pipeline_profiler.checks.caught_run:hook_torch",
    "keras.src.models.model": "pipeline_profiler.checks.caught_run:hook_keras",
}
REACH_SHARE = 0.35  # of the budget, to reach the second epoch
LOADER_SHARE = 0.35  # of what is left, for the checks of the loader


@dataclass(frozen=True)
class CheckOrder:
    """What to check. `only`, `skip`: words as typed; folder: for the answers."""

    folder: str
    home: str
    seconds: float
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    seed: int = 0
    hold: tuple[str, ...] = ()  # scratch and copied folder, where no overlay holds writes back
    hooks: Mapping[str, str] = field(default_factory=lambda: dict(HOOKS))


def chosen_checks(order: CheckOrder) -> list[Check]:
    """Return the selected checks of loader and training; ProfileError for an unknown word."""
    checks = [*all_checks("LOAD").values(), *all_checks("TRAIN").values()]
    only, skip = (
        {
            check.code
            for word in words
            for check in named_checks(checks, word) or select_checks("LOAD", [word])
        }
        for words in (order.only, order.skip)
    )
    return [c for c in checks if c.code not in skip and (not only or c.code in only)]


def hook_torch(torch: Any) -> None:
    """Record what the script does with torch."""
    if (order := read_order()) is None:
        return
    from pipeline_profiler.checks.caught_torch import Caught

    reach, began = REACH_SHARE * order.seconds, time.monotonic()

    def end(caught: Caught) -> None:
        spent = min(time.monotonic() - began, time.process_time())
        leave(order, examine_torch(caught, order, spent))

    caught = Caught(Patience(reach, PATIENT * reach), end)
    caught.hook(torch)
    atexit.register(caught.end_at_exit)


def hook_keras(module: Any) -> None:
    """Record the first `fit` of a model of Keras, or the steps of a loop around a tape."""
    if (order := read_order()) is None:
        return
    from pipeline_profiler.checks.caught_keras import KerasRecorder

    patience = Patience(REACH_SHARE * order.seconds, PATIENT * REACH_SHARE * order.seconds)
    recorder = KerasRecorder(patience, lambda caught: leave(order, examine_keras(caught, order)))
    recorder.hook(module.Model, module.backend.backend())
    atexit.register(recorder.end)


def read_order() -> CheckOrder | None:
    """Return the order, for the process that trains: no worker, of several ranks the first."""
    first = os.environ.get("RANK", "0") == "0"
    if multiprocessing.parent_process() is not None or not first:
        return None
    words = json.loads(os.environ[VARIABLE])
    return CheckOrder(**{**words, "only": tuple(words["only"]), "skip": tuple(words["skip"])})


def examine_torch(caught: Any, order: CheckOrder, spent: float) -> dict[str, Any]:
    """Run the checks of loader and training on the trainings that were recorded."""
    from pipeline_profiler.checks.loader_subject import LoaderSubject
    from pipeline_profiler.checks.training_subject import TrainingSubject

    def subject_of(t: Any) -> TrainingSubject:
        return TrainingSubject(
            t.training, order.seed, unseeded=caught.unseeded, caught=not t.loaded, facts=t.facts
        )

    training = caught.record
    facts, train, evaluated = training.facts, *map(training.loader_of, ("train", "eval"))
    subjects: dict[str, Any] = {"TRAIN": subject_of(training)}
    if train is not None:
        subjects["LOAD"] = LoaderSubject(
            train.again,
            None if evaluated is None else evaluated.again,
            make_model=(lambda: training.model) if training.loaded else None,
            seed=order.seed,
            entered=training.entered,
            evaluations=sum((s.kind == "eval") + s.late for s in training.loaders.values()),
            unseeded=caught.unseeded,
        )
    for name, seen in (("loader", train), ("eval_loader", evaluated)):
        facts.places[name] = "" if seen is None else seen.place
    trainings = [t for t in caught.trainings if t.steps] or [training]
    others = [(subject_of(t), t.facts.places) for t in trainings if t is not training]
    number, place = trainings.index(training) + 1, short_place(facts.places.get("model", ""))
    ended = f"Judged: training {number} of {len(trainings)}, {place}." if others else ""
    report = _run_families(subjects, order, spent, ended)
    _add_failures(report, others, order.seed)
    rows = [(None, inputs, targets) for _, inputs, targets in training.entered()[0]]
    return _form(report, subjects["TRAIN"], LoaderSubject(list, entered=lambda: (rows, []))) | {
        "places": facts.places,
        "unreached": facts.unreached(),
        "missing": _missing(training, train, evaluated),
    }


def _missing(training: Any, train: Any, evaluated: Any) -> list[str]:
    """Return what could not be recorded, each with the lines that would give it."""
    found = []
    if training.why and not training.steps:
        found.append(
            f"model and loss: {training.why}. Two lines give them, `def make_model(): return ...` "
            "and `def make_loss(): return ...`, in a file with make_loader and make_optimizer"
        )
    if train is None and training.steps:
        text = "the loader: the batches come from no DataLoader. `def make_loader(): return ...`"
        found.append(f"{text} gives it to check")
    if train is not None and evaluated is None and training.facts.evaluations:
        found.append("the loader for evaluation: it is no DataLoader")
    return found


def examine_keras(caught: Any, order: CheckOrder) -> dict[str, Any]:
    """Run the checks on a recorded training of Keras."""
    from pipeline_profiler.checks.caught_keras import SCALES, unseeded_sentence
    from pipeline_profiler.checks.keras_subject import KerasSubject
    from pipeline_profiler.checks.loader_subject import LoaderSubject

    layers = caught.model._flatten_layers() if caught.model is not None else ()
    kinds, unseeded = [type(layer).__name__ for layer in layers], unseeded_sentence()
    loader = LoaderSubject(
        lambda: [] if caught.loader is None else caught.loader,
        caught.make_eval,
        seed=order.seed,
        made_anew=False,
        scaled_later=next((kind for kind in kinds if kind in SCALES), ""),
        entered=None if caught.model is None else caught.entered,
        unseeded=unseeded,
    )
    training = KerasSubject(caught.training, order.seed, unseeded=unseeded)
    subjects: dict[str, Any] = {"LOAD": loader} if caught.loader is not None else {}
    subjects |= {"TRAIN": training} if caught.model is not None else {}
    unreached = [] if caught.make_eval else ["an evaluation (no data for validation)"]
    unreached += ["a later fit, if there is one"] if caught.batches is None else []
    return _form(_run_families(subjects, order), training, loader) | {
        "places": caught.facts.places, "unreached": unreached, "missing": caught.missing,
    }  # fmt: skip


def _run_families(
    subjects: Mapping[str, Any], order: CheckOrder, spent: float = 0.0, ended: str = ""
) -> CheckReport:
    """Return the results of the checks of both families."""
    # Python removes the path of a script at its end, and spawned workers import it again
    vars(sys.modules["__main__"]).setdefault("__file__", os.path.abspath(sys.argv[0]))
    merged, progress = CheckReport(ended=ended), ProgressLine()
    left = max(order.seconds / 3, order.seconds - spent)
    sys.stderr.write("\n")
    for family, share in (("LOAD", LOADER_SHARE), ("TRAIN", 1.0)):
        checks = [check for check in chosen_checks(order) if check.code.startswith(family)]
        if family not in subjects or not checks or merged.interrupted:
            continue
        busy = time.process_time()
        report = run_checks(checks, subjects[family], left * share, order.seed, progress)
        merged.results += report.results
        merged.ended = " ".join(filter(None, (merged.ended, report.ended)))
        merged.interrupted, merged.seconds = report.interrupted, merged.seconds + report.seconds
        left = max(left / 3, left - min(report.seconds, time.process_time() - busy))
    progress.clear()
    return merged


def _add_failures(report: CheckReport, others: Sequence[tuple[Any, Any]], seed: int) -> None:
    """Replace results that did not fail by failures of other trainings of the script."""
    for subject, places in others:
        for number, result in enumerate(report.results):
            cheap = result.check.recorded or result.check.code in EXACT
            if not cheap or result.answer.judgement is Judgement.FAIL:
                continue
            other = run_check(result.check, subject, seed)
            if other.answer.judgement is Judgement.FAIL:
                place = place_of(other, CheckReport(places=places))
                evidence = {**other.answer.evidence, "place": place}
                answer = replace(other.answer, evidence=evidence)
                report.results[number] = replace(other, answer=answer)


def _form(report: CheckReport, training: Any, shown: Any) -> dict[str, Any]:
    """Return a report as JSON can hold it; the inputs of `shown` are drawn as a grid."""
    from pipeline_profiler.checks.loader_subject import model_grid

    error = getattr(sys, "last_value", None)
    return {
        "results": [
            (r.check.code, plain_value(vars(r.answer)), r.seconds, r.broken, r.users)
            for r in report.results
        ],
        "ended": report.ended,
        "interrupted": report.interrupted,
        "seconds": report.seconds,
        "grid": base64.b64encode(model_grid(shown) or b"").decode(),
        "notes": list(training.notes),
        "error": explain_error("Your script", error) if isinstance(error, BaseException) else "",
    }


def read_report(form: Mapping[str, Any]) -> CheckReport:
    """Return the report that a process left."""
    known = {**all_checks("LOAD"), **all_checks("TRAIN")}
    results = []
    for code, answer, *rest in form["results"]:
        answer |= {"judgement": Judgement(answer["judgement"]), "causes": tuple(answer["causes"])}
        results.append(CheckResult(known[code], Answer(**answer), *rest))
    grid = base64.b64decode(form["grid"]) or None
    return CheckReport(results, form["ended"], form["interrupted"], form["seconds"], grid=grid)


def leave(order: CheckOrder, answers: Mapping[str, Any]) -> None:
    """Write the answers and end the process: nothing of the script runs after this."""
    path = Path(order.folder, f"{os.getpid()}.part")
    path.write_text(json.dumps(answers))
    path.rename(path.with_suffix(".json"))
    end_process()
