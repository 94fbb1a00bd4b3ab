"""The second process of the watchdog: `last_watch.py PID LIMIT_S DUMP_FILE`.

Without a line from the measuring process within the limit, C code holds its interpreter lock. Then:
the signal that raises in the main thread, else a stack by faulthandler, the last saved session, and
the end of the process and its workers. Standard library alone, run with `python -I`.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

GRACE_S, AFTER_SIGNAL_S = 5.0, 15.0


def watch(pid: int, limit_s: float, dump: str) -> None:
    """Wait for silence; return at the line `end` or where there will be no more lines."""
    saved, silent_s, asked, text = "", 0.0, False, b""
    while os.getppid() == pid:  # forked workers keep the pipe open after its end
        ready, _, _ = select.select([0], [], [], 1.0)
        if ready:
            part = os.read(0, 65536)
            if not part:
                return
            text = (text + part)[-65536:]
            if re.search(rb"(?m)^end$", text):
                return
            found = re.findall(rb"(?m)^saved (.+)$", text)
            saved = os.fsdecode(found[-1]) if found else saved
            silent_s, asked = 0.0, False
            continue
        silent_s += 1.0
        if silent_s > limit_s + GRACE_S and not asked:
            os.kill(pid, signal.SIGUSR2)
            asked = True
        elif silent_s > limit_s + GRACE_S + AFTER_SIGNAL_S:
            end_process(pid, limit_s, dump, saved)
            return


def end_process(pid: int, limit_s: float, dump: str, saved: str) -> None:
    """Say where it hangs, complete the saved session, end the process and what it started."""
    frames = take_stack(pid, dump)
    at = frames[0] if frames else "an unknown place"
    sentence = (
        f"Nothing happened for {limit_s:.0f} s, and the process could not be interrupted: it was "
        f"ended from outside. It hangs at {at}"
    )
    sys.stderr.write(f"pipeline-profiler: {printable(sentence)}\n")
    stack = {"of": "the training process", "frames": frames}
    cut_off = {"sentence": sentence, "where": "uninterruptible", "stacks": [stack]}
    if saved:
        with suppress(OSError, ValueError):
            complete(Path(saved), cut_off)
            sys.stderr.write(f"The partial session is saved in {printable(saved)}.\n")
    else:
        sys.stderr.write("Nothing had been saved by then.\n")
    sys.stderr.flush()
    for child in children(pid):
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def printable(text: str) -> str:
    """The text in ASCII: names come from the user's files."""
    return ascii(text)[1:-1]


def take_stack(pid: int, dump: str) -> list[str]:
    """'train.py:12 read', innermost first, of the main thread."""
    with suppress(OSError):
        before = os.path.getsize(dump)
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        text = Path(dump).read_bytes()[before:].decode("utf-8", "replace")
        main = re.split(r"(?m)^(?=(?:Current t|T)hread 0x)", text)[-1]
        rows = re.findall(r'(?m)^  File "(.*)", line (\d+) in (.*)$', main)
        return [f"{Path(path).name}:{line} {name}" for path, line, name in rows][:12]
    return []


def complete(path: Path, cut_off: dict[str, Any]) -> None:
    """Add where it hung to a saved session."""
    blob = path.read_bytes()
    packed = blob[:2] == b"\x1f\x8b"
    document = json.loads(gzip.decompress(blob) if packed else blob)
    document |= {"partial": True, "cut_off": cut_off}
    document["notes"] = [*document.get("notes", []), cut_off["sentence"]]
    text = json.dumps(document, separators=(",", ":")).encode()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(gzip.compress(text, 4) if packed else text)
    draft.replace(path)


def children(pid: int) -> list[int]:
    """Processes that `pid` started, this one left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            if parent == pid and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the measurement
    watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
