"""A tree of folders that no file system has to know: made of names, read as a folder is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from audit.sources.folder_listing import FolderEntries
from audit.sources.formats import KINDS, extension_of_name
from audit.sources.reading_error import ReadingError

END_BYTES = 64 << 10
MOST_WHOLE = 1 << 30  # bytes of a file whose length its listing does not tell
TEXTS_KEPT = 64


@dataclass(frozen=True, slots=True)
class Status:
    """What a listing says of a file: where its bytes are, bytes, times in ns."""

    uri: str
    n_bytes: int
    mtime_ns: int
    ctime_ns: int


class ListedTree(ABC):
    """Folders and files by their path below `root`; what a file is, its makers say."""

    def __init__(self, root: str) -> None:
        """Begin with an empty root."""
        self.root = root
        self._texts: dict[str, str] = {}
        self._folders: dict[str, FolderEntries] = {root: FolderEntries()}

    def make_folder(self, parts: Sequence[str]) -> str:
        """Return the path of a folder by its names below the root, made where it is new."""
        path = self.root
        for part in parts:
            above, path = path, f"{path}/{part}"
            if path not in self._folders:
                self._folders[path] = FolderEntries()
                self._folders[above].folders.append(part)
        return path

    def add_name(self, folder: str, name: str) -> str:
        """Add a file to a folder and return its path."""
        self._folders[folder].files.append(name)
        return f"{folder}/{name}"

    def sort(self) -> None:
        """Bring the names of each folder into order, once all are there."""
        for entries in self._folders.values():
            entries.files.sort()
            entries.folders.sort()

    def entries(self, path: str) -> FolderEntries:
        """Return what is in a folder."""
        found = self._folders[path]
        return FolderEntries(list(found.files), list(found.folders))

    def kind(self, name: str, folder: str) -> str:
        """Return `image` or the reason why not, by the name alone."""
        return KINDS.get(extension_of_name(name), "not an image")

    def has_pictures(self) -> bool:
        """Return whether a file is called as a picture is, or known to be one."""
        return any(
            self.kind(name, folder) == "image"
            for folder, entries in self._folders.items()
            for name in entries.files
        )

    @abstractmethod
    def status(self, path: str) -> Status:
        """Return where the bytes of a file are, and what is known of it."""

    @abstractmethod
    def read(self, path: str, limit: int, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of a file, or a range; raises ReadingError, OSError.

        Of more than `limit` bytes nothing is returned.
        """

    def has_file(self, path: str) -> bool:
        """Return whether there is a file of this path."""
        folder, _, name = path.rpartition("/")
        return folder in self._folders and name in self._folders[folder].files

    def head_and_tail(self, path: str) -> str:
        """Return the first and the last 64 KiB of a text file, '' if it cannot be read."""
        if path not in self._texts:
            if len(self._texts) >= TEXTS_KEPT:
                self._texts.clear()
            self._texts[path] = self._ends(path).decode("utf-8", "replace")
        return self._texts[path]

    def _ends(self, path: str) -> bytes:
        size = self.status(path).n_bytes
        try:
            if size < 0:
                whole = self.read(path, MOST_WHOLE)
                return whole[:END_BYTES] + whole[END_BYTES:][-END_BYTES:]
            head = self.read(path, END_BYTES, 0, min(size, END_BYTES)) if size else b""
            rest = min(size - END_BYTES, END_BYTES)
            return head + self.read(path, END_BYTES, size - rest, rest) if rest > 0 else head
        except (ReadingError, OSError):
            return b""

    def label_beside(self, path: str) -> str | None:
        """Return the label that a file beside it gives, None without one."""
        return None
