"""The Python API: `pipeline_profiler.profile(loader, step)` returns verdict and causes.

    import pipeline_profiler
    found = pipeline_profiler.profile(loader, step)
    found.verdict, found.causes
    found.report("profile.html")

The same measurement as `pipeline-profiler run`. Errors are `ProfileError`, in one sentence.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_profiler.cli.output import check_output, write_report
from pipeline_profiler.profiling.measure.arms import Bench, Options, emulated_step
from pipeline_profiler.profiling.measure.schedule import measure_arms
from pipeline_profiler.profiling.measure.watchdog import LEAST_LIMIT_S, Guard
from pipeline_profiler.profiling.monitor.conclusion import judge_session
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.profiling.record.stack_sampler import frames_of
from pipeline_profiler.report import render


class Profile:
    """The result of a measurement: verdict, causes, and the recorded `session`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def verdict(self) -> str:
        """The verdict: input-bound (high or moderate), not input-bound, or inconclusive."""
        return str(self.session.results["verdict"])

    @property
    def sentence(self) -> str:
        """The verdict as a sentence with its numbers."""
        return str(self.session.results["sentence"])

    @property
    def stall(self) -> dict[str, float]:
        """The data stall, 0..1: value, and low and high of its confidence interval."""
        return dict(self.session.results["stall"])

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The causes, largest first: code, cause, share of the time, evidence, next action."""
        return list(self.session.results["causes"])

    def report(self, path: str | os.PathLike[str] | None = None) -> str | Path:
        """Write a report and return its path; without a path, return the text.

        The extension selects the format: .html, .md, .txt or .json. Raises ProfileError
        for another extension, and for an existing file of another program.
        """
        if path is None:
            return render.to_text(self.session)
        place = os.fspath(path)
        render.check_format(place)
        check_output(place)
        return write_report(render.make_report(self.session, place), place)

    def __repr__(self) -> str:
        return f"Profile: {self.sentence}"

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(str(text))}</td>" for text in _row(cause)) + "</tr>"
            for cause in self.causes
        )
        head = "".join(f"<th>{word}</th>" for word in ("Code", "Cause", "Share", "Next"))
        table = f"<table><tr>{head}</tr>{rows}</table>" if rows else ""
        return f"<p><b>{escape(self.verdict)}</b>: {escape(self.sentence)}</p>{table}"


def _row(cause: dict[str, Any]) -> Sequence[str]:
    share = cause["share"]
    value = share.get("value") if isinstance(share, dict) else share
    said = f"{value:.0%}" if isinstance(value, float | int) else ""
    return cause["code"], cause["cause"], said, cause["next"]


def profile_loader(
    loader: Any,
    step: Callable[[Any], Any] | float,
    *,
    quick: bool = False,
    steps: int = 300,
    repeats: int = 5,
    seconds: float | None = None,
    epoch_steps: int = 0,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Profile:
    """Measure the data stall of a training step, and return the verdict and its causes.

    `loader`: a torch DataLoader, a tf.data.Dataset, an iterable of batches, or a function that
    makes one. `step`: a function called with each batch, or the milliseconds of an emulated step.
    `quick`: finish within 30 s, with wider intervals. `seconds`: time budget (default 105).
    `epoch_steps`: steps per epoch, for a loader without a length. `progress`: called with messages.

    Raises ProfileError for invalid arguments. If the loader or the step fails, the error has the
    measurements so far as `.session`.
    """
    makes = callable(loader) and (isinstance(loader, type) or not hasattr(loader, "__iter__"))
    if not makes and not hasattr(loader, "__iter__"):
        raise ProfileError(
            f"The loader is {type(loader).__name__!r}, which gives no batches: give a DataLoader, "
            "a tf.data.Dataset, an iterable, or a function that makes one."
        )
    emulated = None if callable(step) else _milliseconds(step)
    act = step if callable(step) else emulated_step(float(step))
    options = Options(steps, repeats, quick, seed=seed, seconds=seconds, emulate_ms=emulated)
    bench = Bench(
        loader if makes else lambda: loader,
        act,
        progress=progress or (lambda text: None),
        guard=Guard(limit_s=max(LEAST_LIMIT_S, options.budget)),
        epoch_steps=epoch_steps,
        seed=seed,
    )
    _refuse_unguarded(bench.loader())
    session = measure_arms(bench, options)
    judge_session(session)
    return Profile(session)


def _milliseconds(step: object) -> float:
    if isinstance(step, int | float) and not isinstance(step, bool) and 0 <= step < 1e6:
        return float(step)
    raise ProfileError(
        f"The step is {step!r}: give a function of one batch, or the milliseconds it takes."
    )


def _refuse_unguarded(loader: Any) -> None:
    """Raise ProfileError where the loader's workers would run the calling script again."""
    if getattr(loader, "num_workers", 0) and _start_method(loader) != "fork":
        line = _unguarded_line(sys._getframe(1))
        if line:
            raise ProfileError(
                f"The loader's workers start by {_start_method(loader)!r} and run this script "
                f'again: put line {line} below `if __name__ == "__main__":`.'
            )


def _start_method(loader: Any) -> str:
    context = getattr(loader, "multiprocessing_context", None)
    if context is not None:
        return str(context.get_start_method())
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


def _unguarded_line(frame: FrameType | None) -> int:
    """Return the line of the script that led here, 0 where it is guarded or there is no script."""
    for f in frames_of(frame):
        if f.f_globals.get("__name__") == "__main__" and f.f_code.co_name == "<module>":
            return 0 if _is_guarded(f) else f.f_lineno
    return 0


def _is_guarded(frame: FrameType) -> bool:
    try:
        source = Path(frame.f_code.co_filename).read_text(encoding="utf-8")
        statements = ast.parse(source).body
    except (OSError, ValueError, SyntaxError):  # a notebook, standard input
        return True
    before = [node for node in statements if node.lineno <= frame.f_lineno]
    return any(isinstance(n, ast.If) and "__name__" in ast.unparse(n.test) for n in before)
