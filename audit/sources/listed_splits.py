"""Splits that a dataset has already, but not as folders: lists, one COCO file each, file names.

The first that is there counts: folders and lists in a YAML of YOLO; text files that list pictures
(`ImageSets/Main/*.txt`, `train.txt`); COCO files each named like a split
(`instances_val2017.json`); `train_test_split.txt` of CUB; names that hold a split
(`img_train_0001.jpg`). Two splits at least, and pictures that exist, are required.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, takewhile
from typing import NamedTuple

from audit.records import sample_id
from audit.sources import names
from audit.sources.folder_listing import FolderListing, ends_of, longest_end
from audit.sources.formats import named_as_images
from dataset_preflight.foundation.files import regular

_FOLDERS = ("", "ImageSets", "ImageSets/Main", "ImageSets/Segmentation", "ImageSets/Layout",
            "splits", "lists", "annotations", "labels", "data")  # fmt: skip
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*("(?:[^"\\]|\\.)*")')
CHUNK, LONGEST_NAME = 1 << 20, 4096
LISTS = ("csv", "tsv", "txt", "jsonl")
NOT_USED = "Split lists not used"  # how the note on them starts
MOST_SHOWN = 4
NEARLY_ALL = 0.95
PROBED, LEAST_PROBED = 400, 0.9
"""Names of pictures that are looked at first, and the share of them with a split to look on."""
MOST_OF_YAML = 1 << 20
MOST_OF_LIST = 1 << 30
"""Bytes of a list that is read; what is longer lists no pictures that fit a folder tree."""


class ListedSplits(NamedTuple):
    """The split by end of path without extension, by folder, or by file name; and the reason."""

    split_of: Mapping[str, str] = {}
    reason: str = ""
    folders: Mapping[str, str] = {}
    by_name: bool = False

    def of(self, relative: str) -> str | None:
        """Return the split of a picture, by the longest end of its path that is listed."""
        if self.by_name:
            return split_in_name(relative)
        folder = os.path.dirname(relative)
        while self.folders and folder:
            if folder in self.folders:
                return self.folders[folder]
            folder = os.path.dirname(folder)
        end = longest_end(_end(relative), self.split_of)
        return None if end is None else self.split_of[end]


NO_SPLITS = ListedSplits()


def find_listed_splits(tree: FolderListing) -> ListedSplits:
    """Return the splits that files of the tree tell; none where fewer than two are told."""
    outer = tree.outer_folders()
    inner = [os.path.join(outer[-1], name) for name in tree.entries(outer[-1]).folders[:4]]
    found, looked = list[ListedSplits](), set[str]()
    for root in (*outer, *inner):
        for find in (_named_in_yaml, _numbered):
            if (named := find(tree, root)).reason:
                return named
        folders = [os.path.normpath(os.path.join(root, below)) for below in _FOLDERS]
        listed = (
            _listed(tree, tree.files(folder, extension, limit=64), read)
            for folder in folders
            for extension, read in (("txt", _lines), ("json", _coco_names))
            if folder not in looked
        )
        found += list(islice((splits for splits in listed if splits.reason), 1))
        looked |= set(folders)
    if not found:
        return _by_name(tree)
    joined = {end: split for splits in reversed(found) for end, split in splits.split_of.items()}
    return ListedSplits(joined, "; ".join(splits.reason for splits in found))


def unused_lists(tree: FolderListing) -> str:
    """Return a sentence on files named like lists of splits, for a tree without any split."""
    start = tree.outer_folders()[-1]
    found = list[str]()
    for below in _FOLDERS:
        files = tree.files(os.path.normpath(os.path.join(start, below)), *LISTS, limit=64)
        named = names.split_values({_last_words(path) for path in files})
        found += [path for path in files if "ImageSets" in below or _last_words(path) in named]
    if not found:
        return ""
    shown = [sample_id(os.path.relpath(path, tree.root)) for path in found]
    more = f" and {len(shown) - MOST_SHOWN:,} more" if len(shown) > MOST_SHOWN else ""
    return (
        f"{NOT_USED}: {', '.join(shown[:MOST_SHOWN])}{more}. To use them, write a CSV with the "
        "columns path and split into the folder of the images, and scan that CSV."
    )


def _listed(
    tree: FolderListing, files: list[str], read: Callable[[str], Iterator[str]]
) -> ListedSplits:
    known = names.CANONICAL.values()
    words = names.split_values({_last_words(path): path for path in files})
    splits = {path: split for path in files if (split := words.get(_last_words(path)))}
    if any(split not in known for split in splits.values()):
        splits = _first_series(splits)
    plain = {path: split for path, split in splits.items() if split in known}
    return _from_lists(tree, plain if len(set(plain.values())) > 1 else splits, read)


def _first_series(lists: dict[str, str]) -> dict[str, str]:
    """Return one series of several: `train1`, `val1` before other folds, the shortest name."""
    series = dict[str, dict[str, str]]()
    for path in lists:
        words = names.words(_last_words(path))
        if len(splits := [word for word in words if word in names.CANONICAL]) == 1:
            words.remove(splits[0])
            series.setdefault(" ".join(words), {})[path] = names.CANONICAL[splits[0]]
    whole = [name for name, part in series.items() if len(set(part.values())) == len(part) > 1]
    return series[min(whole, key=len)] if whole else lists


def _from_lists(
    tree: FolderListing, lists: Mapping[str, str], read: Callable[[str], Iterator[str]]
) -> ListedSplits:
    """Return the splits of lists, {path of a list: split}; none where they name no picture here."""
    if len(set(lists.values())) < 2:
        return NO_SPLITS
    split_of: dict[str, str] = {}
    seen, twice = Counter[str](), 0
    for path, split in lists.items():
        for line in read(path):
            twice += split_of.setdefault(_end(line), split) != split
            seen[path] += 1
    if len({lists[path] for path in seen}) < 2:
        return NO_SPLITS
    if set(map(_end, _near_images(tree))).isdisjoint(end.rpartition("/")[2] for end in split_of):
        return NO_SPLITS
    each = ", ".join(
        f"{lists[path]} from {os.path.relpath(path, tree.root)} ({n:,})" for path, n in seen.items()
    )
    more = f"; {twice:,} are in several lists and count for the first list" if twice else ""
    return ListedSplits(_as_here(tree, split_of), f"splits: {each}{more}")


def _near_images(tree: FolderListing) -> list[str]:
    return [n for f in tree.near_folders() for n in named_as_images(tree.entries(f).files)]


def _as_here(tree: FolderListing, split_of: dict[str, str]) -> dict[str, str]:
    """Return the ends of paths without the folders that they have elsewhere alone."""
    first, last = min(split_of), max(split_of)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = "".join(char for char, _ in same).rpartition("/")[0]
    here = {end for f in tree.near_folders() for end in ends_of(os.path.relpath(f, tree.root))}
    end = longest_end(shared, here) or ""
    lost = len(shared) - len(end) + bool(shared and not end)
    return {path[lost:]: split for path, split in split_of.items()} if lost else split_of


def _named_in_yaml(tree: FolderListing, folder: str) -> ListedSplits:
    """Return the splits that a YAML of YOLO names, each as lists or as folders of pictures."""
    for path in tree.files(folder, "yaml", "yml"):
        keys = _yaml_keys(path)
        lists, folders = dict[str, str](), dict[str, str]()
        for key in ("train", "val", "valid", "test"):
            split, given = names.CANONICAL[key], keys.get(key)
            for value in given if isinstance(given, list) else [given]:
                path_here = _path_here(folder, str(keys.get("path") or ""), value)
                if path_here and os.path.isdir(path_here):
                    folders.setdefault(os.path.relpath(path_here, tree.root), split)
                elif path_here:
                    lists.setdefault(path_here, split)
        if len(set(folders.values())) > 1 and not lists:
            each = ", ".join(f"{split} is {below}" for below, split in folders.items())
            name = os.path.relpath(path, tree.root)
            return ListedSplits({}, f"splits of {name}: {each}", folders)
        if (found := _from_lists(tree, lists, _lines)).reason:
            return found
    return NO_SPLITS


def _numbered(tree: FolderListing, folder: str) -> ListedSplits:
    """Return the splits of CUB and NABirds: pictures by number, and 1 for those to train on."""
    file = os.path.join(folder, "train_test_split.txt")
    flags = dict(_pairs(file))
    split_of = {
        _end(path): "train" if flags[number] == "1" else "test"
        for number, path in (_pairs(os.path.join(folder, "images.txt")) if flags else ())
        if number in flags
    }
    counts = Counter(split_of.values())
    if len(counts) < 2:
        return NO_SPLITS
    each = ", ".join(f"{split} ({n:,})" for split, n in counts.items())
    return ListedSplits(split_of, f"splits: {each} from {os.path.relpath(file, tree.root)}")


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    for line in _text_lines(path):
        first, _, rest = line.partition(" ")
        if rest:
            yield first, rest


def _yaml_keys(path: str) -> Mapping[str, object]:
    import yaml

    try:
        with open(path, "rb", opener=regular) as file:
            keys = yaml.load(file.read(MOST_OF_YAML), Loader=yaml.BaseLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return keys if isinstance(keys, dict) else {}


def _path_here(folder: str, start: str, value: object) -> str | None:
    """Return the longest end of a path that exists below `folder`."""
    for text in (f"{start}/{value}", value) if isinstance(value, str) else ():
        parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        paths = (os.path.join(folder, end) for end in ends_of("/".join(parts)))
        if path := next(filter(os.path.exists, paths), None):
            return path
    return None


def _by_name(tree: FolderListing) -> ListedSplits:
    """Return the splits that names hold, `img_train_0001`, where nearly all pictures have one."""
    stems: dict[tuple[str, ...], set[str]] = {}
    counts = Counter[str]()
    pictures = _near_images(tree)
    probe = pictures[:: len(pictures) // PROBED + 1]
    if sum(split_in_name(name) is not None for name in probe) < LEAST_PROBED * len(probe):
        return NO_SPLITS
    for name in pictures:
        if split := split_in_name(name):
            counts[split] += 1
            rest = (word for word in names.words(_end(name)) if not word.isdigit())
            stem = tuple(word for word in rest if names.CANONICAL.get(word) != split)
            stems.setdefault(stem, set()).add(split)
    several = any(len(splits) > 1 for splits in stems.values())
    if not several or counts.total() < NEARLY_ALL * len(pictures):
        return NO_SPLITS
    each = ", ".join(f"{split} ({n:,})" for split, n in counts.items())
    return ListedSplits({}, f"splits: {each} from the names of files", by_name=True)


def split_in_name(path: str) -> str | None:
    """Return the split that the name of a picture holds as a word, None for none and for two."""
    found = {names.CANONICAL.get(word) for word in names.words(_end(os.path.basename(path)))}
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def _last_words(path: str) -> str:
    """Return what may name a split in a file's name: `instances_val2017` is val2017."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return re.sub(r"^(instances|person_keypoints|annotations?|list|coco)_|_(list|ids)$", "", stem)


def _end(path: str) -> str:
    stem, dot, extension = path.replace("\\", "/").rpartition(".")
    end = stem if dot and "/" not in extension else stem + dot + extension
    return end.removeprefix("./")


def _lines(path: str) -> Iterator[str]:
    """Yield the first word of each line, or all of it where it is a path with spaces."""
    for text in _text_lines(path):
        if text and not text.startswith("#"):
            yield text if named_as_images([text]) else text.split()[0]


def _text_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, stripped; none where it cannot be read or is too large."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            if os.path.getsize(path) <= MOST_OF_LIST:
                yield from map(str.strip, file)
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
