"""What a design is equivalent to, for an earlier model whose answers are known on all of F.

Stratifying pays only where the strata differ in accuracy. A model that is known everywhere shows
how much: the simple random sample that would be as precise as this design. It also shows whether
the subset's interval contains the full set's number, once, for a model where that can be checked.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from audit.stats import Floats, Ints
from audit.subset.design import Design, MetricEstimate, estimate_share
from audit.subset.document import plain_data
from audit.subset.draw import Subset
from audit.subset.estimate import unit_moments
from audit.subset.frame import select_eligible
from audit.subset.recipe import Recipe
from audit.subset.units import Units, form_units


@dataclass(frozen=True)
class MetricCheck:
    """A prior model's accuracy on S with its full-set interval beside its value on F.

    `equivalent_n`: the simple random sample of files that would be as precise as this design is for
    that model; `n`: the files that the design takes.
    """

    on_subset: MetricEstimate
    on_set: float
    n: int
    equivalent_n: float
    sentence: str

    def document(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(plain_data(asdict(self)))


def metric_check(
    frame: pl.DataFrame, recipe: Recipe, subset: Subset, hit: Floats, confidence: float = 0.95
) -> MetricCheck:
    """Compare accuracy on S and F for a model known on all of F, and price the stratification.

    `hit` is 1 or 0 for each row of the eligible files, in their order.
    """
    files = select_eligible(frame, recipe.deduplicated).files
    units = form_units(files, recipe.strata, recipe.group)
    answers = dict(zip(files["sample_id"].to_list(), hit.tolist(), strict=True))
    design = Design.of(subset.rows)
    on_rows = np.array([answers[i] for i in subset.rows["sample_id"].to_list()])
    estimate = estimate_share(design, on_rows, np.ones(on_rows.size), "full-set", confidence)
    drawn = units.table["unit_id"].is_in(subset.rows["unit_id"].unique().implode()).to_numpy()
    n_h = np.bincount(units.codes[drawn], minlength=len(units.strata))
    equivalent, n = equivalent_n(units, hit, n_h)
    on_set = float(hit.mean())
    verb = "contains" if estimate.low <= on_set <= estimate.high else "misses"
    sentence = (
        f"The earlier model scores {100 * estimate.value:.2f} % on the subset (interval "
        f"{100 * estimate.low:.2f} to {100 * estimate.high:.2f}), which {verb} its "
        f"{100 * on_set:.2f} % on the full set. For it, these {n} files are as precise as a simple "
        f"random sample of n = {equivalent:.0f}."
    )
    return MetricCheck(estimate, on_set, n, equivalent, sentence)


def equivalent_n(units: Units, hit: Floats, n_h: Ints) -> tuple[float, int]:
    """Return (equivalent simple random sample of files, files evaluated) of an allocation n_h.

    Uses the true stratum variances of a model known on all of F: V of the design, and the n at
    which (1 - n/N) S^2 / n is the same.
    """
    unit_of_file = np.arange(hit.size) if units.unit_of_file is None else units.unit_of_file
    y = np.bincount(unit_of_file, hit, len(units.table))
    m = units.sizes.astype(float)
    N = np.bincount(units.codes, minlength=len(units.strata)).astype(float)
    # Residuals y - R m, as in the ratio estimate: unit totals alone would also vary by their sizes.
    whole = unit_moments(y - hit.mean() * m, m, units.codes, N)
    drawn = np.maximum(n_h, 1)
    variance = float((N**2 * (1 - n_h / N) * whole.yy / drawn).sum()) / hit.size**2
    answer_variance = float(hit.var(ddof=1))
    # V = (1/n - 1/N) S^2, solved for n.
    equivalent = float(hit.size)
    if answer_variance > 0:
        equivalent = 1 / (variance / answer_variance + 1 / hit.size)
    files = float((n_h * whole.x).sum()) if units.whole else float(n_h.sum())
    return equivalent, round(files)
