"""Judge labels from vectors, or from the user's own probabilities: arrays in, arrays out.

Built for the scan, and for anybody who has vectors and labels as arrays
(`benchmarks/label_errors.py` calls it with pictures that never were a dataset).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit.embeddings.label_noise import NoiseModel, fit_noise_model, rate_labels
from audit.embeddings.nearest import Nearest, vote_shares
from audit.embeddings.ridge import decompose, left_out_scores

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
EXPECTED_AT = (50, 200, 1000)


@dataclass(frozen=True, slots=True)
class JudgedLabels:
    """What is known of n labels in K classes.

    `quality` (n,): 0..1, low for those to look at first; `probability` (n,): of the label;
    `suggested` (n,): the most probable other class, and its `suggested_probability`;
    `error_chance` (n,): of a label set at random; `votes` (n, 2): neighbours with the given and
    with the suggested label, of `neighbours` (n,) that have one; `accuracy`: share of labels
    that the model would give as well.
    """

    model: NoiseModel
    quality: npt.NDArray[np.float64]
    probability: npt.NDArray[np.float64]
    suggested: Ints
    suggested_probability: npt.NDArray[np.float64]
    error_chance: npt.NDArray[np.float64]
    votes: Ints
    neighbours: Ints
    accuracy: float

    def order(self) -> Ints:
        """Return the rows, those to look at first in front."""
        return np.argsort(self.quality, kind="stable")

    def expected_shares(self) -> dict[int, float]:
        """Return the share of wrong labels to expect among the first 50, 200 and 1,000."""
        chances = self.error_chance[self.order()]
        return {n: float(chances[:n].mean()) for n in EXPECTED_AT if n <= len(chances)}


def judge_vectors(
    views: Floats, nearest: Nearest, labels: Ints, groups: Ints, n_classes: int
) -> JudgedLabels:
    """Judge labels (n,) in 0..n_classes-1 by a model that did not see their group, and neighbours.

    `views` (v, n, d) are the vectors, of one view of each picture or more. Rows with the label -1
    are not judged, and neither teach nor vote.
    """
    rows = np.flatnonzero(labels >= 0)
    scores = score_views(views[:, rows], labels[rows], groups[rows], n_classes)
    votes, smooth = vote_shares(nearest, labels, n_classes, rows)
    witnesses = [scores, np.log(smooth)]
    model = fit_noise_model(witnesses, labels[rows], n_classes)
    return _conclude(model, model.probabilities(witnesses), labels[rows], votes)


def score_views(views: Floats, labels: Ints, groups: Ints, n_classes: int) -> Floats:
    """Return the scores (n, n_classes) of pictures with their group left out, the mean over views.

    All views of a picture are in its group: a crop does not speak for the picture.
    """
    v, n, d = views.shape
    every = views.reshape(v * n, d)
    every = every - every.mean(0, dtype=np.float64).astype(np.float32)
    scores = left_out_scores(decompose(every), np.tile(labels, v), np.tile(groups, v), n_classes)
    return np.asarray(scores.reshape(v, n, n_classes).mean(0))


def judge_probabilities(
    probabilities: Floats, labels: Ints, votes: Floats | None = None
) -> JudgedLabels:
    """Judge labels by the user's own probabilities (n, K), as they come from out of fold."""
    witness = np.log(np.maximum(probabilities, 1e-6)).astype(np.float32)
    model = fit_noise_model([witness], labels, probabilities.shape[1])
    counted = np.zeros_like(probabilities) if votes is None else votes
    return _conclude(model, model.probabilities([witness]), labels, counted)


def _conclude(
    model: NoiseModel, p: npt.NDArray[np.float64], labels: Ints, votes: Floats
) -> JudgedLabels:
    rows = np.arange(len(labels))
    own = p[rows, labels]
    others = p.copy()
    others[rows, labels] = -1.0
    suggested = others.argmax(1)
    return JudgedLabels(
        model,
        rate_labels(p, labels, model.share),
        own,
        suggested,
        p[rows, suggested],
        model.error_chances(own),
        np.stack([votes[rows, labels], votes[rows, suggested]], 1).astype(np.int64),
        votes.sum(1).astype(np.int64),
        float((own >= p.max(1)).mean()),
    )
