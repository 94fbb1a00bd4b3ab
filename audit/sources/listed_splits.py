"""Splits that a dataset has already, but not as folders: lists, one COCO file each, file names.

What is looked for, the first that is there: text files that list pictures (`ImageSets/Main/*.txt`
of VOC, `train.txt` beside `data.yaml` of YOLO, lists of paths or of names without extension); COCO
files each named like a split (`instances_val2017.json`); names that begin with a split
(`train_0001.jpg`). Two splits at least, and pictures that exist, show that it is meant.

Costs the reading of those lists; of COCO files the names of pictures alone are looked for.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from audit.sources import names
from audit.sources.folder_listing import FolderListing
from audit.sources.formats import named_as_images
from preflight.files import regular

_FOLDERS = ("", "ImageSets", "ImageSets/Main", "ImageSets/Segmentation", "ImageSets/Layout",
            "splits", "lists", "annotations", "labels", "data")  # fmt: skip
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*("(?:[^"\\]|\\.)*")')
_PREFIX = re.compile(r"([A-Za-z]+)[ _.\-]*\d")
CHUNK, LONGEST_NAME = 1 << 20, 4096
MOST_OF_LIST = 1 << 30
"""Bytes of a list that is read; what is longer lists no pictures that fit a folder tree."""


class ListedSplits(NamedTuple):
    """`split_of` maps the end of a picture's path, without its extension, to its split; `said`."""

    split_of: Mapping[str, str] = {}
    said: str = ""

    def of(self, relative: str) -> str | None:
        """Return the split of a picture, by the longest end of its path that is listed."""
        end = _end(relative)
        while end not in self.split_of:
            _, slash, end = end.partition("/")
            if not slash:
                return None
        return self.split_of[end]


NO_SPLITS = ListedSplits()


def find_listed_splits(tree: FolderListing) -> ListedSplits:
    """Return the splits that files of the tree tell; none where fewer than two are told."""
    kinds: tuple[tuple[str, Callable[[str], Iterator[str]]], ...] = (
        ("txt", _lines), ("json", _coco_names)
    )  # fmt: skip
    roots = [tree.root, *(os.path.join(tree.root, f) for f in tree.entries(tree.root).folders[:4])]
    for root in roots:
        for folder in (os.path.join(root, inner) for inner in _FOLDERS):
            for extension, read in kinds:
                files = tree.files(folder, extension, limit=64)
                found = _listed(tree, files, read)
                if found.split_of:
                    return found
    return _by_name(tree)


def _listed(
    tree: FolderListing, files: list[str], read: Callable[[str], Iterator[str]]
) -> ListedSplits:
    splits = names.split_values({_last_words(path): path for path in files})
    told = {path: split for path in files if (split := splits.get(_last_words(path)))}
    plain = {path: split for path, split in told.items() if split in names.CANONICAL.values()}
    told = plain if len(set(plain.values())) > 1 else told
    if len(set(told.values())) < 2:
        return NO_SPLITS
    split_of: dict[str, str] = {}
    seen, twice = Counter[str](), 0
    for path, split in told.items():
        for line in read(path):
            end = _end(line)
            twice += split_of.setdefault(end, split) != split
            seen[path] += 1
    if len({split for path, split in told.items() if seen[path]}) < 2:
        return NO_SPLITS
    there = {_end(name) for folder in tree.near_folders() for name in _pictures(tree, folder)}
    if there.isdisjoint(end.rpartition("/")[2] for end in split_of):
        return NO_SPLITS
    lists = ", ".join(
        f"{told[path]} from {os.path.relpath(path, tree.root)} ({n:,})" for path, n in seen.items()
    )
    more = f"; {twice:,} in several of them count for the first" if twice else ""
    return ListedSplits(split_of, f"splits: {lists}{more}")


def _by_name(tree: FolderListing) -> ListedSplits:
    """Return the splits that names begin with, where all pictures of a folder begin with one."""
    for folder in tree.near_folders():
        found = dict[str, str]()
        for name in _pictures(tree, folder):
            match = _PREFIX.match(name)
            word = names.CANONICAL.get(match[1].lower()) if match else None
            if word is None:
                found = {}
                break
            found[_end(name)] = word
        counts = Counter(found.values())
        if len(counts) > 1:
            each = ", ".join(f"{split} ({n:,})" for split, n in counts.items())
            return ListedSplits(found, f"splits: {each} from the beginnings of file names")
    return NO_SPLITS


def _pictures(tree: FolderListing, folder: str) -> list[str]:
    return list(named_as_images(tree.entries(folder).files))


def _last_words(path: str) -> str:
    """Return what may name a split in a file's name: `instances_val2017` is val2017."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return re.sub(r"^(instances|person_keypoints|annotations?|list|coco)_", "", stem)


def _end(path: str) -> str:
    stem, dot, extension = path.replace("\\", "/").rpartition(".")
    end = stem if dot and "/" not in extension else stem + dot + extension
    return end.removeprefix("./")


def _lines(path: str) -> Iterator[str]:
    """Yield the first word of each line, or all of it where it is a path with spaces."""
    try:
        if os.path.getsize(path) > MOST_OF_LIST:
            return
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            for line in file:
                text = line.strip()
                if text and not text.startswith("#"):
                    whole = bool(named_as_images([text]))
                    yield text if whole else text.split()[0]
    except OSError:
        return


def _coco_names(path: str) -> Iterator[str]:
    try:
        with open(path, "rb", opener=regular) as file:
            rest = b""
            while chunk := file.read(CHUNK):
                text, at = rest + chunk, 0
                for match in _FILE_NAME.finditer(text):
                    at = match.end()
                    yield json.loads(match[1])
                rest = text[max(at, len(text) - LONGEST_NAME) :]
    except (OSError, ValueError):
        return
