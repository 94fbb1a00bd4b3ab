"""Export: what a run found and what was decided, as plain tables for other tools.

Files are only ever added: no picture is moved, changed or deleted, and a file that exists is not
replaced unless the caller says so, or it is still what an earlier export into the same folder
wrote: `export.json` there keeps its hash, so that a table edited by hand is safe. Relabels and
moves are applied in the manifest, which `audit scan` reads again; stale decisions are not, and are
listed.

`pairs` gives one row for each verified pair of samples that show one picture. Inside a set of
copies that would be quadratic (1,000 copies are half a million pairs), so each copy is paired
with the first of them only. Near-duplicates likewise, one sample standing for each picture.

`export_as` writes any of the forms: tables, annotations, tasks of a labelling tool. The command and
the page both call it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import polars as pl

from audit.decisions.box_fixes import describe_open_faults
from audit.decisions.decisions import SEPARATOR, tagged_samples
from audit.decisions.store import DecisionStore
from audit.decisions.waivers import Applied, apply_decisions, open_for_deciding
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
from audit.report.wording import counted
from audit.run import generations
from audit.run.store import Store, identifier
from audit.sources.tables import count_escaped, neutralise
from preflight.files import real

SCHEMA = "audit-export/1"
RECORD = "export.json"  # what an export wrote, so that the next one may replace it
COLUMNS = (
    "a", "b", "split_a", "split_b", "label_a", "label_b", "kind", "distance", "similarity",
    "transformation", "score", "verified", "path_a", "path_b",
)  # fmt: skip
MANIFEST = ("id", "path", "split", "label", "group")
WRITERS = (".csv", ".parquet")

# A row per verified pair. `distance`: bits of the perceptual hash; `similarity`: a correlation;
# `score`: log odds; `transformation`: what turns a into b.
PAIRS = """
    WITH files AS (
        SELECT i.id, i.uri, i.split, i.label, i.content_hash, i.pixel_hash, p.blank,
            min(i.id) OVER (PARTITION BY i.content_hash) AS first_bytes,
            min(i.id) OVER (PARTITION BY i.pixel_hash) AS first_pixels
        FROM images i JOIN pictures p USING (id) WHERE i.pixel_hash IS NOT NULL
    ), paired AS (
        SELECT first_bytes AS x, id AS y, 'bytes' AS kind, 0 AS distance, 1.0 AS similarity,
            'same bytes' AS transformation, NULL::DOUBLE AS score
        FROM files WHERE content_hash IS NOT NULL AND id <> first_bytes
        UNION ALL
        SELECT first_pixels, id, 'pixels', 0, 1.0, 'same pixels, other bytes', NULL
        FROM files WHERE id = first_bytes AND id <> first_pixels AND NOT blank
        UNION ALL
        SELECT x.id, y.id, 'near', p.distance, p.similarity, p.transformation, p.score
        FROM pairs p
        JOIN files x ON x.pixel_hash = p.a AND x.id = x.first_pixels
        JOIN files y ON y.pixel_hash = p.b AND y.id = y.first_pixels
    )
    SELECT x AS a, y AS b, s.split AS split_a, t.split AS split_b, s.label AS label_a,
        t.label AS label_b, kind, distance, similarity, transformation, score, true AS verified,
        s.uri AS path_a, t.uri AS path_b
    FROM paired JOIN samples s ON s.id = x JOIN samples t ON t.id = y
    ORDER BY list_position(['bytes', 'pixels', 'near'], kind), a, b
"""
TAGS = f"""
    LEFT JOIN (SELECT id, string_agg(tag, '{SEPARATOR}' ORDER BY tag) AS tags FROM tags
    GROUP BY id) t ON t.id = s.id
"""
# The kept set, relabels and moves applied, in the order of the listing; `{extra}`: tags where a
# sample has one, and the other columns of a manifest that was scanned.
KEPT = """
    SELECT s.id, s.uri AS path, coalesce(d.split, s.split) AS split,
        coalesce(d.label, s.label, l.labels) AS label, s.group_key AS "group"{extra}
    FROM measurements.main.samples s LEFT JOIN decided d ON d.id = s.id
    LEFT JOIN (SELECT sample_id, to_json(list(label ORDER BY label))::VARCHAR AS labels
        FROM several_labels GROUP BY sample_id) l ON l.sample_id = s.id {join}
    WHERE NOT coalesce(d.dropped, false) ORDER BY s.rowid
"""
# What was dropped, why and by whom, and the codes of its findings.
LEFT_OUT = """
    WITH codes AS (
        SELECT m.sample_id, string_agg(DISTINCT f.code, ' ' ORDER BY f.code) AS findings
        FROM judged.main.finding_samples m JOIN judged.main.findings f USING (fingerprint)
        SEMI JOIN decided d ON d.id = m.sample_id GROUP BY m.sample_id
    )
    SELECT s.id, s.uri AS path, s.split, s.label, d.why AS reason, c.findings, d.by, d.at
    FROM measurements.main.samples s JOIN decided d ON d.id = s.id
    LEFT JOIN codes c ON c.sample_id = s.id WHERE d.dropped ORDER BY s.rowid
"""
# The kept samples with another label or split than the scan saw.
CHANGED = """
    SELECT s.id, s.uri AS path, s.label AS label_before, coalesce(d.label, s.label) AS label,
        s.split AS split_before, coalesce(d.split, s.split) AS split, d.why AS reason, d.by, d.at
    FROM measurements.main.samples s JOIN decided d ON d.id = s.id
    WHERE NOT d.dropped AND (coalesce(d.label, s.label) IS DISTINCT FROM s.label
        OR coalesce(d.split, s.split) IS DISTINCT FROM s.split) ORDER BY s.rowid
"""
# Every measured feature, one row per sample, as scanned; labels where judged.
SCORES = """
    SELECT i.id AS sample_id, i.uri AS path, i.split, i.label,
        i.* EXCLUDE (id, uri, split, label, source, mtime_ns, ctime_ns, subject),
        l.label_quality, l.suggested_label
    FROM images i LEFT JOIN label_scores l ON l.sample_id = i.id ORDER BY i.id
"""


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


# Each table with its query; `_manifest` and the decisions that do not apply are made otherwise.
TABLES: Mapping[str, str] = {
    "manifest": KEPT,
    "quarantine": LEFT_OUT,
    "changes": CHANGED,
    "pairs": PAIRS,
    "scores": SCORES,
    "stale": "",
}
LISTS: Mapping[str, str] = {"kept": "manifest", "quarantine": "quarantine"}


@dataclass(frozen=True, slots=True)
class Tables:
    """What there is to export of a run; each table is made when it is asked for."""

    store: Store
    decided: Applied

    def table(self, name: str) -> pl.DataFrame:
        """Return one of `TABLES`."""
        if name == "stale":
            return self.decided.stale
        if name == "manifest":
            return self._manifest()
        frame = self.store.query(TABLES[name])
        return frame.select(COLUMNS) if name == "pairs" else frame

    def _manifest(self) -> pl.DataFrame:
        own = [c for c in self.store.columns("metadata") if c != "sample_id"]
        tagged = self.store.scalar("SELECT count(*) FROM tags")
        ours = (*MANIFEST, "tags") if tagged else MANIFEST
        named = {c: _free_name(c, (*ours, *own)) if c in ours else c for c in own}
        extra = "".join(f", x.{identifier(c)} AS {identifier(new)}" for c, new in named.items())
        join = "LEFT JOIN metadata x ON x.sample_id = s.id" if own else ""
        if tagged:
            extra, join = f", t.tags{extra}", f"{join} {TAGS}"
        return self.store.query(KEPT.format(extra=extra, join=join))


@contextlib.contextmanager
def open_tables(run: Path, generation: generations.Generation | None = None) -> Iterator[Tables]:
    """Open what there is to export of a run, with the decisions as they are now."""
    decided = apply_decisions(run, generation)
    with open_for_deciding(run, generation) as store:
        store.create_from("decided", decided.effective)
        store.create_from("tags", tagged_samples(run, generation))
        yield Tables(store, decided)


def export_tables(
    run: Path,
    out_dir: Path,
    format: str = "csv",  # noqa: A002
    *,
    replace: bool = False,
) -> ExportResult:
    """Write every table (`TABLES`) as csv or parquet, and kept.txt and quarantine.txt, one path a
    line, into a folder; `export.json` there says from which generation and decisions.

    Raises UsageError for another format, and where a file is in the way that no export wrote.
    """
    if f".{format}" not in WRITERS:
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


def export_files(run: Path, targets: Mapping[str, Path], *, replace: bool = False) -> ExportResult:
    """Write single tables, or lists of file names: name (of `TABLES` or `LISTS`) to path.

    The extension decides: .csv or .parquet for a table, .txt for the paths of `kept` (also by the
    name `manifest`) or `quarantine`. Raises UsageError as `export_tables` does.
    """
    tables, lists = {}, {}
    for name, path in targets.items():
        _may_write(path, run, replace)
        if path.suffix.lower() == ".txt" and (name in LISTS or name in LISTS.values()):
            lists[path] = next(n for n, table in LISTS.items() if name in (n, table))
        elif path.suffix.lower() in WRITERS and name in TABLES:
            tables[path] = name
        else:
            allowed = (*WRITERS, ".txt") if name in LISTS.values() else WRITERS
            raise UsageError(f"{path} should end in {' or '.join(allowed)}.")
    return _write(run, tables, lists)[0]


def _write(
    run: Path, tables: Mapping[Path, str], lists: Mapping[Path, str]
) -> tuple[ExportResult, dict[str, object]]:
    """Write tables and lists of one generation, with the decisions as they are now."""
    generation, state = generations.require(run), DecisionStore(run).revision()
    files: dict[Path, int] = {}
    neutralised = 0
    with open_tables(run, generation) as source:
        for path, name in tables.items():
            frame = source.table(name)
            files[path] = frame.height
            if path.suffix.lower() == ".parquet":
                write_table(path, frame)
            else:
                write_table(path, neutralise(frame))
                neutralised += count_escaped(frame)
        for path, name in lists.items():
            files[path] = _write_list(source.table(LISTS[name])["path"], path)
        total = source.store.scalar("SELECT count(*) FROM samples")
        changed, stale = source.table("changes").height, source.decided.stale
        dropped = int(source.decided.effective["dropped"].sum())
    result = ExportResult(files, total - dropped, dropped, changed, stale, neutralised)
    facts: dict[str, object] = {
        "schema": SCHEMA, "run": str(run), "generation": generation.path.name,
        "findings": generation.findings.name, "decisions": state, "kept": result.kept,
        "dropped": dropped, "changed": changed, "stale": stale.height,
    }  # fmt: skip
    return result, facts


def _write_list(paths: pl.Series, path: Path) -> int:
    """Write one path a line; one with a line break in it as a percent-encoded file:// address."""
    lines = ["file://" + quote(p) if "\n" in p or "\r" in p else p for p in paths]
    text = "".join(f"{line}\n" for line in lines)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return len(lines)


def _may_write(path: Path, run: Path, replace: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give the path of a file.")
    inside = real(path).parent.is_relative_to(real(run))
    if path.exists() and (inside or not replace):
        fix = "choose another name" + ("" if inside else ", or replace it with --replace")
        raise UsageError(f"{path} exists: {fix}.")


def _free_name(name: str, taken: Sequence[str]) -> str:
    """Return `name_2`, or the next number that is no column yet."""
    lowered = {other.lower() for other in taken}
    number = 2
    while f"{name}_{number}".lower() in lowered:
        number += 1
    return f"{name}_{number}"


# ---- one way to write all forms ----


TABLE_FORMS = ("csv", "parquet")


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
