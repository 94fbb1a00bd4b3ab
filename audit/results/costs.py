"""What the findings cost: how far the numbers of an evaluation split can be trusted.

- *leaked*: a share l of pictures that are in training makes an accuracy A at most l (1 - A) /
  (1 - l) too high, and at most l whatever A is.
- *repeated*: n pictures in units of m_i give the precision of n^2 / sum(m_i^2) independent ones
  (Kish 1965, Survey Sampling, section 5.4).
- *mislabelled*: with a share w of wrong labels in a random draw, a perfect model measures 1 - w.

Only open findings count.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.decisions.label_sample import WrongShare, estimate_by_split
from audit.results.grouping import OPEN
from audit.run.store import Store
from audit.statistics.intervals import wilson, wilson_share

REPORTED_ACCURACY = 0.9
"""An accuracy that a paper may report, for the example in a sentence."""
TRAIN_SPLITS = ("train", "training")  # where SPLIT001 did not run, so that none are stored
_OF_OBJECTS = """
    SELECT EXISTS (FROM object_labels) AND NOT EXISTS (FROM samples WHERE label IS NOT NULL)
        AND NOT EXISTS (FROM several_labels)
"""
DRAWN = 200  # labels to draw: 3 % wrong would be known to about 2.5 points
_SPLITS = "SELECT split, count(*) AS n FROM pictures WHERE {} GROUP BY split ORDER BY split"
_PICTURED = "split IS NOT NULL AND pixel_hash IS NOT NULL"
_LEAKED = f"""
    WITH members AS (
        SELECT m.fingerprint, p.id, p.split FROM {OPEN} f
        JOIN judged.finding_samples m USING (fingerprint) JOIN pictures p ON p.id = m.sample_id
        WHERE f.code = 'SPLIT001' AND {_PICTURED}
    ), leaking AS (
        SELECT DISTINCT fingerprint FROM members WHERE len(?) = 0 OR list_contains(?, split)
    )
    SELECT split, count(DISTINCT id) AS n FROM members SEMI JOIN leaking USING (fingerprint)
    GROUP BY split
"""
# A picture whose findings were waived is one of its own.
_UNITS = f"""
    WITH repeated AS (
        SELECT DISTINCT m.sample_id FROM {OPEN} f
        JOIN judged.finding_samples m USING (fingerprint)
        WHERE f.code IN ('DUP001', 'DUP002', 'DUP003', 'SPLIT001')
    ), units AS (
        SELECT p.split, CASE WHEN r.sample_id IS NULL THEN p.id ELSE p.unit END AS unit,
            count(*) AS n
        FROM pictures p LEFT JOIN repeated r ON r.sample_id = p.id WHERE {_PICTURED} GROUP BY ALL
    )
    SELECT split, count(*) AS units, sum(n * n)::BIGINT AS squares FROM units GROUP BY split
"""
_SUSPECTED = f"""
    SELECT s.split, count(DISTINCT s.id) AS n FROM {OPEN} f
    JOIN judged.finding_samples m USING (fingerprint) JOIN samples s ON s.id = m.sample_id
    WHERE f.code = 'LABEL006' GROUP BY s.split
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one kind of finding costs one split: in words, and the numbers of that sentence.

    `kind`: leaked, repeated or mislabelled; shares are 0..1, see `docs/findings.md`.
    `metric`: accuracy, or mAP where only objects are labelled.
    """

    kind: str
    split: str
    message: str
    numbers: Mapping[str, float | None]
    metric: str = "accuracy"


def measure_costs(store: Store, run: Path, reviewed: Path | None = None) -> tuple[Cost, ...]:
    """Return the costs of the open findings, by split.

    `reviewed`: answers to `audit decide --draw-labels`; UsageError where it is no such file.
    """
    sizes: dict[str, int] = dict(store.query(_SPLITS.format(_PICTURED)).iter_rows())
    checked = store.scalar("SELECT params FROM judged.check_runs WHERE code = 'SPLIT001'")
    named = json.loads(checked or "{}").get("train_splits") or TRAIN_SPLITS
    trained = [split for split in sizes if split in named]
    leaked = dict(store.query(_LEAKED, [trained, trained]).iter_rows())
    units = {split: rest for split, *rest in store.query(_UNITS).iter_rows()}
    suspected = dict(store.query(_SUSPECTED).iter_rows())
    wrong = {} if reviewed is None else estimate_by_split(run, reviewed)
    costs: list[Cost] = []
    metric = "mAP" if store.scalar(_OF_OBJECTS) else "accuracy"
    for split, n in sizes.items():
        if split in trained:
            continue
        others = trained or [other for other in sizes if other != split]
        costs += leaked_cost(split, leaked.get(split, 0), n, others, metric)
        costs += repeated_cost(split, n, *units[split], metric=metric)
        costs += mislabelled_cost(split, suspected.get(split, 0), wrong.get(split), run)
    return tuple(costs)


def overstatement(share: float, accuracy: float) -> float:
    """Return by how much a measured `accuracy` may exceed that on unseen pictures, 0..1.

    `share`: of pictures seen in training. With all of them right, accuracy on the others is
    (accuracy - share) / (1 - share), or 0.
    """
    if share >= 1:
        return accuracy
    return accuracy - max((accuracy - share) / (1 - share), 0.0)


def leaked_cost(
    split: str, leaked: int, n: int, others: Sequence[str], metric: str = "accuracy"
) -> Iterator[Cost]:
    """Yield what `leaked` of the `n` pictures of a split cost its metric; for mAP approximately."""
    if not leaked:
        return
    share, (low, high) = leaked / n, wilson(leaked, n)
    example = overstatement(share, REPORTED_ACCURACY)
    yield Cost(
        "leaked",
        split,
        f"{leaked:,} of {n:,} images of {split} ({share:.1%}, 95% CI {100 * low:.1f} to "
        f"{100 * high:.1f}) {'is' if leaked == 1 else 'are'} also in {' or '.join(others)}: an "
        f"{metric} on {split} may be overstated by up to {'about ' if metric == 'mAP' else ''}"
        f"{100 * share:.1f} points, an {metric} of {REPORTED_ACCURACY:.0%} by up to "
        f"{100 * example:.1f}.",
        {
            "n": n, "leaked": leaked, "share": share, "low": float(low), "high": float(high),
            "overstated": share, "overstated_at_90": example,
        },
        metric,
    )  # fmt: skip


def repeated_cost(
    split: str, n: int, units: int, squares: int, *, metric: str = "accuracy"
) -> Iterator[Cost]:
    """Yield what copies within a split cost; `squares`: the sum of the squared sizes of units."""
    if units >= n:
        return
    effective = n * n / squares
    limits = (wilson_share(0.5, size) for size in (n, effective))
    plain, wide = (float(high - low) / 2 for low, high in limits)
    wider = f"{(n / effective) ** 0.5:.2f} times as wide"
    widths = f"Every CI of an {metric} is {wider}."
    if metric == "accuracy":
        widths = (
            f"The 95% CI of an accuracy of 50% is ± {100 * wide:.3g} points, not ± "
            f"{100 * plain:.3g}; every other CI is also {wider}."
        )
    yield Cost(
        "repeated",
        split,
        f"The {n:,} images of {split} contain {units:,} distinct images. A model is right or "
        f"wrong on all copies of an image, so {split} has {effective:,.0f} effective images. "
        f"{widths}",
        {
            "n": n, "different": units, "effective": effective, "half_width": wide,
            "half_width_of_n": plain, "wider": (n / effective) ** 0.5,
        },
        metric,
    )  # fmt: skip


def mislabelled_cost(
    split: str, suspected: int, wrong: WrongShare | None, run: Path
) -> Iterator[Cost]:
    """Yield the accuracy of a model that is always right, or how to measure it."""
    numbers: dict[str, float | None] = {"suspected": suspected}
    if wrong is not None:
        ceiling, low, high = 1 - wrong.share, 1 - wrong.high, 1 - wrong.low
        said = (
            f"{wrong.wrong:,} of {wrong.reviewed:,} labels of {split} drawn at random are wrong: "
            f"a perfect model would reach an accuracy of {ceiling:.1%} on {split} (95% CI "
            f"{100 * low:.1f} to {100 * high:.1f})."
        )
        numbers |= {"ceiling": ceiling, "low": low, "high": high}
    elif suspected:
        place = shlex.quote(str(run))
        labels = "1 label" if suspected == 1 else f"{suspected:,} labels"
        said = (
            f"{labels} of {split} may be wrong, but suspected labels give no estimate of the "
            f"accuracy of a perfect model. Run `audit decide {place} --draw-labels {DRAWN} -o "
            f"drawn.csv`, review the file, then run `audit report {place} --reviewed drawn.csv`."
        )
        numbers |= {"ceiling": None, "low": None, "high": None}
    else:
        return
    yield Cost("mislabelled", split, said, numbers)
