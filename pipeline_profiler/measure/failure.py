"""What stopped a measurement: one sentence, and the frames of the user's own code.

An exception that comes out of a loader carries our frames, the framework's and, from a worker
process, a second traceback as text. The reader needs the lines they wrote; everything else is
cut, unless nothing would be left.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent.parent)
_FRAME = re.compile(r'(?m)^(?=  File ")')
_FILE = re.compile(r'  File "([^"]+)"')
_WORKER = re.compile(r"Caught \S+ in DataLoader worker process (\d+)")
_KILLED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (.+?)[.\s]*$", re.MULTILINE)
_SYSTEM = tuple(path for path in (sysconfig.get_path("stdlib"), _HERE) if path)
_PLACES = {"_iterate": "The loader", "loader": "The function that makes the loader"}


def sentence(error: BaseException, batches: int) -> str:
    """Who raised what, and after how many batches."""
    after = f" after {batches} batches" if batches else ""
    if killed := _KILLED.search(str(error)):
        # torch raises this in whatever the training process does at that moment
        memory = (
            "; the system kills when memory runs out: fewer workers or a smaller prefetch need less"
            if "Killed" in killed.group(2)
            else ""
        )
        return f"The loader's worker process {killed.group(1)} {killed.group(2)}{after}{memory}."
    match = _WORKER.search(str(error))
    who = f"The loader's worker {match.group(1)}" if match else _place(error)
    return f"{who} raised {type(error).__name__}{after}: {_last_line(error)}"


def _place(error: BaseException) -> str:
    """Which of the user's functions was running, by the innermost of our own frames."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(_HERE)]
    for frame in reversed(frames):
        if frame.name in _PLACES:
            return _PLACES[frame.name]
        if frame.name == "drive":
            return "The step"
    return "The measurement"


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no message"
    return last.removeprefix(f"{type(error).__name__}: ")


def user_traceback(error: BaseException) -> str:
    """The traceback without our frames, the framework's and the standard library's."""
    text = "".join(traceback.format_exception(error))
    if "Original Traceback" in text:
        text = text[text.index("Original Traceback") :]
    _, *frames = _FRAME.split(text)
    if not frames:
        return text.strip()
    # what follows the last frame's source lines is the exception itself
    body = frames[-1].splitlines()
    end = next((i for i, line in enumerate(body) if line and not line.startswith("  ")), len(body))
    frames[-1], last = "\n".join(body[:end]) + "\n", "\n".join(body[end:]).strip()
    own = [frame for frame in frames if _is_users(frame)] or frames
    return "Traceback of your code (most recent call last):\n" + "".join(own) + last


def _is_users(frame: str) -> bool:
    match = _FILE.match(frame)
    return is_own_code(match.group(1) if match else "")


def is_own_code(path: str) -> bool:
    """Whether a file is the user's: not ours, not the standard library's, not an installed one."""
    return not path.startswith(_SYSTEM) and "site-packages" not in path and path[:1] != "<"
