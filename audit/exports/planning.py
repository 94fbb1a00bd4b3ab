"""From a run and its decisions to a plan: what goes into the new dataset, where, what stays out.

The plan (`audit-plan/1`, JSON) has where each readable image is, its BLAKE3-256, split, label and
path below the new folder. A tree whose folders are its splits and classes keeps its paths, except
for decided changes; all other files become `split/class/name`. No path leads out of the folder.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import blake3
import polars as pl

from audit.errors import UsageError
from audit.exports.annotation_export import FORMS, RECORD, export_annotations
from audit.exports.new_splits import (
    SplitRequest,
    assign_without_tearing,
    missing_classes,
)
from audit.report.output import write_whole
from audit.results.export_tables import (
    LISTED,
    VERIFIED_PAIRS,
    annotation_formats,
    open_tables,
)
from audit.results.formatting import counted
from audit.results.results import open_results
from audit.sources.formats import extension_of_name
from audit.sources.names import split_word
from audit.sources.paths import PART_FOLDER, leads_outside, path_of, uri_of
from dataset_preflight.foundation.files import LONGEST_NAME, inside, read_regular, regular
from dataset_preflight.foundation.text import text_fault

EXTENSIONS = {"JPEG": "jpg", "MPO": "jpg", "TIFF": "tif", "JPEG2000": "jp2"}


def plan_dataset(
    run: Path, path: Path | None = None, splits: SplitRequest | None = None, *,
    outside_links: bool = True, replace_file: bool = False,
) -> DatasetPlan:  # fmt: skip
    """Return the plan of the decided dataset, written to `path` where one is given.

    `outside_links`: whether images go along whose links lead out of the dataset. With a path the
    annotations go along, into the folder PATH.annotations. Raises UsageError where a file is in
    the way, and for splits that cannot be.
    """
    results = open_results(run)
    version, revision = results.version, results.decisions.revision
    with open_tables(results) as tables:
        kept = tables.table("manifest").select("id", "split", "label", "group")
        quarantine = tables.table("quarantine").select("id", "path", "reason").rows()
        store = tables.store
        known = store.query(LISTED).join(kept, on="id", how="left", maintain_order="left")
        meta, pairs = store.meta(), store.query(VERIFIED_PAIRS).rows()
        skipped = store.scalar("SELECT coalesce(sum(count), 0) FROM skipped_files")
        known = known.filter(pl.col("id").is_in(kept["id"].implode()))
        roots = json.loads(meta.get("roots", "{}"))
        refused = [
            _refusal(row, None if outside_links else roots) for row in known.iter_rows(named=True)
        ]
        known = known.with_columns(pl.Series("refused", refused, pl.String))
        absent = [LeftOut(*row) for row in known.select("id", "uri", "refused").drop_nulls().rows()]
        known = known.filter(pl.col("refused").is_null())
        found: dict[str, Any] = {}
        if splits:
            torn, held = tables.torn_sequences, tables.classes_of(known)
            known, found = assign_without_tearing(known, splits, pairs, torn, held)
    known = known.with_columns(first=pl.first("id").over("uri", "split", "label"))
    repeats = known.filter(pl.col("first") != pl.col("id")).select("id", "uri", "first").rows()
    known = known.filter(pl.col("first") == pl.col("id"))
    files, layout = _place(known.rows(named=True), meta, roots)
    left_out = [LeftOut(*row) for row in quarantine] + absent
    left_out += [
        LeftOut(sample, uri, f"the same file as {first}, in the same split and class")
        for sample, uri, first in repeats
    ]
    n_outside = sum(leads_outside(file.source, roots) for file in files)
    notes = [f"{int(skipped):,} files of the source are not samples and are not copied."]
    notes = notes[: bool(skipped)] + missing_classes(found)
    if n_outside:
        notes.append(
            f"Links lead out of the dataset to {counted(n_outside, 'image')}: "
            "`audit export --no-outside-links` leaves them out."
        )
    plan = DatasetPlan(
        str(run.resolve()), version.path.name, revision, roots, layout, tuple(files),
        tuple(left_out), tuple(notes), found, n_outside,
    )  # fmt: skip
    if path is not None:
        plan = add_annotations(plan, run, path)
        plan.write(path, replace=replace_file)
    return plan


def _refusal(row: Mapping[str, Any], roots: Mapping[str, str] | None) -> str | None:
    """Return why a sample stays out; `roots`: of a dataset whose links may not lead out of it."""
    if row["status"] not in ("ok", "damaged") or row["content_hash"] is None:
        return f"not a readable image ({row['error_kind'] or 'not measured'})"
    if roots is not None and leads_outside(row["uri"], roots):
        return "outside the dataset, behind a link"
    return None


def _place(
    rows: Sequence[Mapping[str, Any]], meta: Mapping[str, str], roots: Mapping[str, str]
) -> tuple[list[PlannedFile], str]:
    placed = [
        Placed(_below(row, roots), row["split_before"], row["label_before"], row["split"],
               row["label"])
        for row in rows
    ]  # fmt: skip
    by_folders = len(roots) == 1 and meta.get("layout") != "manifest"
    targets, layout = choose_targets(placed, by_folders=by_folders)
    files = [
        PlannedFile(
            row["uri"], target, row["content_hash"], row["n_bytes"], row["mtime_ns"], row["id"],
            row["split"], row["label"], row["group"],
        )
        for row, target in zip(rows, targets, strict=True)
    ]  # fmt: skip
    return files, layout


def _below(row: Mapping[str, Any], roots: Mapping[str, str]) -> str:
    """Return a sample's path below its root; of one outside of it, its name."""
    path = path_of(row["uri"])
    if path is None:  # in a pack or a store, or an address; a row of a table has no extension
        name = str(row["id"]).removeprefix(f"{row['source']}:" if row["source"] else "")
        name = name.rpartition("://")[2]
        if extension_of_name(name) or not row["format"]:
            return name
        return f"{name}.{EXTENSIONS.get(row['format'], row['format'].lower())}"
    root = path_of(roots.get(row["source"], "")) or ""
    relative = os.path.relpath(path, root) if root else os.path.basename(path)
    return os.path.basename(path) if relative.split("/")[0] == ".." else relative


PLAN_SCHEMA = "audit-plan/1"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file of the new dataset: `source` is its path or file:// address now, `target` its path
    below the new folder.

    `content_hash` is BLAKE3-256, hex; `mtime_ns` is -1 where it is not known. A file that is no
    sample, as one of annotations, has no `id`.
    """

    source: str
    target: str
    content_hash: str
    n_bytes: int
    mtime_ns: int = -1
    id: str | None = None
    split: str | None = None
    label: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A sample that does not go into the new dataset, and why."""

    id: str
    source: str
    reason: str


@dataclass(frozen=True)
class DatasetPlan:
    """A new dataset, planned from a run and the decisions about it.

    `roots` are the folders of the source, by name; `layout` is how targets are named (keep,
    folders); `notes` are sentences about what cannot go along. `outside_links` images lie outside
    the roots, behind links.
    """

    run: str
    generation: str
    decisions: str
    roots: Mapping[str, str]
    layout: str
    files: tuple[PlannedFile, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    splits: Mapping[str, Any] = field(default_factory=dict)
    outside_links: int = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum(max(file.n_bytes, 0) for file in self.files)

    @property
    def samples(self) -> list[PlannedFile]:
        """The files that are samples."""
        return [file for file in self.files if file.id is not None]

    def document(self) -> str:
        """Return the plan as JSON, one line for each file."""
        head = {k: v for k, v in asdict(self).items() if k not in ("files", "left_out")}
        lines = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in head.items()]
        lines += [_array("files", self.files), _array("left_out", self.left_out)]
        return "{" + ",\n".join([f'"schema": "{PLAN_SCHEMA}"', *lines]) + "}\n"

    @cached_property
    def identity(self) -> str:
        """32 hex digits that name this plan: a hash of its document."""
        return blake3.blake3(self.document().encode()).hexdigest()[:32]

    def write(self, path: Path, *, replace: bool = False) -> None:
        """Write the document, whole or not at all; raises UsageError where a file is in the way."""
        is_plan = replace or not path.exists()
        if not is_plan and not path.is_dir():
            with open(path, errors="replace", opener=regular) as file:
                is_plan = PLAN_SCHEMA in file.read(200)
        if path.is_dir() or not is_plan:
            raise UsageError(f"{path} exists and is not a plan: choose another name.")
        write_whole(path, lambda part: part.write_text(self.document(), encoding="utf-8"))


def _array(name: str, rows: tuple[Any, ...]) -> str:
    texts = [json.dumps(asdict(row), ensure_ascii=False) for row in rows]
    return f'"{name}": [' + "".join(f"\n{t}," for t in texts).removesuffix(",") + "]"


def read_plan(path: Path) -> DatasetPlan:
    """Read a plan; raises UsageError for a file that is none."""
    try:
        given = json.loads(read_regular(path))
        if given.pop("schema") != PLAN_SCHEMA:
            raise ValueError(f"its schema is not {PLAN_SCHEMA}")
        if fault := text_fault(given):
            raise ValueError(fault)
        files = tuple(PlannedFile(**row) for row in given.pop("files"))
        left_out = tuple(LeftOut(**row) for row in given.pop("left_out"))
        given["notes"] = tuple(given["notes"])
        given["outside_links"] = int(given.get("outside_links", 0))
        plan = DatasetPlan(**given, files=files, left_out=left_out)
        for file in files:
            if inside(Path(), file.target, links=False).parts[0] in RESERVED:
                raise ValueError(f"{file.target!r} is reserved")
            if not (isinstance(file.n_bytes, int) and isinstance(file.content_hash, str)):
                raise ValueError(f"{file.target!r} has no size or no hash")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path} is not a plan ({why}): write a plan with `audit export RUN --plan plan.json`."
        ) from None
    return plan


def add_annotations(plan: DatasetPlan, run: Path, path: Path) -> DatasetPlan:
    """Return the plan with the annotations of its pictures, which are written beside `path`."""
    formats = sorted(name.lower() for name in annotation_formats(open_results(run)))
    if not formats:
        return plan
    form, notes = formats[0], list[str]()
    if len(formats) > 1 or form not in FORMS:
        names = " and ".join(formats)
        form = "coco"
        notes.append(
            f"Annotations in {names} are written as COCO, the only format that holds all of them."
        )
    folder = path.with_name(f"{path.name}.annotations")
    if folder.exists() and not (folder / RECORD).is_file():
        raise UsageError(f"{folder} exists and has no annotations of a plan: remove it.")
    places = {str(file.id): (file.target, file.split) for file in plan.samples}
    exported = export_annotations(run, folder, form, places=places)
    taken = {file.target for file in plan.files}
    made = [
        PlannedFile(
            uri_of(os.path.realpath(folder / name)), name, file_digest(folder / name),
            (folder / name).stat().st_size, (folder / name).stat().st_mtime_ns,
        )
        for name in sorted(exported.files)
    ]  # fmt: skip
    if clash := next((file.target for file in made if file.target in taken), None):
        raise UsageError(f"An image and an annotation file have the same path {clash}.")
    said = (*plan.notes, *notes, *exported.lost, *exported.stale)
    return replace(plan, files=(*plan.files, *made), notes=said)


def file_digest(path: Path) -> str:
    """Return the BLAKE3-256 of a file's content, as hex; raises OSError."""
    # not by mmap: there a disk that cannot be read ends the process
    hasher = blake3.blake3()
    with open(path, "rb", opener=regular) as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return str(hasher.hexdigest())


PLAN_FOLDER = ".preflight"
"""Below a new folder: holds its plan."""
RESERVED = (PLAN_FOLDER, PART_FOLDER)


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
    if parts and parts[0] in RESERVED:
        parts[0] = f"_{parts[0]}"
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
    folders = enumerate(sample.path.split("/")[:-1])
    split = sample.split_before
    named = (place for place, name in folders if split in (name, split_word(name)))
    return None if split is None else next(named, None)


def _label_place(sample: Placed) -> int | None:
    folders = enumerate(sample.path.split("/")[:-1])
    split, label = _split_place(sample), sample.label_before
    named = (place for place, name in folders if unicodedata.normalize("NFC", name) == label)
    return next((place for place in named if place != split), None)


def _changed(sample: Placed, split_names: Mapping[str, str]) -> str | None:
    """Return the path with its changed folders, None where no folder says what changed.

    The first split of a dataset without split folders is a folder above all others.
    """
    parts = sample.path.split("/")
    split = sample.split
    above = list[str]()
    if split and sample.split_before is None and not split_names:
        above.append(split.replace("/", "%2F"))
        split = None
    for before, after, place, names in (
        (sample.split_before, split, _split_place(sample), split_names),
        (sample.label_before, sample.label, _label_place(sample), {}),
    ):
        if before == after:
            continue
        if place is None or after is None:
            return None
        parts[place] = names.get(after, after).replace("/", "%2F")
    return safe_path("/".join([*above, *parts]))


def _filed(sample: Placed) -> str:
    """Return split/class/rest of the path, without the folders that said either."""
    parts = sample.path.split("/")
    split, label = _split_place(sample), _label_place(sample)
    places = {split, label}
    known = label is not None and (split is not None or sample.split_before is None)
    rest = [p for i, p in enumerate(parts) if i not in places] if known else parts[-1:]
    above = [name.replace("/", "%2F") for name in (sample.split, sample.label) if name]
    return safe_path("/".join([*above, *rest]))


def _unique(wanted: Sequence[str]) -> list[str]:
    """Return the paths, a repeat with a number before its extension, in order of appearance.

    A folder that has the name of a file gets another one.
    """
    files, folders, seen, first = set[str](), set[str](), Counter[str](), set(wanted)
    result = []
    for base in wanted:
        while clash := _above(base) & files:
            folder = min(clash)
            base = f"{folder}~folder{base[len(folder) :]}"
        path = base
        while path in files or path in folders or (path != base and path in first):
            seen[base] += 1
            stem, extension = os.path.splitext(base)
            path = f"{stem}~{seen[base] + 1}{extension}"
        files.add(path)
        folders |= _above(path)
        result.append(path)
    return result


def _above(path: str) -> set[str]:
    return {str(parent) for parent in PurePosixPath(path).parents}
