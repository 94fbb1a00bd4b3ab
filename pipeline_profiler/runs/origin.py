"""Where a run comes from: the command as typed, the state of the code, the tracker's run id.

git is asked by short calls with a time limit; without git, outside of a repository, or where git
fails, the row says so by empty fields. Nothing of the repository's configuration is run: external
diffs, text filters and file monitors are switched off.

Secrets come out of command lines, notes and diffs before they are written anywhere: values of
options and assignments whose name says that they are secret, texts of the known forms of tokens,
passwords in addresses, and long mixed strings as only generators write them. It errs on the side of
masking: a row with `***` in it is still a row.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# ---- Secrets ----

MASK = "***"
_NAME = r"(?:api[-_]?key|access[-_]?key|token|secret|passw(?:or)?d|pwd|credentials?|auth)"
_OPTION = re.compile(rf"^--?[\w-]*{_NAME}[\w-]*$", re.IGNORECASE)
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


def mask_arguments(words: Sequence[str]) -> list[str]:
    """The words of a command line, also those that follow an option such as `--api-key`."""
    masked, secret = [], False
    for word in words:
        masked.append(MASK if secret and not word.startswith("-") else mask_secrets(word))
        secret = bool(_OPTION.match(word))
    return masked


def _is_mixed(word: str) -> bool:
    """Digits between letters, as in no word and no number: three changes of kind at least."""
    kinds = "".join("d" if c.isdigit() else "a" for c in word if c.isalnum())
    return len(re.findall("da|ad", kinds)) >= 3


# ---- The code ----

GIT_S = 5.0  # of each call
MOST_DIFF = 400_000  # characters
MOST_UNTRACKED, LARGEST_UNTRACKED = 20, 100_000  # files of Python, bytes of each
SAFE = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "diff.external=")
PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")
TRACKERS = {"mlflow": "MLFLOW_RUN_ID", "wandb": "WANDB_RUN_ID"}


@dataclass(frozen=True)
class Code:
    """The state of the code: commit, branch, the diff to the commit, the folder of the repository.

    `diff` begins with the tracked changes; new files of Python follow as whole texts.
    """

    commit: str = ""
    branch: str = ""
    diff: str = ""
    top: str = ""


def typed(argv: Sequence[str]) -> str:
    """The command as it can be typed again, secrets masked."""
    return shlex.join(["pipeline-profiler", *mask_arguments(argv)])


def tracker_run(environment: Mapping[str, str]) -> str:
    """`mlflow:ID` or `wandb:ID`, both with a blank between them; "" without one."""
    ids = [(name, environment.get(key, "").strip()[:200]) for name, key in TRACKERS.items()]
    return " ".join(f"{name}:{run}" for name, run in ids if run)


def read_code(folder: Path) -> Code:
    """The state of the repository around a folder; empty without one."""
    top = _git(folder, "rev-parse", "--show-toplevel").strip()
    if not top:
        return Code()
    commit = _git(folder, "rev-parse", "--verify", "-q", "HEAD").strip()
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip() if commit else ""
    base = commit or _git(folder, "hash-object", "-t", "tree", os.devnull).strip()
    diff = _git(Path(top), "diff", *PLAIN, base, "--") + _untracked(Path(top))
    diff = mask_secrets(diff)
    if (over := len(diff) - MOST_DIFF) > 0:
        diff = f"{diff[:MOST_DIFF]}\n... {over:,} more characters are left out\n"
    return Code(commit, "" if branch == "HEAD" else branch, diff, top)


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
        done = subprocess.run(
            ["git", *SAFE, *words],
            cwd=folder,
            capture_output=True,
            timeout=GIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
