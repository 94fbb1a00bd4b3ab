"""The card of one file, and the evidence between two files, as text for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from audit.report.text import STYLES, fact_table, heading, rendered
from audit.results.costs import TRAIN_SPLITS
from audit.results.file_details import FileCard, Rank
from audit.results.formatting import (
    ICONS,
    ON_DISK,
    VERDICTS,
    bytes_text,
    counted,
    named_ids,
    number_text,
)
from audit.results.pair_details import PairCard
from dataset_preflight.foundation.terminal import visible

EXTREME = 1.0  # percent: a value in the outer 1 % of its class or the dataset is marked
TOLD = ("status", "error")  # already in the line `state`


def card_text(card: FileCard, width: int = 100, color: bool = False) -> str:
    """Return the card for a terminal of `width` columns, with ANSI colours if `color`."""
    parts = [*_facts(card), *_finding_lines(card), *_twin_lines(card)]
    if rows := [(k, number_text(v)) for k, v in card.metadata.items() if v is not None]:
        parts += [heading("From the manifest"), fact_table(rows)]
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
        is_hash = measured.name in ("phash", "dhash")
        value = f"{measured.value:016x}" if is_hash else number_text(measured.value)
        row = (Text(f"  {measured.name}"), Text(value), *ranks)
        table.add_row(*row, _rank(measured.in_dataset), Text(measured.doc))
    yield table
    sizes = f"all: {counted(card.dataset_size, 'file')}"
    if label is not None:
        sizes = f"class {visible(label)}: {counted(card.class_size, 'file')}; {sizes}"
    yield Text(f"  {sizes}", style="dim")


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


def pair_text(card: PairCard, width: int = 100, color: bool = False) -> str:
    """Return the evidence for a terminal of `width` columns, with ANSI colours if `color`."""
    names = Text(f"{visible(card.first)}\n{visible(card.second)}", style="bold")
    table = fact_table(evidence_lines(card))
    return rendered(Group(names, heading("Evidence"), table), width, color)


def evidence_lines(card: PairCard) -> list[tuple[str, str]]:
    """Return the evidence as (name, value), the verdict first."""
    lines = [("verdict", VERDICTS[card.kind])]
    if card.distance is not None:
        lines.append(("hashes", f"{card.distance} of 64 bits differ (phash)"))
    if card.score is None:
        lines.append(("match score", "none: a thumbnail is missing or blank"))
    else:
        bound = "" if card.threshold is None else f" (threshold {card.threshold:+.2f})"
        source = "stored by the scan, decides" if card.stored else "of the thumbnails, computed now"
        lines.append(("match score", f"{card.score:+.2f}{bound}, {source}"))
        if card.stored and card.thumbnail_score is not None:
            rest = card.score - card.thumbnail_score
            lines.append(
                ("its parts", f"thumbnails {card.thumbnail_score:+.2f}, other checks {rest:+.2f}")
            )
        lines.append(("similarity", f"{card.similarity:.3f} (correlation of gradients, -1..1)"))
        lines.append(("overlap", f"{card.overlap:.0%} of one image"))
        if card.kind != "different":
            lines.append(("change", f"{card.transformation} (first to second)"))
    if card.looked:
        lines.append(("verified", "at full resolution"))
    elif card.rechecked:
        decides = "" if card.stored else ", decides"
        lines.append(("full-resolution check", f"{card.rechecked}{decides}"))
    if card.group_scores and not card.stored:
        scores = " and ".join(f"{score:+.2f}" for score in card.group_scores)
        lines.append(("decided by", f"the scores against {card.representative}: {scores}"))
    if card.grouped:
        lines.append(("duplicate group", f"of {card.representative}"))
    return lines
