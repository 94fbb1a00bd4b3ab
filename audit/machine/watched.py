"""A program that works on the input of a stranger: bounded in time and memory, in its own process.

Without its caller the program ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from audit import errors
from audit.errors import AuditError, DamagedError
from audit.machine.workers import module_path

MAX_RESIDENT_BYTES = 2 << 30
POLL_S = 0.02
PREFIX = "dataset-preflight-"
NICENESS = 10  # of a program whose time is limited: it serves other people's requests


class ProgramEndedError(Exception):
    """The program ended without a result; the text says why, after "it"."""


def run_program(
    program: str, request: Mapping[str, Any], payload: bytes = b"", within_s: float | None = None
) -> bytes:
    """Return the output of `python -m program` for a request.

    Raises the program's AuditError; ProgramEndedError on a crash or past `within_s` or memory.
    """
    # `-P`: a folder that is called duckdb in the current folder is not imported.
    command = [sys.executable, "-P", "-m", program]
    head = {"request": dict(request), "bytes": len(payload), "limited": bool(within_s)}
    output = list[bytes]()
    with (
        _temporary_folder() as temporary,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **temporary, "PYTHONPATH": module_path()},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stderr is not None
        sent = json.dumps(head).encode() + b"\n" + payload
        # In a thread: Ctrl-C interrupts no read of the main thread once polars is imported.
        exchange = threading.Thread(target=_exchange, args=(process, sent, output), daemon=True)
        try:
            exchange.start()
            reason = _watch(process, exchange, within_s)
        finally:
            process.kill()
            if exchange.ident is not None:  # None: interrupted before the thread ran
                exchange.join()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        message = process.stderr.read().decode("utf-8", "replace")
    if process.returncode == 0:
        return output[0]
    raise _error(message) or ProgramEndedError(reason or _ending(process.returncode))


def _exchange(process: subprocess.Popen[bytes], sent: bytes, output: list[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(sent)
        process.stdin.flush()  # and stays open: its end says that the caller is gone
    output.append(process.stdout.read())


@contextlib.contextmanager
def _temporary_folder() -> Iterator[dict[str, str]]:
    try:
        folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
    except OSError:
        yield {}
        return
    with folder as name:
        yield {"TMPDIR": name}


def _watch(
    process: subprocess.Popen[bytes], exchange: threading.Thread, within_s: float | None
) -> str:
    """Wait for the end of a process; returns why it takes too much, "" where it ended itself."""
    began = time.monotonic()
    while exchange.is_alive() or process.poll() is None:
        if within_s is not None and time.monotonic() - began > within_s:
            return f"took longer than {within_s:g} s, so ask for less."
        if _resident_bytes(process.pid) > MAX_RESIDENT_BYTES:
            limit = f"{MAX_RESIDENT_BYTES / (1 << 30):g} GB"
            return f"took more than {limit} of memory, so ask for less."
        time.sleep(POLL_S)
    return ""


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    return 0


def _error(message: str) -> AuditError | None:
    try:
        name, text = json.loads(message.strip().splitlines()[-1])
    except (ValueError, IndexError, TypeError):
        return None
    if name == DamagedError.__name__:
        what, _, fix = text.rpartition(": ")
        return DamagedError(what, fix)
    made: AuditError = getattr(errors, name)(text)
    return made


def _ending(code: int) -> str:
    return f"ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}."


def serve_request(work: Callable[[Mapping[str, Any], bytes, IO[bytes]], None]) -> int:
    """Call `work(request, payload, output)` once; returns the exit code."""
    head = json.loads(sys.stdin.buffer.readline())
    payload = sys.stdin.buffer.read(head["bytes"])
    threading.Thread(target=_end_with_caller, daemon=True).start()
    if head["limited"]:
        os.nice(NICENESS)
    try:
        work(head["request"], payload, sys.stdout.buffer)
        sys.stdout.flush()
    except AuditError as error:
        sys.stderr.write(json.dumps([type(error).__name__, str(error)]))
        return 1
    return 0


def _end_with_caller() -> None:
    os.read(0, 1)  # not through `sys.stdin`, whose lock the end of Python waits for
    os._exit(1)
