"""What the images of a dataset need: how small they may become, and what the classes depend on.

A simple classifier is judged on versions of the same images; a loss is a paired difference with an
interval (Bonett and Price 2012). The sizes form a fixed sequence of tests, which needs no
correction (Maurer, Hothorn and Lehmacher 1995). A larger network may use more details.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.embeddings import pyramid
from audit.errors import UsageError
from audit.machine.executors import Executor, Failure
from audit.picture.decode import Limits
from audit.picture.preview import SquareJob, SquareMaker
from audit.results.report_data import KEPT_NEEDS
from audit.results.results import open_results
from audit.results.run_findings import read_labelled_images
from audit.run.run_version import require
from audit.run.synced_files import write_synced
from audit.sources.paths import reading_place
from audit.statistics.intervals import paired_difference, wilson

SCHEMA = "audit-needs/1"
LEAST_CLASS, LEAST = 10, 200
MOST = 2000
MARGIN = 0.02
CHUNK = 32
SEED = 0
SPURIOUS = {
    "in grey": "colour", "light equalised": "light", "a tenth of each border cut": "the border",
    "orientation normalised": "orientation", "background greyed": "the background",
}  # fmt: skip
"""What a version takes out."""
NOTHING_LOST, LOSES, UNKNOWN = "loses nothing", "loses", "inconclusive"

Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Version:
    """The classifier on one version of the pictures; shares of pictures, 0..1.

    `loss` against the whole picture at its largest size (95% CI); `verdict`: below the margin?
    """

    name: str
    size: int
    accuracy: float
    loss: float
    loss_low: float
    loss_high: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Varying:
    """What varies most among the pictures of a class: size, position, light or background.

    `ratio`: deviation in the class over that in all pictures; `low`, `high`: samples at both ends.
    """

    label: str
    what: str
    ratio: float
    ratios: Mapping[str, float]
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class PictureNeeds:
    """What a run's pictures need; `reason` says why this is inconclusive, else it is empty.

    `smallest`: px without loss; `pixels`: median of a picture; `decoded`: how much scaled JPEG
    decoding divides them at that size.
    """

    run: Path
    reason: str
    pictures: int = 0
    independent: int = 0
    classes: int = 0
    largest_class: float = 0.0
    accuracy: float = 0.0
    margin: float = MARGIN
    base: int = 0
    smallest: int = 0
    pixels: int = 0
    decoded: int = 1
    sizes: Sequence[Version] = ()
    versions: Sequence[Version] = ()
    varying: Sequence[Varying] = ()

    @property
    def sentence(self) -> str:
        """How small the pictures may become, or why it cannot be told."""
        if self.reason:
            return f"Cannot estimate the input resolution: {self.reason}."
        if self.smallest != self.base:
            saved = self.pixels / self.smallest**2
            scaled = (
                f" A loader that decodes scaled JPEGs (`draft` of Pillow) decodes {self.decoded} "
                "times fewer pixels."
            )
            return (
                f"Images can be reduced to {self.smallest} px: {saved:,.0f} times fewer pixels "
                f"than the {self.pixels:,} of the median image." + scaled * (self.decoded > 1)
            )
        for lower in self.sizes:
            if lower.size < self.base and lower.verdict == LOSES:
                lost = f"{100 * lower.loss:.1f} points are lost"
                return f"Keep {self.base} px: at {lower.size} px {lost}."
            if lower.size < self.base and lower.verdict == UNKNOWN:
                loss = f"{100 * lower.loss_low:.1f} to {100 * lower.loss_high:.1f} points"
                return f"{lower.size} px is inconclusive: the loss is {loss}."
        return f"No size below {self.base} px was tested."

    @property
    def spurious(self) -> str:
        """Which variation may be taken out before training; empty where nothing is told."""
        free = [SPURIOUS[v.name] for v in self.versions
                if v.name in SPURIOUS and v.verdict == NOTHING_LOST]  # fmt: skip
        if not self.versions:
            return ""
        if not free:
            return "No variation is shown to be spurious: removing a variation may lose accuracy."
        told = " and of ".join(free)
        return f"The classes do not depend on differences of {told}: they can be removed."

    def facts(self) -> dict[str, Any]:
        """Return it as a document."""
        said = {"run": str(self.run), "sentence": self.sentence, "spurious": self.spurious}
        return {"schema": SCHEMA, **asdict(self), **said}

    def document(self) -> str:
        """Return it as one JSON document."""
        return json.dumps(self.facts(), ensure_ascii=False, indent=1)

    def keep(self) -> None:
        """Leave it in the run for its report; raises OSError where the run takes no file."""
        scanned = {"of": require(self.run).path.name}
        write_synced(self.run / KEPT_NEEDS, json.dumps(self.facts() | scanned).encode())


def find_needs(
    run: Path,
    executor: Executor,
    limits: Limits,
    *,
    margin: float = MARGIN,
    most: int = MOST,
    advance: Advance = lambda done, total: None,
) -> PictureNeeds:
    """Measure what the pictures of a run need; opens up to `most` of them.

    Raises RunError where there is no run, UsageError for a margin that is no share.
    """
    if not 0 < margin < 1:
        raise UsageError(f"--margin is {margin}: give a share of images, such as 0.02.")
    rows = read_labelled_images(open_results(run))
    sizes = rows.group_by("label").agg(pl.col("unit").n_unique().alias("n"))
    rows = rows.join(sizes.filter(pl.col("n") >= LEAST_CLASS), on="label", how="semi",
                     maintain_order="left")  # fmt: skip
    if len(rows) > most:
        rows = rows[np.sort(np.random.default_rng(SEED).permutation(len(rows))[:most])]
    if reason := _too_little(rows):
        return PictureNeeds(run, reason)
    # the largest size to try: a power of two that most images fill
    shorter = rows.select(pl.min_horizontal("width", "height").median()).item()
    fits = [s for s in pyramid.sizes_up_to(pyramid.LARGEST) if s <= float(shorter or 0)]
    base = max(fits, default=pyramid.SMALLEST)
    pictures, opened = open_squares(rows, base, executor, limits, advance)
    rows = rows.filter(pl.Series(opened))
    if reason := _too_little(rows):
        return PictureNeeds(run, reason)
    return judge_pictures(run, rows, pictures, margin)


def _too_little(rows: pl.DataFrame) -> str:
    units, classes = rows["unit"].n_unique(), rows["label"].n_unique()
    if classes < 2:
        return f"{classes} classes of {LEAST_CLASS} images and more, but 2 are needed"
    if units < LEAST:
        return f"{units:,} images in classes of {LEAST_CLASS} and more, but {LEAST} are needed"
    return ""


def open_squares(
    rows: pl.DataFrame, side: int, executor: Executor, limits: Limits, advance: Advance
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Return the pictures (m, side, side, 3) that could be opened, and their places in `rows`."""
    jobs = [
        SquareJob(content, sample, reading_place(uri))
        for content, sample, uri in rows.select("content_hash", "id", "uri").iter_rows()
    ]
    found: dict[str, npt.NDArray[np.uint8]] = {}
    chunks = (jobs[i : i + CHUNK] for i in range(0, len(jobs), CHUNK))
    done = 0
    for chunk, outcome in executor.run(SquareMaker(limits, side), chunks):
        done += len(chunk)
        advance(done, len(jobs))
        if not isinstance(outcome, Failure):
            pairs = zip(chunk, outcome, strict=True)
            found |= {job.sample_id: x for job, x in pairs if not isinstance(x, str)}
    opened = np.array([job.sample_id in found for job in jobs], np.bool_)
    there = [found[job.sample_id] for job in jobs if job.sample_id in found]
    empty = np.zeros((0, side, side, 3), np.uint8)
    return (np.stack(there) if there else empty), opened


def judge_pictures(
    run: Path, rows: pl.DataFrame, pictures: npt.NDArray[np.uint8], margin: float = MARGIN
) -> PictureNeeds:
    """Compare the versions of pictures (n, base, base, 3), base a power of two from 8 px on.

    `rows` (n) have the columns `label`, `unit`, `width`, `height`.
    """
    names = rows["label"].unique().sort().to_list()
    numbers = {name: i for i, name in enumerate(names)}
    labels = np.array([numbers[x] for x in rows["label"].to_list()], np.int64)
    groups = np.unique(rows["unit"].to_numpy().astype(str), return_inverse=True)[1].astype(np.int64)
    base, n = pictures.shape[1], int(groups.max()) + 1
    sizes = pyramid.sizes_up_to(base)
    parts = pyramid.describe_sizes(pictures, sizes)
    whole = pyramid.judge_rightly(parts, labels, groups)
    largest = float(np.bincount(labels).max() / len(labels))
    low = float(wilson(whole.mean() * n, n)[0])
    known = PictureNeeds(
        run, "", len(rows), n, len(names), largest, float(whole.mean()), margin, base,
        varying=find_varying(rows, pictures),
    )  # fmt: skip
    if low <= largest:
        reason = (
            f"a simple classifier has an accuracy of {whole.mean():.1%}, and the largest class "
            f"alone gives {largest:.1%}: the classifier cannot separate the classes"
        )
        return replace(known, reason=reason)

    def compared(name: str, size: int, right: npt.NDArray[np.bool_]) -> Version:
        lost, won = float((whole & ~right).mean()), float((~whole & right).mean())
        low, high = (float(x) for x in paired_difference(lost, won, n))
        if whole is right or (lost == won == 0):
            verdict = NOTHING_LOST
        else:
            verdict = NOTHING_LOST if high < margin else LOSES if low > 0 else UNKNOWN
        return Version(name, size, float(right.mean()), lost - won, low, high, verdict)

    ladder = [
        compared(f"{size} px", size, pyramid.judge_rightly(parts[: i + 1], labels, groups))
        for i, size in enumerate(sizes)
    ]
    made = {
        "in grey": pyramid.without_colour(pictures),
        f"with {pyramid.TILES**2} tiles shuffled": pyramid.with_tiles_shuffled(pictures, SEED),
        "the middle half of each side": pyramid.cropped(pictures, 0.5, None),
        "a random quarter of each side": pyramid.cropped(pictures, 0.25, SEED),
        "light equalised": pyramid.with_light_equal(pictures),
        "a tenth of each border cut": pyramid.cropped(pictures, 0.8, None),
        "orientation normalised": pyramid.turned_alike(pictures),
        "background greyed": pyramid.without_surroundings(pictures),
    }
    others = []
    for name, changed in made.items():
        codes = pyramid.describe_sizes(changed, sizes)
        others.append(compared(name, base, pyramid.judge_rightly(codes, labels, groups)))
    # the last size, going down, before one that is not shown to lose nothing
    enough = list(takewhile(lambda version: version.verdict == NOTHING_LOST, ladder[::-1]))
    smallest = enough[-1].size if enough else ladder[-1].size
    pixels, decoded = _savings(rows, smallest)
    return replace(
        known, smallest=smallest, pixels=pixels, decoded=decoded, sizes=ladder[::-1],
        versions=others,
    )  # fmt: skip


def find_varying(rows: pl.DataFrame, pictures: npt.NDArray[np.uint8]) -> list[Varying]:
    """Return for each class what varies most in it; `rows` (n) have the columns `id`, `label`."""
    measured = pyramid.measure_variation(pictures)
    spread = {name: float(np.sqrt(x.var(0).sum())) + 1e-9 for name, x in measured.items()}
    found = []
    for (label,), part in rows.with_row_index("row").group_by("label", maintain_order=True):
        here = part["row"].to_numpy()
        inside = {name: x[here] - x[here].mean(0) for name, x in measured.items()}
        ratios = {n: float(np.sqrt(x.var(0).sum())) / spread[n] for n, x in inside.items()}
        what = max(ratios, key=ratios.__getitem__)
        # along the direction in which it varies most; right, down and brighter are upwards
        axis = np.linalg.svd(inside[what], full_matrices=False)[2][0]
        along = inside[what] @ (axis * np.sign(axis.sum() or 1.0))
        low, high = part["id"].gather([int(along.argmin()), int(along.argmax())]).to_list()
        found.append(Varying(str(label), what, ratios[what], ratios, low, high))
    return sorted(found, key=lambda one: one.label)


def _savings(rows: pl.DataFrame, size: int) -> tuple[int, int]:
    """Return the median pixels of a picture, and their divisor in a JPEG decode at `size` px."""
    pixels = int(rows.select((pl.col("width").cast(pl.Int64) * pl.col("height")).median()).item())
    shorter = float(rows.select(pl.min_horizontal("width", "height").median()).item())
    return pixels, next((d * d for d in (8, 4, 2) if shorter / d >= size), 1)
