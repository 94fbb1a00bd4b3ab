"""`audit` in processes of their own that need not import it: forked from one that has.

Starting Python and importing takes most of a call that is refused. A server imports the command
line once, and each call runs in a fork of it, with its own folder, arguments and streams.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT


class ForkedAudit:
    """The server, from Python's side; close it at the end."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.audit.cli.forked"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def call(self, folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run `audit WORDS` in a folder."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            asked = {"folder": str(folder), "words": list(words), "streams": [str(out), str(err)]}
            self._server.stdin.write(json.dumps(asked) + "\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline())
            texts = (file.read_text(errors="replace") for file in (out, err))
            return subprocess.CompletedProcess(["audit", *words], code, *texts)

    def close(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.communicate()


def serve() -> None:
    """Answer each line on stdin with an exit code."""
    # before the forks, not in each
    import audit.cli.main
    import audit.report
    import audit.scanning
    import audit.sources
    import audit.subset  # noqa: F401
    from audit.checking.check import all_checks

    all_checks()

    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(line))
        status = os.waitpid(child, 0)[1]
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(asked: dict[str, object]) -> None:
    from audit.cli.main import command_line

    code = 1
    try:
        for number, file in enumerate(asked["streams"], 1):  # type: ignore[arg-type]
            os.dup2(os.open(str(file), os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(str(asked["folder"]))
        sys.argv = ["audit", *asked["words"]]  # type: ignore[misc]
        command_line()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the test reads what is printed
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
