"""The rows of the page: each shows the result of one part, joined with those of the others.

A row is *fix first* only where the whole interval lies beyond its limit, *inconclusive* where the
interval lies on both sides or the part ended early, and *skipped* where an input is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from audit.results.script_reading import ScriptReading, join_reading
from audit.subset.evaluation_split import evaluation_problems, evaluation_splits, measure_split
from pipeline_profiler.profiling.diagnose.throughput import step_rates
from pipeline_profiler.profiling.record.opened_files import OpenedFiles

if TYPE_CHECKING:
    from audit.results.report_data import Report
    from audit.results.results import Results
    from pipeline_profiler.profiling.record.session import Session

MAX_STALL, MAX_LOST_S = 0.10, 0.5  # share of the step; seconds of an epoch
OTHER_PROGRAMS = "PIPE033"  # the cause where they take the cores
MAX_LEAK = 0.01  # share of an evaluation split
METRIC = "TRAIN024"
OF_EVALUATION = (METRIC, "LOAD013", "LOAD018", "LOAD020", "TRAIN058")  # checks in that row
MAX_SENTENCE = 130  # characters
DATA, EVALUATION, PIPELINE = "Data", "Evaluation", "Input pipeline"
PRECISION, CODE = "Precision", "Training code"


class State(StrEnum):
    """The answer of a row."""

    FIX = "fix first"
    GO = "go"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Row:
    """One row: its answer, sentences, commands (the first is the next to run), and figures.

    `failed`: why its part could not run, else empty.
    """

    name: str
    state: State
    sentences: tuple[str, ...]
    commands: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""


@dataclass(frozen=True)
class Joined:
    """The results of the parts. `checks`: a document checks/1; `missing`: rows without a result."""

    run: str
    script: str
    results: Results | None = None
    profile: Session | None = None
    opened: OpenedFiles = field(default_factory=OpenedFiles)
    precision: Session | None = None
    checks: Mapping[str, Any] | None = None
    min_difference: float = 0.0
    missing: Mapping[str, Row] = field(default_factory=dict)

    @cached_property
    def report(self) -> Report:
        """The counts, costs and first steps of the run."""
        assert self.results is not None
        return self.results.overview()

    @cached_property
    def reading(self) -> ScriptReading | None:
        """What the script reads of the data; None where no file was seen."""
        if self.results is None or not self.opened.all:
            return None
        opened, splits = self.opened, [split.name for split in evaluation_splits(self.report)]
        return join_reading(self.results, opened.train, opened.evaluation, opened.other, splits)


def make_rows(joined: Joined) -> tuple[Row, ...]:
    """Return the rows, in the order of the screen."""
    made = {
        DATA: data_row, EVALUATION: evaluation_row, PIPELINE: pipeline_row,
        PRECISION: precision_row, CODE: code_row,
    }  # fmt: skip
    return tuple(joined.missing.get(name) or make(joined) for name, make in made.items())


def data_row(joined: Joined) -> Row:
    """Return the row of the audit: open errors, leaks, and what the script reads of the data."""
    report, run = joined.report, shlex.quote(joined.run)
    counts, leaks = report.counts, {s.name: s.leaked for s in evaluation_splits(report)}
    evidence = {"errors": counts.error, "warnings": counts.warning, "leaked": leaks}
    seen = joined.reading
    reading = () if seen is None else seen.sentences(joined.script, joined.opened.complete)
    show = f"audit app {run}"
    if seen is not None and seen.foreign and not seen.known:
        text = (
            f"{joined.script} reads no image of this dataset, but {seen.foreign} images in "
            f"{seen.foreign_folder}."
        )
        return Row(DATA, State.FIX, (text,), (show,), evidence)
    if counts.error or max(leaks.values(), default=0) > MAX_LEAK:
        problems = [_short(thing.message, thing.codes[0]) for thing in report.first[:3]]
        commands = (_mend(run, report.first[0].codes[0]), show) if problems else (show,)
        return Row(DATA, State.FIX, (*problems, *reading), commands, evidence)
    text = f"{report.dataset.n_samples:,} images: no errors, {counts.warning} warnings open."
    first = [_short(thing.message, thing.codes[0]) for thing in report.first[:1]]
    return Row(DATA, State.GO, (text, *reading, *first), (show,), evidence)


def _short(message: str, code: str) -> str:
    """Return a message with its code; a long one without its last sentence or clause."""
    heads = [message.partition(mark)[0] for mark in ("\n", ". ", "; ", ": ")]
    text = next((head for head in heads if len(head) <= MAX_SENTENCE), message)
    return f"{text.rstrip('.')} ({code})."


def _mend(run: str, code: str) -> str:
    """Return the command that decides about the findings of a check."""
    verbs = {"SPLIT": "--drop-from train", "DUP": "--rule largest", "FILE": "--as drop"}
    verb = next((verb for family, verb in verbs.items() if code.startswith(family)), "")
    return f"audit decide {run} --code {code} {verb}" if verb else f"audit app {run}"


def evaluation_row(joined: Joined) -> Row:
    """Return the row of the evaluation: sizes, leaks, and classes without an image."""
    run, splits, seen = shlex.quote(joined.run), evaluation_splits(joined.report), joined.reading
    commands = (f"audit subset plan {run} --half-width {joined.min_difference or 0.05:g}",)
    problems = list[str]()
    if seen is not None:
        problems = seen.evaluation_problems(joined.script, MAX_LEAK)
        if not splits and joined.opened.evaluated and (n := seen.evaluated):
            splits = [measure_split(f"The evaluation of {joined.script}", n, n, seen.copies / n)]
    problems += evaluation_problems(joined.report, joined.min_difference)
    document: Mapping[str, Any] = joined.checks or {"checks": [], "kind": ""}
    by_code = {check["code"]: check for check in document["checks"]}
    checked = [by_code[code] for code in OF_EVALUATION if code in by_code]
    problems += [_failure(check) for check in checked if check["verdict"] == "failed"]
    if not splits and not problems:
        text = "The data has no evaluation split: name one val or test."
        return Row(EVALUATION, State.SKIPPED, (text,), commands)
    evidence = {s.name: {"effective": s.effective, "margin": s.margin} for s in splits}
    sizes = [split.sentence for split in splits[:1]]
    metric = by_code.get(METRIC, {"verdict": "", "sentence": "The time was over."})
    is_checked = document["kind"] != "script" or metric["verdict"] in ("passed", "not applicable")
    if not problems and not is_checked:
        sizes.append(f"The metric of {joined.script} is not checked. {metric['sentence']}")
        return Row(EVALUATION, State.INCONCLUSIVE, tuple(sizes), commands, evidence)
    state = State.FIX if problems else State.GO
    return Row(EVALUATION, state, (*problems[:2], *sizes), commands, evidence)


def pipeline_row(joined: Joined) -> Row:
    """Return the row of the data stall: its interval, the rates, and the cause to end."""
    assert joined.profile is not None
    results, rates = joined.profile.results, step_rates(joined.profile)
    stall, causes = results.get("stall"), results.get("causes") or []
    path = shlex.quote(f"{joined.run}/preflight/measure.json")
    commands: tuple[str, ...] = (f"pipeline-profiler report {path}",)
    if not stall or stall.get("low") is None:
        text = str(results["sentence"]).removeprefix("inconclusive: ").rstrip(".")
        return Row(PIPELINE, State.INCONCLUSIVE, (f"{text[:1].upper()}{text[1:]}.",), commands)
    low, high, lost = stall["low"], stall["high"], rates.get("lost_s", MAX_LOST_S)
    state = State.FIX if low > MAX_STALL else State.GO if high < MAX_STALL else State.INCONCLUSIVE
    state = State.GO if lost < MAX_LOST_S else state
    if state is State.FIX and causes and causes[0]["code"] == OTHER_PROGRAMS:
        state = State.INCONCLUSIVE
    text = f"Data stall {stall['share']:.0%} of the step (95% CI {low:.0%} to {high:.0%})"
    if "whole" in rates:
        text += f": {rates['whole']:,.0f} samples/s, {rates['alone']:,.0f} without the stall"
    text += f", {lost:.2g} s of an epoch" if "lost_s" in rates else ""
    loading, sentences = results.get("loading") or {}, [f"{text}."]
    if state is not State.GO:
        sentences += [loading["sentence"]] if loading.get("sentence") else []
        for cause in causes[:1]:
            text = cause["cause"][:1].upper() + cause["cause"][1:]
            sentences.append(f"{text} ({cause['code']}).")
            commands = (cause["next"], *commands)
        if joined.reading and joined.reading.large:
            share = f"{joined.reading.large_share:.0%} of the pixels to decode"
            sentences.append(f"{joined.reading.large} files over 20 megapixels hold {share}.")
    return Row(PIPELINE, state, tuple(sentences), commands, {**rates, "stall": stall})


def precision_row(joined: Joined) -> Row:
    """Return the row of the precisions: advice only, with what the loader can feed."""
    assert joined.precision is not None
    results, path = joined.precision.results, shlex.quote(f"{joined.run}/preflight/precision.json")
    sentences, commands = [str(results["sentence"])], (f"pipeline-profiler report {path}",)
    speedups = (results.get("precision-script") or {}).get("speedups", {})
    if sentences[0].startswith("Inconclusive"):
        return Row(PRECISION, State.INCONCLUSIVE, tuple(sentences), commands, speedups)
    gain = max((s["value"] for s in speedups.values() if s["low"] > 1), default=1.0)
    rates = {} if joined.profile is None else step_rates(joined.profile)
    if gain > 1 and "alone" in rates:
        text = f"The loader would have to deliver {gain * rates['alone']:,.0f} samples/s"
        sentences.append(f"{text} (with the step, it delivers {rates['whole']:,.0f}).")
    return Row(PRECISION, State.GO, tuple(sentences), commands, speedups)


def code_row(joined: Joined) -> Row:
    """Return the row of the checks of loader and training: the first failures, or the counts."""
    assert joined.checks is not None
    summary, checks = joined.checks["summary"], joined.checks["checks"]
    elsewhere = () if EVALUATION in joined.missing else OF_EVALUATION
    named = set(joined.checks["failed"]).difference(elsewhere)
    failed = [check for check in checks if check["code"] in named]  # certain facts stand first
    failed.sort(key=lambda check: check["code"].startswith("LOAD"))
    commands = (f"pipeline-profiler check --full -- {joined.script}",)
    if failed:
        rest = ", ".join(check["code"] for check in failed[3:])
        sentences = [*map(_failure, failed[:3]), *([f"Also failed: {rest}."] if rest else [])]
        return Row(CODE, State.FIX, (*sentences, f"Next: {failed[0]['next']}"), commands, summary)
    states = ("failed", "passed", "inconclusive")
    counts = ", ".join(f"{summary[state]} {state}" for state in states) + "."
    start = [c["sentence"] for c in checks if (c["code"], c["verdict"]) == ("TRAIN001", "passed")]
    ended = [joined.checks["ended"]] if joined.checks["ended"] else []
    early = joined.checks["interrupted"] or ended or summary["inconclusive"] > summary["passed"]
    state = State.GO if summary["passed"] and not early else State.INCONCLUSIVE
    return Row(CODE, state, (counts, *ended, *start), commands, summary)


def _failure(check: Mapping[str, Any]) -> str:
    at = check["location"]
    place = f"{at['path']}:{at['lineno']} " if at else ""
    return f"{place}{check['sentence'].rstrip('.')} ({check['code']})."
