"""A row of the table of runs: outcome, code and the user's words; and the file of the table.

`[record] file`, else PIPELINE_PROFILER_RUNS (or `off`), else the user data folder: one table for
all projects, and none in theirs. Commands and the recorder make their rows here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.runs.row import VARIABLE, RunRow

OFF = ("off", "none", "0")


def default_file(environment: Mapping[str, str]) -> Path | None:
    """Where rows go; None where recording is switched off."""
    asked = environment.get(VARIABLE, "").strip()
    if asked.lower() in OFF:
        return None
    if asked:
        return Path(asked)
    home = environment.get("XDG_DATA_HOME", "").strip()
    if not home and os.name == "nt":
        home = environment.get("LOCALAPPDATA", "").strip()
    folder = Path(home) if home else Path(os.path.expanduser("~")) / ".local" / "share"
    return folder / "pipeline-profiler" / "runs.sqlite"


@dataclass(frozen=True)
class RunOutcome:
    """The part of a row that depends on the command; `trials`: settings, cells or checks tried."""

    verdict: str
    trials: int | None = None
    metric: str = ""
    value: float | None = None
    file: str = ""  # of the session or the document


# Without git, or where it fails, the fields are empty. Nothing of the repository's configuration
# runs. Secrets are masked in links, notes and diffs before they are written, rather too many.

MASK = "***"
_NAME = r"(?:api[-_]?key|access[-_]?key|token|secret|passw(?:or)?d|pwd|credentials?|auth)"
# name=value, name: value, "name": "value"; and ?name=value in an address
_ASSIGNED = re.compile(
    rf"(?i)(\b[\w-]*{_NAME}[\w-]*[\"']?\s*[=:]\s*[\"']?)(?!\s)([^\s\"'&,;)\]}}]{{4,}})"
)
_ADDRESS = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"]+@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_KNOWN = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|pk-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|eyJ)"
    r"[A-Za-z0-9._-]{8,}"
)
_LONG = re.compile(r"(?<![A-Za-z0-9+=./_-])[A-Za-z0-9+=]{24,}(?![A-Za-z0-9+=./_-])")


def mask_secrets(text: str) -> str:
    """The text with `***` in the place of what looks like a secret."""
    text = _ADDRESS.sub(rf"\1{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _ASSIGNED.sub(rf"\1{MASK}", text)
    text = _KNOWN.sub(MASK, text)
    return _LONG.sub(lambda match: MASK if _is_mixed(match[0]) else match[0], text)


def _is_mixed(word: str) -> bool:
    """Digits between letters, as in no word and no number: three changes of kind at least."""
    kinds = "".join("d" if c.isdigit() else "a" for c in word if c.isalnum())
    return len(re.findall("da|ad", kinds)) >= 3


GIT_S = 5.0  # of each call
MOST_DIFF = 400_000  # characters
MOST_UNTRACKED, LARGEST_UNTRACKED = 20, 100_000  # files of Python, bytes of each
SAFE = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "diff.external=")
PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")


@dataclass(frozen=True)
class Code:
    """The state of the code: commit, diff with new Python files, folder of the repository."""

    commit: str = ""
    diff: str = ""
    top: str = ""


def read_code(folder: Path) -> Code:
    """The state of the repository around a folder; empty without one."""
    top = _git(folder, "rev-parse", "--show-toplevel").strip()
    if not top:
        return Code()
    commit = _git(folder, "rev-parse", "--verify", "-q", "HEAD").strip()
    base = commit or _git(folder, "hash-object", "-t", "tree", os.devnull).strip()
    diff = _git(Path(top), "diff", *PLAIN, base, "--") + _untracked(Path(top))
    diff = mask_secrets(diff)
    if (over := len(diff) - MOST_DIFF) > 0:
        diff = f"{diff[:MOST_DIFF]}\n... {over:,} more characters are left out\n"
    return Code(commit, diff, top)


def _untracked(top: Path) -> str:
    """New files of Python as a diff would show them: they are part of what was run."""
    names = _git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py").split("\0")
    names = [name for name in names if name]
    parts = []
    for name in names[:MOST_UNTRACKED]:
        try:
            path = top / name
            whole = not path.is_symlink() and path.stat().st_size <= LARGEST_UNTRACKED
            lines = path.read_text("utf-8", "replace").splitlines() if whole else ["(not shown)"]
        except OSError:
            continue
        parts.append("\n".join([f"new file {name}", *(f"+{line}" for line in lines)]))
    if len(names) > MOST_UNTRACKED:
        parts.append(f"and {len(names) - MOST_UNTRACKED} more new files")
    return "".join(f"{part}\n" for part in parts)


def _git(folder: Path, *words: str) -> str:
    try:
        out = subprocess.check_output(
            ["git", *SAFE, *words],
            cwd=folder,
            timeout=GIT_S,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return out.decode("utf-8", "replace")


def begin_row(
    command: str, began: float, folder: Path, study: str = "", note: str = "", config: str = ""
) -> RunRow:
    """Return the row of a run without its outcome; `config` is a file or a link."""
    code = read_code(folder)
    return RunRow(
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        command=command,
        study=study or Path(code.top or working_folder()).name,
        note=mask_secrets(note),
        config=mask_secrets(config),
        git_commit=code.commit,
        git_diff=code.diff,
    )


def end_row(row: RunRow, outcome: RunOutcome) -> RunRow:
    """Return the row of a run that has ended."""
    file = os.path.abspath(outcome.file) if outcome.file else ""
    return replace(row, **asdict(outcome) | {"file": file})


def working_folder() -> str:
    """The folder of the process; empty where it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def enter_session(
    session: Session, file: Path, began: float, study: str = "", note: str = "", config: str = ""
) -> int | None:
    """Add the row of a session of the user's own loop; return its number, None without a table.

    A table that takes no row is a warning.
    """
    from pipeline_profiler.profiling.monitor.conclusion import judge_session, long_enough

    path = default_file(os.environ)
    if path is None:
        return None
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    folder = script.resolve().parent if script.is_file() else Path(working_folder() or "/")
    try:
        from pipeline_profiler.runs.table_file import append_row  # some Pythons lack sqlite3

        if not session.results and long_enough(session):
            judge_session(session)
        row = begin_row("recorder", began, folder, study, note, config)
        return append_row(path, end_row(row, outcome_of_session(session, str(file))))
    except (ProfileError, ImportError, OSError) as error:
        warnings.warn(f"This session is not in the table of runs: {error}", stacklevel=3)
        return None


def outcome_of_session(session: Session, file: str = "") -> RunOutcome:
    """What a session says in a row: its verdict, and the best of its figures."""
    results = session.results
    verdict = str(results.get("verdict") or ("partial" if session.partial else "no verdict"))
    metric, value, trials = _best(results)
    return RunOutcome(verdict, trials, metric, value, file)


def _best(results: Mapping[str, Any]) -> tuple[str, float | None, int | None]:
    """(name, best value, number of trials) of a sweep, precision table or run."""
    if rows := (results.get("precision") or {}).get("rows"):
        rates = _numbers([row.get("with_loader_per_s") or {} for row in rows], "value")
        return "samples/s", max(rates, default=None), len(rows)
    if points := results.get("sweep"):
        return "step ms", min(_numbers(points, "measured_ms"), default=None), len(points)
    stall = (results.get("stall") or {}).get("share")
    if isinstance(stall, int | float):
        return "stall share", float(stall), 1
    period = ((results.get("arms") or {}).get("D") or {}).get("period_ms")
    return ("step ms", float(period), 1) if isinstance(period, int | float) else ("", None, None)


def _numbers(rows: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [float(row[key]) for row in rows if isinstance(row.get(key), int | float)]
