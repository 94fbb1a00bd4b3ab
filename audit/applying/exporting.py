"""One way to write what a run found and what was decided, in any of the forms: tables, annotations,
tasks of a labelling tool. The command and the page both call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.errors import UsageError
from audit.report.wording import counted
from audit.review.annotation_export import FORMS, export_annotations
from audit.review.export import ExportResult, export_tables
from audit.review.review_files import export_review

TABLE_FORMS = ("csv", "parquet")
TOOLS = ("label-studio", "cvat")


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: rows or annotations by file, and what is to be said of it."""

    files: Mapping[Path, int]
    said: Sequence[str]


def export_as(
    run: Path, out: Path, form: str, *, annotations: Sequence[str] = (), replace: bool = False
) -> Exported:
    """Write a run into the folder `out` as csv, parquet, coco, yolo, voc, label-studio or cvat.

    `annotations`: files of them (coco, yolo, voc), or globs; default: all. Raises UsageError for a
    form that cannot hold this run, and where a file is in the way.
    """
    if annotations and form not in FORMS:
        raise UsageError("--annotations goes with --format coco, yolo or voc.")
    if form in TOOLS:
        made = export_review(run, out, form, replace=replace)
        return Exported({Path(path): n for path, n in made.items()}, ())
    if form in FORMS:
        result = export_annotations(run, out, form, annotations, replace=replace)
        said = [
            f"{counted(sum(result.files.values()), 'annotation')} of "
            f"{counted(result.pictures, 'picture')} written; {result.fixed:,} changed by decisions."
        ]
        if result.removed:
            said.append(f"{counted(result.removed, 'file')} of an earlier export taken away.")
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
            f"{counted(result.stale.height, 'decision')} stale and not applied: "
            "`audit log RUN --stale` says why."
        )
    if result.neutralised:
        lines.append(
            f"{counted(result.neutralised, 'cell')} got a leading apostrophe, so that no "
            "spreadsheet runs or changes them: `audit scan` takes it off again, and Parquet holds "
            "the text as it is."
        )
    return lines
