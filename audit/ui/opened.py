"""Which run a page is about, its open store, and the sentences for what goes wrong.

A link names a known run, never a path: of the command line, of ./runs, of the Start page, or with
`audit serve` the datasets that this person may see. Each script run reads RUN/CURRENT, so a newly
published scan shows at the next click.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import streamlit as st

from audit.decisions.store import whoami
from audit.errors import AuditError, RunError
from audit.report import Report, collect_report
from audit.report.previews import FOLDER, ThumbnailCache
from audit.results import images
from audit.results.findings import count_progress
from audit.results.reader import is_open
from audit.results.results import Results, open_results
from audit.run.run_version import current
from audit.service.people import REVIEWER, VIEWER, Person
from audit.ui import html, link
from audit.ui.guard import served, serving

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
WORST = 8
STARTED = time.time()
ROOT = Path(__file__).resolve().parents[2]  # the folder that holds the packages
OURS = ("audit", "pipeline_profiler", "dataset_preflight", "app.py")
LOG = logging.getLogger("dataset-preflight.app")


class NoRunError(RunError):
    """A page has no run to show."""


@dataclass(frozen=True)
class Opened(Results):
    """A run as the pages see it in this run of the script."""

    name: str

    def ask(
        self, question: Callable[Concatenate[Results, P], T], *args: P.args, **more: P.kwargs
    ) -> T:
        """Return the answer of a function of `audit.results`, cached while the run is as it is."""
        name = f"{question.__module__}.{question.__qualname__}"
        return cast(T, _answer(self.key, name, args, more, question, self))

    def report(self) -> Report:
        """Return the counts and worst findings of the run, cached."""
        return _report(self.run, self.key)

    def thumbnails(self) -> ThumbnailCache:
        """Return the run's thumbnails."""
        return _thumbnails(self.run)


def known_runs() -> dict[str, Path]:
    """Return the runs that may be opened, by name."""
    if service := served():
        return {name: one.run for name, one in service.datasets(me()).items()}
    words = [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    given = [path for path in words if not path.is_file()]  # a file is a profiler session
    chosen: list[Path] = st.session_state.setdefault("chosen runs", [])
    below = sorted(p.parent for p in Path("runs").glob("*/CURRENT"))
    found: dict[str, Path] = {}
    for path in dict.fromkeys(p.resolve() for p in (*given, *chosen, *below)):
        name = path.name
        while name in found:
            name = f"{name}'"
        found[name] = path
    return found


def me() -> Person:
    """Return whose browser this page is of; the login name where the app has no links."""
    guard = serving()
    if guard is None:
        return Person(whoami(), REVIEWER)
    sent = {name.lower(): value for name, value in st.context.headers.items()}
    return guard.person(st.context.cookies, sent) or Person("", VIEWER)


def add_run(path: Path) -> str:
    """Make a run known to this session; returns its name."""
    st.session_state.setdefault("chosen runs", []).append(path.resolve())
    return next(name for name, p in known_runs().items() if p == path.resolve())


def run_name() -> str | None:
    """Return the run of the link, the session, or the first; None if the link's is unknown."""
    names = list(known_runs())
    if asked := link.get("run"):
        return asked if asked in names else None
    now = st.session_state.get("run")
    return str(now) if now in names else names[0] if names else None


def choose_run(name: str) -> None:
    """Turn to another run, at its first view; from the pages Start and Home to its Overview."""
    st.session_state["run"] = name
    st.query_params.clear()
    link.forget_views()
    link.put(run=name)
    if link.page_and_values()[0] in ("start", "home"):
        link.go("overview", run=name)


def open_chosen_run() -> Opened:
    """Return the chosen run; raises NoRunError where there is none, or it is gone or damaged."""
    asked, name = link.get("run"), run_name()
    if name is None and asked:
        raise NoRunError(
            f"This link is about a run called {asked!r}, which this app was not started with: "
            f"start it with `audit app {asked}`, or choose another run."
        )
    if name is None:
        raise NoRunError(
            "There is no run yet: choose a folder on the page Start, or run "
            "`audit scan FOLDER --out runs/NAME`."
        )
    st.session_state["run"] = name
    link.put(run=name)
    run = known_runs()[name]
    try:
        found = open_results(run)
        if not is_open(found.key):
            with st.spinner("Opening the run …"):
                count_progress(found, "code")
        return Opened(run, found.version, found.key, found.decisions, name)
    except (OSError, RunError) as error:
        if not run.exists():
            raise NoRunError(
                f"The run {run} is gone: it was moved or deleted while the app was open. Choose "
                "another run, or scan again on the page Start."
            ) from None
        raise NoRunError(
            str(error) if isinstance(error, RunError) else f"{run}: {error}."
        ) from None


@st.cache_data(max_entries=512, show_spinner=False)
def _answer(
    key: str, name: str, args: Any, more: Any, _question: Callable[..., Any], _run: Opened
) -> Any:
    return _question(_run, *args, **more)


@st.cache_resource(max_entries=3, show_spinner="Counting …")
def _report(run: Path, key: str) -> Report:
    return collect_report(run, worst=WORST)


@st.cache_resource(max_entries=8, show_spinner=False)
def _thumbnails(run: Path) -> ThumbnailCache:
    return ThumbnailCache(run / FOLDER)


def guarded(page: Callable[P, None]) -> Callable[P, None]:
    """Make a page say what goes wrong in it; the app wraps every page of its navigation so."""

    @wraps(page)
    def shown(*args: P.args, **kwargs: P.kwargs) -> None:
        show_said()
        safely(_or_a_way_out, partial(page, *args, **kwargs))

    return shown


def _or_a_way_out(page: Callable[[], None]) -> None:
    """Draw a page; without a run: what this app is, why nothing is shown, and where to begin."""
    try:
        _show_notice()
        page()
    except NoRunError as error:
        st.title("No run is open")
        html.paragraph(html.ABOUT)
        html.notice(str(error), "error")
        if st.button("Scan a folder, or open a run", type="primary", key="way out"):
            link.go("start")
            st.rerun()


def _show_notice() -> None:
    name = run_name()
    with contextlib.suppress(AuditError, OSError):
        version = current(known_runs()[name]) if name is not None else None
        if version is not None and version.notice:
            html.notice(version.notice, "error")


def safely(draw: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Draw a page or a fragment; an error becomes one sentence.

    BaseException passes through: Streamlit ends and restarts scripts by it.
    """
    try:
        draw(*args, **kwargs)
    except AuditError as error:
        html.notice(str(error), "error")
    except Exception as error:  # a page must never show a traceback
        LOG.exception("drawing failed")
        html.notice(f"{failure(error)} The other pages work.", "error")


def answering(act: Callable[P, object]) -> Callable[P, None]:
    """Wrap a callback: what goes wrong in it is reported at the top of the page."""

    @wraps(act)
    def done(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except AuditError as error:
            say(str(error), "error")
        except Exception as error:  # a callback must never show a traceback
            LOG.exception("callback failed")
            say(failure(error), "error")

    return done


def say(text: str, kind: str = "good") -> None:
    """Show a sentence at the top of the next page that is drawn."""
    st.session_state["said"] = (text, kind)


def show_said(*, once: bool = True) -> None:
    """Show the sentence of the latest callback, once or until it is shown once."""
    message = st.session_state.get("said")
    if once:
        st.session_state.pop("said", None)
    # Emptied at once: children of a container stay until a drawing ends undisturbed.
    place = st.empty()
    if message is not None:
        with place:
            html.notice(*message)


def failure(error: Exception) -> str:
    """Return one sentence on an error nobody foresaw: its type, where it arose, what to do."""
    first = str(error).splitlines()[0] if str(error) else "no text"
    cure = "so reload the page; the terminal that started the app has the rest."
    # A first import then loads another version than the running one.
    if any(p.stat().st_mtime > STARTED for name in OURS for p in (ROOT / name).rglob("*.py")):
        cure = "and dataset-preflight was replaced under this app: start the app again."
    return (
        f"This part of the page failed with {type(error).__name__} at {_place(error)} ({first}): "
        f"nothing was changed, {cure}"
    )


def _place(error: Exception) -> str:
    """Return file:line of the innermost frame in our own code: below it are libraries."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        # Installed, the libraries lie beside our packages: the folder alone does not tell.
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in OURS:
            return f"{path.relative_to(ROOT).as_posix()}:{frame.lineno}"
    return "an unknown place"


def sizes_of(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what the chosen run knows of samples named by id or path: for the page Profiles."""
    try:
        run = open_chosen_run()
        return images.facts(run, names)
    except (AuditError, OSError):
        return {}


def cached(answer: F) -> F:
    """Cache the last 128 answers of a function; arguments that begin with _ do not count."""
    return cast(F, st.cache_data(max_entries=128, show_spinner=False)(answer))
