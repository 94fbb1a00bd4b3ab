"""Which annotated masks are wrong, by a model's masks of the same pictures; into `mask_doubts`.

Three questions are asked of what was compared object by object (`audit.annotations.mask_overlaps`):

- Is there an object? An annotated one that the model calls background, or a region that it
  predicts and nobody annotated. Of which class is it? Both are judged much as labels of pictures
  are (`audit.embeddings.label_noise`): the model's probabilities are calibrated by how often they
  agree with the annotations, and wrong annotations are believed in only where they explain the
  rest better.
- Is its outline right? The two outlines lie d px apart on average. A model's own errors have a
  tail: t times as far out there is 1 / t^2 of what is beyond, or less, if its variance is finite;
  up to 1 / t^4 where the beginning of the tail falls as fast. What goes beyond that in the
  outermost tenth is counted as wrong.

So a model that errs as surely as it is right, and PNG masks, whose pixels are all equally sure,
show wrong outlines, and of the rest only an order to look at them (`doubt`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.annotations.mask_doubts import MaskResults, compare_masks
from audit.annotations.mask_overlaps import MaskParts
from audit.embeddings.label_noise import minimise
from audit.run.store import Store

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
TABLE = "mask_doubts"
SLOPE, OFFSET = 2.0, 2.0
"""Deviations of priors: by what factor log odds of a model's probabilities are off, as a log, and
how much a class is said too often. With a narrow one for the first, a network that was as sure of
its errors as of the rest had findings on a clean set."""
Judged = tuple[Floats, Floats, Floats]  # of each thing: chance, gain, doubt
SUPPOSED = 0.01
"""Share of wrong annotations that the order is made for: what is certain does not depend on it."""
LEAST = 50
"""Objects from which masks are judged."""
LEAST_CLASS = 10
"""Objects of a class from which it is told from others."""
POWERS = 2.0, 4.0
"""Least and greatest power of the tail of distances."""
LEAST_DISTANCE = 0.25
"""Distance, px, up to which outlines are the same."""
LEAST_TAIL = 20
"""Objects of the tail of distances at least: a tenth where that is more."""
TRUSTED = 4.0
"""Gain in log likelihood from which an error is believed in (p = 0.002)."""
SEEN = 0.25
"""Share of an object that the model calls its class, from which it has an outline to compare."""
STORED = 0.05
"""Chance from which a row is stored."""


def judge_things(things: Sequence[MaskParts], classes: int) -> pl.DataFrame:
    """Return a row for each thing of the pictures: what may be wrong with it, and the chance.

    Columns: `picture`, `place` (its number there), `kind` ('missing', 'not there', 'class' or
    'outline'), `suggested` (class), `chance`, `gain`, `doubt` (0..1, the order to look at them),
    `distance` (px between the outlines), `wrong` (pixels over those of the object).
    """
    sizes = [len(one.kind) for one in things]
    kind = np.concatenate([one.kind for one in things])
    votes = np.concatenate([one.votes for one in things])
    area, outline = (np.concatenate([getattr(o, k) for o in things]) for k in ("area", "outline"))
    wrong = np.concatenate([one.missed + one.spilt for one in things])
    annotated, distance = kind >= 0, wrong / np.maximum(outline, 1)
    places = np.concatenate([np.arange(n) for n in sizes])
    suggested = votes[:, 1:].argmax(1)
    asked = (
        _there(votes, annotated), _named(votes, kind),
        _edges(distance, (suggested == kind) & (votes[:, 1:].max(1) >= SEEN)),
    )  # fmt: skip
    chance, gain, doubt = (np.stack([one[i] for one in asked]) for i in range(3))
    rows = np.arange(len(kind))
    believed = np.where(gain >= TRUSTED, chance, 0)
    which = np.where(believed.max(0) > 0, believed.argmax(0), doubt.argmax(0))
    words = np.array(["", "class", "outline"], object)[which]
    words[(which == 0) & annotated] = "not there"
    words[(which == 0) & ~annotated] = "missing"
    return pl.DataFrame({
        "picture": np.repeat(np.arange(len(sizes)), sizes), "place": places,
        "kind": pl.Series(words.tolist(), dtype=pl.String), "suggested": suggested,
        "chance": chance[which, rows], "gain": gain[which, rows], "doubt": doubt[which, rows],
        "distance": distance,
        "wrong": wrong / np.maximum(area, 1),
    })  # fmt: skip


def _there(votes: Floats, annotated: Bools) -> Judged:
    """Judge whether there is an object: of each thing."""
    if min(annotated.sum(), LEAST_CLASS * (~annotated).sum()) < LEAST:
        return np.zeros(len(votes)), np.zeros(len(votes)), 1 - np.abs(annotated - votes[:, 0])
    covered = np.where(votes[:, 0] > 0.5, 1, np.maximum(1 - votes[:, 0], 0.5))
    seen = np.clip(votes[:, 1:].sum(1) / covered, 0, 1)
    return _calibrated(np.stack([1 - seen, seen], 1), annotated.astype(np.int64))


def _named(votes: Floats, kind: npt.NDArray[np.int64]) -> Judged:
    """Judge the classes of objects that the model sees as objects."""
    found = np.zeros((3, len(kind)))
    often = np.bincount(kind[kind >= 0], minlength=votes.shape[1] - 1)
    kept = np.flatnonzero(often >= LEAST_CLASS)
    rows = np.flatnonzero(np.isin(kind, kept) & (votes[:, 0] <= 0.5))
    if len(kept) > 1 and len(rows) >= LEAST:
        p = votes[rows][:, 1 + kept]
        p += np.maximum(1 - votes[rows].sum(1, keepdims=True), 1e-9) / len(kept)
        named = np.searchsorted(kept, kind[rows])
        found[:, rows] = _calibrated(p / p.sum(1, keepdims=True), named)
    return found[0], found[1], found[2]


def _calibrated(p: Floats, labels: npt.NDArray[np.int64]) -> Judged:
    """Judge labels by probabilities (n, K): P(label) = (1 - e) q + e / K, q being p calibrated."""
    witness, n = np.log(np.maximum(p, 1e-6)), len(p)
    start = np.zeros(p.shape[1] + 2)
    right, base = minimise(lambda at: _loss(at, witness, labels, False), start)
    start = np.append(right[:-1], np.log(0.02))
    point, best = minimise(lambda at: _loss(at, witness, labels, True), start)
    found = []
    for at, share in ((point, 1 / (1 + np.exp(-point[-1]))), (right, SUPPOSED)):
        own = _softmax(witness, at)[np.arange(n), labels]
        wrong = share / p.shape[1]
        found.append(wrong * (1 - own) / ((1 - share) * own + wrong))
    return found[0], np.full(n, max(base - best, 0) * n), found[1]


def _softmax(witness: Floats, at: Floats) -> Floats:
    logits = np.exp(at[0]) * witness + at[1:-1]
    chance = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(chance / chance.sum(1, keepdims=True))


def _loss(
    at: Floats, witness: Floats, labels: npt.NDArray[np.int64], noisy: bool
) -> tuple[float, Floats]:
    """Return the mean negative log posterior at (log slope, offsets, logit of e); its gradient."""
    (n, k), rows = witness.shape, np.arange(len(witness))
    p = _softmax(witness, at)
    share = 1 / (1 + np.exp(-at[-1])) if noisy else 0.0
    good = (1 - share) * p[rows, labels]
    seen = good + share / k + 1e-300
    good = good / seen
    pull = -good[:, None] * p
    pull[rows, labels] += good
    prior = np.append(at[0] / SLOPE, at[1:-1] / OFFSET)
    slope = np.exp(at[0]) * (pull * witness).sum()
    gradient = np.concatenate([[slope], pull.sum(0), [0.0]])
    gradient[:-1] -= prior / np.append(SLOPE, np.full(k, OFFSET))
    gradient[-1] = ((1 - good) * (1 - share) - good * share).sum() if noisy else 0.0
    return -float(np.log(seen).sum() - (prior**2).sum() / 2) / n, -gradient / n


def _edges(distance: Floats, seen: Bools) -> Judged:
    """Judge outlines by how far they lie from the predicted ones, px; of objects `seen` as such."""
    from scipy.special import bdtrc, ndtri

    chance, gain = np.zeros(len(distance)), np.zeros(len(distance))
    rows = np.flatnonzero(seen)
    if len(rows) < LEAST:
        return chance, gain, chance
    rows = rows[np.argsort(-distance[rows], kind="stable")]
    beyond = max(LEAST_TAIL, len(rows) // 10)
    start = max(float(distance[rows[beyond]]), LEAST_DISTANCE)
    d = np.maximum(distance[rows], start)
    # half of what is beyond lies within a factor f of the start, where a tail of power a begins:
    # f^a = 2; two standard errors less
    half = beyond // 2
    within = max(float(np.log(d[half] / start)), 1e-9)
    power = np.clip(np.log(2) / within * (1 - 2 / np.sqrt(beyond)), *POWERS)
    number, share = np.arange(1, half + 1), (start / d[:half]) ** power
    found = np.maximum(1 - beyond * share / number, 0)
    gains = np.maximum(-ndtri(np.maximum(bdtrc(number - 1, beyond, share), 1e-300)), 0) ** 2 / 2
    last = int(gains.argmax()) + 1
    chance[rows[:half]] = np.maximum.accumulate(found[::-1])[::-1]
    gain[rows[:last]] = gains[last - 1]
    return chance, gain, chance


def relate_masks(store: Store, results: MaskResults | None) -> None:
    """Compare the masks of the file that was predicted; fills `mask_doubts`, adds to the facts."""
    store.execute(f"DELETE FROM {TABLE}")
    if results is None:
        return
    compared = list(compare_masks(store, results))
    seen = [one for one in compared if one is not None]
    if not seen:
        return
    classes = results.classes
    found = judge_things([one.things for one in seen], len(classes))
    rows: list[dict[str, Any]] = []
    for row in found.filter(pl.col("chance") >= STORED).iter_rows(named=True):
        one, place = seen[row.pop("picture")], row.pop("place")
        own = place < len(one.entries)
        box = dict(zip(("x", "y", "width", "height"), one.things.box[place].tolist(), strict=True))
        rows.append({
            "file": results.file, "image_key": one.image_key, "sample_id": one.sample_id,
            "entry": one.entries[place] if own else None,
            "label": one.labels[place] if own else None,
            "predicted_label": classes[row.pop("suggested")], **row, **box,
        })  # fmt: skip
    store.append(TABLE, rows)
    facts = {"mask_pictures": len(seen), "mask_objects": sum(len(one.entries) for one in seen),
             "mask_odd": len(compared) - len(seen)}  # fmt: skip
    store.append("prediction_facts", [{"key": k, "value": str(v)} for k, v in facts.items()])
