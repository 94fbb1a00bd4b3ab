"""People as labellers: blind sheets to fill in, labels read back, and how far two people agree.

Label twice, and take one sheet as truth and the other as prediction, for the human ceiling. A sheet
shows no label, no prediction and no stratum, and each copy has an order of its own. Images are
copied under names that are hashes of their ids, because paths often hold the class; a key names the
originals.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.picture.decode import DecodeError, Limits
from audit.picture.reading import read_bytes
from audit.sources.paths import reading_place
from audit.statistics.intervals import Floats, kappa_parts
from audit.subset.draw import hash_keys, permanent_numbers, planned_level
from audit.subset.goal import TARGET_NAMES, Documented, Estimand
from audit.subset.metrics import Design, Linearised, MetricEstimate, MetricScore, estimate_linear
from audit.subset.predictions import (
    IDS,
    UNLABELLED,
    Unknown,
    check_classes,
    classes_of,
    find_column,
    value_of_each,
)
from audit.subset.score import score_subset


@dataclass(frozen=True)
class PersonScore:
    """Accuracy of one who answered, a person's sheet or a model, against the truth named."""

    name: str
    accuracy: MetricScore


@dataclass(frozen=True)
class Human(Documented):
    """People beside a model on the same examples; agreement and kappa of the first two sheets."""

    SCHEMA = "subset-human/1"
    n_files: int
    truth: str
    answers: list[PersonScore]
    agreement: MetricScore | None
    kappa: MetricScore | None
    notes: list[str] = field(default_factory=list)


def labelling_sheet(rows: pl.DataFrame, copy: int = 1) -> pl.DataFrame:
    """Return a sheet for one person: id, path, and an empty `label`; `copy` sets its order."""
    order = np.argsort(permanent_numbers(rows["sample_id"].cast(pl.String), copy), kind="stable")
    return rows.select("sample_id", "path", label=pl.lit(""))[order]


def neutral_names(ids: pl.Series) -> pl.Series:
    """Return a name for each sample id that shows nothing of it, the same in every sheet."""
    hashes = hash_keys(ids.cast(pl.String)).tolist()
    return pl.Series("sample_id", [f"image-{value:016x}" for value in hashes], pl.String)


def blind_sheet(
    rows: pl.DataFrame, images: Path, copy: int = 1
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return a sheet of neutral names, and its key; the images are copied to the folder `images`.

    The key has `name`, `sample_id`, `path`. Where images cannot be read and no id or path holds a
    class, the sheet has the set's own ids and paths and there is no key.
    """
    sheet = labelling_sheet(rows, copy)
    names = neutral_names(sheet["sample_id"])
    suffixes = [PurePosixPath(path).suffix for path in sheet["path"]]
    copies = [f"{images.name}/{name}{s}" for name, s in zip(names, suffixes, strict=True)]
    if images.exists():
        raise UsageError(f"{images} exists: remove it, or choose another name for the sheet.")
    try:
        with tempfile.TemporaryDirectory(prefix=".sheet-", dir=images.parent) as draft:
            Path(draft, images.name).mkdir()
            absent = [
                path
                for path, copied in zip(sheet["path"], copies, strict=True)
                if not _copy_image(path, Path(draft, copied))
            ]
            if not absent:
                os.rename(Path(draft, images.name), images)
    except OSError as error:
        raise UsageError(f"{images} cannot be written ({error.strerror or error}).") from error
    if not absent:
        key = sheet.select(names.alias("name"), "sample_id", "path")
        return sheet.with_columns(names, path=pl.Series(copies, dtype=pl.String)), key
    listed = "|".join(re.escape(name.casefold()) for name in classes_of(rows))
    shown = re.compile(rf"(?<![^\W_])({listed})(?![^\W_])")
    if any(shown.search(text.casefold()) for text in (*sheet["sample_id"], *sheet["path"])):
        raise UsageError(
            f"{len(absent)} of {len(sheet)} images cannot be read, such as {absent[0]!r}, and ids "
            "or paths show the class. Run the command where these paths lead to the images: it "
            "copies them under neutral names."
        )
    return sheet, None


def _copy_image(path: str, target: Path) -> bool:
    """Copy an image of the set, or a member of a pack; False where it cannot be read."""
    try:
        content = read_bytes(reading_place(path) or "", Limits())
    except DecodeError:
        return False
    target.write_bytes(content)
    return True


def sheet_labels(
    rows: pl.DataFrame, sheet: pl.DataFrame, name: str, unknown: Unknown = "refuse"
) -> pl.Series:
    """Return the label of each row from a filled sheet; every row needs one.

    `unknown`: what to do with classes that the set does not have, where the set has classes.
    """
    names = neutral_names(rows["sample_id"])
    key = find_column(sheet, IDS, name, "id")
    if sheet[key].cast(pl.String).is_in(names.implode()).any():
        rows = rows.with_columns(names)
    if "label" not in sheet.columns:
        raise UsageError(f"{name} has no column 'label': fill in the sheet that was written.")
    given = pl.col("label").cast(pl.String).str.strip_chars()
    found = value_of_each(rows, sheet, pl.when(given != "").then(given), name, "labels")
    if found.null_count():
        raise UsageError(
            f"{name}: {found.null_count()} of {len(rows)} examples have no label, such as "
            f"{rows['sample_id'].filter(found.is_null())[0]!r}. Fill in all of them."
        )
    check_classes(classes_of(rows), found, name, unknown)
    return found.alias("label")


def compare_people(
    rows: pl.DataFrame,
    sheets: Sequence[pl.DataFrame],
    predictions: Sequence[pl.DataFrame] = (),
    *,
    names: Sequence[str] = ("A", "B"),
    confidence: float | None = None,
    unknown: Unknown = "refuse",
) -> Human:
    """Return what people got right on a subset, and a model beside them.

    The truth is the set's own labels, else the first sheet. Two sheets also give agreement and
    Cohen's kappa, weighted to the set. `unknown`: for answers that are no class of the truth.
    """
    confidence = planned_level(rows, confidence)[0]
    given = [sheet_labels(rows, s, n, unknown) for s, n in zip(sheets, names, strict=False)]
    unlabelled = bool((rows["label"] == UNLABELLED).all())
    if unlabelled and len(sheets) + len(predictions) < 2:
        raise UsageError(
            "The set has no classes, so the first sheet is the ground truth: give --answers a "
            "second sheet, or give --predictions."
        )
    truth = rows.with_columns(given[0]) if unlabelled else rows
    tables = [
        (name, rows.select("sample_id", prediction=labels))
        for name, labels in list(zip(names, given, strict=False))[int(unlabelled) :]
    ]
    tables += [(n, t) for n, t in zip(names[len(sheets) :], predictions, strict=False)]
    models = [
        score_subset(truth, [table], unknown=unknown, confidence=confidence, names=[name]).models[0]
        for name, table in tables
    ]
    answers = [PersonScore(model.name, model.metrics[0]) for model in models]
    agreement = kappa = None
    if len(given) > 1:
        agreement, kappa = _agreement(rows, given[0], given[1], confidence)
    truth_name = f"the first sheet, {names[0]}" if unlabelled else "the labels of the set"
    notes = [note for model in models for note in model.notes]
    return Human(len(rows), truth_name, answers, agreement, kappa, notes)


def _agreement(
    rows: pl.DataFrame, first: pl.Series, second: pl.Series, confidence: float
) -> tuple[MetricScore, MetricScore]:
    design = Design.of(rows)
    levels = pl.Enum(pl.concat([first, second]).unique().sort())
    a, b = (s.cast(levels).to_physical().to_numpy().astype(np.int64) for s in (first, second))
    observed, chance, influence = kappa_parts(a, b, design.weight / design.weight.sum())
    alike = (a == b).astype(float)
    plain = _estimated(design, alike, observed, alike - observed, confidence)
    agreement = MetricScore("agreement", plain, "design-based interval, by linearisation")
    if chance >= 1:  # one class only: there is nothing to agree on beyond chance
        nothing = dict.fromkeys(plain, MetricEstimate(float("nan"), -1.0, 1.0, 0.0))
        return agreement, MetricScore("kappa", nothing, "one class only")
    # Kappa is the agreement, less that of chance, over what chance leaves; so are its limits, at
    # the variance of kappa.
    found = _estimated(design, alike, observed, influence, confidence)
    scaled = {}
    for e, of in found.items():
        value, low, high = ((v - chance) / (1 - chance) for v in (of.value, of.low, of.high))
        scaled[e] = replace(of, value=value, low=low, high=high)
    return agreement, MetricScore("kappa", scaled, "design-based interval, by linearisation")


def _estimated(
    design: Design, alike: Floats, observed: float, influence: Floats, confidence: float
) -> dict[Estimand, MetricEstimate]:
    share = np.full(alike.size, 1 / design.weight.sum())
    linear = Linearised(observed, influence * share, (share,), (1 - alike, alike))
    return estimate_linear(design, linear, confidence)


def human_text(found: Human) -> str:
    """Return people and model for a reader."""
    lines = [f"{found.n_files} files; the ground truth is {found.truth}."]
    for answer in found.answers:
        lines += [f"  {answer.name}: {line}" for line in _lines(answer.accuracy)]
    for metric in (found.agreement, found.kappa):
        lines += [f"  two sheets: {line}" for line in _lines(metric)] if metric else []
    return "\n".join([*lines, *found.notes])


def _lines(metric: MetricScore) -> list[str]:
    percent = metric.metric != "kappa"
    scale, unit = (100, "%") if percent else (1, "")
    return [
        f"{metric.metric}, {TARGET_NAMES[estimand]}: {scale * one.value:.4g}{unit} "
        f"({scale * one.low:.4g} to {scale * one.high:.4g})"
        for estimand, one in metric.estimands.items()
    ]
