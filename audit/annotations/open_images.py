"""Open Images: a CSV file of boxes in shares, classes by machine ids, names in another file."""

from __future__ import annotations

import os

import polars as pl

from audit.annotations.box_table import add_rows, note_texts, read_csv_text
from audit.annotations.discovery import AnnotationGroup
from audit.annotations.outcome import ReadOutcome
from audit.annotations.problems import ProblemLog
from audit.annotations.sink import Sink

CORNERS = ("xmin", "ymin", "xmax", "ymax")
_NAMES = ("class-descriptions", "class_descriptions")


def read_open_images(group: AnnotationGroup, sink: Sink) -> ReadOutcome:
    """Read a file of boxes into the tables."""
    problems, outcome = ProblemLog(group.file), ReadOutcome("corners share")
    frame = read_csv_text(group, problems)
    if frame is None:
        sink.add_problems(problems)
        outcome.complete = False
        return outcome
    crowd = pl.col("isgroupof") == "1" if "isgroupof" in frame.columns else pl.lit(False)
    rows = frame.with_columns(
        image_key=pl.col("imageid"), category_key=pl.col("labelname"),
        crowd=crowd.fill_null(False), declared_width=pl.lit(None), declared_height=pl.lit(None),
        **{f"v{i}": pl.col(c).cast(pl.Float64, strict=False) for i, c in enumerate(CORNERS, 1)},
    )  # fmt: skip
    note_texts(rows, CORNERS, problems)
    names = _class_names(group)
    add_rows(group.file, rows.with_columns(label=pl.lit("")) if names else rows, sink)
    for entry, (key, label) in enumerate(names.items()):
        sink.add(
            "categories",
            {"file": group.file, "category_key": key, "label": label, "entry": entry,
             "declared": True},
        )  # fmt: skip
    outcome.objects = rows.height
    sink.add_problems(problems)
    return outcome


def _class_names(group: AnnotationGroup) -> dict[str, str]:
    """Return {machine id: name} of the file of class descriptions beside the boxes."""
    folder = os.path.join(group.root, group.folder)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".csv") and any(word in name for word in _NAMES):
            with open(os.path.join(folder, name), encoding="utf-8-sig", errors="replace") as file:
                lines = file.read(64 << 20).splitlines()
            pairs = [line.split(",", 1) for line in lines if line.count(",")]
            named = {key.strip(): label.strip().strip('"') for key, label in pairs}
            named.pop("LabelName", None)
            return named
    return {}
