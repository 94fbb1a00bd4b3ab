"""Paths, uris and ids: three spellings of one file, each for a purpose.

A *path* is what the operating system takes. A *uri* is storable: the absolute path where it is
valid Unicode, else a percent-encoded `file://` uri (RFC 8089), reversible by `path_of`. An *id*
names the sample on every machine (`audit.records.sample_id`) and is not reversible.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote_from_bytes, unquote_to_bytes

from audit.sources.folder_listing import contains
from audit.sources.object_store import is_object
from audit.sources.packs.members import is_member, member_place

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_IN_MEMORY = re.compile(r"(?:fetch\+)?memory://|pack\+\w+://memory%3A//")
_FILE = "file://"
PART_FOLDER = ".preflight-part"
"""Below a folder that is written: holds what is not whole yet (`audit apply`)."""


def uri_of(path: str) -> str:
    """Return the storable form of an absolute path."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _FILE + quote_from_bytes(os.fsencode(path))
    return path


def path_of(uri: str) -> str | None:
    """Return the path that `open` takes for a sample's uri; None for one that is elsewhere."""
    if uri.startswith(_FILE):
        rest = uri[len(_FILE) :]
        # RFC 8089 allows file://localhost/path; what precedes the first slash is never a folder.
        return os.fsdecode(unquote_to_bytes(rest[rest.find("/") :] if "/" in rest else rest))
    return None if is_remote(uri) or is_member(uri) or is_object(uri) else uri


def reading_place(uri: str) -> str:
    """Return where the bytes of an image are: a path, an address, the uri of a member or object."""
    return path_of(uri) or uri


def file_of(uri: str) -> str | None:
    """Return the file on this machine that holds a picture: itself, or its pack; None without."""
    path = member_place(uri)[1] if is_member(uri) else path_of(uri)
    return None if path is None or "://" in path else path


def leads_outside(uri: str, roots: Mapping[str, str]) -> bool:
    """Return whether a file below one of the `roots` lies, behind links, below none of them."""
    path = file_of(uri)
    if path is None:
        return False
    folders = [os.path.abspath(folder) for root in roots.values() if (folder := path_of(root))]
    target, targets = os.path.realpath(path), map(os.path.realpath, folders)
    inside = any(contains(folder, os.path.abspath(path)) for folder in folders)
    return inside and not any(contains(folder, target) for folder in targets)


def is_inside_process(uri: str) -> bool:
    """Return whether only this process can read a picture: fsspec's memory, or a pack there."""
    return _IN_MEMORY.match(uri) is not None


def is_remote(text: str) -> bool:
    """Return whether `text` is a URL of another machine."""
    if "://" not in text or not _SCHEME.match(text):
        return False
    return not (text.startswith(_FILE) or is_member(text) or is_object(text))


def remap(path: str, roots: Mapping[str, str]) -> str:
    """Return `path` with the longest prefix in `roots` (OLD: NEW, whole components) replaced."""
    for old in sorted(roots, key=len, reverse=True):
        bare = old.rstrip("/")
        if path == bare or path.startswith(bare + "/"):
            return roots[old].rstrip("/") + path[len(bare) :]
    return path


class IdRegister:
    """The ids used so far: a repeat becomes `id#2`, `id#3`, ... in order of appearance.

    Keeps 64-bit hashes: two equal ones, of probability n^2 / 2^65, only make a repeat.
    """

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._copies: dict[str, int] = {}

    def take(self, sample: str) -> str:
        """Return `sample`, or its next free numbered form if it was taken before."""
        candidate = sample
        while (found := hash(candidate)) in self._hashes:
            self._copies[sample] = self._copies.get(sample, 1) + 1
            candidate = f"{sample}#{self._copies[sample]}"
        self._hashes.add(found)
        return candidate
