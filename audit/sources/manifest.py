"""A manifest as samples: a table that lists the pictures, with labels, splits, groups and metadata.

Columns are found by name (`path`, `label`, `split`, `group`, `id` and their usual aliases); every
other column is metadata. Relative paths start at the manifest's folder. A file that is not there is
a sample with `n_bytes` -1, and so is an address, which is fetched when it is measured.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from audit.errors import UsageError
from audit.records import Layout, Sample, sample_id
from audit.sources import paths
from audit.sources.formats import extension_of_name
from audit.sources.manifest_rows import Table, open_table
from audit.sources.names import CANONICAL, OPEN_SPLITS, words
from audit.sources.object_store import hide_secrets
from audit.sources.readings import Given, ReadLog
from audit.sources.tables import number_columns, typed_frame
from audit.sources.walk import Exclusion

if TYPE_CHECKING:
    import polars as pl

# The first alias that is a column wins; the others stay metadata.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "path": (
        "path", "file", "filename", "file_name", "image", "image_path", "file_path", "filepath",
        "img_path", "img", "image_file", "uri", "url",
    ),
    "label": ("label", "class", "category", "target", "class_name", "label_name",
              "labels"),
    "split": ("split", "subset", "partition"),
    "group": (
        "group", "group_id", "group_key", "patient_id", "patientid", "subject_id", "subjectid",
        "participant_id", "lesion_id",
    ),
    "id": ("id", "sample_id"),
}  # fmt: skip
# Columns that are the split only where their cells name splits: a `fold` may be a number.
MAYBE_SPLIT = (
    "set", "usage", "data_split", "dataset_split", "split_name", "data_set", "dataset", "phase",
    "stage", "fold", "image_set", "mode", "purpose",
)  # fmt: skip
_IS_SPLIT = {"is_valid": "val", "is_val": "val", "is_validation": "val", "is_test": "test"}
ROWS_ASKED = 10_000
"""Rows in which each cell of such a column must name a split."""
_BOX_COLUMNS = frozenset({"xmin", "bbox", "bbox_x", "x_min", "box"})


class ManifestReader:
    """One manifest file; a split that is given fills rows without one (`train=train.csv`)."""

    def __init__(self, given: Given, used: Mapping[str, int] | None = None) -> None:
        """Read header and first row, or take columns by role; UsageError without paths or rows."""
        self.path, self.name, self.given = given.path, given.name, given
        self.root = os.path.dirname(self.path)
        self._base = os.path.join(self.root, "")
        self._table = open_table(self.path)
        self._used = _columns(self._table) if used is None else dict(used)
        self._classes = class_columns(given.one_hot, self._table) if given.one_hot else {}
        if self._classes:
            self._used.pop("label", None)
        self._yes = self._find_split()
        self._lowered = [column.strip().lower() for column in self._table.columns]
        self._box = number_columns(self._lowered)
        self._box_numbers = [self._lowered.index(column) for column in self.box_columns]
        if next(self._table.rows([self._used["path"]]), None) is None:
            raise UsageError(f"{self.path} has a header but no rows: add one row per image.")
        # One box a picture is a crop of it, and the class is the picture's; several are objects.
        self._several = bool(self._box) and self._lists_again()

    @property
    def one_hot(self) -> bool:
        """Whether classes are columns, so that a row without any was labelled as well."""
        return bool(self._classes)

    @property
    def box_columns(self) -> tuple[str, ...]:
        """The four columns of a box, in lower case; none where there are no such."""
        return self._box[1] if self._box else ()

    def box_rows(self) -> tuple[str, Iterator[tuple[Any, ...]]]:
        """Return what the four numbers are, and the rows of boxes: line or row number, id, path,
        the four numbers, class, width and height of the image; as text, None where there is none.
        """
        assert self._box is not None
        names = ("width", "height") if self._box[0] == "corners" else ()
        sides = [self._lowered.index(name) for name in names if name in self._lowered]
        wanted = [*self._box_numbers, *(sides if len(sides) == 2 else ())]
        prefix = f"{self.name}:" if self.name else ""

        def rows() -> Iterator[tuple[Any, ...]]:
            found = self._identified(extra=wanted, stat_files=False, every_row=True)
            for number, cells, listed, sample in found:
                path, texts = listed.removeprefix(prefix), list(map(as_text, cells))
                size = texts[4:] or [None, None]
                yield (number, listed, path, *texts[:4], sample.label, *size)

        return self._box[0], rows()

    def _find_split(self) -> str:
        """Find the column of splits by its cells; return what `true` means, empty for names."""
        lowered = self._table.underscored
        candidates = (*MAYBE_SPLIT, *_IS_SPLIT) if "split" not in self._used else ()
        for name in (name for name in candidates if name in lowered):
            column = lowered.index(name)
            rows = islice(self._table.rows([column]), ROWS_ASKED)
            cells = {as_text(value) or "" for _, (value,) in rows}
            yes = _IS_SPLIT.get(name, "")
            known = OPEN_SPLITS | CANONICAL.keys()  # of words in it: `Training`, `PublicTest`
            named = all(
                cell.lower() in YES | NO if yes else not known.isdisjoint(words(cell))
                for cell in cells
            )
            if named and len(cells) > 1:
                self._used["split"] = column
                return yes
        return ""

    def _lists_again(self) -> bool:
        seen = set[Any]()
        for _, (path,) in self._table.rows([self._used["path"]]):
            if path in seen:
                return True
            seen.add(path)
        return False

    @property
    def roles(self) -> dict[str, str]:
        """The columns that are used, {role: name}; of several that are classes, all."""
        classes = {"label": ", ".join(self._classes)} if self._classes else {}
        return {role: self._table.columns[i] for role, i in self._used.items()} | classes

    def listed_samples(self) -> Iterator[tuple[str, Sample]]:
        """Yield the path as listed, and the sample, of each row; no picture is looked at."""
        found = self._identified(stat_files=False)
        return ((listed, sample) for _, _, listed, sample in found)

    @property
    def layout(self) -> Layout:
        """The layout `manifest`, with the columns that were understood."""
        columns = self._table.columns
        used = ", ".join(
            role if columns[i] == role else f"{role} from {columns[i]!r}"
            for role, i in self._used.items()
        )
        extra = [columns[i] for i in self._extra()]
        more = f"; metadata: {', '.join(extra)}" if extra else ""
        if self._classes:
            more = f", label from {len(self._classes)} columns of 0 and 1{more}"
        if self._box:
            more += f"; boxes: {', '.join(self._box[1])}"
        return Layout("manifest", f"{self._table.format.upper()} table with {used}{more}")

    def samples(self, log: ReadLog) -> Iterator[Sample]:
        """Yield one sample per row, in file order; repeats of an id are numbered, with a note."""
        n_rows = n_missing = n_repeats = 0
        exclusion = Exclusion(self.given.exclude)
        for _, _, listed, sample in self._identified(exclusion, log):
            n_rows += 1
            n_missing += sample.mtime_ns < 0 and not paths.is_remote(sample.uri)
            if sample.id != listed:
                n_repeats += 1
                log.note(
                    "repeated-id",
                    f"{listed} is listed more than once: this row is recorded as {sample.id}.",
                    sample.id,
                )
            yield sample
        self._note_problems(log, n_rows, n_missing, n_repeats)
        exclusion.report(log)

    def metadata(self) -> pl.DataFrame | None:
        """Return the other columns with their types, by `sample_id`; None if there is none."""
        return self.metadata_of(lambda _, sample: (sample.id,))

    def metadata_of(self, ids_of: Callable[[str, Sample], Iterable[str]]) -> pl.DataFrame | None:
        """Return the other columns for the samples that a row, listed so, is about."""
        extra = self._extra()
        if not extra:
            return None
        found = self._identified(extra=extra, stat_files=False)
        rows = ((id_, cells) for _, cells, name, sample in found for id_ in ids_of(name, sample))
        columns = [self._table.columns[i] for i in extra]
        from_text, exact = self._table.format == "csv", self._table.mark >= 0
        return typed_frame(rows, columns, from_text=from_text, exact=exact)

    def _extra(self) -> list[int]:
        used = {
            *self._used.values(), *self._classes.values(), self._table.mark, *self._box_numbers
        }  # fmt: skip
        return [i for i in range(len(self._table.columns)) if i not in used]

    def _identified(
        self,
        exclusion: Exclusion | None = None,
        log: ReadLog | None = None,
        *,
        extra: Sequence[int] = (),
        stat_files: bool = True,
        every_row: bool = False,
    ) -> Iterator[tuple[int, Sequence[Any], str, Sample]]:
        """Yield (line, extra values, id as listed, sample) by picture, or for `every_row`."""
        exclusion, log = exclusion or Exclusion(self.given.exclude), log or ReadLog()
        ids, used, classes = paths.IdRegister(), self._used, self._classes
        places = {role: place for place, role in enumerate(used)}
        i_path, i_id = places["path"], places.get("id", -1)
        n_used = len(used) + len(classes)
        i_label, i_split, i_group = (places.get(role, -1) for role in ("label", "split", "group"))
        text: Callable[[Any], str | None]
        text = (lambda cell: cell) if self._table.mark >= 0 else as_text
        listed = set[str]()
        for number, values in self._table.rows([*used.values(), *classes.values(), *extra]):
            path = self._path(values[i_path], number)
            identity, uri = self._locate(path)
            if exclusion and exclusion.matches(identity, os.path.basename(path)):
                log.skip("excluded", extension_of_name(path), path, self.name)
                continue
            if i_id >= 0 and not self._several and (own := text(values[i_id])) is not None:
                identity = f"{self.name}:{own}" if self.name else own
            elif self.name:
                identity = f"{self.name}:{identity}"
            if self._several and not every_row:
                if identity in listed:
                    continue  # another box of the same picture
                listed.add(identity)
            labelled = i_label >= 0 and (every_row or not self._several)
            label = text(values[i_label]) if labelled else None
            if classes:
                label = self._marked(values[len(used) : n_used], number)
            split = text(values[i_split]) if i_split >= 0 else None
            if self._yes:
                split = self._yes if (split or "").lower() in YES else "train"
            group = text(values[i_group]) if i_group >= 0 else None
            unique = identity if self._several else ids.take(identity)
            status = self._file_status(uri) if stat_files else (uri, -1, -1, -1)
            if status is None:
                log.skip("not a regular file", extension_of_name(path), path, self.name)
                continue
            stored, *sizes = status
            split = split or self.given.split
            sample = Sample(unique, stored, self.name, split, label, group, *sizes)
            yield number, values[n_used:], identity, sample

    def _marked(self, values: Sequence[Any], number: int) -> str | None:
        """Return the classes that are 1 in a row: a name, or a list of names."""
        cells = [(as_text(value) or "").lower() for value in values]
        for name, cell in zip(self._classes, cells, strict=True):
            if cell not in YES | NO:
                raise UsageError(
                    f"{self._table.where(number)}: column {name!r} contains {cell!r}, but [scan] "
                    "one_hot takes columns of 0 and 1 (-1 and nothing mean no)."
                )
        names = [n for n, cell in zip(self._classes, cells, strict=True) if cell in YES]
        return names[0] if len(names) == 1 else json.dumps(names) if names else None

    def _path(self, value: Any, number: int) -> str:
        # Blanks at the ends of a file name are rare but real, so only an all-blank path is empty.
        path = value if isinstance(value, str) and value.strip() else as_text(value)
        if path is None:
            raise UsageError(
                f"{self._table.where(number)} has no path: fill it in or delete the row."
            )
        if "\0" in path or (path[:7] == "file://" and "%00" in path):
            raise UsageError(f"{self._table.where(number)}: the path contains a NUL character.")
        if "://" in path and paths.is_remote(address := path.strip()):
            return hide_secrets(address)
        return path

    def _locate(self, listed: str) -> tuple[str, str]:
        """Return (id without the source, path or URL to read) of a path as listed."""
        if paths.is_remote(listed):
            return listed, paths.remap(listed, self.given.roots)
        if paths.path_of(listed) is None:
            return listed, listed  # a member of a pack, or an object of a store, as exported
        path = paths.path_of(listed) or listed
        if os.path.isabs(path):
            below = os.path.normpath(path)
            relative = below.removeprefix(self._base)
            return sample_id(relative), paths.remap(below, self.given.roots)
        # Most rows are plain already, and normpath costs as much as the rest of the row.
        plain = not ("//" in path or "./" in path or path.startswith("/"))
        relative = path if plain else os.path.normpath(path)
        target = self._base + relative
        return sample_id(relative), os.path.normpath(target) if relative[:2] == ".." else target

    def _file_status(self, uri: str) -> tuple[str, int, int, int] | None:
        """Return (storable uri, size, mtime, ctime), -1: unknown; None for a pipe or device."""
        if paths.is_remote(uri):
            return uri, -1, -1, -1
        if paths.path_of(uri) is None:
            return _distant_status(uri)
        # A manifest written on Windows: its separators are tried where the name as it stands fails.
        for path in (uri, uri.replace("\\", "/")) if "\\" in uri else (uri,):
            try:
                status = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                sizes = status.st_size, status.st_mtime_ns, status.st_ctime_ns
                return paths.uri_of(path), *sizes
            if not stat.S_ISDIR(status.st_mode):
                return None
        return paths.uri_of(uri), -1, -1, -1

    def _note_problems(self, log: ReadLog, n_rows: int, n_missing: int, n_repeats: int) -> None:
        if n_rows and n_missing == n_rows:
            log.note(
                "nothing-found",
                f"None of the {n_rows:,} listed files exists. Relative paths start at "
                f"{sample_id(self.root)}: move the manifest, or map the old location with "
                "`--root OLD=NEW`.",
            )
        for sentence in self._table.left_out:
            log.note("columns-left-out", sentence)
        boxes = sorted(c for c in self._table.columns if c.lower() in _BOX_COLUMNS)
        if n_repeats and boxes:
            log.note(
                "box-rows",
                f"The manifest has box columns ({', '.join(boxes)}) and lists {n_repeats:,} files "
                "again: it has one row per box. Give the folder of images instead, or a "
                "manifest with one row per image.",
            )


def role_column(table: Table, role: str) -> int | None:
    """Return the number of the column that is called as one of a role, None without one."""
    names = table.underscored
    return next((names.index(alias) for alias in ALIASES[role] if alias in names), None)


def _columns(table: Table) -> dict[str, int]:
    """Return {role: column number}; raises UsageError without a path column."""
    used = {role: i for role in ALIASES if (i := role_column(table, role)) is not None}
    if "path" not in used and table.embedded:
        raise UsageError(
            f"{table.path} contains the images themselves (column {table.embedded[0]!r}): write "
            "them to files first, and give the folder or a table of their paths."
        )
    if "path" not in used:
        shown = ", ".join(repr(column) for column in table.columns[:8])
        raise UsageError(
            f"{table.path} has no path column (its columns: {shown}): name the column with the "
            f"files `path`, or one of {', '.join(ALIASES['path'][1:6])}; the first line must be "
            "a header. Or give the folder of the images, whose tables are read by their cells."
        )
    return used


YES, NO = frozenset({"1", "1.0", "true"}), frozenset({"0", "0.0", "-1", "-1.0", "false", ""})


def class_columns(one_hot: str, table: Table) -> dict[str, int]:
    """Return the columns of `one_hot`, `A,B` or `A..D` for all between, with their numbers."""
    columns, found = list(table.columns), dict[str, int]()
    for part in one_hot.split(","):
        ends = [end.strip() for end in (part.split("..", 1) if part not in columns else [part])]
        for end in ends:
            if end not in columns:
                shown = ", ".join(repr(column) for column in columns[:12])
                raise UsageError(
                    f"{table.path} has no column {end!r} for [scan] one_hot (its columns: {shown})."
                )
        first, last = columns.index(ends[0]), columns.index(ends[-1])
        found |= {columns[i]: i for i in range(first, last + 1)}
    return found


def as_text(value: Any) -> str | None:
    """Return a cell as text, None if empty: 3 and 3.0 are "3", true is "true", lists are JSON."""
    if value is None or isinstance(value, str):
        return value.strip() or None if value else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _distant_status(uri: str) -> tuple[str, int, int, int]:
    """Return the status of a pack as that of its member; an object is looked at each time."""
    path = paths.file_of(uri)
    if path is None:
        now = time.time_ns()
        return uri, -1, now, now
    try:
        status = os.stat(path)
    except OSError:
        return uri, -1, -1, -1
    return uri, -1, status.st_mtime_ns, status.st_ctime_ns
