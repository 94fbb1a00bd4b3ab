"""Names that the ledger of decisions imports from here; delete with its last import."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from audit.run.checked_parts import ABSENT as ABSENT
from audit.run.checked_parts import DAMAGED as DAMAGED
from audit.run.checked_parts import SOUND as SOUND
from audit.run.checked_parts import UNFINISHED as UNFINISHED
from audit.run.checked_parts import CheckedPart as CheckedPart


def set_aside(run: Path, *paths: Path) -> Path:
    """Move damaged files into a new RUN/damaged-<time>/, made here; return it."""
    folder = run / f"damaged-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S%f')}"
    folder.mkdir()
    for path in paths:
        target = folder / path.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    return folder
