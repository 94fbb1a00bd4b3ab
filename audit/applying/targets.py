"""Where each file goes below the new folder: names that are safe, and no two alike.

A tree whose folders are its splits and classes keeps its paths; where a decision gave another split
or class, that folder of the path is another. All others become `split/class/name`. No path leads
out of the folder, whatever the source's names are: `..` and roots are taken off, bytes that are no
text and control characters are written as %XX.
"""

from __future__ import annotations

import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from audit.sources.names import split_word

RECEIPT_FOLDER = ".preflight"
LONGEST_NAME = 255  # bytes, of the common file systems


@dataclass(frozen=True, slots=True)
class Placed:
    """A sample to place: `path` below its root, as scanned and as decided."""

    path: str
    split_before: str | None
    label_before: str | None
    split: str | None
    label: str | None


def choose_targets(samples: Sequence[Placed], *, by_folders: bool) -> tuple[list[str], str]:
    """Return a target for each sample, all different, and how they were named: keep or folders.

    `by_folders`: whether the folders of the source say split and class.
    """
    names = _split_folders(samples)
    kept = [_changed(sample, names) if by_folders else None for sample in samples]
    if by_folders and all(path is not None for path in kept):
        return _unique([path for path in kept if path is not None]), "keep"
    return _unique([_filed(sample) for sample in samples]), "folders"


def case_clash(targets: Iterable[str]) -> tuple[str, str] | None:
    """Return two paths that are one where case or the composition of letters does not count."""
    seen: dict[str, str] = {}
    for target in targets:
        for path in (target, *map(str, PurePosixPath(target).parents)):
            key = unicodedata.normalize("NFC", path).casefold()
            if seen.setdefault(key, path) != path:
                return seen[key], path
    return None


def safe_path(path: str) -> str:
    """Return a relative path of names that every disk of this system takes."""
    parts = [_safe_name(p) for p in path.split("/") if p not in ("", ".", "..")]
    if parts and parts[0] == RECEIPT_FOLDER:
        parts[0] = f"_{RECEIPT_FOLDER}"
    return "/".join(parts) or "unnamed"


def _safe_name(name: str) -> str:
    raw = b"".join(_safe_bytes(char) for char in name)
    if len(raw) <= LONGEST_NAME - 8:  # leaves room for a number
        return raw.decode()
    stem, dot, extension = raw.decode().rpartition(".")
    end = f"{dot}{extension}" if dot and len(extension) < 10 else ""
    room = LONGEST_NAME - 8 - len(end.encode())
    return (stem or raw.decode()).encode()[:room].decode(errors="ignore") + end


def _safe_bytes(char: str) -> bytes:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no text, as `os.fsdecode` writes it
        return b"%%%02X" % (code - 0xDC00)
    if unicodedata.category(char) in ("Cc", "Cs"):
        return b"".join(b"%%%02X" % byte for byte in char.encode(errors="replace"))
    return char.encode()


def _split_folders(samples: Sequence[Placed]) -> dict[str, str]:
    """Return the folder that stands for each split, by the number of its samples."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        place = _split_place(sample)
        if place is not None and sample.split_before is not None:
            counts[sample.split_before][sample.path.split("/")[place]] += 1
    return {split: found.most_common(1)[0][0] for split, found in counts.items()}


def _split_place(sample: Placed) -> int | None:
    folders = sample.path.split("/")[:-1]
    for place, name in enumerate(folders):
        if sample.split_before in (name, split_word(name)):
            return place
    return None


def _label_place(sample: Placed) -> int | None:
    folders = sample.path.split("/")[:-1]
    split = _split_place(sample)
    for place, name in enumerate(folders):
        if place != split and unicodedata.normalize("NFC", name) == sample.label_before:
            return place
    return None


def _changed(sample: Placed, split_names: Mapping[str, str]) -> str | None:
    """Return the path with its changed folders, None where no folder says what changed."""
    parts = sample.path.split("/")
    for before, after, place, names in (
        (sample.split_before, sample.split, _split_place(sample), split_names),
        (sample.label_before, sample.label, _label_place(sample), {}),
    ):
        if before == after:
            continue
        if place is None or after is None:
            return None
        parts[place] = names.get(after, after).replace("/", "%2F")
    return safe_path("/".join(parts))


def _filed(sample: Placed) -> str:
    """Return split/class/rest of the path, without the folders that said either."""
    parts = sample.path.split("/")
    places = {_split_place(sample), _label_place(sample)}
    known = None not in places
    rest = [p for i, p in enumerate(parts) if i not in places] if known else parts[-1:]
    above = [name.replace("/", "%2F") for name in (sample.split, sample.label) if name]
    return safe_path("/".join([*above, *rest]))


@dataclass(slots=True)
class _Taken:
    """Paths that are given away: of files, and of the folders above them."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def is_free(self, path: str) -> bool:
        above = {str(p) for p in PurePosixPath(path).parents}
        return path not in self.files and path not in self.folders and not above & self.files

    def add(self, path: str) -> str:
        self.files.add(path)
        self.folders |= {str(p) for p in PurePosixPath(path).parents}
        return path


def _unique(wanted: Sequence[str]) -> list[str]:
    """Return the paths, a repeat with a number before its extension, in order of appearance."""
    taken, seen, result = _Taken(), Counter[str](), []
    first = set(wanted)
    for path in wanted:
        base = _beside_files(path, taken)
        candidate = base
        while not taken.is_free(candidate) or (candidate != base and candidate in first):
            seen[base] += 1
            stem, extension = os.path.splitext(base)
            candidate = f"{stem}~{seen[base] + 1}{extension}"
        result.append(taken.add(candidate))
    return result


def _beside_files(path: str, taken: _Taken) -> str:
    """Return the path with another name for each folder that has the name of a file."""
    while clash := {str(p) for p in PurePosixPath(path).parents} & taken.files:
        above = min(clash)
        path = f"{above}~folder{path[len(above) :]}"
    return path
