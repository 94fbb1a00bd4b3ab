"""`audit --help` on one screen, the help of a command in groups, and what `audit` alone prints."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from audit.cli.options import keep_global_options, read_config
from audit.errors import UsageError
from dataset_preflight.foundation.settings import (
    CONFIG_HELP,
    SET_HELP,
    TRACE_HELP,
    GlobalOptions,
    global_options_first,
)
from dataset_preflight.foundation.terminal import grouped_help
from dataset_preflight.foundation.text import text_fault

ABOUT = "Find what is wrong with an image dataset before you train on it."
GROUPS = {
    "": {
        "scan": "index a dataset and report its problems; again after any change",
        "app": "review runs and profiles in the browser, and decide",
        "report": "print or write the findings, decisions and history of a run",
        "diff": "compare two runs: findings, files, or distributions",
        "export": "write findings, decisions, annotations, or a plan of a clean copy",
        "apply": "write the clean copy of a plan",
        "subset": "plan, draw and score an evaluation subset",
    },
    "More": {
        "show": "details of one image, or of a pair",
        "find": "find new images that a run already holds",
        "decide": "keep, drop, relabel, move or waive; undo; list decisions",
        "explain": "what a check does, why it matters, what to do",
        "sql": "query a run",
        "serve": "serve several datasets to several people, with an HTTP API",
        "verify": "check the files of a run for damage",
        "recheck": "run the checks again without reading images",
        "input-study": "minimum input resolution; does colour matter?",
    },
}
# Parameters that are texts and may name files: a path, a pattern, a sample by the end of its path.
NAMES_OF_FILES = frozenset((
    "source", "sources", "new", "path", "other", "subjects", "root", "exclude",
))  # fmt: skip
HELP_WIDTH = 100
NEWEST = 3  # runs that `audit` alone names


class TextCommand(TyperCommand):
    """A command whose texts are valid UTF-8; help lists options by `rich_help_panel`."""

    def invoke(self, ctx: Any) -> Any:
        """Check the texts, then run the command."""
        texts = {name: value for name, value in ctx.params.items() if name not in NAMES_OF_FILES}
        if fault := text_fault(texts):
            raise UsageError(fault)
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options by group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            kind = "Arguments" if param.param_type_name == "argument" else "Options"
            title = getattr(param, "rich_help_panel", None) or kind
            if (row := param.get_help_record(ctx)) is not None:
                groups.setdefault(title, []).append(row)
        formatter.width = HELP_WIDTH
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


T = TypeVar("T", bound=Callable[..., Any])


class TextTyper(typer.Typer):
    """An application of commands whose texts are checked."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[T], T]:
        """Register a command."""
        return super().command(name, **{"cls": TextCommand, **more})


class Commands(TyperGroup):
    """The program: its commands in groups, its options before or after the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the program, wherever they stand."""
        return super().parse_args(ctx, global_options_first(args))

    def get_help(self, ctx: Any) -> str:
        """Return the help."""
        return grouped_help("audit", ABOUT, GROUPS)


def next_here(folder: Path) -> str:
    """Return what `audit` alone prints: the next commands in this folder. It starts nothing."""
    runs = sorted(
        (found.parent for found in folder.glob("runs/*/CURRENT")),
        key=lambda run: -(run / "CURRENT").stat().st_mtime,
    )
    if not runs:
        lines = [
            "There is no run here yet.",
            "  audit scan FOLDER             find what is wrong with the images of a folder",
        ]
    else:
        places = [shlex.quote(str(run.relative_to(folder))) for run in runs[:NEWEST]]
        lines = ["The newest runs here:", *(f"  audit report {place}" for place in places)]
        lines += ["Review them in the browser:", "  audit app"]
    return "\n".join([*lines, "  audit --help                  every command"])


def start(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help=CONFIG_HELP.format(name="audit.toml"))
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help=SET_HELP.format(example="scan.lock=false"))
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help=TRACE_HELP)] = False,
) -> None:
    """Find what is wrong with an image dataset before you train on it."""
    from dataset_preflight.foundation import terminal

    if fault := text_fault({"set": assignments}):
        raise UsageError(fault)
    keep_global_options(GlobalOptions(config, assignments or (), trace))
    if config or assignments:
        read_config()  # a wrong setting is refused, whatever the command reads
    if ctx.invoked_subcommand is None:
        terminal.write_text(next_here(Path.cwd()))
