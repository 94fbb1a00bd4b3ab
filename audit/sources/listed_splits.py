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
from audit.sources.folder_listing import FolderListing
from audit.sources.formats import named_as_images
from preflight.files import regular

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
    """What tells the split of a picture: its path's end without extension, its folder, its name."""

    split_of: Mapping[str, str] = {}
    said: str = ""
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
    outer = tree.outer_folders()
    inner = [os.path.join(outer[-1], name) for name in tree.entries(outer[-1]).folders[:4]]
    found, looked = list[ListedSplits](), set[str]()
    for root in (*outer, *inner):
        named = _named_in_yaml(tree, root)
        if (named := named if named.said else _numbered(tree, root)).said:
            return named
        folders = [os.path.normpath(os.path.join(root, below)) for below in _FOLDERS]
        told = (
            _listed(tree, tree.files(folder, extension, limit=64), read)
            for folder in folders
            for extension, read in kinds
            if folder not in looked
        )
        found += list(islice((one for one in told if one.said), 1))
        looked |= set(folders)
    if not found:
        return _by_name(tree)
    joined = {end: split for one in reversed(found) for end, split in one.split_of.items()}
    return ListedSplits(joined, "; ".join(one.said for one in found))


def unused_lists(tree: FolderListing) -> str:
    """Return a sentence on files named like lists of splits, for a tree without any split; ""
    without such files.
    """
    start = tree.outer_folders()[-1]
    found = dict[str, None]()
    for below in _FOLDERS:
        files = tree.files(os.path.normpath(os.path.join(start, below)), *LISTS, limit=64)
        named = names.split_values({_last_words(path) for path in files})
        lists = [path for path in files if "ImageSets" in below or _last_words(path) in named]
        found |= dict.fromkeys(lists)
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
    splits = names.split_values({_last_words(path): path for path in files})
    told: Mapping[str, str]
    told = {path: split for path in files if (split := splits.get(_last_words(path)))}
    if any(split not in names.CANONICAL.values() for split in told.values()):
        told = _one_series(told)
    plain = {path: split for path, split in told.items() if split in names.CANONICAL.values()}
    told = plain if len(set(plain.values())) > 1 else told
    return _from_lists(tree, told, read)


def _one_series(told: Mapping[str, str]) -> Mapping[str, str]:
    """Return of several series of lists the first: `train1`, `val1` before those of other folds,
    `images_train` before `images_variant_train`.
    """
    series = dict[str, dict[str, str]]()
    for path in told:
        words = names.words(_last_words(path))
        if len(splits := [word for word in words if word in names.CANONICAL]) == 1:
            words.remove(splits[0])
            series.setdefault(" ".join(words), {})[path] = names.CANONICAL[splits[0]]
    whole = [name for name, one in series.items() if len(set(one.values())) == len(one) > 1]
    return series[min(whole, key=len)] if whole else told


def _from_lists(
    tree: FolderListing, told: Mapping[str, str], read: Callable[[str], Iterator[str]]
) -> ListedSplits:
    """Return what lists tell, {path of a list: split}; none where they name no picture here."""
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
    there = {
        _end(name)
        for folder in tree.near_folders()
        for name in named_as_images(tree.entries(folder).files)
    }
    if there.isdisjoint(end.rpartition("/")[2] for end in split_of):
        return NO_SPLITS
    lists = ", ".join(
        f"{told[path]} from {os.path.relpath(path, tree.root)} ({n:,})" for path, n in seen.items()
    )
    more = f"; {twice:,} are in several lists and count for the first list" if twice else ""
    return ListedSplits(_as_here(tree, split_of), f"splits: {lists}{more}")


def _as_here(tree: FolderListing, split_of: dict[str, str]) -> dict[str, str]:
    """Return the ends of paths without the folders that they have elsewhere alone."""
    first, last = min(split_of), max(split_of)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = "".join(char for char, _ in same).rpartition("/")[0]
    here = ["/" + os.path.relpath(folder, tree.root) for folder in tree.near_folders()]
    end = shared
    while end and not any(folder.endswith("/" + end) for folder in here):
        end = end.partition("/")[2]
    lost = len(shared) - len(end)
    lost += bool(shared and not end)
    return {path[lost:]: split for path, split in split_of.items()} if lost else split_of


def _named_in_yaml(tree: FolderListing, folder: str) -> ListedSplits:
    """Return the splits that a YAML of YOLO names, each as lists or as folders of pictures."""
    for path in tree.files(folder, "yaml", "yml"):
        keys = _yaml_keys(path)
        lists, folders = dict[str, str](), dict[str, str]()
        for key in ("train", "val", "valid", "test"):
            split = names.CANONICAL[key]
            told = keys.get(key)
            for value in told if isinstance(told, list) else [told]:
                place = _place(folder, str(keys.get("path") or ""), value)
                within = os.path.relpath(place, tree.root) if place else ""
                if place and os.path.isdir(place):
                    folders.setdefault(within, split)
                elif place:
                    lists.setdefault(place, split)
        if len(set(folders.values())) > 1 and not lists:
            each = ", ".join(f"{split} is {place}" for place, split in folders.items())
            name = os.path.relpath(path, tree.root)
            return ListedSplits({}, f"splits of {name}: {each}", folders)
        if (found := _from_lists(tree, lists, _lines)).said:
            return found
    return NO_SPLITS


def _numbered(tree: FolderListing, folder: str) -> ListedSplits:
    """Return the splits of CUB and NABirds: pictures by number, and 1 for those to train on."""
    flags = dict(_pairs(os.path.join(folder, "train_test_split.txt")))
    split_of = {
        _end(path): "train" if flags[number] == "1" else "test"
        for number, path in (_pairs(os.path.join(folder, "images.txt")) if flags else ())
        if number in flags
    }
    counts = Counter(split_of.values())
    if len(counts) < 2:
        return NO_SPLITS
    each = ", ".join(f"{split} ({n:,})" for split, n in counts.items())
    name = os.path.relpath(os.path.join(folder, "train_test_split.txt"), tree.root)
    return ListedSplits(split_of, f"splits: {each} from {name}")


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            for line in file:
                first, _, rest = line.strip().partition(" ")
                if rest:
                    yield first, rest
    except OSError:
        return


def _yaml_keys(path: str) -> Mapping[str, object]:
    import yaml

    try:
        with open(path, "rb", opener=regular) as file:
            keys = yaml.load(file.read(MOST_OF_YAML), Loader=yaml.BaseLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return keys if isinstance(keys, dict) else {}


def _place(folder: str, start: str, value: object) -> str | None:
    """Return the longest end of a path that is there, below `folder`: the rest is elsewhere."""
    if not isinstance(value, str):
        return None
    for text in (f"{start}/{value}", value):
        parts = [one for one in text.replace("\\", "/").split("/") if one not in ("", ".", "..")]
        ends = (os.path.join(folder, *parts[first:]) for first in range(len(parts)))
        if place := next((end for end in ends if os.path.exists(end)), None):
            return place
    return None


def _by_name(tree: FolderListing) -> ListedSplits:
    """Return the splits that names hold, `img_train_0001`, where nearly all pictures have one."""
    stems: dict[tuple[str, ...], set[str]] = {}
    counts = Counter[str]()
    pictures = [
        name
        for folder in tree.near_folders()
        for name in named_as_images(tree.entries(folder).files)
    ]
    probe = pictures[:: len(pictures) // PROBED + 1]
    if sum(split_in_name(name) is not None for name in probe) < LEAST_PROBED * len(probe):
        return NO_SPLITS
    for name in pictures:
        if split := split_in_name(name):
            counts[split] += 1
            rest = (word for word in names.words(_end(name)) if not word.isdigit())
            stem = tuple(word for word in rest if names.CANONICAL.get(word) != split)
            stems.setdefault(stem, set()).add(split)
    told = counts.total() >= NEARLY_ALL * len(pictures)
    if not told or not any(len(splits) > 1 for splits in stems.values()):
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
