"""Labels to review, and the forecast of the labels that are left.

Decisions shift the chances of all labels on the scale of log odds (calibration in the large: Cox
1958, Biometrika 45), under a normal prior as wide as the interval of the scan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.checking.label_facts import CALIBRATED_SCORES, JudgedFacts, read_label_facts, wrong_among
from audit.embeddings.judged import WrongCount
from audit.errors import UsageError
from audit.results.formatting import counted
from audit.results.reader import RunReader, reads
from audit.run.store import Store

Floats = npt.NDArray[np.float64]
RECENT, LEAST_REVIEWED = 20, 10
LEAST_SPREAD = 0.5
"""Deviation of the prior of the shift, in log odds, where the scan's interval is narrower."""
_RANKED = f"""
    WITH pictures AS (
        SELECT coalesce(i.pixel_hash, i.id) AS picture, min(s.sample_id) AS id,
            min_by(i.uri, s.sample_id) AS path, min_by(i.split, s.sample_id) AS split,
            min_by(i.label, s.sample_id) AS label,
            any_value(s.suggested_label) AS suggested_label,
            any_value(s.error_chance) AS error_chance, any_value(s.probability) AS probability,
            any_value(s.suggested_probability) AS suggested_probability,
            min(s.label_quality) AS label_quality, list(s.sample_id) AS samples
        FROM {CALIBRATED_SCORES} s JOIN images i ON i.id = s.sample_id GROUP BY 1
    )
    SELECT * EXCLUDE (picture), row_number() OVER (ORDER BY label_quality, id) AS rank
    FROM pictures ORDER BY rank
"""
_SIDE = """
    SELECT sample_id AS id, list(neighbour_id ORDER BY position) AS {0}
    FROM label_neighbours WHERE side = '{0}' GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class LabelReview:
    """The labels to review first, and what is expected of them.

    `rows`: rank, id, path, split, label, suggested_label, error_chance, probability,
    suggested_probability, label_quality, given and suggested (ids of the nearest pictures of the
    class), decided (right, wrong, null). `listed` and `every`: forecasts of the list of LABEL007
    and of all labels, None where inconclusive.
    """

    rows: pl.DataFrame
    reviewed: int
    wrong: int
    listed: WrongCount | None
    every: WrongCount | None


INDEX = "memory.main.label_index"
DOUBTED, FIRST_RANKS = 0.5, 10  # the chance, or the rank, from which a picture's own page says so


def index_labels(store: Store) -> None:
    """Make the table of ranked labels; empty where no label was judged."""
    if store.columns("label_scores"):
        store.execute(f"CREATE TABLE {INDEX} AS {_RANKED}")
    else:
        columns = "rank BIGINT, id VARCHAR, label VARCHAR, suggested_label VARCHAR"
        columns += ", error_chance DOUBLE, samples VARCHAR[]"
        store.execute(f"CREATE TABLE {INDEX} ({columns})")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A label by rank, the most doubtful first; `chance` of being wrong, 0..1 or None.

    `samples`: the picture and its copies; `given`, `suggested_near`: ids of nearest pictures.
    """

    rank: int
    id: str
    label: str
    suggested: str | None
    chance: float | None
    samples: tuple[str, ...]
    given: tuple[str, ...] = ()
    suggested_near: tuple[str, ...] = ()

    def said(self) -> str:
        """Return what is to be seen, in words."""
        better = f"; {self.suggested} fits better" if self.suggested else ""
        sure = "" if self.chance is None else f". Probability that it is wrong: {self.chance:.0%}"
        return f"Labelled {self.label}{better}{sure}."


@reads(index_labels)
def count_suspects(store: Store) -> int:
    """Return how many labels are ranked; 0 where none was judged."""
    return int(store.scalar(f"SELECT count(*) FROM {INDEX}") or 0)


@reads(index_labels)
def load_suspects(store: Store, first: int, n: int) -> list[Suspect]:
    """Return `n` labels by rank, from the one with rank `first` on."""
    rows = store.rows(
        f"SELECT rank, id, label, suggested_label, error_chance, samples FROM {INDEX} "
        "WHERE rank BETWEEN ? AND ? ORDER BY rank",
        [first, first + n - 1],
    )
    near: dict[tuple[str, str], list[str]] = {}
    if rows:
        sql = (
            "SELECT sample_id, side, list(neighbour_id ORDER BY position) AS ids "
            "FROM label_neighbours WHERE sample_id IN (SELECT unnest(?)) GROUP BY ALL"
        )
        found = store.query(sql, [[row["id"] for row in rows]])
        near = {(name, side): ids for name, side, ids in found.iter_rows()}
    return [
        Suspect(
            *row.values(),
            *(tuple(near.get((row["id"], side), ())) for side in ("given", "suggested")),
        )
        for row in ({**row, "samples": tuple(row["samples"])} for row in rows)
    ]


@reads(index_labels)
def rank_of(store: Store, sample: str) -> int | None:
    """Return the rank of the label of a picture, or of a copy of it; None where it has none."""
    sql = f"SELECT rank FROM {INDEX} WHERE list_contains(samples, ?)"
    found = store.scalar(sql, [sample])
    return None if found is None else int(found)


@reads(index_labels)
def label_doubt(store: Store, sample: str) -> str:
    """Return what the ranked list says of an image's label, "" where it is not in doubt."""
    rank = rank_of(store, sample)
    if rank is None:
        return ""
    (suspect,) = load_suspects(store, rank, 1)
    if (suspect.chance or 0.0) < DOUBTED and rank > FIRST_RANKS:
        return ""
    total = count_suspects(store)
    return f"{suspect.said()} Number {rank:,} of {total:,} labels to review."


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The `labels` that were decided, how many are `wrong`, and of the last `RECENT`.

    `listed` and `every`: forecasts of the list of LABEL007 and of all labels, or None.
    """

    labels: int
    wrong: int
    recent_wrong: int
    listed: WrongCount | None
    every: WrongCount | None

    def said(self) -> str:
        """Return in words how it stands and whether to go on."""
        said = list[str]()
        if self.labels:
            said.append(f"{counted(self.labels, 'label')} reviewed, {self.wrong:,} of them wrong.")
        if self.labels > RECENT:
            said.append(f"Of the last {RECENT} in this order {self.recent_wrong} are.")
        if self.listed and self.every:
            said.append(
                f"Of the first {self.listed.n:,} about {self.listed.wrong:,.0f} are wrong "
                f"({self.listed.low:,.0f} to {self.listed.high:,.0f}); of all {self.every.n:,} "
                f"{wrong_among(*astuple(self.every))}."
            )
        elif self.labels < LEAST_REVIEWED:
            said.append(
                f"No reliable estimate of wrong labels: review the first {LEAST_REVIEWED}, and "
                "continue while many are wrong."
            )
        return " ".join(said)


@reads(index_labels)
def read_reviewed(store: Store, reviewed: Mapping[str, str]) -> Reviewed:
    """Return what reviews, {sample: class, "" where the label is right}, tell of ranked labels."""
    answers = _answers(store, reviewed)
    last = answers.tail(RECENT)["wrong"].sum() if len(answers) else 0
    counts = len(answers), int(answers["wrong"].sum()), int(last)
    facts = read_label_facts(store)
    known = facts.labels if facts else None
    chances = store.query(f"SELECT error_chance FROM {INDEX} ORDER BY rank")
    if known is None or chances["error_chance"].has_nulls():
        return Reviewed(*counts, None, None)
    given = np.full(len(chances), np.nan)
    given[answers["rank"].to_numpy() - 1] = answers["wrong"].cast(pl.Float64).to_numpy()
    forecasts = update_forecast(chances["error_chance"].to_numpy(), given, known)
    return Reviewed(*counts, *forecasts)


def _answers(store: Store, reviewed: Mapping[str, str]) -> pl.DataFrame:
    """Return rank and `wrong` (the picture or a copy got another label) of reviewed labels."""
    sql = f"""
        SELECT rank, bool_or(given <> '' AND given IS DISTINCT FROM label) AS wrong
        FROM (SELECT rank, label, unnest(samples) AS sample FROM {INDEX})
        JOIN (SELECT unnest(?::VARCHAR[]) AS sample, unnest(?::VARCHAR[]) AS given) USING (sample)
        GROUP BY rank ORDER BY rank
    """
    return store.query(sql, [list(reviewed), list(reviewed.values())])


def review_labels(results: RunReader, n: int = 100, first: int = 0) -> LabelReview:
    """Return `n` labels of the list from `first` on; UsageError where no label was judged."""
    run, reviewed = results.run, results.decisions.labels
    with results.connection(index_labels) as store:
        facts = read_label_facts(store)
        if facts is None or facts.labels is None:
            reason = "this run has no vectors" if facts is None else facts.reason
            raise UsageError(f"No labels of {run} were judged: {reason}. Scan again to judge them.")
        page = [first + 1, first + n]
        rows = store.query(f"SELECT * FROM {INDEX} WHERE rank BETWEEN ? AND ?", page)
        sides = [store.query(_SIDE.format(name)) for name in ("given", "suggested")]
        answers = _answers(store, reviewed)
        summary = read_reviewed(store, reviewed)
    word = pl.when("wrong").then(pl.lit("wrong")).otherwise(pl.lit("right")).alias("decided")
    answers = answers.select("rank", word)
    rows = rows.drop("samples").join(answers, on="rank", how="left", maintain_order="left")
    for side in sides:
        rows = rows.join(side, on="id", how="left", maintain_order="left")
    return LabelReview(rows, summary.labels, summary.wrong, summary.listed, summary.every)


def update_forecast(
    chances: Floats, answers: Floats, known: JudgedFacts
) -> tuple[WrongCount, WrongCount]:
    """Return the forecasts of the list and of all labels after the answers.

    `chances` (n,) in the order of the list; `answers` (n,): 1 wrong, 0 right, NaN not reviewed.
    """
    inside = np.clip(chances, 1e-6, 1 - 1e-6)
    odds, asked = np.log(inside / (1 - inside)), ~np.isnan(answers)
    low, high = max(known.wrong_low, 0.5), max(known.wrong_high, 1.0)
    spread = max(np.log(high / low) / (2 * 1.96), LEAST_SPREAD)
    shift, precision = 0.0, 1 / spread**2
    for _ in range(50):  # Newton's steps to the most probable shift
        p = 1 / (1 + np.exp(-(odds[asked] + shift)))
        precision = 1 / spread**2 + float((p * (1 - p)).sum())
        step = (float((answers[asked] - p).sum()) - shift / spread**2) / precision
        shift += float(np.clip(step, -1, 1))
        if abs(step) < 1e-9:
            break
    wide = 1.96 / np.sqrt(precision)

    def forecast(n: int, at_first: tuple[float, float, float]) -> WrongCount:
        if not asked.any():
            return WrongCount(n, *at_first)
        left, seen = odds[:n][~asked[:n]], float(answers[:n][asked[:n]].sum())
        means = [1 / (1 + np.exp(-(left + shift + by))) for by in (0.0, -wide, wide)]
        chance = 1.96 * np.sqrt(float((means[0] * (1 - means[0])).sum()))
        middle, least, most = (float(p.sum()) for p in means)
        low = seen + max(middle - np.hypot(middle - least, chance), 0.0)
        high = seen + min(middle + np.hypot(most - middle, chance), float(len(left)))
        return WrongCount(n, seen + middle, float(low), float(high))

    return (
        forecast(known.listed, (known.found, known.found_low, known.found_high)),
        forecast(len(chances), (known.wrong, known.wrong_low, known.wrong_high)),
    )
