"""`audit` and `pipeline_profiler` in processes of their own, without the two seconds of a start.

Starting Python, importing and loading the search take most of a call in a test. A server does that
once for all test processes; each call is a fork of it with the streams, folder, environment and
limits of whoever asked. What belongs to the start itself (an encoding of the streams, a home
folder, signals, killing) is tested with real starts.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import io
import json
import os
import resource
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.conftest import ROOT, make_tree

CLIENT = ROOT / "tests" / "warm_client.py"
STARTED: list[subprocess.Popen[bytes]] = []  # what is forgotten while it runs is warned of


def warm_audit(
    *words: object, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `audit WORDS` in a folder."""
    return subprocess.run(
        [*warm_line("audit"), *map(str, words)], capture_output=True, text=True, errors="replace",
        cwd=folder, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def warm_line(tool: str) -> list[str]:
    """Return the words that run a tool in a fork of the server.

    `tool`: audit, pipeline_profiler, or python with code and arguments after it. A fork that is
    killed kills the process that asked for it, not the other way round.
    """
    return [sys.executable, "-I", "-S", str(CLIENT), str(_server()), tool]


def warm_shell(line: str, tool: str, module: str) -> str:
    """Return a line of the shell with its first word, `tool`, run by the server."""
    first, *rest = line.split(" ", 1)
    return " ".join([shlex.join(warm_line(module)), *rest]) if first == tool else line


@functools.cache
def _server() -> Path:
    """Return where the server of this run of the tests listens; the first who asks starts it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    owner = os.getppid() if run else os.getpid()
    folder = Path(tempfile.gettempdir(), f"warm-{run or uuid.uuid4().hex}")
    folder.mkdir(exist_ok=True)
    place = folder / "socket"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file is closed
        if not place.exists():
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(place), str(owner)], cwd=ROOT,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            STARTED.append(process)
            assert process.stdout is not None
            with process.stdout as said:
                assert said.readline() == b"ready\n"
    return place


# ---- the server ----


def serve(place: str, owner: int) -> None:
    """Answer calls until the process of the tests is gone."""
    _load()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            while not select.select([listening], [], [], 1)[0]:
                try:
                    os.kill(owner, 0)
                except ProcessLookupError:
                    shutil.rmtree(Path(place).parent, ignore_errors=True)
                    return
            asking, _ = listening.accept()
            with asking:
                if not os.fork():
                    listening.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _answer(asking)


def _load() -> None:
    """Import what a scan and a report import, and load the search; no thread may stay behind."""
    import audit.neighbors.search  # noqa: F401
    import pipeline_profiler.cli.main  # noqa: F401

    # a scan leaves threads of DuckDB and polars, which a fork would lack: so it is tried in a fork
    read, write = os.pipe()
    if not os.fork():
        os.write(write, json.dumps(_names_after_a_scan()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as names:
        for name in json.load(names):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()  # the pages of what is loaded stay shared


def _names_after_a_scan() -> list[str]:
    """Return the modules that a scan and a report have loaded."""
    quiet = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        tree, run = make_tree(Path(folder, "tree")), Path(folder, "run")
        for words in (["scan", str(tree), "--out", str(run)], ["report", str(run), "-o", "r.html"]):
            with contextlib.chdir(folder):
                _run(["audit", *words])
    return [name for name in sys.modules if not name.startswith(("__", "tests"))]


def _answer(asking: socket.socket) -> None:
    """Run one call in a fork, tell its exit code, and end; the fork returns from here."""
    _, received, *_ = socket.recv_fds(asking, 1, 4)
    with asking.makefile() as text:
        request = json.loads(text.readline())
    child = os.fork()
    if not child:
        asking.close()
        _become(request, received)
        _end(_run(request["words"]))
    for number in received:
        os.close(number)
    asking.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def _become(request: dict[str, Any], received: Sequence[int]) -> None:
    """Take over what a started process would have inherited."""
    folder, *streams = received
    os.fchdir(folder)
    os.close(folder)
    os.environ.clear()
    os.environ.update(request["environment"])
    resource.setrlimit(resource.RLIMIT_FSIZE, tuple(request["file_size"]))
    for number in (0, 1, 2):
        os.close(number)
    for number, stream in zip(request["streams"], streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode = "w" if number else "r"
        opened = number in request["streams"]
        setattr(sys, name, open(number, mode, closefd=False) if opened else None)  # noqa: SIM115


def _run(words: list[str]) -> int:
    """Run the command; return its exit code."""
    try:
        return int(_command(words)() or 0)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the test reads what is printed
        sys.excepthook(*sys.exc_info())
        return 1


def _command(words: list[str]) -> Callable[[], object]:
    """Return what words run: a tool, or `python CODE WORD...`, as `python -c` runs it."""
    if words[0] == "python":
        sys.argv = ["-c", *words[2:]]
        return lambda: exec(words[1], {"__name__": "__main__"})
    sys.argv = words
    if words[0] == "audit":
        from audit.cli.main import command_line as audit_line

        return audit_line
    from pipeline_profiler.cli.main import command_line as profiler_line

    return profiler_line


def _end(code: int) -> NoReturn:
    """End as an interpreter does, without taking every module down: that is half a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            os.write(2, b"Exception ignored while the streams were flushed\n")
            code = 120
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
