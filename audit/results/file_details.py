"""Everything known of one file: what was measured, how unusual that is, what the checks found.

Numbers come with their mid-rank percentile (0 to 100) in the class and in the dataset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.errors import UsageError
from audit.picture.features import MEASURED
from audit.records import Column, Sample, sample_id
from audit.results.finding_index import index_findings
from audit.results.reader import RunReader, reads
from audit.results.report_data import FINDING_COLUMNS, ReportedFinding
from audit.run.store import Store, identifier
from audit.sources.paths import file_of, path_of, uri_of
from dataset_preflight.foundation.terminal import visible

NEAR, SHOWN = 5, 20
# Codes, not quantities: their rank says nothing.
UNRANKED = ("orientation", "error_at")
DERIVED = (
    Column("n_bytes", "BIGINT", "file size, bytes"),
    Column("pixels", "BIGINT", "width x height of the shown image, px"),
    Column("aspect", "DOUBLE", "width / height of the shown image"),
)
COLUMNS = (*DERIVED, *MEASURED)


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a value stands among `n` files that have one: how many lie below, how many equal it."""

    below: int
    equal: int
    n: int

    @property
    def percentile(self) -> float:
        """Mid-rank percentile, 0..100: half of the equal values count as below."""
        return 100.0 * (self.below + self.equal / 2) / self.n


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured column: its value, what it means (with unit), its ranks where it is a number."""

    name: str
    value: Any
    doc: str
    in_class: Rank | None = None
    in_dataset: Rank | None = None


@dataclass(frozen=True, slots=True)
class Twin:
    """Another sample with the same bytes, or with the same pixels only."""

    id: str
    split: str | None
    label: str | None
    same_bytes: bool


@dataclass(frozen=True, slots=True)
class FileCard:
    """Everything known of one file.

    `on_disk`: unchanged, changed, absent or remote. `twins` and `findings` hold the first 20, worst
    first. `held`: several labels and objects, in words.
    """

    run: str
    sample: Sample
    on_disk: str
    class_size: int
    dataset_size: int
    measurements: tuple[Measurement, ...]
    findings: tuple[ReportedFinding, ...]
    n_findings: int
    twins: tuple[Twin, ...]
    n_twins: int
    metadata: Mapping[str, Any]
    held: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """Return the value of a measured column, None where it was not measured."""
        return next((m.value for m in self.measurements if m.name == name), None)


def make_file_card(results: RunReader, path_or_id: str) -> FileCard:
    """Return the card of the sample that `find_sample` finds; raises its UsageError."""
    with results.connection(index_findings) as store:
        (found,) = store.rows(
            'SELECT * EXCLUDE (group_key), group_key AS "group" FROM samples WHERE id = ?',
            [find_sample(store, path_or_id)],
        )
        sample = Sample(**found)
        row = store.rows("SELECT * FROM images WHERE id = ?", [sample.id])
        measured = row[0] if row else {}
        measurements = _measurements(store, sample, measured)
        findings, n_findings = _findings(store, sample.id)
        twins, n_twins = _twins(store, sample.id, measured)
        metadata = list[dict[str, Any]]()
        if "sample_id" in store.columns("metadata"):
            columns = "SELECT * EXCLUDE (sample_id) FROM metadata WHERE sample_id = ?"
            metadata = store.rows(columns, [sample.id])
        return FileCard(
            run=str(results.run),
            sample=sample,
            on_disk=_on_disk(sample),
            class_size=store.scalar(
                "SELECT count(*) FROM samples WHERE label IS NOT DISTINCT FROM ?", [sample.label]
            ),
            dataset_size=store.scalar("SELECT count(*) FROM samples"),
            measurements=measurements,
            findings=findings,
            n_findings=n_findings,
            twins=twins,
            n_twins=n_twins,
            metadata=metadata[0] if metadata else {},
            held=_held(store, sample.id),
        )


def find_sample(store: Store, words: str) -> str:
    """Return the id of the sample named by an id, a path, or the end of an id.

    Raises UsageError for no such sample, and for several.
    """
    wanted = sample_id(words)
    absolute = uri_of(os.path.abspath(os.path.expanduser(words)))
    exact = store.query(
        "SELECT id FROM samples WHERE id = ? OR uri IN (?, ?) ORDER BY id <> ? LIMIT 1",
        [wanted, wanted, absolute, wanted],
    )
    if exact.height:
        return str(exact["id"][0])
    # The separator before keeps `1.jpg` from meaning `21.jpg`; `source:` ends where a path begins.
    tail = "/" + wanted.removeprefix("./").lstrip("/")
    bare = "CASE WHEN source = '' THEN id ELSE substr(id, length(source) + 2) END"
    for name in (bare, rf"regexp_replace({bare}, '\.[^./]+$', '')"):
        sql = f"SELECT id FROM samples WHERE ends_with('/' || {name}, ?) ORDER BY id"
        ends: list[str] = store.query(sql, [tail])["id"].to_list()
        if len(ends) == 1:
            return ends[0]
        if ends:
            more = f" and {len(ends) - NEAR:,} more" if len(ends) > NEAR else ""
            raise UsageError(
                f"{words!r} matches {len(ends):,} files: {', '.join(ends[:NEAR])}{more}. Give a "
                "longer part of the path, or the full id."
            )
    raise _none(store, words)


@reads()
def find_samples(store: Store, words: Sequence[str]) -> list[str]:
    """Return the id of the one sample that each word names, as `find_sample` does."""
    return [find_sample(store, word) for word in words]


def _none(store: Store, words: str) -> UsageError:
    # Whole ids favour a wrong folder, last parts a wrong file name: the better of the two counts.
    sql = """
        SELECT id FROM samples ORDER BY greatest(
            jaro_winkler_similarity(id, ?), jaro_winkler_similarity(split_part(id, '/', -1), ?)
        ) DESC, id LIMIT ?
    """
    last = words.rstrip("/").rsplit("/", 1)[-1]
    near = store.query(sql, [sample_id(words), sample_id(last), NEAR])["id"].to_list()
    hint = f" Similar: {', '.join(near)}." if near else " The run has no files at all."
    return UsageError(f"This run has no file {words!r}.{hint}")


def _on_disk(sample: Sample) -> str:
    path = file_of(sample.uri)
    if path is None:
        return "remote"
    try:
        now = os.stat(path)
    except (OSError, ValueError):
        return "absent"
    # of a pack the time alone: its size is not that of the member
    size = now.st_size if path == path_of(sample.uri) else sample.n_bytes
    same = (size, now.st_mtime_ns) == (sample.n_bytes, sample.mtime_ns)
    return "unchanged" if same else "changed"


def _measurements(
    store: Store, sample: Sample, measured: Mapping[str, Any]
) -> tuple[Measurement, ...]:
    present = [c for c in COLUMNS if measured.get(c.name) is not None]
    numbers = (c.name for c in present if c.type in ("DOUBLE", "INTEGER", "BIGINT"))
    ranks = _ranks(store, sample, measured, [name for name in numbers if name not in UNRANKED])
    return tuple(
        Measurement(c.name, measured[c.name], c.doc, *ranks.get(c.name, (None, None)))
        for c in present
    )


def _ranks(
    store: Store, sample: Sample, measured: Mapping[str, Any], names: Sequence[str]
) -> dict[str, tuple[Rank, Rank]]:
    """Return each column's rank in the class and in the dataset, from one pass over the images."""
    if not names:
        return {}
    # One scan with many filtered counts: a query per column would read the table each time.
    counts: list[str] = []
    values: list[Any] = []
    for name in names:
        column = identifier(name)
        for where in ("same_class", "true"):
            counts += [
                f"count(*) FILTER (WHERE {where} AND {column} < ?)",
                f"count(*) FILTER (WHERE {where} AND {column} = ?)",
                f"count({column}) FILTER (WHERE {where})",
            ]
            values += [measured[name]] * 2
    sql = (
        "WITH placed AS (SELECT *, label IS NOT DISTINCT FROM ? AS same_class FROM images) "
        f"SELECT {', '.join(f'{c} AS c{i}' for i, c in enumerate(counts))} FROM placed"
    )
    found = store.query(sql, [sample.label, *values]).row(0)
    return {
        name: (Rank(*found[6 * i : 6 * i + 3]), Rank(*found[6 * i + 3 : 6 * i + 6]))
        for i, name in enumerate(names)
    }


def _findings(store: Store, name: str) -> tuple[tuple[ReportedFinding, ...], int]:
    columns = ", ".join(f"f.{column}" for column in FINDING_COLUMNS)
    sql = f"""
        SELECT {columns},
            list(o.sample_id ORDER BY o.position) FILTER (WHERE o.position < ?) AS ids
        FROM finding_samples m JOIN findings f USING (fingerprint)
        JOIN finding_samples o USING (fingerprint)
        WHERE m.sample_id = ? GROUP BY {columns}
    """
    every = sorted(
        (ReportedFinding.from_row(row, row["ids"]) for row in store.rows(sql, [SHOWN, name])),
        key=lambda finding: (finding.severity.rank, finding.code, finding.fingerprint),
    )
    return tuple(every[:SHOWN]), len(every)


def _twins(store: Store, found: str, measured: Mapping[str, Any]) -> tuple[tuple[Twin, ...], int]:
    hashes = [measured.get("content_hash"), measured.get("pixel_hash")]
    sql = """
        SELECT id, split, label, coalesce(content_hash = ?, false) AS same_bytes
        FROM images WHERE (content_hash = ? OR pixel_hash = ?) AND id <> ?
        ORDER BY same_bytes DESC, id
    """
    rows = store.query(sql, [hashes[0], *hashes, found])
    return tuple(Twin(*row) for row in rows.head(SHOWN).iter_rows()), rows.height


def _held(store: Store, sample: str) -> dict[str, str]:
    """Return the labels of a picture that has several, and its objects, in words."""
    sql = """
        SELECT CASE WHEN kind IN ('folder', 'column') THEN 'labels' ELSE 'objects' END AS what,
            label, sum(n)::BIGINT AS n FROM labels WHERE sample_id = ? GROUP BY ALL
            ORDER BY what, n DESC, label
    """
    said: dict[str, list[str]] = {}
    for what, label, n in store.query(sql, [sample]).iter_rows():
        name = visible(label or "(not in the list)")
        said.setdefault(what, []).append(name if what == "labels" else f"{name} {n:,}")
    return {w: ", ".join(x) for w, x in said.items() if w == "objects" or len(x) > 1}
