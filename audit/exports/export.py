"""Export: what a run found and what was decided, as plain tables for other tools.

No image is moved, changed or deleted. A file that exists is replaced only on request, or where it
still has the hash that an earlier export recorded in `export.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import polars as pl

from audit.decisions.box_fixes import describe_open_faults
from audit.errors import UsageError
from audit.exports.annotation_export import (
    FORMS,
    digest_of,
    earlier_files,
    export_annotations,
    refuse_edited,
)
from audit.exports.review_tasks import TOOLS, export_review
from audit.report.output import write_table, write_whole
from audit.results.export_tables import TABLES, open_tables
from audit.results.formatting import counted
from audit.results.images import count_images
from audit.results.results import open_results
from audit.sources.tables import count_escaped, neutralise
from dataset_preflight.foundation.files import real

SCHEMA = "audit-export/1"
RECORD = "export.json"  # what an export wrote, so that the next one may replace it
TABLE_FORMS = ("csv", "parquet")


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written: rows by file; samples kept, dropped, changed; `stale` decisions.

    `neutralised` counts the text cells of CSV files that were given a leading apostrophe, which
    `audit scan` takes off again.
    """

    files: Mapping[Path, int]
    kept: int
    dropped: int
    changed: int
    stale: pl.DataFrame
    neutralised: int


LISTS: Mapping[str, str] = {"kept": "manifest", "quarantine": "quarantine"}


def export_tables(
    run: Path,
    out_dir: Path,
    format: str = "csv",  # noqa: A002
    *,
    replace: bool = False,
) -> ExportResult:
    """Write every table (`TABLES`) as csv or parquet, and kept.txt and quarantine.txt, one path a
    line, into a folder; `export.json` there says from which version and decisions.

    Raises UsageError for another format, and where a file is in the way that no export wrote.
    """
    if format not in TABLE_FORMS:
        raise UsageError(f"{format!r} is not a format of tables: use csv or parquet.")
    tables = {out_dir / f"{name}.{format}": name for name in TABLES}
    lists = {out_dir / f"{name}.txt": name for name in LISTS}
    record = out_dir / RECORD
    earlier = earlier_files(record, SCHEMA)
    for path in (*tables, *lists):
        if path.name in earlier and not replace:
            refuse_edited(path, earlier[path.name])
        _may_write(path, run, replace or path.name in earlier)
    _may_write(record, run, replace or bool(earlier))
    result, facts = _write(run, tables, lists)
    facts["files"] = {path.name: rows for path, rows in result.files.items()}
    facts["sha256"] = {path.name: digest_of(path) for path in result.files}
    write_whole(record, lambda part: part.write_text(json.dumps(facts) + "\n"))
    return result


def _write(
    run: Path, tables: Mapping[Path, str], lists: Mapping[Path, str]
) -> tuple[ExportResult, dict[str, object]]:
    """Write tables and lists of one version, with the decisions as they are now."""
    results = open_results(run)
    version, state = results.version, results.decisions.revision
    files: dict[Path, int] = {}
    neutralised = 0
    with open_tables(results) as source:
        for path, name in tables.items():
            frame = source.table(name)
            files[path] = frame.height
            if path.suffix.lower() == ".parquet":
                write_table(path, frame)
            else:
                write_table(path, neutralise(frame))
                neutralised += count_escaped(frame)
        for path, name in lists.items():
            paths = source.table(LISTS[name])["path"]
            # a path with a line break as a percent-encoded file:// address
            lines = ["file://" + quote(p) if "\n" in p or "\r" in p else p for p in paths]
            text = "".join(f"{line}\n" for line in lines)
            write_whole(path, partial(Path.write_text, data=text, encoding="utf-8"))
            files[path] = len(lines)
        total = count_images(results)
        changed, stale = source.table("changes").height, source.decided.stale
        dropped = int(source.decided.effective["dropped"].sum())
    result = ExportResult(files, total - dropped, dropped, changed, stale, neutralised)
    facts: dict[str, object] = {
        "schema": SCHEMA, "run": str(run), "generation": version.path.name,
        "findings": version.findings.name, "decisions": state, "kept": result.kept,
        "dropped": dropped, "changed": changed, "stale": stale.height,
    }  # fmt: skip
    return result, facts


def _may_write(path: Path, run: Path, replace: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give the path of a file.")
    inside = real(path).parent.is_relative_to(real(run))
    if path.exists() and (inside or not replace):
        fix = "choose another name" + ("" if inside else ", or replace it with --replace")
        raise UsageError(f"{path} exists: {fix}.")


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: rows or annotations by file, and what is to be said of it."""

    files: Mapping[Path, int]
    said: Sequence[str]


def export_as(
    run: Path, out: Path, form: str, *, annotations: Sequence[str] = (),
    codes: Sequence[str] = (), replace: bool = False,
) -> Exported:  # fmt: skip
    """Write a run into the folder `out` as csv, parquet, coco, yolo, voc, label-studio or cvat.

    `annotations`: files of them (coco, yolo, voc), or globs; default: all. `codes`: the findings
    whose pictures a label tool gets; default: all, and what was decided. Raises UsageError for a
    form that cannot hold this run, and where a file is in the way.
    """
    if codes and form not in TOOLS:
        raise UsageError("--code needs --format label-studio or cvat.")
    if annotations and form not in FORMS:
        raise UsageError("--annotations needs --format coco, yolo or voc.")
    if form in TOOLS:
        return Exported(export_review(run, out, form, codes, replace=replace), ())
    if form in FORMS:
        result = export_annotations(run, out, form, annotations, replace=replace)
        said = [
            f"{counted(sum(result.files.values()), 'annotation')} of "
            f"{counted(result.pictures, 'picture')} written; {result.fixed:,} changed by decisions."
        ]
        if result.removed:
            said.append(f"{counted(result.removed, 'file')} of an earlier export removed.")
        if faults := describe_open_faults(run):
            said.append(faults)
        files = {out / name: n for name, n in result.files.items()}
        return Exported(files, [*said, *result.lost, *result.stale])
    tables = export_tables(run, out, form, replace=replace)
    return Exported(tables.files, describe_tables(tables))


def describe_tables(result: ExportResult) -> list[str]:
    """Return the sentences about exported tables."""
    lines = [
        f"{result.kept:,} samples kept ({result.changed:,} relabelled or moved), "
        f"{result.dropped:,} dropped."
    ]
    if result.stale.height:
        lines.append(
            f"{counted(result.stale.height, 'decision')} stale and not applied: `audit decide RUN "
            "--stale` lists the reasons."
        )
    if result.neutralised:
        lines.append(
            f"{counted(result.neutralised, 'cell')} have a leading apostrophe, so that "
            "spreadsheets do not run or change them. `audit scan` removes it; Parquet files have "
            "the unchanged text."
        )
    return lines
