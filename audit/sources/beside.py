"""Tables that lie beside the pictures of a folder: `labels.csv` with a class for each.

The cells decide which column names the images: paths, names, or names without extension. The class
is the column with a usual name (`label`), the only one with such a word (`Finding Labels`), the
only one left whose values recur (`breed`), or columns of 0 and 1 with a single 1 a row. Tables with
several rows an image, with boxes, or named after something else (an author, a time, a quantity, a
prediction) give no labels; numbers and flags need a table that is named like one of classes.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from audit.errors import UsageError
from audit.records import sample_id
from audit.sources import names
from audit.sources.folder_listing import FOLDERS_LISTED, FolderListing, ends_of, longest_end
from audit.sources.formats import KINDS, extension_of_name, named_as_images
from audit.sources.manifest import ALIASES, MAYBE_SPLIT, ManifestReader, as_text, role_column
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
MOST_NUMBERS = 10
"""Different numbers in a column without a usual name that may be classes; more are a measure."""
_CLASS_WORDS = names.word_set(
    "label labels class classes cls category categories target tag tags diagnosis dx species breed"
    " finding findings disease grade klasse kategorie classe clase categoria"
)
NOT_CLASS_WORDS = names.word_set(
    "annotator annotated assigned author owner photographer reviewer user worker by"
    " camera device license licence url uri link source path file folder batch status format mode"
    " date day month year hour time timestamp hash md5 sha"
    " patient subject participant session study slide lesion site hospital"
    " age count counts height number price rank rating score size votes weight width"
)
"""Words in the name of a column that is of the file, of its making, or a quantity."""
_TRUTH = _CLASS_WORDS | names.word_set("train training annotation annotations truth groundtruth gt")
"""Words in the name of a table whose numbers are classes, though no column says so."""
_GUESSED = names.word_set("pred preds predicted prediction predictions submission")
"""Words in the name of a table or column of what a model said."""
_DIGITS_ONLY = re.compile(r"[\d\W_]+")
_FLAGS = names.word_set("true false yes no")
_BITS = frozenset({"0", "1"})
NO_LABEL_COLUMNS = frozenset({*MAYBE_SPLIT, "", "index"})
_NUMBERED = {"0": "train", "1": "val", "2": "test"}
"""What numbers of a column of splits mean, where there are these three and most are 0."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MOST_DIFFERING = 0.01
"""Share of rows that may repeat a picture and tell something else: of it nothing is told."""
Pictures = Mapping[str, Sequence[str]]


class SidecarRow(NamedTuple):
    """Label, split and group of an image."""

    label: str | None
    split: str | None
    group: str | None


@dataclass(frozen=True, slots=True)
class _Named:
    """A table and the pictures that it names: its rows by the end of a path, in these folders."""

    reader: ManifestReader
    rows: Mapping[str, SidecarRow]
    folders: frozenset[str]
    listed: Set[str]
    common: str
    depths: Set[int]
    """Where folders that were not listed are such as well: below what these share, as deep."""
    ends: Mapping[str, str]
    reason: str
    split: str | None
    """The split that its own name tells: `train.csv`."""

    def key_of(self, relative: str) -> str | None:
        """Return the key of the row of a picture, the longest end of its path that is one."""
        path = stem_of(relative if relative.isascii() else sample_id(relative))
        end, folder = longest_end(path, self.rows), os.path.dirname(relative)
        beyond = folder.count("/") in self.depths and folder not in self.listed
        beyond = beyond and folder.startswith(self.common)
        return end if end and ("/" in end or folder in self.folders or beyond) else None


@dataclass(frozen=True, slots=True)
class TablesBeside:
    """The tables that tell something of the pictures of a folder; the first that tells counts."""

    tables: Sequence[_Named] = ()
    reason: str = ""
    names_pictures: bool = False
    """Whether any table names pictures here, though it may tell nothing of them."""

    def of(self, relative: str) -> SidecarRow:
        """Return what the tables tell of a picture."""
        rows = [t.rows[key] for t in self.tables if (key := t.key_of(relative)) is not None]
        if len(rows) < 2:
            return rows[0] if rows else EMPTY_ROW
        columns = zip(*rows, strict=True)
        return SidecarRow(*(next(filter(None, cells), None) for cells in columns))

    def metadata(self, ids: Mapping[str, str]) -> pl.DataFrame | None:
        """Return the other columns by `sample_id`, of pictures by path; None without any."""
        frames = [frame for t in self.tables if (frame := _metadata(t, ids)) is not None]
        return joined_frames(frames)


EMPTY_ROW = SidecarRow(None, None, None)
NOTHING = TablesBeside()


def find_tables_beside(
    tree: FolderListing, splits: Mapping[str, str], wanted: Sequence[str], *, sure: bool = False
) -> TablesBeside:
    """Return the tables that give any of `wanted` (label, split) for the images of a tree.

    `splits`: {folder: split}. `sure`: only columns with a usual name, and nearly all images.
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
    words = names.split_values({_name_of(path) for path in tables} if "split" in wanted else ())
    words = {name: word for name, word in words.items() if word in names.CANONICAL.values()}
    named, unread = list[_Named](), list[str]()
    for path in tables:
        within, listed = _pictures_for(tree, path, pictures, splits)
        try:
            table = _read(path, within, listed, wanted, words, sure=sure)
        except (UsageError, OSError) as error:
            unread += [f"not read: {error}"] * _begins_with(path, within)
        else:
            named += [table] if table else []
    if not _parts_of_a_whole(named):
        named = [_without_split(table) if table.split else table for table in named]
    roles = dict[str, list[str]]()
    for table in named:
        for role in filter(None, (table.reason, table.split and "split from the names")):
            name = sample_id(os.path.relpath(table.reader.path, tree.root))
            roles.setdefault(role, []).append(name)
    reason = "; ".join([*(f"{r} of {', '.join(paths)}" for r, paths in roles.items()), *unread])
    labels = sum(bool(row.label) for table in named for row in table.rows.values())
    if sure and labels < NAMED * sum(map(len, pictures.values())):
        return NOTHING
    return TablesBeside([t for t in named if t.reason or t.split], reason, bool(named))


def _name_of(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _without_split(table: _Named) -> _Named:
    rows = {key: row._replace(split=None) for key, row in table.rows.items()}
    return replace(table, rows=rows, split=None)


def _parts_of_a_whole(tables: Sequence[_Named]) -> bool:
    """Return whether tables named like splits tell two at least, and no picture in two."""
    keys = dict[str, set[str]]()
    for table in tables:
        if table.split:
            keys.setdefault(table.split, set()).update(table.rows)
    n = sum(map(len, keys.values()))
    return len(keys) > 1 and n - len(set().union(*keys.values())) <= MOST_DIFFERING * n


def stem_of(path: str) -> str:
    """Return a path as it is compared: without extension, case, and zeros before a number."""
    plain = path.strip().replace("\\", "/").removeprefix("./").casefold()
    extension = extension_of_name(plain)
    plain = plain[: -len(extension) - 1] if KINDS.get(extension) == "image" else plain
    folder, slash, name = plain.rpartition("/")
    return folder + slash + (name.lstrip("0") or "0") if name.isdecimal() else plain


def _last(cell: object) -> str:
    return stem_of(as_text(cell) or "").rpartition("/")[2]


def _pictures_for(
    tree: FolderListing, path: str, pictures: Pictures, splits: Mapping[str, str]
) -> tuple[Pictures, Pictures]:
    """Return the pictures that a table may name, and all of them where it may name others too."""
    below = os.path.dirname(os.path.relpath(path, tree.root))
    word = names.split_word(_name_of(path))
    split = {name for name, means in splits.items() if means == word}
    if split:
        own = {f: found for f, found in pictures.items() if not split.isdisjoint(f.split("/"))}
    else:
        own = dict(pictures)
    inside = {f: found for f, found in own.items() if f"{f}/".startswith(f"{below}/")}
    return (inside, {}) if below and inside else (own, pictures)


def _read(
    path: str, pictures: Pictures, listed: Pictures, wanted: Sequence[str],
    words: Mapping[str, str], *, sure: bool,
) -> _Named | None:  # fmt: skip
    """Return a table that names pictures, with what is wanted of them where it tells that."""
    if not pictures or os.path.getsize(path) > MOST_BYTES:
        return None
    table = open_table(path)
    found = _naming_column(table, pictures)
    if found is None:
        return None
    column, folders, above = found
    if number_columns([name.strip().lower() for name in table.columns]):
        wanted = ()  # boxes
    reader = _reader(path, table, column, wanted, sure=sure)
    roles = {role: name for role, name in reader.roles.items() if role in wanted}
    split = None if "split" in reader.roles else words.get(_name_of(path))
    ends = _ends(pictures, above)
    rows = _rows(reader, ends, split) if roles or split else None
    stems = [stem_of(name) for folder in folders for name in pictures[folder]]
    ambiguous = len(folders) > 1 and len(set(stems)) < len(stems)
    if rows is None or (ambiguous and not any("/" in key for key in rows)):
        roles, split, rows = {}, None, {}
    reason = ", ".join(
        f"{role} from {name!r}" for role, name in roles.items()
        if any(getattr(row, role) for row in rows.values())
    )  # fmt: skip
    depths = {folder.count("/") for folder in folders} if listed else set()
    common, keys = os.path.commonpath(folders), listed.keys()
    return _Named(reader, rows, folders, keys, common, depths, ends, sample_id(reason), split)


def _begins_with(path: str, pictures: Pictures) -> bool:
    """Return whether a table that cannot be read to its end names pictures in its first rows."""
    here = {stem_of(sample_id(name)) for found in pictures.values() for name in found}
    try:
        table = open_table(path)
        (_, first), (_, second) = islice(table.rows(range(len(table.columns))), 2)
    except (UsageError, OSError, ValueError):
        return False
    return any(_last(a) in here and _last(b) in here for a, b in zip(first, second, strict=True))


def _naming_column(table: Table, pictures: Pictures) -> tuple[int, frozenset[str], Set[str]] | None:
    """Return the column that names pictures, the folders that these are in, and those it has."""
    everything = range(len(table.columns))
    asked = [cells for _, cells in islice(table.rows(everything), ROWS_ASKED)]
    likely = [place for place in everything if _may_name([row[place] for row in asked])]
    there = {f: {stem_of(sample_id(name)) for name in found} for f, found in pictures.items()}
    here = set[str]().union(*there.values())

    def rank(place: int) -> tuple[bool, int, int]:
        # an index of the rows may be equal to the pictures' numbers: names with extension first
        hits = sum(_last(row[place]) in here for row in asked)
        return not named_as_images([str(asked[0][place])]), -hits, place

    known = {place: set[str]() for place in sorted(likely, key=rank)[:MOST_CANDIDATES]}
    above = {place: set[str]() for place in known}
    for _, cells in table.rows(list(known)):
        for place, cell in zip(known, cells, strict=True):
            folder, _, name = stem_of(as_text(cell) or "").rpartition("/")
            known[place].add(name)
            above[place].add(folder)
    for header in (table.columns[place] for place in known):
        if header.lower() not in ALIASES["path"] and _last(header) in here:
            return None  # a row: there is no header
    best, most = None, 0
    for place, stems in known.items():
        hits = {folder: len(found & stems) for folder, found in there.items()}
        if sum(hits.values()) > most and (within := _folders_named(hits, there, len(stems))):
            best, most = (place, within, above[place]), sum(hits.values())
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
    if not cells or any(cell in (None, "") for cell in cells):
        return False
    return 2 * len(set(map(str, cells))) > len(cells) or bool(named_as_images([str(cells[0])]))


def _ends(pictures: Pictures, above: Set[str]) -> dict[str, str]:
    """Return {folder in the table: folder here}, without what is elsewhere alone: `/content/x`."""
    here = {end for folder in pictures for end in ends_of(folder.casefold())}
    prefixes = {f.removesuffix(end) for f in above if (end := longest_end(f, here))}
    shortest = sorted(prefixes, key=len)
    away = {f: next(filter(f.startswith, shortest), f) for f in above}
    return {folder: folder.removeprefix(prefix) for folder, prefix in away.items()}


def _key(path: str, ends: Mapping[str, str]) -> str:
    folder, _, name = stem_of(path).rpartition("/")
    return f"{end}/{name}" if (end := ends.get(folder)) else name


def _rows(
    reader: ManifestReader, ends: Mapping[str, str], split: str | None
) -> dict[str, SidecarRow] | None:
    """Return the rows by the end of a path; None where rows of one image differ."""
    rows = dict[str, SidecarRow]()
    n = differing = 0
    for listed, sample in reader.listed_samples():
        row = SidecarRow(sample.label, split or sample.split, sample.group)
        n += 1
        if rows.setdefault(key := _key(listed, ends), row) != row:
            differing += 1
            rows[key] = EMPTY_ROW
    if differing > MOST_DIFFERING * n:
        return None
    splits = Counter(row.split for row in rows.values() if row.split)
    if splits and all(map(str.isdecimal, splits)):  # else they are the folds of a cross-validation
        known = splits.keys() == set(_NUMBERED) and splits.most_common(1)[0][0] == "0"
        meant = _NUMBERED if known else {}
        return {k: row._replace(split=meant.get(row.split or "")) for k, row in rows.items()}
    return rows


def _metadata(table: _Named, ids: Mapping[str, str]) -> pl.DataFrame | None:
    of_key = dict[str, list[str]]()
    for relative, identity in ids.items():
        if (key := table.key_of(relative)) is not None:
            of_key.setdefault(key, []).append(identity)
    return table.reader.metadata_of(lambda listed, _: of_key.pop(_key(listed, table.ends), ()))


def _reader(
    path: str, table: Table, column: int, wanted: Sequence[str], *, sure: bool
) -> ManifestReader:
    """Return a reader of a table that knows which column names pictures and which the classes."""
    lowered, used = table.underscored, {"path": column}
    for role in ("split", "group"):
        match = role_column(table, role)
        if match is not None and match != column:
            used[role] = match
    if "label" in wanted and _GUESSED.isdisjoint(names.words(_name_of(path))):
        rest = [
            place for place, name in enumerate(lowered)
            if place not in used.values() and name not in NO_LABEL_COLUMNS
            and not name.startswith("unnamed")
            and _GUESSED.union(names.CANONICAL).isdisjoint(names.words(table.columns[place]))
        ]  # fmt: skip
        if (place := _label_column(table, lowered, rest, sure=sure)) is not None:
            used["label"] = place
        elif one_hot := _one_hot(table, rest):
            return ManifestReader(Given(path, one_hot=one_hot), used)
    return ManifestReader(Given(path), used)


def _label_column(
    table: Table, lowered: Sequence[str], rest: Sequence[int], *, sure: bool
) -> int | None:
    told = {place: set(names.words(table.columns[place])) for place in rest}
    words = {place: found & _CLASS_WORDS for place, found in told.items()}
    usual = [place for name in ALIASES["label"] for place in rest if lowered[place] == name]
    same = [place for place in rest if lowered[place] in words[place]]
    worded = [place for place in rest if words[place]]
    left = rest if len(rest) == 1 and not sure else ()
    left = [place for place in left if NOT_CLASS_WORDS.isdisjoint(told[place])]
    is_truth = not _TRUTH.isdisjoint(names.words(_name_of(table.path)))
    for places, doubt in ((usual[:1], 0), (same, 0), (worded, 1), (left, 3 - is_truth)):
        if len(places) == 1:
            texts = (as_text(cell) for _, (cell,) in table.rows(places))
            if _are_classes(Counter(filter(None, texts)), doubt):
                return places[0]
    return None


def _are_classes(counts: Counter[str], doubt: int) -> bool:
    """Return whether values are classes; doubt: the name of the column is usual (0), has a word of
    it (1: they recur, and are no measure), that of the table has (2: numbers are few) or none (3).
    """
    if len(counts) < 2 or any(text.startswith("{") for text in counts):
        return False
    numbers = all(map(_NUMBER.fullmatch, counts))
    measured = numbers and not all(float(text).is_integer() for text in counts)
    if doubt and (measured or 2 * len(counts) > counts.total()):
        return False
    if doubt < 2 or numbers or _FLAGS.issuperset(map(str.casefold, counts)):
        return doubt < 2 or (doubt == 2 and len(counts) <= MOST_NUMBERS)
    return not any(map(_DIGITS_ONLY.fullmatch, counts)) and not named_as_images(list(counts))


def _one_hot(table: Table, rest: Sequence[int]) -> str:
    """Return the one-hot columns of a table, as `[scan] one_hot` takes them."""
    columns = [table.columns[place] for place in rest]
    if len(rest) < 2 or any("," in name or ".." in name for name in columns):
        return ""
    for _, cells in table.rows(rest):
        texts = [(as_text(cell) or "").removesuffix(".0") for cell in cells]
        if not _BITS.issuperset(texts) or texts.count("1") != 1:
            return ""
    return ",".join(columns)
