"""The eligible set in numbers: one line for each stratum and class, and the planning values.

The rows are touched a constant number of times (group-bys, in `read_population`); sizes, widths and
powers are then arithmetic on those lines. A metric's *domains* are the parts of F that it is a
share of: all examples for accuracy and for the mean over classes, one class for its recall, all
others for its specificity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.stats import Floats, Ints
from audit.subset.frame import EligibleSet, select_eligible
from audit.subset.goal import Goal
from audit.subset.precision import Domain
from audit.subset.prior import Prior, read_prior
from audit.subset.strata import Strata, cut_points, merged_names, quantile_edges
from audit.subset.units import Units, form_units

MEAN = "mean over classes"
SHOWN = 8
CONFIDENCE_COLUMN = "confidence"
# Fifths: an earlier model's mistakes are among its least confident answers, where cuts pay most.
CONFIDENCE_SHARES = (0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True)
class Population:
    """Counts of units and files by stratum and class, with planning values for the metric.

    `N`, `M`: units and files per stratum; `cells`: stratum (code), label, units, and the sums of
    the powers 1 to 4 of the unit sizes; `p`: planning share per stratum; `rho`: correlation of two
    files of a unit; `discordant`: share on which exactly one of two models is right. `reasons`
    collects a sentence for every choice that the caller did not make.
    """

    eligible: EligibleSet
    files: pl.DataFrame
    units: Units
    prior: Prior
    reasons: list[str]
    N: Ints
    M: Ints
    stratum_labels: list[str]
    cells: pl.DataFrame
    p: Floats
    rho: float
    discordant: float
    stated_share: float | None

    @property
    def total(self) -> int:
        """Units in F."""
        return int(self.N.sum())

    @property
    def labels(self) -> list[str]:
        """The classes, sorted."""
        return self.cells["label"].unique().sort().to_list()

    @property
    def planning_share(self) -> float:
        """The planning value for all files."""
        return float(self.p @ self.M / self.M.sum())

    def domain(self, mask: pl.Series | None = None, label: str | None = None) -> Domain:
        """Return all of F, or the cells picked by a mask, as a domain; `label` if it is a class."""
        cells = self.cells if mask is None else self.cells.filter(mask)
        code = cells["stratum"].to_numpy()
        m, squares = int(cells["files"].sum()), int(cells["squares"].sum())
        N = np.bincount(code, cells["units"].to_numpy(), len(self.N)).astype(np.int64)
        units = int(N.sum())
        # Kish (1965), section 5.4, with the size-weighted mean size in place of m, as in Eldridge,
        # Ashby and Kerry (2006), Int J Epidemiol 35:1292.
        effect = 1.0 + (squares / m - 1.0) * self.rho
        # Effective number of units (Carter, Schnepel and Steigerwald 2017): (sum v)^2 / sum v^2
        # with v = m (1 + (m - 1) rho), the variance of a unit of m files, within each stratum.
        sums = [
            np.bincount(code, cells[c].to_numpy(), len(self.N)).astype(float)
            for c in ("files", "squares", "cubes", "fourths")
        ]
        alone, rho = 1 - self.rho, self.rho
        v = alone * sums[0] + rho * sums[1]
        v_squares = alone**2 * sums[1] + 2 * rho * alone * sums[2] + rho**2 * sums[3]
        count = np.maximum(N, 1)
        evenness = np.divide(v**2, v_squares * count, out=np.ones(v.shape), where=v_squares > 0)
        spread = v / count / (effect * m / units)
        p = self.p if label is None else np.full(len(self.N), self.class_share(label))
        return Domain(N, p, m / units, effect, squares / m, np.minimum(evenness, 1.0), spread)

    def class_share(self, label: str) -> float:
        """Return the planning value for the recall of one class."""
        return self.prior.class_share(label, self.stated_share)

    def class_domain(self, label: str) -> Domain:
        """Return one class as a domain."""
        return self.domain(self.cells["label"] == label, label)

    def mean_domain(self) -> Domain:
        """Return F for a mean over its classes: every class weighs the same, whatever its size."""
        label = np.array(self.stratum_labels)
        share, centre = np.zeros(len(self.N)), np.zeros(len(self.N))
        for one in np.unique(label):
            own = label == one
            files = self.M[own].sum()
            share[own] = self.M[own] / files / np.unique(label).size
            centre[own] = self.p[own] @ self.M[own] / files
        return replace(self.domain(), share=share, centre=centre)

    def domains(self, metric: str, label: str | None) -> list[tuple[str, Domain]]:
        """Return what a metric is about: all of F, each class, or one class or its rest."""
        labels = self.labels
        if label is not None and label not in labels:
            raise UsageError(
                f"There is no class {label!r} in the eligible set: {listed(labels)} are there."
            )
        if metric == "macro-recall":
            return [(MEAN, self.mean_domain())]
        if metric == "recall":
            return [(c, self.class_domain(c)) for c in (labels if label is None else [label])]
        if metric == "specificity":
            if len(labels) == 1:
                raise UsageError("Specificity needs a second class, and the set has one.")
            return [(f"not {label}", self.domain(self.cells["label"] != label))]
        return [("all", self.domain())]

    def expected_units(self, domain: Domain, n: Ints) -> Floats:
        """Return the units of a domain expected among n_h drawn from each stratum."""
        return np.asarray(n * domain.N / self.N, float)


def read_population(
    frame: pl.DataFrame,
    goal: Goal,
    by: Sequence[str],
    group: str | None,
    deduplicated: bool,
    predictions: Sequence[pl.DataFrame],
    by_label: bool = True,
) -> tuple[Population, Strata]:
    """Return the eligible set of `frame` as a `Population`, and the strata it uses."""
    goal.check()
    eligible = select_eligible(frame, deduplicated, [*by, *([group] if group else [])])
    files, prior, reasons = read_prior(eligible.files, predictions, CONFIDENCE_COLUMN in by)
    if deduplicated:
        reasons.append(
            "Deduplicated: every distinct picture counts once, so the target is the metric over "
            "distinct pictures, not over the files of the set."
        )
    strata = Strata(tuple(by), _edges(files, by), label=by_label)
    units = form_units(files, strata, group)
    units, strata = merge_small_strata(files, units, strata, group, None, reasons)
    return count_population(eligible, files, units, prior, reasons, goal), strata


def count_population(
    eligible: EligibleSet,
    files: pl.DataFrame,
    units: Units,
    prior: Prior,
    reasons: list[str],
    goal: Goal,
) -> Population:
    """Count units and files by stratum and class, and choose the planning values."""
    cells = _cells(units)
    count = len(units.strata)
    code = cells["stratum"].to_numpy()
    N = np.bincount(code, cells["units"].to_numpy(), count).astype(np.int64)
    M = np.bincount(code, cells["files"].to_numpy(), count).astype(np.int64)
    major = cells.sort("stratum", "units", "label", descending=[False, True, False])
    labels = major.unique("stratum", keep="first").sort("stratum")["label"].to_list()
    p, share_reason = prior.stratum_shares(units, goal.planning_value)
    rho, rho_reason = prior.correlation(units, goal.rho)
    psi, psi_reason = prior.discordant(goal.discordant, goal.detect or 0.0, float(p @ M / M.sum()))
    for reason in (share_reason, rho_reason, psi_reason):
        if reason and reason not in reasons:
            reasons.append(reason)
    return Population(
        eligible, files, units, prior, reasons, N, M, labels, cells, p, rho, psi,
        goal.planning_value,
    )  # fmt: skip


def _cells(units: Units) -> pl.DataFrame:
    # Powers of the sizes are what design effects and degrees of freedom need of the rows.
    size = pl.col("size")
    return (
        units.table.group_by(pl.col("stratum").to_physical(), "label")
        .agg(
            units=pl.len().cast(pl.Int64),
            files=size.sum(),
            squares=(size**2).sum(),
            cubes=(size.cast(pl.Float64) ** 3).sum(),
            fourths=(size.cast(pl.Float64) ** 4).sum(),
        )
        .sort("stratum", "label")
    )


def _edges(files: pl.DataFrame, by: Sequence[str]) -> dict[str, tuple[float, ...]]:
    edges = cut_points(files, by)
    if CONFIDENCE_COLUMN in edges:
        edges[CONFIDENCE_COLUMN] = quantile_edges(files[CONFIDENCE_COLUMN], CONFIDENCE_SHARES)
    return edges


def merge_small_strata(
    files: pl.DataFrame,
    units: Units,
    strata: Strata,
    group: str | None,
    at_most: int | None,
    reasons: list[str],
) -> tuple[Units, Strata]:
    """Return units and strata with strata of one unit merged, or merged to `at_most` strata."""
    if at_most is not None and at_most < 1:
        raise UsageError("A subset needs at least 2 units, one stratum of two: ask for more.")
    counts = (
        units.table.group_by("stratum")
        .agg(pl.len().alias("units"), pl.col("label").mode().sort().first())
        .sort("stratum")
    )
    names = counts["stratum"].cast(pl.String).to_list()
    merged = merged_names(names, counts["units"].to_list(), counts["label"].to_list(), at_most)
    if not merged:
        return units, strata
    why = "one unit each" if at_most is None else f"more than {at_most} for this n"
    reasons.append(
        f"{len(merged)} strata were merged into {len(set(merged.values()))} ({why}; an interval "
        f"needs two units in every stratum): {listed(sorted(merged))}."
    )
    # A stratum merged before may be merged again: its old name must lead to the last one.
    earlier = {old: merged.get(new, new) for old, new in strata.merged.items()}
    strata = replace(strata, merged={**merged, **earlier})
    return form_units(files, strata, group), strata


def listed(names: Sequence[str]) -> str:
    """Return names joined by commas, the rest counted: `a, b and 3 more`."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
