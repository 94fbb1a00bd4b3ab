"""A report as a piece of HTML for a notebook: counts, checks, and a strip of the worst pictures.

It is drawn inside somebody else's page, light or dark: colours are the page's own, what is set is
layout only, and no element is named. Everything that comes from the dataset goes through `shown`.
"""

from __future__ import annotations

from collections.abc import Mapping

from audit.report.contents import CheckSummary, Member, Report
from audit.report.file_card import FileCard
from audit.report.html_page import shown
from audit.report.thumbnails import ReportThumbnails, Thumbnail, thumbnails_of
from audit.report.wording import ICONS, counted, headline

STRIP = 4  # pictures of a check
HEIGHT = 96  # px
CELL = 'style="text-align:left;vertical-align:top;padding:2px 12px 2px 0"'


def to_fragment(report: Report, pictures: ReportThumbnails) -> str:
    """Return the report in brief; `pictures` come from `make_thumbnails`."""
    data = report.dataset
    classes = len([label for label in data.by_class() if label is not None])
    found = [check for check in report.checks if check.counts.total]
    rows = "".join(_row(check, pictures.by_id) for check in found)
    head = "".join(f"<th {CELL}>{word}</th>" for word in ("", "check", "findings", "worst"))
    table = f"<table><tr>{head}</tr>{rows}</table>" if rows else ""
    return (
        f"<div><b>{shown(data.name)}</b>: {counted(data.n_samples, 'file')}, "
        f"{counted(classes, 'class')}<br>{shown(headline(report))}<br>"
        f"<code>{shown(report.run)}</code>{table}</div>"
    )


def _row(check: CheckSummary, pictures: Mapping[str, Thumbnail]) -> str:
    worst = check.counts.worst
    icon = ICONS[worst] if worst else ""
    members = list(dict.fromkeys(m for example in check.examples for m in example.members))
    strip = "".join(_picture(m, pictures.get(m.id)) for m in members[:STRIP])
    name = f"{shown(check.code)}<br>{shown(check.name)}"
    cells = (icon, name, f"{check.counts.total:,}", strip)
    return "<tr>" + "".join(f"<td {CELL}>{cell}</td>" for cell in cells) + "</tr>"


def _picture(member: Member, picture: Thumbnail | None) -> str:
    return image_html(picture, member.id) if picture is not None else ""


def picture_html(card: FileCard) -> str:
    """Return the picture of a file as an element, or why there is none."""
    error_kind, error = card.value("error_kind"), card.value("error")
    sample = card.sample
    member = Member(
        sample.id, sample.uri, sample.split, sample.label, card.value("status"), error_kind, error,
        card.value("content_hash"),
    )  # fmt: skip
    return image_html(thumbnails_of([member])[0], member.id)


def image_html(picture: Thumbnail, name: str) -> str:
    """Return a thumbnail as an element that says its name."""
    if not picture.data:
        return f"<span>{shown(name)}: {shown(picture.error[:160])}</span> "
    height = min(HEIGHT, picture.height) if picture.height >= 32 else 2 * picture.height
    return (
        f'<img src="{picture.data_uri}" height="{height}" alt="{shown(name)}" '
        f'title="{shown(name)}" style="display:inline;margin:0 4px 0 0">'
    )
