"""Hostile things to read, made from a seed, and the one rule for what `audit` may answer.

A case is a kind and a seed: `make_case` writes its files into a folder and returns the calls to
make. `answer` makes a call in this process, through the ending that the command line has. Used by
`tests/audit/test_fuzz.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from audit.cli.ending import exit_code_of
from audit.cli.main import app
from audit.decisions.decisions import decide_findings, decide_samples
from audit.decisions.store import DecisionStore
from audit.records import Action
from dataset_preflight.foundation import terminal
from tests.audit import hostile_files as files
from tests.audit.reviewed import findings

PATIENCE_S = 300  # s: no call here takes a tenth of it; what takes longer hangs
FULL_SCANS = 12  # one case of so many goes through the whole scan, which takes a second or two
Call = Sequence[str] | Callable[[], None]


class Broken(Exception):  # noqa: N818 - it is the answer of a program, not an error of this one
    """A call that ended otherwise than it may; the text says how, and where it was raised."""


class Hang(BaseException):
    """A call that took longer than PATIENCE_S; no `except Exception` may take it."""


@dataclass(frozen=True)
class Place:
    """What cases start from: a small dataset, its run with decisions, and a folder for a case."""

    dataset: Path
    run: Path
    folder: Path


def make_place(reviewed_run: Path, folder: Path) -> Place:
    """Copy the reviewed dataset and its run into `folder`, and decide about some of it."""
    shutil.copytree(reviewed_run.parent, folder, dirs_exist_ok=True)
    run = folder / "pets-run"
    decide_samples(run, ["train/cat/0.jpg", "train/cat/1.jpg"], Action.DROP, note="twice")
    decide_samples(run, ["test/dog/1.jpg"], Action.RELABEL, "cat")
    decide_findings(run, [next(iter(findings(run, "IMG001")))], Action.FALSE_POSITIVE)
    decide_samples(run, ["train/dog/1.jpg"], Action.KEEP)
    DecisionStore(run).undo()
    return Place(folder / "pets", run, folder / "case")


# ---- cases ----


def make_case(kind: str, seed: int, place: Place) -> list[Call]:
    """Write the files of a case into its folder, which is emptied, and return the calls."""
    # rmtree of a tree with names of 255 bytes and loops of links works from inside.
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    return KINDS[kind](Random(f"{kind} {seed}"), place)


def _manifest(rng: Random, place: Place) -> list[Call]:
    path = files.write_manifest(rng, place.folder, sorted(place.dataset.rglob("*.jpg")))
    return _sources(rng, place, path)


def _layout(rng: Random, place: Place) -> list[Call]:
    root = place.folder / "set"
    files.plant_tree(rng, root, sorted(place.dataset.rglob("*.jpg")))
    return _sources(rng, place, root)


def _sources(rng: Random, place: Place, source: Path) -> list[Call]:
    if rng.randrange(FULL_SCANS):
        return [lambda: list_source(source)]
    run = str(place.folder / "run")
    again = rng.choice((["report", run], ["report", run, "--json"], ["verify", run]))
    return [["scan", str(source), "--out", run, "--jobs", "1"], again]


def list_source(source: Path) -> None:
    """Read all that a scan reads of a source, but the pictures, and print it."""
    from audit.sources import open_source

    opened = open_source([str(source)])
    terminal.write_message(opened.describe())
    for batch in opened.batches():
        for sample in batch:
            terminal.write_text(f"{sample.id}\t{sample.label}\t{sample.split}")
    for note in opened.notes:
        terminal.write_text(note[2])
    terminal.write_text(f"{opened.log.skipped} {opened.log.declared_classes} {opened.failed}")
    if opened.failed:
        raise AssertionError(opened.failed[0].trace)
    if (metadata := opened.metadata) is not None:
        terminal.write_text(metadata.write_ndjson())


def _config(rng: Random, place: Place) -> list[Call]:
    path = place.folder / "audit.toml"
    path.write_bytes(files.config_bytes(rng))
    if rng.randrange(FULL_SCANS):
        return [lambda: _configure(path)]
    shutil.copytree(place.run, place.folder / "run")
    run = str(place.folder / "run")
    return [["recheck", run, "--config", str(path)], ["report", run]]


def _configure(path: Path) -> None:
    from audit.checking.config import load_config
    from audit.checking.runner import configure_checks

    configure_checks(None, load_config(path).thresholds)


def _decisions(rng: Random, place: Place) -> list[Call]:
    run = Path(shutil.copytree(place.run, place.folder / "run"))
    files.damage_decisions(rng, run)
    return (
        rng.sample(_readers(run), 3)
        + rng.sample(_writers(run), 1)
        + [["decide", str(run), "--log"]]
    )


def _run(rng: Random, place: Place) -> list[Call]:
    run = Path(shutil.copytree(place.run, place.folder / "run"))
    files.damage_run(rng, run)
    return [*rng.sample(_readers(run), 3), ["verify", str(run)], ["report", str(run)]]


def _readers(run: Path) -> list[Call]:
    out = str(run.parent / "out")
    plan = ["--split", "all", "--target", "this-set", "--half-width", "0.3"]
    words = [
        ["report", "RUN"], ["report", "RUN", "--json"], ["decide", "RUN", "--log"],
        ["decide", "RUN", "--log", "--json"],
        ["decide", "RUN", "--stale"], ["verify", "RUN"], ["verify", "RUN", "--json"],
        ["show", "RUN", "train/cat/0.jpg"], ["show", "RUN", "train/cat/0.jpg", "test/cat/1.jpg"],
        ["export", "RUN", "--out", out], ["report", "RUN", "-o", f"{out}.sarif"],
        ["report", "RUN", "-o", f"{out}.html"], ["report", "RUN", "-o", f"{out}.md"],
        ["sql", "RUN", "SELECT * FROM images"], ["subset", "plan", "RUN", *plan],
    ]  # fmt: skip
    return [[str(run) if word == "RUN" else word for word in one] for one in words]


def _writers(run: Path) -> list[Call]:
    one = str(run)
    return [
        ["recheck", one], ["decide", one, "--undo"],
        ["decide", one, "train/cat/0.jpg", "--as", "drop"],
        ["decide", one, "--code", "DUP001", "--rule", "largest", "--yes"],
    ]  # fmt: skip


KINDS: dict[str, Callable[[Random, Place], list[Call]]] = {
    "manifest": _manifest, "layout": _layout, "config": _config, "decisions": _decisions,
    "run": _run,
}  # fmt: skip


# ---- answers ----


def answer(call: Call) -> int:
    """Make a call; return its exit code, or raise Broken where it did not end as it may.

    It may end with 0, 1 or 2 and, for 2, one sentence. 3 and 4 say that a part, the program or the
    machine failed, which is no answer to a file.
    """
    with _own_streams() as written:
        code = _called(call)
    if "panicked" in written.native:
        raise Broken(f"a library wrote to the terminal: {written.native[:300]!r}")
    _check_text(call, code, written.out, written.err)
    return code


def _called(call: Call) -> int:
    raised: list[BaseException] = []

    def run() -> int | None:
        try:
            code = call() if callable(call) else app(list(call), standalone_mode=False)
            return code if isinstance(code, int) else None
        except BaseException as error:
            raised.append(error)
            raise

    def too_long(*_: object) -> None:
        raise Hang(f"no answer within {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(PATIENCE_S)
    try:
        code = exit_code_of(run)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Broken(described(error)) from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if code not in (0, 1, 2):
        raise Broken(f"exit code {code}: {described(raised[0]) if raised else 'a part broke'}")
    return code


def described(error: BaseException) -> str:
    """Return type, first line and the innermost place in this project."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/audit/" in f.filename and "/tests/" not in f.filename] or frames
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
    return f"{type(error).__name__} {place}: {str(error)[:300]!r}"


def _check_text(call: Call, code: int, out: str, err: str) -> None:
    said = [line for line in err.splitlines() if line.startswith("audit: ")]
    if code == 2 and len(said) != 1:
        raise Broken(f"exit code 2 with {len(said)} sentences: {err[:300]!r}")
    if "Traceback" in err or "please report" in err:
        raise Broken(f"a failure of this program: {err[:300]!r}")
    for text in (err,) if not callable(call) and "--json" in call else (out, err):
        if raw := files.RAW.findall(text):
            raise Broken(f"raw characters {raw[:4]!r} in {text[:300]!r}")
    if not callable(call) and "--json" in call and code < 2:
        try:
            json.loads(out)
        except ValueError as error:
            raise Broken(f"no JSON: {error}: {out[:300]!r}") from None


@dataclass
class Written:
    """What a call wrote: on stdout, on stderr, and what libraries wrote past Python."""

    out: str = ""
    err: str = ""
    native: str = ""


@contextlib.contextmanager
def _own_streams() -> Iterator[Written]:
    """Catch what is written as a terminal would get it; complete at the end."""
    written, made = Written(), [io.BytesIO(), io.BytesIO()]
    out, err = (
        io.TextIOWrapper(one, "utf-8", errors="backslashreplace", write_through=True)
        for one in made
    )
    saved = os.dup(2)
    with tempfile.TemporaryFile() as native:
        os.dup2(native.fileno(), 2)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                yield written
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            native.seek(0)
            written.native = native.read().decode("utf-8", "replace")
    written.out, written.err = (one.getvalue().decode("utf-8") for one in made)
