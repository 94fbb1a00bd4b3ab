"""Files per second out of a saved profiler session, for budgets in seconds.

The session is read as a document (schema `profile/1`), not through the profiler's code: the two
packages meet in the app only. What counts is the undisturbed arm `W`: steps times batch size over
the time they took. A session of a training loop is slower than evaluation, which errs on the safe
side: the budget is then kept.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from audit.errors import UsageError

SCHEMA = "profile/1"
UNDISTURBED = "W"
LARGEST = 256 << 20  # bytes of a session once unpacked


def session_throughput(path: Path) -> float:
    """Return files per second of a saved session (`.json` or `.json.gz`)."""
    document = _read(path)
    runs = [run for run in document.get("runs", ()) if run.get("arm") == UNDISTURBED]
    files, seconds = 0.0, 0.0
    for run in runs:
        size, totals = run.get("config", {}).get("batch_size"), run.get("totals", {})
        if size and totals.get("steps") and totals.get("elapsed_ns"):
            files += float(size) * totals["steps"]
            seconds += totals["elapsed_ns"] / 1e9
    if seconds <= 0:
        raise UsageError(
            f"{path} does not tell the throughput (no timed run of arm {UNDISTURBED} with a batch "
            "size): give --throughput as files per second."
        )
    return files / seconds


def _read(path: Path) -> dict[str, Any]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(LARGEST)  # a file of a megabyte may unpack to gigabytes
        document = json.loads(text)
    except (OSError, ValueError, EOFError, RecursionError, zlib.error) as error:
        raise UsageError(
            f"--throughput {str(path)!r} is neither a number (files per second) nor a saved "
            "profiler session."
        ) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{path} is not a profiler session ({SCHEMA}): give files per second.")
    return document
