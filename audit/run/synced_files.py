"""Files that are replaced whole: on disk before they get their name."""

from __future__ import annotations

import os
from pathlib import Path

DRAFT = ".preflight-draft"  # the end of a name that no file of a user has


def write_synced(path: Path, content: bytes) -> None:
    """Replace a file atomically; on disk when this returns."""
    draft = path.with_name(f".{path.name}{DRAFT}")
    draft.write_bytes(content)
    sync(draft)
    os.replace(draft, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Bring a file or folder to the disk, where its file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some file systems cannot sync folders
        return
    finally:
        os.close(descriptor)
