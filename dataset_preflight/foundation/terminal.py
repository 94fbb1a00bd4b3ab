"""Terminal output of both programs; the only module that writes to stdout and stderr.

Text for a person goes through `visible`, because names come from strangers; JSON stays exact. If
nobody reads stdout (`| head`), the command goes on; if it cannot be written, OutputError. A
sentence that stderr refuses is lost.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

# C0 and C1 controls, bidirectional marks and embeddings, line separators, lone surrogates.
UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
LAYOUT = "\n\t"
STYLE = re.compile(r"(\x1b\[[0-9;]*m)")  # colours, as rich writes them


class OutputError(Exception):
    """stdout cannot be written; the text says why, `closed` that there is none."""

    def __init__(self, why: str, *, closed: bool = False) -> None:
        super().__init__(why)
        self.closed = closed


def visible(text: str, keep: str = "") -> str:
    """Return text with control and direction characters escaped, except those in `keep`."""
    return UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def escape_controls(text: str) -> str:
    """Return the text of a report `visible`; its line ends and tabs stay, as it is made of them."""
    return visible(text, LAYOUT)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def prepare_streams() -> None:
    """Make standard output and error safe to use, whatever the caller left of them."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError as error:
            # Else the next file opened, perhaps a database, is what a library prints into.
            if error.errno == errno.EBADF:
                with contextlib.suppress(OSError):
                    os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    """Return whether a person sees stdout directly."""
    return sys.stdout is not None and sys.stdout.isatty()


def width() -> int:
    """Return the columns to fill, 60 to 120."""
    return min(120, max(60, shutil.get_terminal_size((100, 24)).columns))


def write_text(text: str, *, styled: bool = False, keep: str = "\n") -> None:
    """Write lines of an answer for a person; `styled`: colours in it are ours, and stay."""
    _write([_safe(text, styled, keep), "\n"])


def write_parts(pieces: Iterable[str]) -> None:
    """Write a document for programs as it is, in UTF-8."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")
    _write(pieces)


def write_message(text: str, *, keep: str = "\n") -> None:
    """Tell the person something, on stderr, as far as there is one."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(visible(text, keep) + "\n")
            sys.stderr.flush()


def show_progress(text: str) -> None:
    """Write a line over the last one, where stderr is a terminal."""
    with contextlib.suppress(OSError, ValueError):  # a terminal that is gone is no matter
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(f"\r{visible(text)}\x1b[K")
            sys.stderr.flush()


def close_streams() -> None:
    """Let nothing that is still buffered fail after the exit code is known."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except (OSError, ValueError):
                _discard(stream)


def _safe(text: str, styled: bool, keep: str) -> str:
    # The odd parts are what the expression matched: the colours.
    parts = STYLE.split(text) if styled else [text]
    return "".join(part if i % 2 else visible(part, keep) for i, part in enumerate(parts))


def _write(pieces: Iterable[str]) -> None:
    if sys.stdout is None:
        raise OutputError(os.strerror(errno.EBADF), closed=True)
    for piece in pieces:  # what makes the pieces may fail too: that is no failure of stdout
        try:
            sys.stdout.write(piece)
        except BrokenPipeError:
            _discard(sys.stdout)
        except (OSError, ValueError) as error:
            raise _lost(error) from None
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except (OSError, ValueError) as error:
        raise _lost(error) from None


def _lost(error: Exception) -> OutputError:
    _discard(sys.stdout)
    return OutputError(getattr(error, "strerror", None) or str(error))


def _discard(stream: TextIO) -> None:
    """Send what a stream still holds, and whatever follows, nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


Groups = Mapping[str, Mapping[str, str]]
"""{title of a group: {command: what it is for}}, the commands that a newcomer needs first."""


def grouped_help(program: str, about: str, groups: Groups) -> str:
    """Return the help of a program with many commands: a line each, by group."""
    wide = max(len(name) for group in groups.values() for name in group)
    lines = [f"usage: {program} COMMAND ...", "", about]
    for title, group in groups.items():
        lines += ["", *([title] if title else [])]
        lines += (f"  {name:<{wide}}  {text}" for name, text in group.items())
    lines += ["", f"{program} COMMAND --help lists its options. Every command takes --config FILE,"]
    lines += ["--set TABLE.KEY=VALUE (a key of that file) and --trace."]
    return "\n".join(lines) + "\n"


def nearest_name(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest of the known names; empty where none is near."""
    import difflib

    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, 1, 0.6)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""


def nearest_path(path: str | os.PathLike[str]) -> str:
    """Return ` Did you mean 'x'?` for a path beside the one that does not exist; else empty."""
    import difflib

    text = os.fspath(path).rstrip("/")
    folder, name = os.path.split(text)
    try:
        beside = sorted(os.listdir(folder or "."))[:10_000]
    except OSError:
        return ""
    found = difflib.get_close_matches(name, beside, 1, 0.6)
    return f" Did you mean {os.path.join(folder, found[0])!r}?" if found else ""
