"""A place that every node reads and writes: a folder, or an address that fsspec opens.

Files are never changed: each is written whole under its final name or not at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

from audit.errors import MachineError, UsageError, error_text, find_machine_error
from audit.sources.object_store import check_address, open_store


class SharedPlace:
    """A folder or an address; picklable, so that nodes get it with their work."""

    def __init__(self, address: str) -> None:
        """Remember the address; raises UsageError for one that cannot be used or kept."""
        if "://" in address:
            check_address(address)
            self.address = address.rstrip("/")
        else:
            self.address = os.path.abspath(address)

    @property
    def folder(self) -> Path | None:
        """The folder, None where the place is an address."""
        return None if "://" in self.address else Path(self.address)

    def below(self, name: str) -> SharedPlace:
        """Return the place with this name inside it."""
        return SharedPlace(f"{self.address}/{name}")

    def prove(self) -> None:
        """Raise UsageError where nothing can be written, before any work is done."""
        name = f"proof-{os.getpid()}"
        try:
            self.write(name, b"proof")
            whole = self.read(name) == b"proof"
            self.remove(name)
        except MachineError:
            raise
        except Exception as error:  # noqa: BLE001 - each store's library raises errors of its own
            raise UsageError(
                f"[scan] parts {self.address} cannot be written ({error_text(error)}): give a "
                "folder or an address that this machine and every node may write."
            ) from None
        if not whole:
            raise UsageError(f"[scan] parts {self.address} does not return the written content.")

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole; raises MachineError where the place is full."""
        try:
            if self.folder is None:
                store, root = open_store(self.address)
                store.pipe_file(f"{root}/{name}", content)
            else:
                _write_file(self.folder / name, content)
        except Exception as error:
            full = find_machine_error(error)
            if full is None:
                raise
            raise MachineError(
                f"{self.address}, set as [scan] parts, is full ({error_text(error)}): make "
                "room there, then run the same command again. Measurements are kept."
            ) from None

    def read(self, name: str) -> bytes:
        """Return a file's bytes; raises FileNotFoundError where it is not there."""
        if self.folder is None:
            store, root = open_store(self.address)
            return bytes(store.cat_file(f"{root}/{name}"))
        return (self.folder / name).read_bytes()

    def read_range(self, name: str, start: int, size: int) -> bytes:
        """Return some of a file's bytes; raises OSError where they are not there."""
        if self.folder is None:
            store, root = open_store(self.address)
            data = bytes(store.cat_file(f"{root}/{name}", start=start, end=start + size))
        else:
            with (self.folder / name).open("rb") as file:
                file.seek(start)
                data = file.read(size)
        if len(data) != size:
            raise OSError(f"{self.address}/{name} gave {len(data):,} of {size:,} bytes")
        return data

    def names(self) -> list[str]:
        """Return the names of the files that lie right here, sorted."""
        if self.folder is None:
            store, root = open_store(self.address)
            with contextlib.suppress(FileNotFoundError):
                store.invalidate_cache()
                found: list[Any] = store.ls(root, detail=False)
                return sorted(str(path).rpartition("/")[2] for path in found)
            return []
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.suffix != ".new")

    def remove(self, name: str = "") -> None:
        """Remove a file or a place inside, or all of this one; what is gone already is fine."""
        if self.folder is None:
            store, root = open_store(self.address)
            with contextlib.suppress(FileNotFoundError):
                store.rm(f"{root}/{name}".rstrip("/"), recursive=True)
        elif (path := self.folder / name).is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # several nodes may write the same file: each under a name of its own
    fresh = path.with_name(f"{path.name}.{uuid4().hex[:12]}.new")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
