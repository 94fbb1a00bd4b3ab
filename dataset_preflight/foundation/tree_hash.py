"""Hashes of folders: has the data changed, has the code changed?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

CODE_ENDINGS = (".py", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini")
NO_CODE = ("venv", "node_modules", "runs")
MAX_CODE_BYTES, MAX_CODE_FILES = 1 << 20, 2000


def hash_data(roots: Collection[str], without: str) -> str:
    """Return the hash of names, sizes and times of the files; empty where a root is no path."""
    digest = hashlib.sha256()
    for root in roots:
        if not os.path.exists(root):
            return ""
        for path in _files(root, {os.path.realpath(without)}) if os.path.isdir(root) else [root]:
            state = os.lstat(path)
            digest.update(os.fsencode(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n"))
    return digest.hexdigest()[:16]


def hash_code(folder: str, without: Collection[str], python: str) -> str:
    """Return the hash of the code below a folder and of the packages of a Python."""
    digest = hashlib.sha256()
    code = (
        p for p in _files(folder, set(map(os.path.realpath, without))) if p.endswith(CODE_ENDINGS)
    )
    for path, _ in zip(code, range(MAX_CODE_FILES), strict=False):
        if os.path.getsize(path) <= MAX_CODE_BYTES:
            digest.update(os.fsencode(path) + Path(path).read_bytes())
    for found in (Path(python), Path(os.path.realpath(python))):
        for packages in found.parent.parent.glob("lib/python*/site-packages"):
            digest.update(os.fsencode("\n".join(sorted(os.listdir(packages)))))
    return digest.hexdigest()[:16]


def _files(root: str, without: Collection[str]) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders
            if not name.startswith((".", "__")) and name not in NO_CODE
            and os.path.realpath(os.path.join(folder, name)) not in without
        )  # fmt: skip
        yield from (os.path.join(folder, name) for name in sorted(files))
