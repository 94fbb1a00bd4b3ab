"""Tables that lie beside the pictures of a folder: `labels.csv` with a class for each.

Which column names the pictures is told by its cells, not by its name: paths, names, or names
without extension of the pictures that are there (`id_code`, `Image Index`). The class is the column
with a usual name (`label`, `class`), the only one in whose name such a word stands (`Finding
Labels`), the only one left whose values come again (`breed`), or one of columns of 0 and 1 of which
each row has a single 1. A table with several rows a picture, or with boxes, tells nothing here.

Costs the reading of those tables, of at most 64 MB each.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from audit.errors import UsageError
from audit.records import sample_id
from audit.sources import names
from audit.sources.folder_listing import FOLDERS_LISTED, FolderListing
from audit.sources.formats import KINDS, extension_of_name, named_as_images
from audit.sources.manifest import ALIASES, MAYBE_SPLIT, ManifestReader, as_text
from audit.sources.manifest_rows import Table, open_table
from audit.sources.readings import Given
from audit.sources.tables import joined_frames, number_columns

if TYPE_CHECKING:
    import polars as pl

EXTENSIONS = ("csv", "tsv", "jsonl")
MOST_BYTES = 1 << 26
ROWS_ASKED, MOST_CANDIDATES = 1_000, 4
NAMED = 0.9
"""Share of the pictures of a folder that a table names, or of its names that are pictures there."""
MOST_NUMBERS = 100
"""Different numbers in a column that may still be classes; more are a measure."""
_CLASS_WORDS = frozenset(
    (
        "label",
        "labels",
        "class",
        "classes",
        "cls",
        "category",
        "categories",
        "target",
        "tag",
        "tags",
        "diagnosis",
        "dx",
        "species",
        "breed",
    )
)
_BITS = frozenset({"0", "1"})
_NUMBERED = {"0": "train", "1": "val", "2": "test"}
"""What numbers of a column of splits mean, where there are these three and most are 0."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MOST_DIFFERING = 0.01
"""Share of rows that may repeat a picture and tell something else: the first counts."""
Pictures = Mapping[str, Sequence[str]]


class Told(NamedTuple):
    """What a row tells of a picture."""

    label: str | None
    split: str | None
    group: str | None


@dataclass(frozen=True, slots=True)
class _Named:
    """A table and the pictures that it names: its rows by the end of a path, in these folders."""

    reader: ManifestReader
    rows: Mapping[str, Told]
    folders: frozenset[str]
    shortened: Callable[[str], str]
    said: str

    def key_of(self, relative: str) -> str | None:
        """Return the key of the row of a picture, the longest end of its path that is one."""
        end = stem_of(relative if relative.isascii() else sample_id(relative))
        while end not in self.rows:
            _, slash, end = end.partition("/")
            if not slash:
                return None
        return end if "/" in end or os.path.dirname(relative) in self.folders else None


@dataclass(frozen=True, slots=True)
class TablesBeside:
    """The tables that tell something of the pictures of a folder; the first that tells counts."""

    tables: Sequence[_Named] = ()
    said: str = ""

    @property
    def with_labels(self) -> bool:
        """Whether any of them has classes."""
        return any("label" in table.reader.roles for table in self.tables)

    def of(self, relative: str) -> Told:
        """Return what the tables tell of a picture."""
        rows = [t.rows[key] for t in self.tables if (key := t.key_of(relative)) is not None]
        if len(rows) < 2:
            return rows[0] if rows else UNTOLD
        return Told(*(next((c for c in cells if c), None) for cells in zip(*rows, strict=True)))

    def metadata(self, ids: Mapping[str, str]) -> pl.DataFrame | None:
        """Return the other columns by `sample_id`, of pictures by path; None without any."""
        frames = [frame for t in self.tables if (frame := _metadata(t, ids)) is not None]
        return joined_frames(frames)


UNTOLD = Told(None, None, None)
NOTHING = TablesBeside()


def find_tables_beside(
    tree: FolderListing, splits: Mapping[str, str], wanted: Sequence[str]
) -> TablesBeside:
    """Return the tables that tell any of `wanted` (label, split) of the pictures of a tree.

    `splits` are the folders that are splits: a table that is named like one tells of its pictures.
    """
    outer = tree.outer_folders()
    inner = tree.entries(outer[-1]).folders[:FOLDERS_LISTED]
    folders = (*outer, *(os.path.join(outer[-1], name) for name in inner))
    tables = [path for folder in folders for path in tree.files(folder, *EXTENSIONS)]
    pictures = {
        os.path.relpath(folder, tree.root).removeprefix("."): images
        for folder in (tree.near_folders() if tables else ())
        if (images := named_as_images(tree.entries(folder).files))
    }
    found, told = list[_Named](), dict[str, list[str]]()
    for path in tables:
        name = os.path.relpath(path, tree.root)
        one = _read(path, _pictures_for(name, pictures, splits), wanted)
        if one is not None:
            found.append(one)
            told.setdefault(one.said, []).append(sample_id(name))
    return TablesBeside(found, "; ".join(f"{w} of {', '.join(paths)}" for w, paths in told.items()))


def stem_of(path: str) -> str:
    """Return a path without the extension of a picture, its parts after `/`."""
    plain = path.replace("\\", "/").removeprefix("./")
    extension = extension_of_name(plain)
    return plain[: -len(extension) - 1] if KINDS.get(extension) == "image" else plain


def _pictures_for(name: str, pictures: Pictures, splits: Mapping[str, str]) -> Pictures:
    """Return the pictures that a table may name: of its split, and below it where there are any."""
    below, _, file = name.rpartition("/")
    word = names.split_word(os.path.splitext(file)[0])
    split = {name for name, means in splits.items() if means == word}
    kept = {
        folder: found
        for folder, found in pictures.items()
        if not split or not split.isdisjoint(folder.split("/"))
    }
    inside = {f: found for f, found in kept.items() if f"{f}/".startswith(f"{below}/")}
    return (below and inside) or kept


# ---- one table ----


def _read(path: str, pictures: Pictures, wanted: Sequence[str]) -> _Named | None:
    """Return a table that names pictures and tells something wanted of them."""
    try:
        if not pictures or os.path.getsize(path) > MOST_BYTES:
            return None
        table = open_table(path)
        if number_columns([column.strip().lower() for column in table.columns]):
            return None  # boxes
        found = _naming_column(table, pictures)
        if found is None:
            return None
        column, folders = found
        reader = _reader(path, table, column, wanted)
        told = {role: name for role, name in reader.roles.items() if role in wanted}
        shortened = _shortened(pictures)
        rows = _rows(reader, shortened) if told else None
    except (UsageError, OSError):
        return None
    if rows is None or (_all_bare(rows) and _meet(pictures, folders)):
        return None
    said = ", ".join(f"{role} from {name!r}" for role, name in told.items())
    return _Named(reader, rows, folders, shortened, sample_id(said))


def _naming_column(table: Table, pictures: Pictures) -> tuple[int, frozenset[str]] | None:
    """Return the column that names pictures, and the folders that these are in.

    It names nearly all pictures of a folder, or nearly all that it names are there.
    """
    everything = range(len(table.columns))
    asked = [cells for _, cells in islice(table.rows(everything), ROWS_ASKED)]
    likely = [place for place in everything if _may_name([row[place] for row in asked])]
    # an index of the rows may be equal to the pictures' numbers: names with extension come first
    likely = sorted(likely, key=lambda p: (not named_as_images([str(asked[0][p])]), p))
    known = {place: set[str]() for place in likely[:MOST_CANDIDATES]}
    for _, cells in table.rows(list(known)):
        for place, cell in zip(known, cells, strict=True):
            known[place].add(stem_of(as_text(cell) or "").rpartition("/")[2])
    there = {f: {stem_of(sample_id(name)) for name in found} for f, found in pictures.items()}
    best, most = None, 0
    for place, stems in known.items():
        hits = {folder: len(found & stems) for folder, found in there.items()}
        if sum(hits.values()) > most and (within := _folders_named(hits, there, len(stems))):
            best, most = (place, within), sum(hits.values())
    return best


def _folders_named(
    hits: Mapping[str, int], there: Mapping[str, Set[str]], n: int
) -> frozenset[str]:
    """Return the folders that `n` names are about: the one that is equal to them, where one is."""
    whole = frozenset(folder for folder, hit in hits.items() if hit >= NAMED * len(there[folder]))
    equal = frozenset(folder for folder in whole if hits[folder] >= NAMED * n)
    if sum(hits.values()) >= NAMED * n:
        whole = frozenset(folder for folder, hit in hits.items() if hit)
    return equal or whole


def _may_name(cells: Sequence[Any]) -> bool:
    return (
        bool(cells)
        and all(cell not in (None, "") for cell in cells)
        and 2 * len(set(map(str, cells))) > len(cells)
    )


def _meet(pictures: Pictures, folders: Set[str]) -> bool:
    """Return whether two of these folders hold pictures of one name: which is meant?"""
    counts = Counter(stem_of(name) for folder in folders for name in pictures[folder])
    return len(folders) > 1 and max(counts.values()) > 1


def _all_bare(rows: Mapping[str, Told]) -> bool:
    return not any("/" in key for key in rows)


def _shortened(pictures: Pictures) -> Callable[[str], str]:
    """Return what takes folders off a path that are elsewhere alone: `/content/data/images/1`."""
    parts = [folder.split("/") for folder in pictures]
    here = {"/".join(one[first:]) for one in parts for first in range(len(one))}

    @lru_cache(maxsize=4096)
    def end_of(folder: str) -> str:
        while folder and folder not in here:
            folder = folder.partition("/")[2]
        return folder

    def shorten(path: str) -> str:
        folder, _, name = stem_of(path).rpartition("/")
        end = end_of(folder)
        return f"{end}/{name}" if end else name

    return shorten


def _rows(reader: ManifestReader, shortened: Callable[[str], str]) -> dict[str, Told] | None:
    """Return what each row tells, by the end of a path; None where rows of one picture differ."""
    rows = dict[str, Told]()
    n = differing = 0
    for listed, sample in reader.told():
        told = Told(sample.label, sample.split, sample.group)
        differing += rows.setdefault(shortened(listed), told) != told
        n += 1
    if differing > MOST_DIFFERING * n:
        return None
    splits = Counter(row.split for row in rows.values())
    if splits.keys() == set(_NUMBERED) and splits.most_common(1)[0][0] == "0":
        return {key: row._replace(split=_NUMBERED[row.split or ""]) for key, row in rows.items()}
    return rows


def _metadata(table: _Named, ids: Mapping[str, str]) -> pl.DataFrame | None:
    of_key = dict[str, list[str]]()
    for relative, identity in ids.items():
        if (key := table.key_of(relative)) is not None:
            of_key.setdefault(key, []).append(identity)
    return table.reader.metadata_of(lambda listed, _: of_key.pop(table.shortened(listed), ()))


# ---- what its columns are ----


def _reader(path: str, table: Table, column: int, wanted: Sequence[str]) -> ManifestReader:
    """Return a reader of a table that knows which column names pictures and which the classes."""
    lowered = [name.strip().lower().replace(" ", "_") for name in table.columns]
    used = {"path": column}
    for role in ("split", "group"):
        match = next((lowered.index(name) for name in ALIASES[role] if name in lowered), None)
        if match is not None and match != column:
            used[role] = match
    if "label" in wanted:
        rest = [
            place for place, name in enumerate(lowered)
            if place not in used.values() and name not in MAYBE_SPLIT and not _numbers_rows(name)
        ]  # fmt: skip
        if (place := _label_column(table, lowered, rest)) is not None:
            used["label"] = place
        elif one_hot := _one_hot(table, rest):
            return ManifestReader(Given(path, one_hot=one_hot), used)
    return ManifestReader(Given(path), used)


def _numbers_rows(name: str) -> bool:
    return name in ("", "index") or name.startswith("unnamed")


def _label_column(table: Table, lowered: Sequence[str], rest: Sequence[int]) -> int | None:
    words = {place: set(names.words(lowered[place])) & _CLASS_WORDS for place in rest}
    usual = [place for name in ALIASES["label"] for place in rest if lowered[place] == name]
    same = [place for place in rest if lowered[place] in words[place]]
    worded = [place for place in rest if words[place]]
    for places, is_named in ((usual[:1], True), (same, True), (worded, False), (rest, False)):
        if len(places) == 1 and _are_classes(table, places[0], named=is_named):
            return places[0]
    return None


def _are_classes(table: Table, place: int, *, named: bool) -> bool:
    """Return whether the cells of a column are classes: they come again, and are no measure."""
    counts = Counter(as_text(cells[0]) for _, cells in table.rows([place]))
    counts.pop(None, None)
    if len(counts) < 2 or (not named and 2 * len(counts) > counts.total()):
        return False
    numbers = [cell for cell in counts if cell and _NUMBER.fullmatch(cell)]
    measured = len(numbers) == len(counts) and (
        len(counts) > MOST_NUMBERS or any("." in cell or "e" in cell.lower() for cell in numbers)
    )
    return named or not measured


def _one_hot(table: Table, rest: Sequence[int]) -> str:
    """Return the columns of 0 and 1 of which each row has a single 1, as `--one-hot` takes them."""
    columns = [table.columns[place] for place in rest]
    if len(rest) < 2 or any("," in name or ".." in name for name in columns):
        return ""
    for _, cells in table.rows(rest):
        texts = [(as_text(cell) or "").removesuffix(".0") for cell in cells]
        if not _BITS.issuperset(texts) or texts.count("1") != 1:
            return ""
    return ",".join(columns)
