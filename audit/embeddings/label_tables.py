"""Vectors of a run's pictures, and what they say of labels: once a scan, stored for all to read.

Rows are distinct pictures (pixel hashes). A picture with two labels is left to LABEL005, two
spellings of a class (LABEL002) count as one. What belongs together (near-duplicates, and a
manifest's groups) is judged by a model that saw none of its members.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from threadpoolctl import threadpool_limits

from audit.checking.class_names import fold_name
from audit.checking.label_facts import JudgedFacts, LabelFacts
from audit.embeddings.judged import JudgedLabels, judge_probabilities, judge_vectors
from audit.embeddings.known_neighbours import NeighbourSearch
from audit.embeddings.nearest import REFERENCES, Compared, Nearest, vote_shares
from audit.embeddings.ridge import Floats, Ints
from audit.embeddings.settings import VectorOptions
from audit.embeddings.vectors import Opening, PictureVectors, load_vectors
from audit.errors import UsageError
from audit.run.store import Store

TABLES = (
    "label_scores", "vector_neighbours", "label_neighbours", "embedding_map", "label_facts",
    "vector_failures", "several_scores",
)  # fmt: skip
SHOWN_NEIGHBOURS = 5
FRAME_STEP = 2
"""The numbers of frames that follow each other differ by so much at most: some are dropped."""
NEIGHBOURS_OF_ALL = 200_000
"""Images up to which the neighbours of all are stored; beyond, of DOUBTFUL labels and ISOLATED
images."""
DOUBTFUL, ISOLATED = 10_000, 1_000
COMPARED_FIRST, OF_EACH = 1_000, 3
"""Labels whose nearest of both classes are stored, the first to review, and how many of each."""
STORED_CHANCE = 0.05
"""Scores of several labels are stored from this chance of an error on."""

# The sample that stands for a picture is the one with the smallest id. Pictures that are nearly
# black or white (IMG001, IMG002) look like each other, whatever they show.
PICTURES = """
    SELECT i.pixel_hash, min(i.id) AS id, min_by(i.content_hash, i.id) AS content_hash,
        min_by(i.uri, i.id) AS uri,
        any_value(g.representative) AS representative,
        list(DISTINCT trim(i.group_key)) FILTER (WHERE trim(coalesce(i.group_key, '')) <> '')
            AS group_keys,
        list(DISTINCT i.label) FILTER (WHERE trim(coalesce(i.label, '')) <> '') AS labels
    FROM images i LEFT JOIN groups g ON g.pixel_hash = i.pixel_hash
    WHERE i.pixel_hash IS NOT NULL AND i.status = 'ok' AND i.phash IS NOT NULL
        AND coalesce(i.contrast, 1) >= 0.004 AND coalesce(i.transparent, 0) <= 0.999
        AND coalesce(i.brightness_p99, 1) >= 0.16 AND coalesce(i.brightness_p1, 0) <= 0.7
    GROUP BY i.pixel_hash ORDER BY i.pixel_hash
"""


def find_vectors(
    store: Store, run: Path, options: VectorOptions, opening: Opening | None = None
) -> PictureVectors:
    """Return the vectors of the measured pictures of `store`; `run` holds their signatures.

    A model needs an `opening`. Raises UsageError where the user's own vectors, probabilities or
    model cannot be used.
    """
    pictures = store.query(PICTURES)
    store.give_back_memory()
    # crops teach a model of labels: where none is judged, nobody asks for them
    judged = not label_pictures(pictures, np.zeros(len(pictures), np.bool_)).reason
    with threadpool_limits(1, "blas"):
        return load_vectors(store, run, pictures, options, opening, crops=judged)


def relate_labels(store: Store, found: PictureVectors) -> None:
    """Fill the tables of labels and vectors; raises UsageError where probabilities lack a class."""
    with threadpool_limits(1, "blas"):
        _relate(store, found)


def leave_out_labels(store: Store) -> None:
    """Empty the tables of labels and vectors, and state why."""
    reason = "no selected check needs embeddings; run `audit scan` without --checks"
    with store.transaction():
        for name in TABLES:
            store.execute(f"DELETE FROM {name}")
        store.append("label_facts", LabelFacts("no embeddings", reason=reason).rows())


def _relate(store: Store, found: PictureVectors) -> None:
    known = label_pictures(found.rows, find_atypical(found.views[0]), found.probabilities)
    judged = nearest = search = None
    scores = np.zeros(0)
    places, how = np.zeros((0, 2)), ""
    if len(known.rows) > 2:
        search = NeighbourSearch(store, found)
        nearest = search.nearest(known.groups)
        groups = join_frames(found.rows["id"], known.groups, nearest)
        if len(np.unique(groups)) < len(np.unique(known.groups)):
            known = replace(known, groups=groups)
            nearest = search.nearest(groups)
        scores = search.distance_scores(known.groups)
        places, how = search.place_on_map()
    if not known.reason and nearest is not None and search is not None:
        if found.probabilities is not None:
            judged = _judge_own(found, known, nearest)
        else:
            judged = judge_vectors(
                found.views, nearest, known.labels, known.groups, len(known.names),
                search.decomposition,
            )  # fmt: skip
    several = judge_several(store, found)
    with store.transaction():
        for name in TABLES:
            store.execute(f"DELETE FROM {name}")
        store.append("several_scores", several)
        failed = [{"sample_id": s, "reason": why} for s, why in found.failures.items()]
        store.append("vector_failures", failed)
        store.append("label_facts", _facts(found.source, how, known, judged, nearest).rows())
        if judged is not None:
            _store_by_picture(store, "label_scores", _score_rows(known, judged))
            if search is not None:
                store.append("label_neighbours", _both_sides(known, judged, search.points))
        if nearest is not None and search is not None:
            search.save()
            _store_neighbours(store, known, nearest, judged, scores)
            # how far each picture is from others (1: typical)
            isolation = np.exp(scores - np.median(scores))
            columns = {"x": places[:, 0], "y": places[:, 1], "isolation": isolation}
            rows = pl.DataFrame({"pixel_hash": known.rows["pixel_hash"], **columns})
            _store_by_picture(store, "embedding_map", rows)


def _judge_own(found: PictureVectors, known: Labelled, nearest: Nearest) -> JudgedLabels:
    """Judge by the user's probabilities; the neighbours only show what the picture looks like."""
    assert found.probabilities is not None
    columns = {fold_name(name): number for number, name in enumerate(found.classes)}
    missing = [name for name in known.names if fold_name(name) not in columns]
    if missing:
        raise UsageError(
            f"The predictions have no column for the class {missing[0]!r}: add one column of "
            f"probabilities per class, with its name ({len(missing)} of {len(known.names)} "
            "missing)."
        )
    rows = np.flatnonzero(known.labels >= 0)
    own = found.probabilities[rows][:, [columns[fold_name(name)] for name in known.names]]
    own /= own.sum(1, keepdims=True) + np.float32(1e-12)
    votes, _ = vote_shares(nearest, known.labels, known.groups, len(known.names), rows)
    return judge_probabilities(own, known.labels[rows], votes)


def judge_several(store: Store, found: PictureVectors) -> pl.DataFrame | list[dict[str, Any]]:
    """Return the rows of `several_scores`: each class is a question of its own, yes or no.

    By the user's probabilities alone, where pictures have several labels; of classes that
    `LEAST_CLASS` pictures have, and as many have not.
    """
    if found.probabilities is None or not store.scalar("SELECT count(*) FROM several_labels"):
        return []
    labels = store.query(
        "SELECT id, list(label) AS labels FROM picture_labels "
        "WHERE trim(coalesce(label, '')) <> '' GROUP BY id"
    )
    known = found.rows.select("id").with_row_index().join(labels, on="id", maintain_order="left")
    rows = known["index"].to_numpy()
    seen = np.isfinite(found.probabilities[rows]).all(1)
    known, own = known.filter(seen), found.probabilities[rows[seen]]
    held = [{fold_name(label) for label in each} for each in known["labels"]]
    parts = []
    for name, p in zip(found.classes, own.T, strict=True):
        given = np.array([fold_name(name) in each for each in held], np.int64)
        if min(given.sum(), (1 - given).sum()) < LEAST_CLASS or len(given) < LEAST_PICTURES:
            continue
        judged = judge_probabilities(np.stack([1 - p, p], 1), given)
        parts.append(pl.DataFrame({
            "sample_id": known["id"], "label": pl.Series([name]).new_from_index(0, len(given)),
            "given": given > 0, "probability": p.astype(np.float64),
            "error_chance": judged.error_chance, "gain": np.full(len(given), judged.gain),
        }).filter(pl.col("error_chance") >= STORED_CHANCE))  # fmt: skip
    return pl.concat(parts) if parts else []


def _score_rows(known: Labelled, judged: JudgedLabels) -> pl.DataFrame:
    rows = np.flatnonzero(known.labels >= 0)
    labels = known.labels[rows]
    doubted = np.bincount(labels, judged.error_chance > 0.5, len(known.names))
    names = np.asarray(known.names, object)
    return pl.DataFrame(
        {
            "pixel_hash": known.rows["pixel_hash"].gather(rows),
            "label_quality": judged.quality,
            "suggested_label": pl.Series(names[judged.suggested].tolist(), dtype=pl.String),
            "probability": judged.probability,
            "suggested_probability": judged.suggested_probability,
            "error_chance": judged.error_chance,
            "sure_chance": judged.surely,
            "neighbours": judged.neighbours.astype(np.int32),
            "neighbours_given": judged.votes[:, 0].astype(np.int32),
            "neighbours_suggested": judged.votes[:, 1].astype(np.int32),
            "class_doubt": (doubted / np.bincount(labels, minlength=len(names)))[labels],
        }
    )


def _store_by_picture(store: Store, table: str, rows: pl.DataFrame) -> None:
    """Give every sample of a picture the picture's row."""
    store.create_from("by_picture", rows)
    others = ", ".join(f"r.{name}" for name in rows.columns if name != "pixel_hash")
    wanted = "AND f.label IS NOT NULL" if table == "label_scores" else ""
    store.execute(
        f"INSERT INTO {table} BY NAME SELECT f.id AS sample_id, {others} FROM images f "
        f"JOIN by_picture r USING (pixel_hash) WHERE f.status = 'ok' {wanted} ORDER BY f.id"
    )
    store.execute("DROP TABLE by_picture")


def _store_neighbours(
    store: Store,
    known: Labelled,
    nearest: Nearest,
    judged: JudgedLabels | None,
    scores: npt.NDArray[np.float64],
) -> None:
    rows = np.arange(len(known.rows))
    if len(rows) > NEIGHBOURS_OF_ALL:
        doubtful = judged.order()[:DOUBTFUL] if judged is not None else rows[:0]
        rows = np.flatnonzero(known.labels >= 0)[doubtful]
        rows = np.union1d(rows, np.argsort(-scores, kind="stable")[:ISOLATED])
    index = nearest.index[rows, :SHOWN_NEIGHBOURS]
    there = index >= 0
    ids = known.rows["id"]
    place = np.broadcast_to(np.arange(index.shape[1]), index.shape)
    frame = pl.DataFrame(
        {
            "sample_id": ids.gather(np.broadcast_to(rows[:, None], index.shape)[there]),
            "position": place[there].astype(np.int32),
            "neighbour_id": ids.gather(index[there]),
            "similarity": nearest.similarity[rows, :SHOWN_NEIGHBOURS][there].astype(np.float64),
        }
    )
    store.append("vector_neighbours", frame)


def _both_sides(
    known: Labelled, judged: JudgedLabels, points: Compared
) -> pl.DataFrame | list[dict[str, Any]]:
    """Return the nearest of the given and of the suggested class of the first labels to review."""
    library, first = points.references(REFERENCES), judged.order()[:COMPARED_FIRST]
    library = library[np.argsort(known.labels[library], kind="stable")]
    here, found = np.flatnonzero(known.labels >= 0)[first], []
    sides = {"given": known.labels[here], "suggested": judged.suggested[first]}
    for side, classes in sides.items():
        for number in np.unique(classes):
            rows = here[classes == number]
            others = library[slice(*np.searchsorted(known.labels[library], (number, number + 1)))]
            if not len(others):  # no picture of a rare class need be among those compared with
                continue
            alike = points.directions[rows] @ points.directions[others].T / points.scale
            alike[known.groups[rows][:, None] == known.groups[others]] = -np.inf
            of, place, column = _greatest(alike, OF_EACH)
            found.append(pl.DataFrame({
                "sample_id": known.rows["id"].gather(rows[of]),
                "side": np.full(len(of), side),
                "position": place.astype(np.int32),
                "neighbour_id": known.rows["id"].gather(others[column]),
                "similarity": alike[of, column].astype(np.float64),
            }))  # fmt: skip
    return pl.concat(found) if found else []


def _greatest(values: Floats, k: int) -> tuple[Ints, Ints, Ints]:
    """Return row, place (0 the greatest) and column of the k greatest finite values of each row.

    Of equal ones the first column comes first.
    """
    k = min(k, values.shape[1])
    least = np.partition(values, values.shape[1] - k, 1)[:, [values.shape[1] - k]]
    row, column = np.nonzero((values >= least) & np.isfinite(values))
    order = np.lexsort((column, -values[row, column], row))
    row, column = row[order], column[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    return row[place < k], place[place < k], column[place < k]


def _facts(
    source: str, how: str, known: Labelled, judged: JudgedLabels | None, nearest: Nearest | None
) -> LabelFacts:
    labels = known.labels[known.labels >= 0]
    shares = None
    if judged is not None:
        first, every = judged.review_list(), judged.forecast(len(labels))
        shares = JudgedFacts(
            judged.gain, judged.accuracy, judged.agreed, first.n, first.wrong, first.low,
            first.high, every.wrong, every.low, every.high,
        )  # fmt: skip
    return LabelFacts(
        vectors=source,
        map=how,
        judged=len(labels),
        classes=len(known.names),
        conflicting=known.conflicting,
        in_small_classes=known.in_small_classes,
        atypical=known.atypical,
        not_drawn=known.not_drawn,
        reason=known.reason,
        references=nearest.references if nearest is not None else 0,
        labels=shares,
    )


LEAST_PICTURES = 50
"""Labelled pictures below which nothing is said: a share of wrong labels cannot be told from 0."""
LEAST_CLASS = 10
"""Pictures of a class below which its labels are not judged, and suggest nothing."""
ATYPICAL = 5.0
"""Robust deviations beyond which the length of a vector makes it no example of any class."""
MOST_CELLS = 30_000_000
"""Judged pictures times classes: each is a probability, and takes about 50 bytes at the peak."""
MOST_CLASSES = 1_700
"""With more, a model could not see `LEAST_CLASS` pictures of each."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """The pictures (n,) with what is known of them.

    `labels` (n,): -1 where they are not judged, else numbers of `names`; `classes` (n,) like them,
    of pictures too that are not judged for what they look like; `groups` (n,) equal within what
    belongs together; `reason` why no label is judged at all, else empty; `conflicting`,
    `in_small_classes`, `atypical` and `not_drawn` count pictures.
    """

    rows: pl.DataFrame
    labels: Ints
    classes: Ints
    names: list[str]
    groups: Ints
    reason: str
    conflicting: int
    in_small_classes: int
    atypical: int
    not_drawn: int = 0


def find_atypical(vectors: Floats) -> npt.NDArray[np.bool_]:
    """Return which vectors are far longer than the rest: pictures that look like no class."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)).astype(np.float64)
    if not len(lengths):
        return np.zeros(0, np.bool_)
    middle = np.median(lengths)
    # 1.4826: of a normal distribution, the median distance from the middle is one deviation
    deviation = 1.4826 * np.median(np.abs(lengths - middle))
    return np.asarray(lengths > middle + ATYPICAL * deviation + 1e-6 * middle)


def label_pictures(
    rows: pl.DataFrame,
    atypical: npt.NDArray[np.bool_],
    probabilities: Floats | None = None,
) -> Labelled:
    """Return which pictures are judged, and their classes by number.

    Those that are `atypical` are not, nor those without `probabilities` (rows of NaN).
    """
    folded = [
        sorted({fold_name(name) for name in names or ()}) for names in rows["labels"].to_list()
    ]
    conflicting = sum(len(names) > 1 for names in folded)
    one = pl.Series([names[0] if len(names) == 1 else None for names in folded], dtype=pl.String)
    counts = {
        name: n for name, n in one.drop_nulls().value_counts().iter_rows() if n >= LEAST_CLASS
    }
    keys = sorted(counts)
    numbers = {key: number for number, key in enumerate(keys)}
    labels = np.array([numbers.get(name, -1) if name else -1 for name in one], np.int64)
    small = int(one.is_not_null().sum()) - int((labels >= 0).sum())
    odd = int((atypical & (labels >= 0)).sum())
    classes = labels.copy()
    labels[atypical] = -1
    if probabilities is not None:
        labels[np.isnan(probabilities).any(1)] = -1
    own = probabilities is not None
    labels, left = draw_judged(labels, len(keys), 0 if own else LEAST_CLASS)
    groups = number_groups(rows)
    judged = int((labels >= 0).sum())
    reason = ""
    if judged < LEAST_PICTURES:
        reason = (
            f"{judged:,} images are in classes of at least {LEAST_CLASS}, but {LEAST_PICTURES} are "
            "needed"
        )
    elif len(keys) < 2:
        reason = f"only one class has at least {LEAST_CLASS} images, but two are needed"
    elif len(keys) > MOST_CLASSES and not own:
        reason = (
            f"{len(keys):,} classes exceed the memory limit of {MOST_CLASSES:,}; use --predictions "
            "to check them"
        )
    return Labelled(
        rows, labels, classes, _names(rows, one, keys), groups, reason, conflicting, small, odd,
        left,
    )  # fmt: skip


def draw_judged(labels: Ints, n_classes: int, least: int) -> tuple[Ints, int]:
    """Return the labels with those that are not drawn as -1, and how many: memory bounds them.

    Of every class the same share is drawn, but `least` of it.
    """
    there = np.flatnonzero(labels >= 0)
    share = MOST_CELLS / max(1, n_classes * len(there))
    if share >= 1:
        return labels, 0
    mixed = np.random.default_rng(0).permutation(there)
    by_class = mixed[np.argsort(labels[mixed], kind="stable")]
    sizes = np.bincount(labels[there], minlength=n_classes)
    position = np.arange(len(by_class)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = np.maximum((sizes * share).astype(np.int64), least)
    left_out = by_class[position >= np.repeat(wanted, sizes)]
    drawn = labels.copy()
    drawn[left_out] = -1
    return drawn, len(left_out)


def number_groups(rows: pl.DataFrame) -> Ints:
    """Return a number for each picture, equal for those joined by near-duplicates or group keys."""
    units = rows["representative"].fill_null(rows["pixel_hash"]).to_list()
    tied = rows.select(pl.int_range(len(rows)).alias("row"), pl.col("group_keys").alias("key"))
    tied = tied.explode("key").drop_nulls("key")
    return join_groups(
        np.unique(np.asarray(units, str), return_inverse=True)[1].astype(np.int64),
        tied["row"].to_numpy(),
        np.unique(tied["key"].to_numpy().astype(str), return_inverse=True)[1],
    )


def join_groups(groups: Ints, at: Ints, keys: Ints) -> Ints:
    """Return group numbers (n,) after joining groups whose rows `at` (m,) share one of `keys`."""
    if not len(at):
        return groups
    found = np.arange(groups.max() + 1)  # the least group that each group is joined to
    while True:
        least = np.full(keys.max() + 1, len(found))
        np.minimum.at(least, keys, found[groups[at]])
        joined = found.copy()
        np.minimum.at(joined, groups[at], least[keys])
        joined = joined[joined]
        if (joined == found).all():
            return np.unique(found[groups], return_inverse=True)[1].astype(np.int64)
        found = joined


def join_frames(ids: pl.Series, groups: Ints, nearest: Nearest) -> Ints:
    """Return group numbers (n,) after joining frames of a film or burst."""
    parts = ids.str.extract_groups(r"^(.*?)(\d{1,15})(\D*)$")
    frame = pl.DataFrame({"row": np.arange(len(ids)), "parts": parts}).unnest("parts")
    frame = frame.drop_nulls("2").with_columns(pl.col("2").cast(pl.Int64)).sort("1", "3", "2")
    one, other = frame["row"].to_numpy()[:-1], frame["row"].to_numpy()[1:]
    follows = frame.select(
        (pl.col("1").eq_missing(pl.col("1").shift()) & pl.col("3").eq(pl.col("3").shift()))
        & (pl.col("2") - pl.col("2").shift()).is_between(1, FRAME_STEP)
    ).to_series().to_numpy()[1:]  # fmt: skip
    close = nearest.index[:, :SHOWN_NEIGHBOURS]
    linked = follows.astype(bool) & (close[one] == other[:, None]).any(1)
    linked &= (close[other] == one[:, None]).any(1)
    number = np.arange(int(linked.sum()))
    return join_groups(groups, np.append(one[linked], other[linked]), np.append(number, number))


def _names(rows: pl.DataFrame, folded: pl.Series, keys: list[str]) -> list[str]:
    """Return for each key its most frequent spelling."""
    spelled = pl.DataFrame({"key": folded, "name": rows["labels"].list.first()}).drop_nulls()
    ranked = (
        spelled.group_by("key", "name").len().sort(["len", "name"], descending=[True, False])
        .unique("key", keep="first", maintain_order=True)
    )  # fmt: skip
    by_key = dict(ranked.select("key", "name").iter_rows())
    return [by_key[key] for key in keys]
