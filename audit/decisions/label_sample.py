"""A random sample of labels to review, and the share of wrong labels that follows from it.

Images are drawn with equal chances from a seed, each once however many copies it has, so that a
reviewed file can be compared with its draw; the interval is exact (mid-p). Rates of reviewed
findings have an exact interval too (Clopper and Pearson 1934).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from audit.decisions.waivers import Applied, apply_decisions, open_for_deciding
from audit.errors import UsageError
from audit.records import Action
from audit.run import run_version
from audit.run.run_version import open_run
from audit.sources.tables import neutralise
from audit.statistics.intervals import clopper_pearson, effective_n, midp_limits
from dataset_preflight.foundation.files import refuse_special

ANSWERS = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
LABELLED = """
    SELECT min(id) AS id, arg_min(uri, id) AS path, arg_min(label, id) AS label,
        list(DISTINCT split) AS splits
    FROM images WHERE status = 'ok' AND trim(coalesce(label, '')) <> ''
    GROUP BY coalesce(pixel_hash, id) ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class WrongShare:
    """The share of wrong labels among `pictures`: `wrong` of `reviewed`, with limits."""

    wrong: int
    reviewed: int
    pictures: int
    share: float
    low: float
    high: float

    def sentence(self) -> str:
        """Return it in words."""
        return (
            f"{self.wrong:,} of {self.reviewed:,} labels drawn at random are wrong: "
            f"{self.share:.1%} of all {self.pictures:,} (95% CI {100 * self.low:.1f} to "
            f"{100 * self.high:.1f})."
        )


def draw_labels(run: Path, n: int, seed: int) -> pl.DataFrame:
    """Return `n` labelled pictures drawn at random, with an empty column `wrong` to fill in."""
    every = _labelled(run)
    if n < 1 or n > len(every):
        raise UsageError(
            f"{n:,} labels cannot be drawn from {len(every):,}: give a number from 1 to "
            f"{len(every):,}."
        )
    return (
        _drawn(every, n, seed)
        .drop("splits")
        .with_columns(pl.lit(str(seed)).alias("seed"), pl.lit("").alias("wrong"))
    )


def write_drawn(frame: pl.DataFrame, path: Path) -> None:
    """Write drawn labels as CSV, formulas in cells neutralised; an existing file is not lost."""
    try:
        with path.open("xb") as file:
            try:
                neutralise(frame).write_csv(file)
            except OSError:
                path.unlink()
                raise
    except FileExistsError:
        raise UsageError(f"{path} already exists: choose another name, or move it.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None


def estimate_wrong(run: Path, reviewed: Path) -> WrongShare:
    """Return the share of wrong labels from a drawn file whose column `wrong` was filled in.

    Raises UsageError where the file is not the whole draw, or an answer is missing or unclear.
    """
    every = _labelled(run)
    answers = _answers(every, reviewed)
    return share_of_sample(sum(answers.values()), len(answers), len(every))


def estimate_by_split(run: Path, reviewed: Path) -> dict[str, WrongShare]:
    """Return the share of wrong labels of each split of which a picture was drawn.

    Of a sample drawn at random, those of one split are drawn at random from that split. A picture
    in several splits counts in each. Raises UsageError as `estimate_wrong`.
    """
    every = _labelled(run)
    answers = _answers(every, reviewed)
    placed = every.explode("splits").drop_nulls("splits")
    asked = placed.filter(pl.col("id").is_in(list(answers)))
    sizes = dict(placed.group_by("splits").len().iter_rows())
    return {
        split: share_of_sample(sum(answers[i] for i in ids), len(ids), sizes[split])
        for split, ids in asked.group_by("splits").agg("id").iter_rows()
    }


def share_of_sample(wrong: int, n: int, pictures: int) -> WrongShare:
    """Return the share, with 95 % limits, from a simple random sample without replacement."""
    size = float(effective_n(n, pictures))
    share = wrong / n
    low, high = (share, share) if np.isinf(size) else midp_limits(share * size, size)
    return WrongShare(wrong, n, pictures, share, low, high)


def _labelled(run: Path) -> pl.DataFrame:
    with open_run(run) as store:
        return store.query(LABELLED)


def _answers(every: pl.DataFrame, reviewed: Path) -> dict[str, bool]:
    rows = _read(reviewed)
    seeds = rows["seed"].unique().to_list()
    try:
        seed = int(str(seeds[0]).removeprefix("'"))
        drawn = _drawn(every, len(rows), seed) if len(seeds) == 1 else every.clear()
    except ValueError:
        drawn = every.clear()
    ids = [x.removeprefix("'") for x in rows["id"].to_list()]
    if sorted(drawn["id"].to_list()) != sorted(ids):
        raise UsageError(
            f"{reviewed} does not contain exactly the labels that were drawn from this run, so it "
            "gives no estimate. Draw again (`audit decide RUN --draw-labels`), and review every "
            "row."
        )
    classes, labels = set(every["label"]), dict(drawn.select("id", "label").iter_rows())
    known = {
        i: str(row["label"] or "").removeprefix("'")
        for i, row in zip(ids, rows.to_dicts(), strict=True)
    }
    changed = [i for i in ids if known[i] != labels[i] and known[i] in classes]
    if changed:
        raise UsageError(
            f"{reviewed} is outdated: {changed[0]} was {known[changed[0]]!r} when it was drawn "
            f"and is {labels[changed[0]]!r} now, and {len(changed) - 1:,} more labels changed. "
            "Draw again (`audit decide RUN --draw-labels`)."
        )
    answers = [ANSWERS.get(str(x or "").strip().lower()) for x in rows["wrong"].to_list()]
    if None in answers:
        raise UsageError(
            f"{reviewed} has no yes or no for {rows['id'][answers.index(None)]}, and "
            f"{answers.count(None) - 1:,} more: write yes or no into the column `wrong` of each."
        )
    return {sample: bool(answer) for sample, answer in zip(ids, answers, strict=True)}


def _drawn(every: pl.DataFrame, n: int, seed: int) -> pl.DataFrame:
    # no part of another draw: whoever stops early would choose where
    rows = np.random.default_rng([seed % 2**64, n]).permutation(len(every))[:n]
    return every.select(pl.all().gather(rows.tolist()))


def _read(path: Path) -> pl.DataFrame:
    try:
        refuse_special(path)
        rows = pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        said = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read: {said}.") from None
    missing = [name for name in ("id", "label", "seed", "wrong") if name not in rows.columns]
    if missing or not len(rows):
        raise UsageError(
            f"{path} lacks {'the column ' + missing[0] if missing else 'rows'}: give the file that "
            "`audit decide RUN --draw-labels` wrote, with the column `wrong` filled in."
        )
    return rows.with_columns(pl.col("id").fill_null(""))


FIRST = 50
LEAST = 10  # reviewed findings below which no rate is given
_RANKED = """
    SELECT f.code, f.name, count(*) OVER (PARTITION BY f.code) AS total, f.fingerprint,
        CAST(json_extract(f.evidence, '$.rank') AS BIGINT) AS rank
    FROM judged.main.findings f WHERE json_extract(f.evidence, '$.rank') IS NOT NULL
"""


def reviewed_rates(
    run: Path,
    version: run_version.RunVersion | None = None,
    applied: Applied | None = None,
) -> list[str]:
    """Return a sentence per code whose first findings were reviewed: share, interval, counts.

    `applied`: the decisions as they apply to that version, where they were read already.
    """
    settled = (applied or apply_decisions(run, version)).settled.drop_nulls("verb")
    if settled.is_empty():
        return []
    with open_for_deciding(run, version) as store:
        store.create_from("settled", settled)
        rows = store.query(
            f"WITH ranked AS ({_RANKED}) SELECT code, name, least(total, {FIRST}) AS of, "
            "count(*) AS n, count(*) FILTER (WHERE verb NOT IN (?, ?)) AS wrong FROM ranked "
            f"JOIN settled USING (fingerprint) WHERE rank <= {FIRST} GROUP BY ALL ORDER BY code",
            [Action.FALSE_POSITIVE.value, Action.KEEP.value],
        )
    sentences = []
    for code, name, first, n, wrong in rows.iter_rows():
        if n < min(LEAST, first):
            continue
        low, high = (float(limit) for limit in clopper_pearson(wrong, n))
        rest = "" if n == first else f"; {first - n:,} of the first {first:,} are not reviewed"
        sentences.append(
            f"{code} {name}: {wrong:,} of {n:,} reviewed were wrong, {wrong / n:.0%} (95% "
            f"CI {100 * low:.0f} to {100 * high:.0f}){rest}."
        )
    return sentences
