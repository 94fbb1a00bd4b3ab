"""Earlier models as planning values: accuracy per stratum, how often two differ, correlation.

Without predictions the planning values are stated assumptions, each the cautious end: p = 0.5 (the
widest interval), two models that err independently (real ones differ less), files of one group all
right or all wrong together (rho = 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit import stats
from audit.errors import UsageError
from audit.stats import Floats
from audit.subset.frame import UNLABELLED, select_eligible
from audit.subset.noise import NoiseRate
from audit.subset.predictions import Matched, match, right_answers, standard_columns
from audit.subset.units import Units

WORST_SHARE = 0.5
# Weight of the overall share in each stratum's: two imaginary examples keep S_h above 0.
PSEUDO_EXAMPLES = 2.0


@dataclass(frozen=True)
class Prior:
    """Outcomes of one or two earlier models on F: 1 right, 0 wrong, NaN unknown."""

    labels: np.ndarray | None = None
    first: Floats | None = None
    second: Floats | None = None
    predictions_differ: float | None = None
    both_wrong_differ: float | None = None

    @property
    def known(self) -> bool:
        """True if at least one model's predictions are there."""
        return self.first is not None

    @property
    def pair_known(self) -> bool:
        """True if two models' predictions are there."""
        return self.second is not None

    @property
    def accuracy(self) -> float:
        """Accuracy of the first model where it is known."""
        return float(np.nanmean(self.first)) if self.first is not None else WORST_SHARE

    def class_share(self, label: str, stated: float | None) -> float:
        """Return the planning value for the recall of one class."""
        if stated is not None or self.first is None or self.labels is None:
            return WORST_SHARE if stated is None else stated
        own = self.first[(self.labels == label) & ~np.isnan(self.first)]
        return float((own.sum() + PSEUDO_EXAMPLES * self.accuracy) / (own.size + PSEUDO_EXAMPLES))

    def stratum_shares(self, units: Units, stated: float | None) -> tuple[Floats, str]:
        """Return the planning share of each stratum, and where it comes from."""
        count = len(units.strata)
        if stated is not None:
            return np.full(count, stated), f"Planning value p = {stated:g} (as stated)."
        if self.first is None:
            worst = np.full(count, WORST_SHARE)
            return worst, f"Planning value p = {WORST_SHARE:g} (the worst case)."
        code = units.codes
        if units.unit_of_file is not None:
            code = code[units.unit_of_file]
        known = ~np.isnan(self.first)
        hits = np.bincount(code[known], self.first[known], count)
        files = np.bincount(code[known], minlength=count)
        # Without the pseudo-examples a small stratum that is all right would get S_h = 0: no units.
        p = (hits + PSEUDO_EXAMPLES * self.accuracy) / (files + PSEUDO_EXAMPLES)
        return p, (
            f"Planning values p per stratum from the first predictions ({known.sum()} files, "
            f"accuracy {self.accuracy:.3f}), each stratum drawn towards the whole by two examples."
        )

    def correlation(self, units: Units, stated: float | None) -> tuple[float, str]:
        """Return rho, the correlation of two files of one unit, and where it comes from."""
        if not units.whole:
            return 1.0, ""  # a unit is one file, or copies of one picture: one answer
        if stated is not None:
            return stated, f"Within-group correlation rho = {stated:g} (as stated)."
        if self.first is not None and units.unit_of_file is not None:
            known = ~np.isnan(self.first)
            rho = stats.intraclass_correlation(self.first[known], units.unit_of_file[known])
            if not np.isnan(rho):
                return rho, f"Within-group correlation rho = {rho:.3f} (from the predictions)."
        return 1.0, (
            "Within-group correlation rho = 1 (the worst case: files of a group are all right or "
            "all wrong); --rho or --predictions replace it."
        )

    def discordant(self, stated: float | None, difference: float, p: float) -> tuple[float, str]:
        """Return psi, the share of examples on which exactly one model is right, and its source."""
        if stated is not None:
            return stated, f"Discordant share psi = {stated:g} (as stated)."
        if self.first is not None and self.second is not None:
            known = ~np.isnan(self.first) & ~np.isnan(self.second)
            psi = float((self.first[known] != self.second[known]).mean())
            return psi, f"Discordant share psi = {psi:.4f} (from the two prediction files)."
        # Shares p - d/2 and p + d/2, one of them right and the other wrong by chance alone.
        d = difference
        low, high = max(p - d / 2, 0.0), min(p + d / 2, 1.0)
        psi = max(low * (1 - high) + high * (1 - low), d)
        return psi, (
            f"Discordant share psi = {psi:.3f} (two models that err independently; related models "
            "differ less and need fewer examples: give two prediction files or --discordant)."
        )


def marked_noise(files: pl.DataFrame) -> NoiseRate:
    """Return the share of files that an audit marked as suspected mislabels, with exact limits."""
    if "suspected_mislabel" not in files.columns:
        return NoiseRate(0.0, 0.0, 1.0, "no label check was run", automatic=True)
    marked, n = int(files["suspected_mislabel"].sum()), len(files)
    low, high = (float(v) for v in stats.clopper_pearson(marked, n))
    source = f"{marked} of {n} files marked as suspected mislabels by the audit"
    return NoiseRate(marked / max(n, 1), low, high, source, automatic=True)


def read_prior(
    files: pl.DataFrame, tables: Sequence[pl.DataFrame], wants_confidence: bool
) -> tuple[pl.DataFrame, Prior, list[str]]:
    """Return F (with a `confidence` column if it is stratified on), the prior, and notes.

    Examples without a prediction only inform less; nothing is refused at this stage.
    """
    if not tables:
        if wants_confidence and "confidence" not in files.columns:
            raise UsageError(
                "Stratifying by confidence needs the confidence of an earlier model: give "
                "--predictions with a `confidence` column, or drop --by confidence."
            )
        return files, Prior(), []
    if len(tables) > 2:
        raise UsageError(f"{len(tables)} prediction files were given: a plan takes one or two.")
    aligned = [_align(files, table, f"predictions {i}") for i, table in enumerate(tables, 1)]
    notes = [note for _, _, note in aligned if note]
    if wants_confidence:
        files = _with_confidence(files, aligned[0][0])
    first, second = aligned[0][1], aligned[1][1] if len(aligned) == 2 else None
    differ, both = None, None
    if second is not None:
        differ, both = _disagreement(aligned[0][0], aligned[1][0], first, second)
    labels = files["label"].to_numpy()
    return files, Prior(labels, first, second, differ, both), notes


def _align(files: pl.DataFrame, table: pl.DataFrame, name: str) -> tuple[pl.DataFrame, Floats, str]:
    matched = match(files, standard_columns(table, name), name, "drop", "refuse-similar")
    note = ""
    if matched.missing:
        note = f"{name}: {matched.missing} of {len(files)} eligible files have no prediction."
    return matched.table, expected_answers(files, matched, name), note


def expected_answers(files: pl.DataFrame, matched: Matched, name: str) -> Floats:
    """Return right answers, or where no class is known the model's own chance of being right."""
    if not (files["label"] == UNLABELLED).all():
        return right_answers(files, matched)
    if "confidence" not in matched.table.columns:
        raise UsageError(
            f"{name}: without classes only the model's confidence tells where it errs. Add a "
            "`confidence` column, or one prob_<class> column a class."
        )
    return matched.table["confidence"].to_numpy()


def with_confidence(
    frame: pl.DataFrame, tables: Sequence[pl.DataFrame], by: Sequence[str]
) -> pl.DataFrame:
    """Return a frame with the prior model's `confidence`, for a recipe that stratifies by it."""
    if "confidence" not in by or "confidence" in frame.columns:
        return frame
    if not tables or "confidence" not in tables[0].columns:
        raise UsageError(
            "This plan stratifies by confidence: give the same --predictions that it was made with "
            "(with their `confidence` column)."
        )
    rows = frame if "path" in frame.columns else frame.with_columns(path="sample_id")
    return _with_confidence(
        frame, match(rows, tables[0], "predictions", "drop", "refuse-similar").table
    )


def known_hits(
    frame: pl.DataFrame, tables: Sequence[pl.DataFrame], deduplicated: bool
) -> Floats | None:
    """Return the first model's right answers on F, or None unless it is known on all of F."""
    if not tables:
        return None
    files = select_eligible(frame, deduplicated).files
    if (files["label"] == UNLABELLED).all():
        return None
    _, first, _ = _align(files, tables[0], "predictions")
    return None if np.isnan(first).any() else first


def _with_confidence(files: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    if "confidence" not in table.columns:
        raise UsageError(
            "Stratifying by confidence needs a `confidence` column in the first prediction file."
        )
    return files.with_columns(confidence=table["confidence"])


def _disagreement(
    a: pl.DataFrame, b: pl.DataFrame, first: Floats, second: Floats
) -> tuple[float, float]:
    known = ~np.isnan(first) & ~np.isnan(second)
    differ = (a["prediction"] != b["prediction"]).fill_null(False).to_numpy()
    both = differ & (first == 0) & (second == 0)
    return float(differ[known].mean()), float(both[known].mean())
