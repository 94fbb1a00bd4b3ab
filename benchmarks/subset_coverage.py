"""Does a 95 % interval hold 95 times in 100, and does planned power arrive? Every cell printed.

Each repetition makes a set F from a population (stratum sizes multinomial, answers Bernoulli, or
beta-binomial within groups), draws a subset S by the plan's own allocation, and scores it with the
functions that `audit subset score` uses. Two targets are checked at once: the share in F (full-set)
and the share in the population (generalisation). The grid is fixed below; no cell is left out.

Passing means, with three Monte-Carlo standard errors allowed: no cell below 94 %; the mean over p
at
most 97 %, over the cells in which at least five answers of the rarer kind are expected (elsewhere
intervals are too wide by intent, and the excess over the ideal width is printed); planned over
printed width within 5 % in those cells; planned power within 3 points of that of the printed
verdict; equal models told apart in at most 6 %; the estimators' mean error within three standard
errors of 0. "Ideal" is Wilson's interval at the *true* effective size. No warning excuses a cell:
the share of repetitions in which `score` would call its interval rough is printed, and the cells in
which it is said in more than half are named. Run it from the project's root:

    python benchmarks/subset_coverage.py            # 10,000 repetitions, minutes
    python benchmarks/subset_coverage.py --quick    # 400 repetitions, to see that it runs
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import betabinom, binom

from audit import stats
from audit.subset import detection, estimate, intervals, precision, sizes
from audit.subset.allocation import model_scale
from audit.subset.apportionment import FIRST_UNITS, allocate

P_GRID = (0.005, 0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98, 0.995)
ENOUGH = 5.0  # answers of the rarer kind, from which on a mean may not be too wide
CONFIDENCE = 0.95
SEED = 20240607
Array = np.ndarray
ALIKE = 0.3  # of the mixed groups
LONG_TAIL = np.array([1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120], float)
KEYS = ("design", "n", "N", "spread", "allocation", "units", "rho", "estimand", "kind")


@dataclass(frozen=True)
class Design:
    """One row of the grid: `shares` of the strata, `spread` of their logits, n units of N."""

    name: str
    shares: tuple[float, ...]
    n: int
    N: int
    spread: float = 0.0
    allocation: str = "proportional"
    size: str = "single"
    rho: float = 0.0


def zipf(count: int) -> tuple[float, ...]:
    weight = 1 / np.arange(1, count + 1)
    return tuple(weight / weight.sum())


def even(count: int) -> tuple[float, ...]:
    return (1 / count,) * count


def designs() -> list[Design]:
    grid = [Design("simple", (1.0,), n, 100_000) for n in (60, 100, 300, 1000)]
    grid += [
        Design("simple finite", (1.0,), int(f * N), N)
        for N in (200, 1000)
        for f in (0.1, 0.25, 0.5, 0.75, 0.9)
    ]
    shapes = {
        "2 strata 95/5": (0.95, 0.05),
        "10 strata even": even(10),
        "10 strata zipf": zipf(10),
        "100 strata zipf": zipf(100),
    }
    for name, shares in shapes.items():
        finite = [(300, 1000)] if len(shares) <= 10 else [(300, 1000), (300, 3000)]
        for n, N in ((60, 20_000), (100, 20_000), (300, 20_000), *finite, (1000, 20_000)):
            if n < 2 * len(shares):
                continue
            for spread in (0.0, 1.5):
                kinds = ("proportional", "neyman", "equal", "elsewhere")
                # Equal shares of a hundred strata would take most of the rarest: left to 10.
                kinds = tuple(k for k in kinds if k != "equal" or len(shares) <= 10)
                kinds = kinds if spread else ("proportional",)
                grid += [Design(name, shares, n, N, spread, kind) for kind in kinds]
    for size in ("5", "1-20"):
        for n, N in ((50, 1000), (50, 5000), (200, 5000), (200, 1000), (200, 500)):
            grid += [
                Design("groups", (1.0,), n, N, 0.0, "proportional", size, rho) for rho in (0.1, 0.5)
            ]
        grid += [Design("few groups", (1.0,), 20, 1000, size=size, rho=rho) for rho in (0.1, 0.5)]
        grid.append(
            Design("groups, 10 strata", zipf(10), 200, 2000, 1.0, "proportional", size, 0.2)
        )
    # Some groups are all right or all wrong, the others mixed as independent files are.
    grid += [Design("mixed groups", (1.0,), n, 20 * n, size="12", rho=0.0) for n in (60, 150, 300)]
    # Most groups are small and a few hold most files, as with patients or web sites.
    for n, N in ((50, 1000), (200, 5000), (400, 5000)):
        grid += [
            Design("very unequal groups", (1.0,), n, N, size="1-120", rho=rho) for rho in (0.1, 0.5)
        ]
    return grid


# ---- making sets and subsets ----


def stratum_shares(design: Design, p: float) -> np.ndarray:
    """Return p_h with spread logits, shifted so that the population's share is exactly p."""
    shares = np.array(design.shares)
    offset = design.spread * np.linspace(-1, 1, shares.size) if shares.size > 1 else np.zeros(1)
    low, high = -30.0, 30.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if shares @ (1 / (1 + np.exp(-(middle + offset)))) < p else (low, middle)
        )
    return 1 / (1 + np.exp(-(low + offset)))


def stratum_sizes(
    design: Design, reps: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Return the sizes drawn for each repetition, those after merging, and who joined whom."""
    drawn = rng.multinomial(design.N, design.shares, reps)
    N, into = drawn.copy(), np.tile(np.arange(len(design.shares)), (reps, 1))
    while (rows := np.flatnonzero((N == 1).any(1))).size:
        lone = (N[rows] == 1).argmax(1)
        others = np.where(N[rows] > 0, N[rows], design.N + 1)
        others[np.arange(rows.size), lone] = design.N + 1
        partner = others.argmin(1)
        N[rows, partner] += 1
        N[rows, lone] = 0
        into[rows] = np.where(into[rows] == lone[:, None], partner[:, None], into[rows])
    return drawn, N, into


def merged(values: Array, into: Array) -> Array:
    """Return per-stratum values added up over the strata that were merged."""
    rows, count = values.shape
    place = (np.arange(rows)[:, None] * count + into).ravel()
    return np.bincount(place, values.ravel(), rows * count).reshape(values.shape)


def allocations(N: Array, scale: Array, n: int) -> Array:
    """Return n_h for each repetition; a stratum without units gets none."""
    return np.full_like(N, n) if N.shape[1] == 1 else allocate_rows(N, scale, n)


def allocate_rows(N: Array, scale: Array, n: int) -> Array:
    """Return `allocate` for each row of N: the threshold bisected, ties added one by one."""
    weight, floor = N * scale, np.minimum(N, FIRST_UNITS)

    def held(threshold: Array) -> Array:
        k = (np.sqrt(1 + 4 * (weight / threshold[:, None]) ** 2) - 1) / 2
        return np.maximum(floor, np.minimum(np.floor(k) + 1, N)).astype(np.int64)

    low, high = np.full(len(N), 1e-9), weight.max(1).astype(float)
    for _ in range(80):
        middle = (low + high) / 2
        enough = held(middle).sum(1) >= n
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    n_h = np.maximum(np.minimum(held(high * (1 + 1e-9)), N), floor)
    while np.any(short := n_h.sum(1) < n):
        k = np.maximum(n_h[short], 1).astype(float)
        priority = np.where(n_h[short] < N[short], weight[short] / np.sqrt(k * (k + 1)), -1)
        n_h[np.flatnonzero(short), priority.argmax(1)] += 1
    return n_h


def draw_single(
    p_h: Array, drawn: Array, N: Array, into: Array, n: Array, rng: np.random.Generator
) -> tuple[estimate.Moments, Array, Array]:
    """Return moments of the drawn files, the share of F and the right answers, for single files."""
    right = merged(rng.binomial(drawn, p_h), into).astype(np.int64)
    y = rng.hypergeometric(right, N - right, n)
    mean = y / np.maximum(n, 1)
    var = n / np.maximum(n - 1, 1) * mean * (1 - mean)
    zero, held = np.zeros(mean.shape), (n > 0).astype(float)
    m = estimate.Moments(n * 1.0, N * 1.0, mean, held, var, zero, zero, held, held)
    return m, right.sum(1) / N.sum(1), y


GROUP_SIZES = {
    "12": (np.array([12]), np.ones(1)),
    "5": (np.array([5]), np.ones(1)),
    "1-20": (np.arange(1, 21), np.ones(20)),
    "1-120": (LONG_TAIL, LONG_TAIL**-1.2),
}


def group_outcomes(size: str, p: float, rho: float) -> tuple[Array, Array, Array]:
    """Return every (files, right answers) that a group can have, and their probabilities."""
    sizes_of, shares = GROUP_SIZES[size]
    a, b = ((1 / rho - 1) * s if rho else math.inf for s in (p, 1 - p))
    each = sizes_of.astype(int) + 1
    m = np.repeat(each - 1, each)
    y = np.concatenate([np.arange(k) for k in each])
    chance = betabinom.pmf(y, m, a, b) if math.isfinite(a) else mixed(y, m, p)
    return m, y, chance * np.repeat(shares / shares.sum(), each)


def mixed(y: Array, m: Array, p: float) -> Array:
    """Return the chances where `ALIKE` of the groups are all right or all wrong, the others not."""
    whole = np.where(y == m, p, np.where(y == 0, 1 - p, 0.0))
    return ALIKE * whole + (1 - ALIKE) * binom.pmf(y, m, p)


def draw_groups(
    design: Design, p_h: Array, N: Array, n: Array, rng: np.random.Generator
) -> tuple[estimate.Moments, Array]:
    """Return moments of the drawn groups and the share of F, for groups taken whole.

    Drawn groups are made one by one, the others of F as counts of each possible outcome.
    """
    parts: list[list[np.ndarray]] = []
    F_right, F_files = np.zeros(len(N)), np.zeros(len(N))
    for h in range(N.shape[1]):
        m, y, chance = group_outcomes(design.size, p_h[h], design.rho)
        which = rng.choice(m.size, (len(N), int(n[:, h].max())), p=chance / chance.sum())
        drawn = np.arange(which.shape[1]) < n[:, [h]]
        parts.append(group_moments(y[which], m[which], drawn, n[:, h]))
        rest = rng.multinomial(N[:, h] - n[:, h], chance / chance.sum())
        F_right += rest @ y + np.where(drawn, y[which], 0).sum(1)
        F_files += rest @ m + np.where(drawn, m[which], 0).sum(1)
    columns = (np.stack(column, 1) for column in zip(*parts, strict=True))
    return estimate.Moments(n.astype(float), N.astype(float), *columns), F_right / F_files


def group_moments(y: Array, m: Array, drawn: Array, n: Array) -> list[Array]:
    mean_y, mean_x = (np.where(drawn, v, 0).sum(1) / n for v in (y, m))
    dy, dx = (np.where(drawn, v - mean[:, None], 0) for v, mean in ((y, mean_y), (m, mean_x)))
    spreads = [v.sum(1) / (n - 1) for v in (dy * dy, dx * dx, dy * dx)]
    powers = [np.where(drawn, m**k, 0).sum(1) / n for k in (3, 4)]
    return [mean_y, mean_x, *spreads, *powers]


# ---- coverage ----


def allocation_scale(design: Design, p_h: Array) -> Array:
    """Return S_h: 1, the spread that an earlier model predicts, or what makes n_h equal."""
    if design.allocation == "neyman":
        guess = 0.8 * p_h + 0.1  # the right order, the wrong values
        return np.sqrt(guess * (1 - guess))
    if design.allocation == "elsewhere":
        # An earlier model that is right wherever this one errs most.
        earlier = np.where(p_h < np.median(p_h), 1.0, p_h)
        return model_scale(earlier)
    return 1 / np.array(design.shares) if design.allocation == "equal" else np.ones(p_h.size)


def coverage_cells(design: Design, p: float, reps: int, rng: np.random.Generator) -> Iterator[dict]:
    p_h = stratum_shares(design, p)
    scale = allocation_scale(design, p_h)
    drawn, N, into = stratum_sizes(design, reps, rng)
    n = allocations(N, scale, design.n)
    counted = None
    if design.size == "single":
        m, in_set, y = draw_single(p_h, drawn, N, into, n, rng)
        counted = y[:, 0] if p_h.size == 1 else None
    else:
        m, in_set = draw_groups(design, p_h, N, n, rng)
    r = estimate.weighted_ratio(m)
    error = np.nan_to_num(r.value) - in_set
    bias = float(error.mean() / max(error.std() / math.sqrt(reps), 1e-12))
    share = np.clip(np.nan_to_num(r.value), 0, 1)
    degrees = estimate.degrees_of_freedom(r, share * (1 - share))[0]
    rough = r.grouped & (degrees < intervals.FEW_DEGREES)
    warned = float(rough.mean()) if counted is None else 0.0
    for estimand in estimate.ESTIMANDS:
        target = in_set if estimand == "full-set" else np.full(reps, p)
        exact = estimand == "full-set" and design.n >= sizes.EXACT_FROM_FRACTION * design.N
        if counted is not None:
            low, high = intervals.counted_interval(counted, n[:, 0], N[:, 0], estimand, CONFIDENCE)
        else:
            low, high, _ = intervals.proportion_interval(r, estimand, CONFIDENCE)
        spread = float(np.square(np.nan_to_num(r.value) - target).mean())
        planned = precision.expected_half_width(
            planned_domain(design, p_h, N[0]), n[0], estimand, CONFIDENCE
        )
        facts = {"bias_in_se": bias, "warned": warned, "ideal": ideal_half_width(p, spread),
                 "planned": planned}  # fmt: skip
        yield cell(design, p, estimand, "exact" if exact else "wilson", low, high, target, facts)


def planned_domain(design: Design, p_h: Array, N: Array) -> precision.Domain:
    """Return the set as a plan sees it that knows the shares and the correlation."""
    if design.size == "single":
        return precision.Domain(N, p_h)
    m, shares = GROUP_SIZES[design.size]
    mean, squares = (float(np.average(m**k, weights=shares)) for k in (1, 2))
    # Of groups of which some are all right or all wrong, the share of those is the correlation.
    rho = design.rho or ALIKE
    v = m * (1 + (m - 1) * rho)
    evenness = float(np.average(v, weights=shares) ** 2 / np.average(v**2, weights=shares))
    whole = squares / mean
    return precision.Domain(N, p_h, mean, 1 + (whole - 1) * rho, whole, evenness)


def ideal_half_width(p: float, spread: float) -> float:
    """Return the half-width of Wilson's interval at p for the size that the true variance means."""
    low, high = stats.wilson_share(p, p * (1 - p) / max(spread, 1e-12), CONFIDENCE)
    return float(high - low) / 2


def cell(
    design: Design,
    p: float,
    estimand: str,
    kind: str,
    low: Array,
    high: Array,
    target: Array,
    facts: dict,
) -> dict:
    held = (low <= target + 1e-12) & (target <= high + 1e-12)
    return {
        "design": design.name,
        "n": design.n,
        "N": design.N,
        "spread": design.spread,
        "allocation": design.allocation,
        "units": design.size,
        "rho": design.rho,
        "p": p,
        "estimand": estimand,
        "kind": kind,
        "coverage": float(held.mean()),
        "half_width": float((high - low).mean() / 2),
        **facts,
    }


def by_row(cells: list[dict]) -> dict[tuple, list[dict]]:
    """Group the cells of one design, estimand and interval: they differ in p."""
    rows: dict[tuple, list[dict]] = {}
    for c in cells:
        rows.setdefault(tuple(c[k] for k in KEYS), []).append(c)
    return rows


def judge_coverage(cells: list[dict], reps: int) -> list[str]:
    """Return what misses its mark, in words."""
    failures: list[str] = []
    for key, row in by_row(cells).items():
        name = " ".join(str(k) for k in key)
        for c in row:
            value = c["coverage"]
            slack = 3 * math.sqrt(max(value * (1 - value), 0.94 * 0.06) / reps)
            if value < 0.94 - slack:
                failures.append(f"{name} p={c['p']}: {100 * value:.1f} % below 94")
        wide = [c for c in row if enough(c)]
        if wide and np.mean([c["coverage"] for c in wide]) > 0.97 + 3 * math.sqrt(0.03 / reps):
            failures.append(f"{name}: {100 * np.mean([c['coverage'] for c in wide]):.1f} % over p")
        for c in wide:
            if abs(c["planned"] / c["half_width"] - 1) > 0.05:
                ratio = c["planned"] / c["half_width"]
                failures.append(f"{name} p={c['p']}: planned over printed width {ratio:.3f}")
        failures += judge_bias(name, row, reps)
    return failures


def enough(c: dict) -> bool:
    """Say whether a cell has as many rarer answers as a mean over p asks for."""
    return bool(c["n"] * min(c["p"], 1 - c["p"]) >= ENOUGH)


def warned_cells(cells: list[dict]) -> list[str]:
    """Return the names of the cells whose interval is called rough more often than not."""
    return [" ".join(str(c[k]) for k in (*KEYS, "p")) for c in cells if c["warned"] > 0.5]


def judge_bias(name: str, row: list[dict], reps: int) -> list[str]:
    # Three standard errors for each of many cells would fail by chance: the row's mean is judged.
    z = np.mean([c["bias_in_se"] for c in row]) * math.sqrt(len(row))
    return [f"{name}: mean error {z:+.1f} standard errors"] if abs(z) > 3.5 else []


def print_coverage(cells: list[dict]) -> None:
    rows = by_row(cells)
    print(
        "coverage, % of repetitions, by p; then mean, min, mean half-width in points, it over "
        "the ideal one (and at most), planned over printed, worst bias/SE, % warned about"
    )
    print(" " * 74 + " ".join(f"{p:5.2f}" for p in P_GRID))
    for key, row in rows.items():
        values = [100 * c["coverage"] for c in row]
        extra = f"{key[4] if key[3] else ''} {key[3] or ''} {key[5]} {key[6] or ''}"
        name = f"{key[0]} n={key[1]} N={key[2]} {extra} {key[7][:4]} {key[8]}"
        width = 100 * np.mean([c["half_width"] for c in row])
        bias = max((c["bias_in_se"] for c in row), key=abs)
        over = [c["half_width"] / c["ideal"] for c in row]
        planned = np.mean([c["planned"] / max(c["half_width"], 1e-9) for c in row if enough(c)])
        warned = 100 * np.mean([c["warned"] for c in row])
        print(
            f"{name:73s} "
            + " ".join(f"{v:5.1f}" for v in values)
            + f" | {np.mean(values):5.2f} {min(values):5.1f} {width:5.2f} {np.mean(over):4.2f} "
            f"{max(over):4.2f} {planned:5.3f} {bias:+.1f} {warned:3.0f}"
        )


# ---- power ----

PAIRED_GRID = tuple(
    (d, psi)
    for psi in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
    for d in (0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
    if d <= 0.9 * psi
)
POWERS = (0.8, 0.9)


WEIGHTED = {
    "one stratum": ((100_000,), (1.0,)),
    "nearly equal weights": ((59_991, 39_977), (1.0, 1.0)),
    "two equal shares of 95/5": ((95_000, 5_000), (1.0, 19.0)),
    "ten strata, weights 1 to 4": ((40_000, 20_000, 10_000, 5_000, 2_500) * 2, (1, 1, 2, 3, 4) * 2),
}


def power_cells(reps: int, rng: np.random.Generator) -> list[dict]:
    """Return planned and reached power: how often the printed interval leaves out no difference."""
    cells = []
    for power in POWERS:
        for d, psi in PAIRED_GRID:
            need, _ = detection.paired_n(d, psi, power=power)
            for name, (sizes_of, scale) in WEIGHTED.items():
                N = np.array(sizes_of)
                n_h = planned_units(N, np.array(scale), need)
                if n_h.sum() >= 0.9 * N.sum():
                    continue
                reached = verdict_power(N, n_h, d, psi, reps, rng)
                cells.append(power_cell(name, psi, d, int(n_h.sum()), power, reached))
    return cells


def planned_units(N: Array, scale: Array, need: float) -> Array:
    """Return n_h of the smallest subset that is worth `need` independent examples."""
    domain = precision.Domain(N, np.full(N.size, 0.5))

    def meets(n: int) -> bool:
        n_h = allocate(N, scale, n)
        return precision.effective_files(domain, n_h, "generalisation") >= need - 1e-9

    return allocate(N, scale, sizes.smallest(meets, FIRST_UNITS * N.size, int(N.sum())))


def verdict_power(
    N: Array, n_h: Array, d: float, psi: float, reps: int, rng: np.random.Generator
) -> float:
    """Return how often the interval of a true difference `d` lies above 0."""
    up, down = (psi + d) / 2, (psi - d) / 2
    gained = rng.binomial(n_h, up, (reps, N.size))
    lost = rng.binomial(n_h - gained, down / (1 - up))
    low, _ = difference_limits(gained, lost, np.tile(n_h, (reps, 1)), np.tile(N, (reps, 1)))
    return float((low > 0).mean())


def difference_limits(gained: Array, lost: Array, n: Array, N: Array) -> tuple[Array, Array]:
    """Return the interval of a difference from counts per stratum."""
    one, zero = (n > 0).astype(float), np.zeros(N.shape)
    change, either = ((gained + sign * lost) / np.maximum(n, 1) for sign in (-1, 1))
    spread = n / np.maximum(n - 1, 1)
    found = [
        estimate.weighted_ratio(
            estimate.Moments(
                n * 1.0, N * 1.0, v, one, spread * (either - v**2), zero, zero, one, one
            )
        )
        for v in (change, either)
    ]
    low, high, _ = intervals.difference_interval(*found, "generalisation", CONFIDENCE)
    return low, high


def power_cell(design: str, base: float, d: float, n: int, planned: float, reached: float) -> dict:
    return {"design": design, "base": base, "d": d, "n": n, "planned": planned, "reached": reached}


def judge_power(cells: list[dict], reps: int) -> list[str]:
    failures = []
    for c in cells:
        slack = 3 * math.sqrt(c["reached"] * (1 - c["reached"]) / reps)
        if abs(c["reached"] - c["planned"]) > 0.03 + slack:
            failures.append(
                f"{c['design']} base={c['base']} d={c['d']} n={c['n']}: planned {c['planned']}, "
                f"reached {c['reached']:.4f}"
            )
    return failures


def print_power(cells: list[dict]) -> None:
    print("\nplanned and reached power (base: discordant share)")
    for c in cells:
        print(
            f"{c['design']:27s} base={c['base']:<5} d={c['d']:<5} n={c['n']:<7d} "
            f"planned {c['planned']:.2f} reached {c['reached']:.4f}"
        )


# ---- verdicts: how often a difference that is not there is told ----


def verdict_cells(reps: int, rng: np.random.Generator) -> list[dict]:
    """Return the share of repetitions in which equal models are told apart, by design."""
    cells = []
    for design in designs():
        if design.size == "single" and design.n >= 100:
            cells += [verdict_cell(design, psi, reps, rng) for psi in (0.05, 0.2)]
        elif design.rho and len(design.shares) == 1:
            cells += [group_verdict_cell(design, psi, reps, rng) for psi in (0.05, 0.2)]
    return cells


def group_verdict_cell(design: Design, psi: float, reps: int, rng: np.random.Generator) -> dict:
    """Equal models that differ by group: most of a group's disagreements favour the same one."""
    sizes_of, shares = GROUP_SIZES[design.size]
    m = rng.choice(sizes_of.astype(int), (reps, design.n), p=shares / shares.sum())
    ours = rng.beta(*[(1 / design.rho - 1) / 2] * 2, m.shape)
    differ = rng.binomial(m, np.minimum(2 * psi * rng.uniform(size=m.shape), 1))
    b = rng.binomial(differ, ours)
    n, N = np.full((reps, 1), design.n), np.full((reps, 1), design.N)
    every = np.ones(m.shape, bool)
    found = []
    for y in (2 * b - differ, differ):
        parts = (v[:, None] for v in group_moments(y, m, every, n[:, 0]))
        found.append(estimate.weighted_ratio(estimate.Moments(n * 1.0, N * 1.0, *parts)))
    low, high, _ = intervals.difference_interval(*found, "generalisation", CONFIDENCE)
    told = float(((low > 0) | (high < 0)).mean())
    name = f"{design.name} {design.size} rho={design.rho}"
    return {"design": name, "n": design.n, "N": design.N, "allocation": "-", "spread": 0.0,
            "psi": psi, "told_apart": told}  # fmt: skip


def verdict_cell(design: Design, psi: float, reps: int, rng: np.random.Generator) -> dict:
    shares = np.array(design.shares)
    H = shares.size
    # The models differ by stratum, in opposite directions, and not at all over the population.
    tilt = np.linspace(-1, 1, H) * 0.6 * psi if H > 1 else np.zeros(1)
    tilt -= shares @ tilt
    up, down = np.clip((psi + tilt) / 2, 0, 1), np.clip((psi - tilt) / 2, 0, 1)
    up, down = up, down + shares @ (up - down)
    scale = allocation_scale(design, np.linspace(0.1, 0.5, H))
    drawn, N, into = stratum_sizes(design, reps, rng)
    n = allocations(N, scale, design.n)
    all_up = rng.binomial(drawn, up)
    all_down = rng.binomial(drawn - all_up, np.clip(down / (1 - up), 0, 1))
    all_up, all_down = (merged(v, into).astype(np.int64) for v in (all_up, all_down))
    b = rng.hypergeometric(all_up, N - all_up, n)
    c = rng.hypergeometric(all_down, N - all_up - all_down, n - b)
    low, high = difference_limits(b, c, n, N)
    told = float(((low > 0) | (high < 0)).mean())
    return {"design": design.name, "n": design.n, "N": design.N, "allocation": design.allocation,
            "spread": design.spread, "psi": psi, "told_apart": told}  # fmt: skip


def judge_verdicts(cells: list[dict], reps: int) -> list[str]:
    limit = 0.05 + 0.01 + 3 * math.sqrt(0.05 * 0.95 / reps)
    return [
        f"verdict {c['design']} n={c['n']} N={c['N']} psi={c['psi']}: equal models told apart in "
        f"{c['told_apart']:.4f}"
        for c in cells
        if c["told_apart"] > limit
    ]


def print_verdicts(cells: list[dict]) -> None:
    print("\nequal models told apart (nominal 0.05; generalisation, design-based interval)")
    for c in cells:
        print(
            f"{c['design']:32s} n={c['n']:<5d} N={c['N']:<6d} spread={c['spread']} "
            f"{c['allocation']} psi={c['psi']}: {c['told_apart']:.4f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="400 repetitions, every third design")
    quick = parser.parse_args().quick
    reps = 400 if quick else 10_000
    rng, started = np.random.default_rng(SEED), time.perf_counter()
    grid = designs()[::3] if quick else designs()
    cells = [c for d in grid for p in P_GRID for c in coverage_cells(d, p, reps, rng)]
    power, verdicts = power_cells(reps, rng), verdict_cells(reps, rng)
    print_coverage(cells)
    print_power(power)
    print_verdicts(verdicts)
    failures = [
        *judge_coverage(cells, reps), *judge_power(power, reps), *judge_verdicts(verdicts, reps)
    ]  # fmt: skip
    warned = warned_cells(cells)
    print("\ncalled rough, in words:\n" + "\n".join(warned or ["none"]))
    print("\nfailures:\n" + "\n".join(failures or ["none: every row holds"]))
    wilson = [r for k, r in by_row(cells).items() if k[-1] == "wilson"]
    means = [float(np.mean([c["coverage"] for c in row])) for row in wilson]
    summary = {
        "benchmark": "subset_coverage", "repetitions": reps, "cells": len(cells),
        "wilson_mean_low": min(means), "wilson_mean_high": max(means),
        "wilson_cell_low": min(c["coverage"] for row in wilson for c in row),
        "exact_cell_low": min(c["coverage"] for c in cells if c["kind"] == "exact"),
        "power_worst": max(abs(c["reached"] - c["planned"]) for c in power),
        "told_apart_worst": max(c["told_apart"] for c in verdicts),
        "failures": len(failures), "warned": len(warned),
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip
    print(json.dumps(summary))
    return 1 if failures and not quick else 0


if __name__ == "__main__":
    sys.exit(main())
