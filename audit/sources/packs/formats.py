"""The formats of packs: every module of this package with `list_members`, by its name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol, cast

from audit.sources.formats import KINDS, extension_of_name
from audit.sources.packs.members import PackMember, member_place
from audit.sources.packs.parquet_rows import is_unreadable
from audit.sources.readings import ReadingError
from dataset_preflight.foundation.check_contract import modules_in

FOLDERS_DEEP = 3


class PackFormat(Protocol):
    """A module of this package: how one kind of pack is listed and read."""

    NAME: str
    NAMED: bool
    """Whether members have paths, which mean split and class as those of a folder do."""

    def recognises(self, path: str) -> bool:
        """Return whether a file is of this format, by its name or its first bytes."""

    def list_members(self, path: str) -> Iterator[PackMember]:
        """Yield the members in a fixed order; raises DamagedPackError after the last one."""

    def read_member(self, path: str, key: str, limit: int) -> bytes:
        """Return the bytes of a picture; raises ReadingError, for more than `limit` bytes too."""


@cache
def pack_formats() -> dict[str, PackFormat]:
    """Return every format by name."""
    modules = modules_in(__name__.rpartition(".")[0])
    found = [cast(PackFormat, module) for module in modules if hasattr(module, "list_members")]
    return {module.NAME: module for module in sorted(found, key=lambda module: module.NAME)}


def format_of(path: str) -> PackFormat | None:
    """Return the format of a pack, None for a file that is none."""
    return next((f for f in pack_formats().values() if f.recognises(path)), None)


def read_packed(uri: str, limit: int) -> bytes:
    """Return the bytes of a member by its uri; raises ReadingError, OSError."""
    form, path, key = member_place(uri)
    found = pack_formats().get(form)
    if found is None:
        raise ReadingError("unsupported", f"packs of the format {form!r} are not known")
    return found.read_member(path, key, limit)


def packs_below(folder: str) -> list[str]:
    """Return the packs of a folder that holds no pictures, in order by path; [] where it does."""
    found: list[str] = []
    for path, folders, files in os.walk(folder):
        deeper = path[len(folder) :].count(os.sep) < FOLDERS_DEEP
        folders[:] = sorted(n for n in folders if not n.startswith(".")) if deeper else []
        visible = sorted(name for name in files if not name.startswith("."))
        if any(KINDS.get(extension_of_name(name)) == "image" for name in visible):
            return []
        found += [os.path.join(path, name) for name in visible]
    return choose_packs(found)


def choose_packs(paths: Sequence[str]) -> list[str]:
    """Return the packs among some files; among tables of images also one that cannot be opened."""
    forms = {path: form.NAME for path in paths if (form := format_of(path)) is not None}
    if {*forms.values()} != {"parquet"}:
        return list(forms)
    return [path for path in paths if path in forms or is_unreadable(path)]
