"""`audit subset ...` called in this process, as the command line calls it."""

from __future__ import annotations

import contextlib
import io

from audit.cli.ending import exit_code_of
from audit.cli.main import app


def call(*words, code=0):
    """Return what a command prints: on stdout, or where it ends with another code on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = exit_code_of(lambda: app(["subset", *map(str, words)], standalone_mode=False))
    assert ended == code, out.getvalue() + err.getvalue()
    return (out if code == 0 else err).getvalue()
