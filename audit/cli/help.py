"""`audit --help` on one screen, rare options behind `--help-all`, and what `audit` alone says."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from audit.cli.options import TraceOption
from audit.errors import UsageError
from preflight.terminal import grouped_help
from preflight.text import text_fault

ABOUT = "Find what is wrong with an image dataset before anyone trains on it."
GROUPS = {
    "Start here": {
        "scan": "index a dataset and say what is wrong with it; again after any change",
        "app": "look at runs and profiles in the browser, and decide",
        "serve": "several datasets for several people, in the browser and by HTTP",
        "report": "print a run's findings again, or write them to a file",
        "explain": "what a check does, why it matters, what to do; without a code, all checks",
    },
    "Look": {
        "show": "everything known of one file, or what two files share",
        "overlap": "which new images show a picture that a run holds",
        "labels": "how many labels are wrong: draw some, review them",
        "needs": "how small the pictures may become, and whether colour matters",
        "sql": "query a run",
    },
    "Decide": {
        "decide": "keep, drop, relabel, move, or silence a false positive",
        "undo": "take back your last decisions",
        "log": "the decisions, newest first",
        "export": "findings and decisions as tables, annotations, tasks of label tools",
        "apply": "make the cleaned dataset in a new folder, or take it back",
    },
    "Evaluate": {
        "subset": "choose evaluation pictures, and know what their number can tell",
        "select": "the next pictures to label or to evaluate on",
    },
    "Compare and keep": {
        "diff": "what changed from one audit to the next",
        "history": "what each scan of a run found, what came with it and what went",
        "drift": "how a run's pictures differ from those of another",
        "expect": "whether a run is what audit.toml expects",
        "recheck": "run the checks again with other thresholds, reading no image",
        "verify": "read every part of a run, and tell what is damaged",
    },
}
# Parameters that are texts and may name files: a path, a pattern, a sample by the end of its path.
NAMES_OF_FILES = frozenset((
    "source", "sources", "new", "path", "other", "things", "root", "exclude",
))  # fmt: skip
RARE = {
    "--executor", "--address", "--parts", "--root", "--embedder", "--own", "--verify", "--lock",
    "--trace", "--junit", "--licence", "--config", "--card", "--reviewed", "--timing",
}  # fmt: skip
NEWEST = 3  # runs that `audit` alone names
_all_options = False


def show_all_options(yes: bool) -> None:
    """Let `--help` list the rare options as well."""
    global _all_options
    _all_options = yes


class TextCommand(TyperCommand):
    """A command whose texts are valid UTF-8; what names files may hold any bytes."""

    def invoke(self, ctx: Any) -> Any:
        """Check the texts, then run the command."""
        texts = {name: value for name, value in ctx.params.items() if name not in NAMES_OF_FILES}
        if fault := text_fault(texts):
            raise UsageError(fault)
        return super().invoke(ctx)


T = TypeVar("T", bound=Callable[..., Any])


class TextTyper(typer.Typer):
    """An application of commands whose texts are checked."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[T], T]:
        """Register a command."""
        return super().command(name, **{"cls": TextCommand, **more})


class Command(TextCommand):
    """A command whose help leaves the rare options to `--help-all`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        rare = [] if _all_options else [p for p in self.params if RARE & set(p.opts)]
        for param in rare:
            param.hidden = True  # type: ignore[attr-defined]  # options have it
        super().format_options(ctx, formatter)
        for param in rare:
            param.hidden = False  # type: ignore[attr-defined]
        if rare:
            names = ", ".join(sorted(max(p.opts, key=len) for p in rare))
            formatter.write_paragraph()
            formatter.write_text(f"--help-all tells of {names}.")


class Commands(TyperGroup):
    """The program: its commands in groups."""

    def get_help(self, ctx: Any) -> str:
        """Return the help."""
        return grouped_help("audit", ABOUT, GROUPS)


def next_here(folder: Path) -> str:
    """Return what `audit` alone says: the next commands in this folder. It starts nothing."""
    runs = sorted(
        (found.parent for found in folder.glob("runs/*/CURRENT")),
        key=lambda run: -(run / "CURRENT").stat().st_mtime,
    )
    if not runs:
        lines = [
            "There is no run here yet.",
            "  audit scan FOLDER             what is wrong with the images in a folder",
        ]
    else:
        places = [shlex.quote(str(run.relative_to(folder))) for run in runs[:NEWEST]]
        lines = ["The newest runs here:", *(f"  audit report {place}" for place in places)]
        lines += ["Look at them and decide:", "  audit app"]
    return "\n".join([*lines, "  audit --help                  every command"])


def say_next(ctx: typer.Context) -> None:
    """Find what is wrong with an image dataset before anyone trains on it."""
    from preflight import terminal

    if ctx.invoked_subcommand is None:
        terminal.write_text(next_here(Path.cwd()))


def add_trace_option(group: typer.Typer) -> None:
    """Give every command of a program `--trace`, which `audit.cli.ending` reads."""
    for info in group.registered_commands:
        if info.callback is not None:
            info.callback = _with_trace_option(info.callback)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            add_trace_option(inner.typer_instance)


def _with_trace_option(command: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(command).parameters
    if "trace" in parameters:
        return command

    @wraps(command)
    def run(trace: bool = False, **values: Any) -> Any:
        return command(**values)

    option = inspect.Parameter(
        "trace", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=TraceOption
    )
    hints = get_type_hints(command, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in parameters.values()]
    run.__signature__ = inspect.Signature([*own, option])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, "trace": TraceOption}
    return run
