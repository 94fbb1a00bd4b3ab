"""Export: what a run found and what was decided, as plain tables for other tools.

Files are only ever added: no picture is moved, changed or deleted, and a file that exists is not
replaced unless the caller says so, or it is still what an earlier export into the same folder
wrote: `export.json` there keeps its hash, so that a table edited by hand is safe. Relabels and
moves are applied in the manifest, which `audit scan` reads again; stale decisions are not, and are
listed.

`pairs` gives one row for each verified pair of samples that show one picture. Inside a set of
copies that would be quadratic (1,000 copies are half a million pairs), so each copy is paired
with the first of them only. Near-duplicates likewise, one sample standing for each picture.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import polars as pl

from audit.errors import UsageError
from audit.review.ledger import Ledger
from audit.review.status import Applied, apply_decisions, open_for_deciding
from audit.review.tags import SEPARATOR, tagged_samples
from audit.run import generations
from audit.run.store import Store, identifier
from audit.sources.csv_text import ESCAPED, MARK, NUMBER, escaped_text

SCHEMA = "audit-export/1"
RECORD = "export.json"  # what an export wrote, so that the next one may replace it
COLUMNS = (
    "a", "b", "split_a", "split_b", "label_a", "label_b", "kind", "distance", "similarity",
    "transformation", "score", "verified", "path_a", "path_b",
)  # fmt: skip
MANIFEST = ("id", "path", "split", "label", "group")
WRITERS = (".csv", ".parquet")

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
    LEFT JOIN (SELECT id, string_agg(tag, '{SEPARATOR}' ORDER BY tag) AS tags FROM memory.main.tags
    GROUP BY id) t ON t.id = s.id
"""
# `{extra}`: the other columns of a manifest that was scanned. Listing order is kept.
KEPT = """
    SELECT s.id, s.uri AS path, coalesce(d.split, s.split) AS split,
        coalesce(d.label, s.label) AS label, s.group_key AS "group"{extra}
    FROM measurements.main.samples s LEFT JOIN decided d ON d.id = s.id {join}
    WHERE NOT coalesce(d.dropped, false) ORDER BY s.rowid
"""
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
CHANGED = """
    SELECT s.id, s.uri AS path, s.label AS label_before, coalesce(d.label, s.label) AS label,
        s.split AS split_before, coalesce(d.split, s.split) AS split, d.why AS reason, d.by, d.at
    FROM measurements.main.samples s JOIN decided d ON d.id = s.id
    WHERE NOT d.dropped AND (coalesce(d.label, s.label) IS DISTINCT FROM s.label
        OR coalesce(d.split, s.split) IS DISTINCT FROM s.split) ORDER BY s.rowid
"""
SCORES = """
    SELECT i.id AS sample_id, i.uri AS path, i.split, i.label,
        i.* EXCLUDE (id, uri, split, label, source, mtime_ns, ctime_ns, subject){judged}
    FROM images i {join} ORDER BY i.id
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


@dataclass(frozen=True, slots=True)
class Tables:
    """What there is to export of a run; each table is made when it is asked for."""

    store: Store
    decided: Applied

    def manifest(self) -> pl.DataFrame:
        """Return the kept set, relabels and moves applied: id, path, split, label, group, ...;
        `tags` where a sample has one.
        """
        own = [c for c in self.store.columns("metadata") if c != "sample_id"]
        tagged = self.store.scalar("SELECT count(*) FROM tags")
        ours = (*MANIFEST, "tags") if tagged else MANIFEST
        named = {c: _free_name(c, (*ours, *own)) if c in ours else c for c in own}
        extra = "".join(f", x.{identifier(c)} AS {identifier(new)}" for c, new in named.items())
        join = "LEFT JOIN metadata x ON x.sample_id = s.id" if own else ""
        if tagged:
            extra, join = f", t.tags{extra}", f"{join} {TAGS}"
        return self.store.query(KEPT.format(extra=extra, join=join))

    def quarantine(self) -> pl.DataFrame:
        """Return what was dropped, why and by whom, and the codes of its findings."""
        return self.store.query(LEFT_OUT)

    def changes(self) -> pl.DataFrame:
        """Return the kept samples with another label or split than the scan saw."""
        return self.store.query(CHANGED)

    def pairs(self) -> pl.DataFrame:
        """Return the verified pairs."""
        return verified_pairs(self.store)

    def scores(self) -> pl.DataFrame:
        """Return every measured feature, one row per sample, as scanned; labels where judged."""
        there = bool(self.store.columns("label_scores"))  # not in runs of an older scan
        judged = ", l.label_quality, l.suggested_label" if there else ""
        join = "LEFT JOIN label_scores l ON l.sample_id = i.id" if there else ""
        return self.store.query(SCORES.format(judged=judged, join=join))

    def stale(self) -> pl.DataFrame:
        """Return the decisions that do not apply, and why."""
        return self.decided.stale


TABLES: Mapping[str, Callable[[Tables], pl.DataFrame]] = {
    "manifest": Tables.manifest,
    "quarantine": Tables.quarantine,
    "changes": Tables.changes,
    "pairs": Tables.pairs,
    "scores": Tables.scores,
    "stale": Tables.stale,
}
LISTS: Mapping[str, str] = {"kept": "manifest", "quarantine": "quarantine"}


@contextlib.contextmanager
def open_tables(run: Path, generation: generations.Generation | None = None) -> Iterator[Tables]:
    """Open what there is to export of a run, with the decisions as they are now."""
    decided = apply_decisions(run, generation)
    with open_for_deciding(run, generation) as store:
        store.create_from("decided", decided.effective)
        store.create_from("tags", tagged_samples(run, generation))
        yield Tables(store, decided)


def verified_pairs(store: Store) -> pl.DataFrame:
    """Return one row per verified pair (`COLUMNS`): `distance` in bits of the perceptual hash,
    `similarity` a correlation, `score` log odds, `transformation` what turns a into b.
    """
    return store.query(PAIRS).select(COLUMNS)


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
        raise UsageError(f"{format!r} is no format of tables: use csv or parquet.")
    tables = {out_dir / f"{name}.{format}": name for name in TABLES}
    lists = {out_dir / f"{name}.txt": name for name in LISTS}
    record = out_dir / RECORD
    earlier = _earlier_files(record)
    for path in (*tables, *lists, record):
        if path.name in earlier and not replace:
            _refuse_edited(path, earlier[path.name])
        _may_write(path, run, replace or path.name in earlier)
    result, facts = _write(run, tables, lists)
    facts["files"] = {path.name: rows for path, rows in result.files.items()}
    facts["sha256"] = {path.name: _sha256(path) for path in result.files}
    _replace(record, lambda part: part.write_text(json.dumps(facts) + "\n"))
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
    generation, state = generations.require(run), Ledger(run).revision()
    files: dict[Path, int] = {}
    neutralised = 0
    with open_tables(run, generation) as source:
        for path, name in tables.items():
            frame = TABLES[name](source)
            files[path], cells = _write_table(frame, path)
            neutralised += cells
        for path, name in lists.items():
            files[path] = _write_list(TABLES[LISTS[name]](source)["path"], path)
        total = source.store.scalar("SELECT count(*) FROM samples")
        changed, stale = source.changes().height, source.stale()
        dropped = int(source.decided.effective["dropped"].sum())
    result = ExportResult(files, total - dropped, dropped, changed, stale, neutralised)
    facts: dict[str, object] = {
        "schema": SCHEMA, "run": str(run), "generation": generation.path.name,
        "findings": generation.findings.name, "decisions": state, "kept": result.kept,
        "dropped": dropped, "changed": changed, "stale": stale.height,
    }  # fmt: skip
    return result, facts


# ---- files ----


def _write_table(frame: pl.DataFrame, path: Path) -> tuple[int, int]:
    """Write a table by its extension; returns its rows and the cells that were neutralised."""
    if path.suffix.lower() == ".parquet":
        _replace(path, frame.write_parquet)
        return frame.height, 0
    _replace(path, neutralise(frame).write_csv)
    return frame.height, _cells(frame)


def _write_list(paths: pl.Series, path: Path) -> int:
    """Write one path a line; one with a line break in it as a percent-encoded file:// address."""
    lines = ["file://" + quote(p) if "\n" in p or "\r" in p else p for p in paths]
    text = "".join(f"{line}\n" for line in lines)
    _replace(path, lambda part: part.write_text(text, encoding="utf-8"))
    return len(lines)


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Make the file appear whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        os.replace(part, path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror or error}): choose another place."
        ) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _may_write(path: Path, run: Path, replace: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give the name of a file.")
    inside = path.resolve().parent.is_relative_to(run.resolve())
    if path.exists() and (inside or not replace):
        fix = "choose another name" + ("" if inside else ", or allow it with --replace")
        raise UsageError(f"{path} exists, and an export replaces nobody's file: {fix}.")


def _earlier_files(record: Path) -> Mapping[str, str | None]:
    """Return what the earlier export into this folder wrote: {name: hash}, None where unknown."""
    try:
        written = json.loads(record.read_text(encoding="utf-8"))
        if written["schema"] != SCHEMA:
            return {}
        hashes = dict(written.get("sha256", {}))
        return {RECORD: None, **{name: str(hashes.get(name, "")) for name in written["files"]}}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _refuse_edited(path: Path, wrote: str | None) -> None:
    """Raise UsageError for a file that is no longer what the earlier export wrote."""
    if wrote is not None and path.is_file() and _sha256(path) != wrote:
        raise UsageError(
            f"{path} is not what the last export wrote there: keep it under another name, or allow "
            "replacing it with --replace."
        )


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None


def _free_name(name: str, taken: Sequence[str]) -> str:
    """Return `name_2`, or the next number that is no column yet."""
    lowered = {other.lower() for other in taken}
    number = 2
    while f"{name}_{number}".lower() in lowered:
        number += 1
    return f"{name}_{number}"


def _needs_apostrophe(text: pl.Expr) -> pl.Expr:
    return text.str.contains(ESCAPED) & ~text.str.contains(NUMBER)


def neutralise(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame for CSV, its texts and headers as `audit.sources.csv_text` writes them.

    Where any needs an apostrophe, there is one more column, `MARK`.
    """
    text = pl.col(pl.String)
    names = {name: escaped_text(name) for name in frame.columns}
    if not _cells(frame) and all(name == safe for name, safe in names.items()):
        return frame
    safe = frame.with_columns(
        pl.when(_needs_apostrophe(text)).then(pl.lit("'") + text).otherwise(text).name.keep()
    )
    return safe.rename(names).with_columns(pl.lit(None, pl.String).alias(MARK))


def _cells(frame: pl.DataFrame) -> int:
    """Return how many cells need an apostrophe."""
    marked = frame.select(_needs_apostrophe(pl.col(pl.String)).fill_null(False))
    return sum(int(column.sum()) for column in marked)
