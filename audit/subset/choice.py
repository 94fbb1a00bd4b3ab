"""A choice of pictures: to label next, or to evaluate on, with what it buys.

The set is that of `audit.subset.source`, less what a decision dropped. Copies and near-duplicates
are one unit, for which the file with the smallest content hash stands; a unit with a file that is
labelled or chosen already is known. The same run, words and seed give the same rows.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.embeddings.nearest import unit_length
from audit.errors import UsageError
from audit.results.evaluation import read_units
from audit.results.formatting import counted
from audit.results.results import open_results
from audit.results.similar import stored_embeddings
from audit.statistics.intervals import wilson_share
from audit.statistics.rare_cells import CellParams
from audit.subset.coverage import Reach, choose_covering, likeness_to, measure_reach, random_reach
from audit.subset.draw import permanent_numbers
from audit.subset.predictions import (
    IDS,
    LABELS,
    PROBABILITY,
    find_column,
    match,
    read_table,
    standard_columns,
)
from audit.subset.source import frame_from_run
from audit.subset.strata import Strata, cut_points, stratum_names

CLASS, HELD = "class", "held"
SCHEMA = "audit-select/1"
By = Literal["coverage", "uncertainty", "rare"]
RECALL = CellParams().recall
LISTED = 12  # classes in a text
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """`free` and `known`: one row a unit, the columns of a subset's frame with `pixel_hash`,
    `unit` and `held`, its classes: the label or, without one, those of its several labels and of
    its objects, else the predicted one (`class`: these in words); `left_out`: files by reason.
    """

    free: pl.DataFrame
    known: pl.DataFrame
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What may be chosen: a split, the files of a list, those without a label; not what is chosen.

    `listed` and `chosen` are tables with an id column; `predictions` a table of a model's answers.
    """

    split: str | None = None
    listed: Path | None = None
    unlabelled: bool = False
    chosen: Path | None = None
    predictions: Path | None = None


def find_candidates(run: Path, wanted: Wanted) -> Candidates:
    """Return the units of a run; raises UsageError for a list or a split that cannot be."""
    frame, results = frame_from_run(run, wanted.split, several=True), open_results(run)
    effective = results.decisions.applied.effective
    decided = effective.select("dropped", sample_id="id", decided_label="label")
    for table in (decided, read_units(results)):
        frame = frame.join(table, on="sample_id", how="left", maintain_order="left")
    dropped = pl.when("dropped").then(pl.lit("dropped by a decision"))
    frame = frame.with_columns(
        label=pl.coalesce("decided_label", "label"),
        excluded_reason=dropped.otherwise("excluded_reason"),
    ).drop("decided_label", "dropped")
    own = pl.coalesce(_listed(pl.col("label")), HELD)
    frame = frame.with_columns(own.alias(HELD), own.is_not_null().alias("labelled"))
    if wanted.predictions is not None:
        predicted = read_answers(wanted.predictions)
        answers = match(frame, predicted, wanted.predictions.name, "drop", "refuse-similar").table
        frame = pl.concat(
            [frame, answers.select(pl.exclude(*frame.columns, "key"))], how="horizontal"
        ).with_columns(pl.coalesce(HELD, _listed(pl.col("prediction"))).alias(HELD))
    return _divide(frame.with_columns(pl.col(HELD).list.join("; ").alias(CLASS)), wanted)


def _listed(name: pl.Expr) -> pl.Expr:
    return pl.when(name.is_not_null()).then(pl.concat_list(name))


def read_answers(path: Path) -> pl.DataFrame:
    """Read predictions as `audit subset` does, or as `audit scan` does: a column a class."""
    table = read_table(path, "predictions")
    if not any(c in LABELS or c.startswith(PROBABILITY) for c in table.columns):
        numbers = [c for c in table.columns if c not in IDS and table[c].dtype.is_numeric()]
        if len(numbers) > 1:
            table = table.rename({name: f"{PROBABILITY}{name}" for name in numbers})
    return standard_columns(table, path.name)


def _divide(frame: pl.DataFrame, wanted: Wanted) -> Candidates:
    known = pl.col("labelled") if wanted.unlabelled else pl.lit(value=False)
    if wanted.chosen is not None:
        known = known | _is_listed(frame, wanted.chosen, "earlier choice")
    listed = pl.lit(value=True)
    if wanted.listed is not None:
        listed = _is_listed(frame, wanted.listed, "list of examples")
    reason = pl.col("excluded_reason")
    frame = frame.with_columns(known.fill_null(value=False).alias("known"), listed.alias("listed"))
    usable = frame.filter(reason.is_null() & pl.col("unit").is_not_null())
    # as in a subset, the smallest hash stands for its copies, whatever they are called
    usable = usable.sort("content_hash", "sample_id", nulls_last=True)
    there = usable.filter("known")
    known_units = there.unique("unit", keep="first", maintain_order=True)
    rest = usable.filter(~pl.col("known"))
    new = rest.filter(~pl.col("unit").is_in(there["unit"].implode()))
    free = new.filter("listed").unique("unit", keep="first", maintain_order=True)
    left_out = dict(
        frame.filter(reason.is_not_null()).group_by("excluded_reason").len().sort("len").iter_rows()
    )
    left_out["a copy of a labelled or chosen image"] = len(rest) - len(new)
    left_out["a copy of another candidate"] = int(new["listed"].sum()) - len(free)
    return Candidates(free, known_units, {k: n for k, n in left_out.items() if n})


def _is_listed(frame: pl.DataFrame, path: Path, what: str) -> pl.Expr:
    table = read_table(path, what)
    names = table[find_column(table, IDS, path.name, "id")].cast(pl.String).implode()
    places = frame["path"].str.strip_prefix("file://")
    found = frame["sample_id"].is_in(names) | frame["path"].is_in(names) | places.is_in(names)
    if not found.any():
        first = table.row(0)[0] if len(table) else "nothing"
        raise UsageError(
            f"{path} names no file of this run: it has {first!r}, and the run has "
            f"{frame['sample_id'][0]!r}."
        )
    return pl.lit(found)


Picked = tuple[npt.NDArray[np.int64], Numbers, list[str], Mapping[str, Reach] | None]
"""Candidates by number, in the order of the choice; the score that put each there; what the score
is, and what could not be chosen, in words; the reach by name, of coverage."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen pictures and what they buy.

    `rows`: sample_id, path, label, split, class (label or prediction), rank, score. `classes`: by
    class, the units known before, free, chosen, and the half-width of the 95% CI of its
    recall before and after, and after a random choice of the size (null: no picture).
    """

    by: By
    seed: int
    candidates: int
    known: int
    left_out: Mapping[str, int]
    rows: pl.DataFrame
    classes: pl.DataFrame
    words: tuple[str, ...] = ()
    reach: Mapping[str, Reach] | None = None

    def document(self) -> dict[str, Any]:
        """Return all but the rows, as one JSON document."""
        return {
            "schema": SCHEMA, "by": self.by, "n": len(self.rows), "seed": self.seed,
            "candidates": self.candidates, "known": self.known, "left_out": dict(self.left_out),
            "recall": RECALL, "classes": self.classes.to_dicts(), "notes": list(self.words),
            "reach": {k: asdict(v) for k, v in (self.reach or {}).items()} or None,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return what was chosen and what it buys, as lines for a terminal."""
        head = (
            f"{len(self.rows):,} of {counted(self.candidates, 'candidate')} chosen by {self.by}"
            f" (seed {self.seed}); {self.known:,} known already."
        )
        out = [f"  left out, {n:,}: {reason}" for reason, n in self.left_out.items()]
        return [head, *out, *self.words, *_reach_lines(self.reach or {}), *self._class_lines()]

    def _class_lines(self) -> list[str]:
        if self.classes.is_empty():
            return ["No estimate by class: no candidate has a class."]
        rarest = self.classes.sort("after", CLASS).head(LISTED).rows(named=True)
        width = max(len(row[CLASS]) for row in rarest)
        lines = [
            f"Margin of error of a class's recall (95% CI, at {RECALL:.0%}): before, after, "
            "after a random choice."
        ]
        lines += [
            f"  {row[CLASS]:<{width}} {row['before']:>7,} + {row['chosen']:<6,} "
            f"{_half(row['half_before']):>8} {_half(row['half_after']):>8} "
            f"{_half(row['half_random']):>8}"
            for row in rarest
        ]
        more = len(self.classes) - len(rarest)
        return lines + [f"  and {more:,} more classes, all larger"] * bool(more)


def select_pictures(
    run: Path,
    n: int,
    by: By,
    wanted: Wanted,
    *,
    seed: int = 0,
    doubt: Doubt = "margin",
    cells: Sequence[str] = (),
) -> Choice:
    """Choose up to `n` pictures of a run; `cells` are columns that make cells with the class.

    Raises UsageError for words that cannot be, and where nothing is left to choose.
    """
    _check_words(n, by, wanted, cells)
    found = find_candidates(run, wanted)
    if found.free.is_empty():
        raise UsageError(
            f"{run} has no image left to choose: all are labelled, chosen or excluded. "
            "Check --split, --from and --unlabelled."
        )
    keys = found.free["content_hash"].fill_null(found.free["sample_id"])
    ordered = found.free[np.argsort(permanent_numbers(keys, seed), kind="stable")]
    if by == "coverage":
        picked = _by_coverage(run, ordered, found.known, n, seed)
    elif by == "uncertainty":
        picked = _by_doubt(ordered, n, doubt)
    else:
        picked = _by_rarity(ordered, found.known, n, cells)
    places, score, words, reach = picked
    chosen = ordered[places]
    rows = chosen.select("sample_id", "path", "label", "split", CLASS).with_columns(
        pl.Series("rank", np.arange(1, len(chosen) + 1)), pl.Series("score", score)
    )
    return Choice(
        by, seed, len(ordered), len(found.known), found.left_out, rows,
        _classes(found, chosen), tuple(words), reach,
    )  # fmt: skip


def _check_words(n: int, by: str, wanted: Wanted, cells: Sequence[str]) -> None:
    if by not in get_args(By):
        raise UsageError(f"--choose is {by!r}: choose {', '.join(get_args(By))}.")
    if n < 1:
        raise UsageError(f"--n is {n}: choose 1 image or more.")
    if by == "uncertainty" and wanted.predictions is None:
        raise UsageError(
            "--choose uncertainty needs --predictions: a table with the id of each image and "
            "prob_<class> columns, or a confidence."
        )
    if cells and by != "rare":
        raise UsageError("Columns (--by) go with --choose rare.")


def _by_coverage(
    run: Path, free: pl.DataFrame, known: pl.DataFrame, n: int, seed: int
) -> Picked:  # fmt: skip
    found = stored_embeddings(open_results(run))
    points = unit_length(found.points().directions)
    places = {pixels: place for place, pixels in enumerate(found.rows["pixel_hash"].to_list())}
    own = np.array([places.get(p, -1) for p in free["pixel_hash"].to_list()], np.int64)
    old = np.array([places.get(p, -1) for p in known["pixel_hash"].to_list()], np.int64)
    there = np.flatnonzero(own >= 0)
    if not len(there):
        raise UsageError(
            "No candidate has an embedding: dark, flat and unreadable images have none."
        )
    centres, points = points[old[old >= 0]], points[own[there]]
    near = likeness_to(points, centres)
    size = min(n, len(points))
    rows, gains = choose_covering(points, size, near, seed)
    reach = {"this choice": measure_reach(points, rows, near)}
    if size < len(points):
        reach["random choice"] = random_reach(points, size, near, seed)
    words = [
        f"Distances by {found.source}, 0 (alike) to 2. Score: reduction of the mean distance "
        "cost, 0 to 1."
    ]
    if len(there) < len(own):
        words.append(f"{len(own) - len(there):,} candidates have no embedding and were left out.")
    return there[rows], gains, words, reach


def _by_doubt(free: pl.DataFrame, n: int, doubt: Doubt) -> Picked:
    values = doubt_of(free, doubt)
    there = np.flatnonzero(np.isfinite(values))
    if not len(there):
        raise UsageError("No candidate has a prediction: check the ids of --predictions.")
    rows = there[np.argsort(-values[there], kind="stable")][:n]
    typical = float(np.mean(values[there]))
    words = [
        f"Uncertainty ({doubt}, 0 to 1): {values[rows].min():.3f} to {values[rows].max():.3f} in "
        f"the choice, {typical:.3f} in the mean of all candidates."
    ]
    if missing := len(values) - len(there):
        words.append(f"{missing:,} candidates have no prediction and were left out.")
    return rows, values[rows], words, None


def _by_rarity(free: pl.DataFrame, known: pl.DataFrame, n: int, cells: Sequence[str]) -> Picked:
    has_class = bool(free[HELD].is_not_null().any())
    if not has_class and not cells:
        raise UsageError(
            "--choose rare needs classes: no candidate has one. Give --predictions, or a column "
            "with --by."
        )
    both = pl.concat([free, known], how="vertical").with_row_index("place")
    both = both.explode(HELD, empty_as_null=True).with_columns(pl.col(HELD).alias("label"))
    strata = Strata(by=tuple(cells), edges=cut_points(both, cells), label=has_class)
    names = stratum_names(both, strata).cast(pl.String).fill_null("(none)")
    held = both.select("place", names.alias("cell")).group_by("place", maintain_order=True).all()
    of_each = held["cell"].to_list()
    counts = Counter(cell for of_one in of_each[len(free) :] for cell in of_one)
    may = np.flatnonzero(free[HELD].is_not_null().to_numpy() | (not has_class))
    rows = may[fill_rarest([of_each[place] for place in may], counts, n)]
    score, words = [], []
    if len(may) < len(free):
        words.append(f"{len(free) - len(may):,} candidates have no class and were left out.")
    for row in rows:
        counts.update(of_each[row])
        score.append(float(min(counts[cell] for cell in of_each[row])))
    filled = {cell for row in rows for cell in of_each[row]}
    words.append(
        f"{len(filled):,} cells of {len({c for place in may for c in of_each[place]}):,} got "
        f"images, the smallest first; each of these has {min(counts[c] for c in filled):,} or "
        "more now. Score: place in its cell."
    )
    return rows, np.array(score), words, None


def _classes(found: Candidates, chosen: pl.DataFrame) -> pl.DataFrame:
    """Return the classes with their pictures before and after, and the half-widths."""
    parts = [("before", found.known), ("free", found.free), ("chosen", chosen)]
    table = pl.DataFrame(schema={CLASS: pl.String})
    for name, part in parts:
        each = part.select(pl.col(HELD).alias(CLASS)).drop_nulls().explode(CLASS)
        counts = each.group_by(CLASS).agg(pl.len().cast(pl.Int64).alias(name))
        table = table.join(counts, on=CLASS, how="full", coalesce=True)
    table = table.with_columns(pl.col("before", "free", "chosen").fill_null(0)).sort(CLASS)
    share = len(chosen) / len(found.free)
    table = table.with_columns((pl.col("before") + pl.col("chosen")).alias("after"))
    at_random = table["before"] + table["free"] * share
    return table.with_columns(
        _half_widths(table["before"]).alias("half_before"),
        _half_widths(table["after"]).alias("half_after"),
        _half_widths(at_random).alias("half_random"),
    )


def _half_widths(n: pl.Series) -> pl.Series:
    sizes = n.cast(pl.Float64).to_numpy()
    low, high = wilson_share(RECALL, np.maximum(sizes, 1e-9))
    return pl.Series(np.where(sizes >= 0.5, (high - low) / 2, np.nan)).fill_nan(None)


def _half(value: float | None) -> str:
    return "none" if value is None else f"±{100 * value:.1f}%"


def _reach_lines(reach: Mapping[str, Reach]) -> list[str]:
    lines = ["Distance of a candidate to the nearest chosen image: largest, mean."] * bool(reach)
    for name, one in reach.items():
        told = [f"{v:.3f}" + (f" ({a:.3f} to {b:.3f})" if one.draws > 1 else "")
                for a, v, b in (one.largest, one.mean)]  # fmt: skip
        times = f", {one.draws} draws" if one.draws > 1 else ""
        lines.append(f"  {name + times:<26} {told[0]:<25} {told[1]}")
    return lines


Doubt = Literal["margin", "entropy"]


def doubt_of(candidates: pl.DataFrame, measure: Doubt) -> Numbers:
    """Return how doubtful a model is of each candidate, 0..1; NaN without a prediction.

    margin: one less the lead of the likeliest class over the next. entropy: of the probabilities,
    as a share of that of an even guess. Where only a confidence is given: one less that.
    """
    names = [c for c in candidates.columns if c.startswith(PROBABILITY)]
    if len(names) > 1:
        values = candidates.select(names).cast(pl.Float64).fill_null(np.nan).to_numpy()
        if measure == "margin":
            best = np.sort(values, axis=1)
            return np.asarray(1 - (best[:, -1] - best[:, -2]))
        logs = np.log(np.where(values > 0, values, 1))
        return np.asarray(-(values * logs).sum(1) / np.log(values.shape[1]))
    if "confidence" not in candidates.columns:
        raise UsageError(
            "--choose uncertainty needs the confidence of a model: give --predictions with a "
            "`confidence` column, or with one prob_<class> column a class."
        )
    if measure == "entropy":
        raise UsageError(
            '[plan] uncertainty = "entropy" needs a prob_<class> column for each class in '
            "--predictions. A confidence alone gives the margin."
        )
    return 1 - candidates["confidence"].fill_null(np.nan).to_numpy()


def fill_rarest(
    cells: Sequence[Sequence[str]], known: Mapping[str, int], n: int
) -> npt.NDArray[np.int64]:
    """Return `n` places in `cells`, each of a cell that has fewest by then, in order of place.

    A place lies in one cell or in several, and counts in each. `known`: how many each cell has
    already. A cell without a candidate left is passed over.
    """
    waiting: dict[str, list[int]] = {}
    for place in reversed(range(len(cells))):  # the first place is the last of its list
        for cell in cells[place]:
            waiting.setdefault(cell, []).append(place)
    counts = Counter(known)
    heap = [(counts[cell], cell) for cell in waiting]
    heapq.heapify(heap)
    chosen: dict[int, None] = {}
    while heap and len(chosen) < n:
        count, cell = heap[0]
        places = waiting[cell]
        while places and places[-1] in chosen:
            places.pop()
        if not places:
            heapq.heappop(heap)
        elif count < counts[cell]:  # a picture taken for another cell counts in this one too
            heapq.heapreplace(heap, (counts[cell], cell))
        else:
            chosen[places[-1]] = None
            counts.update(cells[places.pop()])
    return np.array(list(chosen), np.int64)
