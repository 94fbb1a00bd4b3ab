"""Everything known of one file: what was measured, how unusual that is, what the checks found.

A number such as `sharpness 0.31` says little alone, so each comes with its place among the files of
the same class and of the whole dataset, as a mid-rank percentile: 0 is below all others, 50 in the
middle, 100 above all. One query ranks every column at once, in one pass over the run. The card is
data, and text for a terminal."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from audit.errors import UsageError
from audit.picture.features import MEASURED
from audit.records import Column, Sample, sample_id
from audit.report.text import STYLES, fact_table, heading, rendered
from audit.results.costs import TRAIN_SPLITS
from audit.results.formatting import ICONS, ON_DISK, bytes_text, counted, named_ids, number_text
from audit.results.report_data import FINDING_COLUMNS, ReportedFinding
from audit.run.run_version import open_run
from audit.run.store import Store, identifier
from audit.sources.paths import file_of, path_of, uri_of
from preflight.terminal import visible

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

    `on_disk` compares the file with the scan: unchanged, changed, absent or remote. `twins` and
    `findings` hold the first 20 of `n_twins` and `n_findings`, worst first. `held`: several labels
    and objects, in words.
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


def make_file_card(run: Path, path_or_id: str) -> FileCard:
    """Return the card of the sample with this id or path, or whose id ends with it.

    Raises UsageError where nothing or several samples match, naming the nearest; RunError for a run
    that is absent or damaged.
    """
    with open_run(run) as store:
        sample = _sample(store, find_sample(store, path_or_id))
        row = store.rows("SELECT * FROM images WHERE id = ?", [sample.id])
        measured = row[0] if row else {}
        measurements = _measurements(store, sample, measured)
        findings, n_findings = _findings(store, sample.id)
        twins, n_twins = _twins(store, sample.id, measured)
        return FileCard(
            run=str(run),
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
            metadata=_metadata(store, sample.id),
            held=_held(store, sample.id),
        )


# ---- which file is meant ----


def find_sample(store: Store, words: str) -> str:
    """Return the id of the sample that `words` names.

    `words` is an id, a path, the end of an id, or that without its extension. Raises UsageError for
    no such sample, and for several.
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
            raise _several(words, ends)
    raise _none(store, words)


def find_samples(run: Path, words: Sequence[str]) -> list[str]:
    """Return the id of the one sample that each word names, as `find_sample` does."""
    with open_run(run) as store:
        return [find_sample(store, word) for word in words]


def _several(words: str, ids: Sequence[str]) -> UsageError:
    more = f" and {len(ids) - NEAR:,} more" if len(ids) > NEAR else ""
    return UsageError(
        f"{words!r} matches {len(ids):,} files: {', '.join(ids[:NEAR])}{more}. Give a longer part "
        "of the path, or the full id."
    )


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


def _sample(store: Store, found: str) -> Sample:
    (row,) = store.rows("SELECT * FROM samples WHERE id = ?", [found])
    row["group"] = row.pop("group_key")
    return Sample(**row)


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


# ---- what was measured ----


def _measurements(
    store: Store, sample: Sample, measured: Mapping[str, Any]
) -> tuple[Measurement, ...]:
    present = [c for c in COLUMNS if measured.get(c.name) is not None]
    ranks = _ranks(store, sample, measured, [c.name for c in present if _ranked(c)])
    return tuple(
        Measurement(c.name, measured[c.name], c.doc, *ranks.get(c.name, (None, None)))
        for c in present
    )


def _ranked(column: Column) -> bool:
    return column.type in ("DOUBLE", "INTEGER", "BIGINT") and column.name not in UNRANKED


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


def _metadata(store: Store, found: str) -> dict[str, Any]:
    """Return the manifest's other columns for this sample."""
    if "sample_id" not in store.columns("metadata"):
        return {}
    rows = store.rows("SELECT * EXCLUDE (sample_id) FROM metadata WHERE sample_id = ?", [found])
    return rows[0] if rows else {}


# ---- what the checks said, and who is the same ----


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


# ---- text for a terminal ----


EXTREME = 1.0  # percent: a value in the outer 1 % of its class or the dataset is marked
TOLD = ("status", "error")  # already in the line `state`


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


def card_text(card: FileCard, width: int = 100, color: bool = False) -> str:
    """Return the card for a terminal of `width` columns, with ANSI colours if `color`."""
    parts = [*_facts(card), *_finding_lines(card), *_twin_lines(card), *_metadata_lines(card)]
    return rendered(Group(*parts, *_measurement_table(card), *_next(card)), width, color)


def _facts(card: FileCard) -> Iterator[RenderableType]:
    sample = card.sample
    yield Text(visible(sample.id), style="bold")
    rows = [("where", sample.uri)]
    places = (("split", sample.split), ("class", sample.label), ("group", sample.group))
    rows += [(name, value) for name, value in places if value is not None]
    rows += card.held.items()
    if sample.n_bytes >= 0:
        rows.append(("size", bytes_text(sample.n_bytes)))
    status = card.value("status") or "not measured"
    rows.append(("state", f"{status}: {card.value('error')}" if card.value("error") else status))
    if card.on_disk in ON_DISK:
        rows.append(("now", ON_DISK[card.on_disk]))
    yield fact_table(rows)


def _finding_lines(card: FileCard) -> Iterator[RenderableType]:
    total = counted(card.n_findings, "finding") if card.n_findings else "No finding"
    yield heading(f"{total} for this image")
    for found in card.findings:
        head = Text(f"{ICONS[found.severity]} {found.code} {found.name} ", STYLES[found.severity])
        head.append(f"(suggested: {found.action}; {found.fingerprint})", style="dim")
        lines: list[RenderableType] = [head, Padding(Text(visible(found.message)), (0, 0, 0, 2))]
        others = [sample for sample in found.sample_ids if sample != card.sample.id]
        if found.n_samples > 1:
            others_text = f"with {named_ids(others, found.n_samples - 1)}"
            lines.append(Padding(Text(others_text, style="dim"), (0, 0, 0, 2)))
        yield Padding(Group(*lines), (0, 0, 0, 2))
    if card.n_findings > len(card.findings):
        yield Text(f"  and {card.n_findings - len(card.findings):,} more", style="dim")


def _twin_lines(card: FileCard) -> Iterator[RenderableType]:
    if not card.n_twins:
        return
    yield heading(f"{counted(card.n_twins, 'other file')} with the same image")
    for twin in card.twins:
        place = ", ".join(visible(part) for part in (twin.split, twin.label) if part)
        same = "same bytes" if twin.same_bytes else "same pixels, different bytes"
        said = f" ({place}): {same}" if place else f": {same}"
        yield Text("  ").append(visible(twin.id), style="bold").append(said)
    if card.n_twins > len(card.twins):
        yield Text(f"  and {card.n_twins - len(card.twins):,} more", style="dim")


def _metadata_lines(card: FileCard) -> Iterator[RenderableType]:
    rows = [
        (name, number_text(value)) for name, value in card.metadata.items() if value is not None
    ]
    if rows:
        yield heading("From the manifest")
        yield fact_table(rows)


def _measurement_table(card: FileCard) -> Iterator[RenderableType]:
    label = card.sample.label
    yield heading("Measured")
    explained = "percentile: share of files with a smaller value, where ties count half"
    yield Text(f"  {explained}; *: in the outer {EXTREME:g}%", style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("  column", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=34)
    if label is not None:
        table.add_column("in class", justify="right", no_wrap=True)
    table.add_column("in all", justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    for measured in card.measurements:
        if measured.name in TOLD:
            continue
        ranks = [_rank(measured.in_class)] if label is not None else []
        row = (Text(f"  {measured.name}"), Text(_value(measured)), *ranks)
        table.add_row(*row, _rank(measured.in_dataset), Text(measured.doc))
    yield table
    sizes = f"all: {counted(card.dataset_size, 'file')}"
    if label is not None:
        sizes = f"class {visible(label)}: {counted(card.class_size, 'file')}; {sizes}"
    yield Text(f"  {sizes}", style="dim")


def _value(measured: Measurement) -> str:
    if measured.name in ("phash", "dhash"):
        return f"{measured.value:016x}"
    return number_text(measured.value)


def _rank(rank: Rank | None) -> Text:
    if rank is None or not rank.n:
        return Text("")
    if rank.equal == rank.n:
        return Text("same" if rank.n > 1 else "only", style="dim")
    percentile = rank.percentile
    if min(percentile, 100 - percentile) < EXTREME:
        return Text(f"{percentile:.1f}*", style="bold yellow")
    return Text(f"{percentile:.0f}")


def _next(card: FileCard) -> Iterator[RenderableType]:
    run = shlex.quote(card.run)
    commands = [f"audit explain {found.code}" for found in card.findings]
    trained = card.sample.split in (None, *TRAIN_SPLITS)
    if not trained and any(found.code == "SPLIT001" for found in card.findings):
        commands.append(f"audit decide {run} --code SPLIT001 --drop-from train")
    elif card.findings:
        commands.append(f"audit decide {run} {shlex.quote(card.sample.id)} --as drop")
    if card.on_disk == "changed":
        commands.append(f"audit scan SOURCE --out {run}")
    if commands:
        yield heading("Next")
        shown = dict.fromkeys(map(visible, commands))
        yield from (Text(f"  {command}", style="bold") for command in shown)
