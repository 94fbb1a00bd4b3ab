"""DIST004: properties of the file or of the light that give the class away.

Every property is tested against every class by AUC, with controlled false discoveries. An effect
must also be large, because any difference is significant among enough pictures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.checking.check import Check, asked
from audit.checking.properties import (
    BACKED_BY,
    MEASURED_COLUMNS,
    PLACE,
    Floats,
    PropertyTable,
    property_table,
)
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.association import auc_limits, class_effects, level_p_values, two_sided
from audit.statistics.intervals import benjamini_hochberg, wilson


class Separation(NamedTuple):
    """How one property separates one class from the rest in one split, or in all (split -1)."""

    label: int
    prop: int
    split: int
    auc: float
    low: float
    high: float
    n: int
    rest: int
    p: float

    @property
    def strength(self) -> float:
        """The AUC in the direction in which the property works, 0.5 to 1."""
        return max(self.auc, 1 - self.auc)


SHOWN = 12  # pictures of a class that show its mark


class Shortcut(Check):
    """Classes that a single property of file, name or lighting separates from all other classes.

    ## What it does
    Tests each class of at least `min_units` images against all other images, one property at a
    time: brightness, contrast, blur, noise, border, aspect ratio, colour cast, a frame of one
    colour, size, format, mode, JPEG quality and subsampling, colour profile, EXIF camera and
    orientation, words of file names, and manifest columns. Also tests for a mark (stamp, logo,
    date) at a fixed position near the edge: the mean fine detail of some images of the class is
    searched for in the rest. The effect is the AUC: the share of pairs (an image of the class,
    another image) that the property puts in one order. A class is reported if the effect is
    significant (false discovery rate `rate` over all properties, classes and splits) and the 95%
    limits of the AUC are above `min_auc` (file properties), `min_auc_light` (lighting, which also
    depends on the subject), `min_auc_cast` (colour cast) or `min_auc_mark` (frames and marks).
    Brightness, contrast and colour cast count only if the border agrees with an AUC of `min_auc`:
    ink is the subject of a written digit. Blur and noise count only if they agree, because outlines
    change only one of them; both are unknown without texture. Copies and images of one manifest
    group count once. The finding is an error if a shortcut holds in a training split and is less
    than half as strong in an evaluation split, or the reverse.

    ## Why is this bad
    A model learns whatever separates the classes most easily. If that is the lighting or the JPEG
    quality, the model scores well here and fails on other data.

    ## Example
    Images of flowers are brighter than all others (AUC 0.99): all come from one session.

    ## What to do
    Find the source of the images. Collect images of the class under other conditions, or of other
    classes under the same conditions. Remove the property if it has no meaning (re-encode, crop,
    normalise). Test on images without the shortcut.

    ## Limits
    Some shortcuts are content: night scenes are dark. Colours other than a colour cast are not
    tested, because bananas are yellow. Of rotated images only the aspect ratio is tested. A mark
    needs 10 images of its class, a fixed position, and an edge region that is not plain. Moving
    marks are not detected, nor marks that cover the whole image, which look like a subject at a
    fixed position. Columns and words that name the class (code, synonym, finer or coarser class)
    are not tested; the completeness line lists them. A shortcut is detected if about half of the
    images of a class have it.

    ## References
    Geirhos et al., Shortcut learning in deep neural networks, Nature Machine Intelligence 2, 2020.
    Van Elteren (1960), stratified rank tests. Hanley and McNeil (1982), Radiology 143:29. Benjamini
    and Hochberg (1995), JRSS B 57:289."""

    code = "DIST004"
    name = "shortcut"
    severity = Severity.WARNING
    features = MEASURED_COLUMNS

    @dataclass(frozen=True)
    class Params:
        """rate: false discovery rate over all tests, 0..1
        min_auc: smallest AUC of file properties: 0.75 is half of the class, 0.5..1
        min_auc_light: smallest AUC of light, blur, border, aspect: 1.5 deviations apart, 0.5..1
        min_auc_cast: smallest AUC of a colour cast: classes of CIFAR-10 have up to 0.8, 0.5..1
        min_auc_mark: smallest AUC of a frame or mark: 0.6 is a fifth of the class, 0.5..1
        min_units: smallest number of images of a class, and of the rest (copies count once)
        train_splits: names of the splits that models are trained on
        """

        rate: float = 0.01
        min_auc: float = 0.75
        min_auc_light: float = 0.85
        min_auc_cast: float = 0.8
        min_auc_mark: float = 0.6
        min_units: int = 10
        train_splits: tuple[str, ...] = ("train", "training")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        table = store.share(property_table).of_kind("nuisance", "mark", "light", "witness")
        table = table.rows(table.label >= 0).by_unit()
        found: dict[int, list[Separation]] = defaultdict(list)
        for separation in _separations(table, params):
            found[separation.label].append(separation)
        if len(table.labels) == 2:  # what separates one separates the other: said once
            sizes = np.bincount(table.label, minlength=2)
            found = dict(sorted(found.items(), key=lambda item: int(sizes[item[0]]))[:1])
        for label, separations in sorted(found.items()):
            yield self._finding(table, label, separations, params)

    def _finding(
        self, table: PropertyTable, label: int, found: Sequence[Separation], params: Params
    ) -> Finding:
        best: dict[str, Separation] = {}
        for one in sorted(found, key=lambda s: (s.split >= 0, -s.strength)):
            best.setdefault(table.properties[one.prop].source, one)
        ranked = sorted(best.values(), key=lambda s: -s.strength)
        first, name = ranked[0], table.labels[label]
        evidence: dict[str, float | int | str] = {
            "class": name, "property": table.properties[first.prop].name,
            "properties": ", ".join(table.properties[s.prop].name for s in ranked),
            "auc": first.auc, "auc_low": first.low, "auc_high": first.high,
            "pictures": first.n, "others": first.rest, "p": first.p,
        }  # fmt: skip
        by_split = _by_split(table, first, params)
        evidence |= {f"auc in {table.splits[s.split]}": s.auc for s in by_split}
        differs = _differs(table, by_split, params)
        more = ", ".join(table.properties[s.prop].name for s in ranked[1:5])
        text = f"One property separates class {name} from all others: {_wording(table, first)}"
        text += f"; also by {more}" if more else ""
        if differs:
            where = ", ".join(f"{s.auc:.2f} in {table.splits[s.split]}" for s in by_split)
            text += f"; it differs between splits (AUC {where}), so it can mislead the evaluation"
        return self.finding(
            f"class:{name}",
            f"{text}.",
            evidence,
            _shown(table, first),
            severity=Severity.ERROR if differs else self.severity,
        )

    def completeness(self, store: Store, params: Params) -> str:
        sql = """
            SELECT count(*) FILTER (WHERE n >= $min_units) AS tested, count(*) AS classes FROM (
                SELECT count(DISTINCT coalesce(nullif(trim(i.group_key), ''), p.unit)) AS n
                FROM images i JOIN pictures p USING (id)
                WHERE i.status = 'ok' AND trim(coalesce(i.label, '')) <> '' GROUP BY i.label)
        """
        tested, classes = asked(store, sql, params).row(0)
        if tested < 1 or classes < 2:
            return (
                f"Shortcuts were not tested: {tested:,} of {classes:,} classes have "
                f"{params.min_units} images or more."
            )
        left_out = store.share(property_table).left_out
        names = f"; left out because they name the class: {', '.join(left_out)}" if left_out else ""
        return (
            f"{tested:,} of {classes:,} classes had {params.min_units} images or more and were "
            f"tested{names}."
        )


def _shown(table: PropertyTable, one: Separation) -> list[str]:
    if table.properties[one.prop].kind != "mark":
        return []
    values = np.nan_to_num(table.values[:, one.prop], nan=-np.inf)
    rows = np.flatnonzero((table.label == one.label) & (values > 0))
    order = rows[np.argsort(-values[rows], kind="stable")]
    return sorted(str(sample) for sample in table.ids[order[:SHOWN]])


def _wording(table: PropertyTable, one: Separation) -> str:
    prop = table.properties[one.prop]
    where = f" in {table.splits[one.split]}" if one.split >= 0 else ""
    if prop.level:
        inside = table.label == one.label
        rows = table.split == one.split if one.split >= 0 else np.ones(len(inside), bool)
        share = table.values[inside & rows, one.prop].mean()
        others = table.values[~inside & rows, one.prop].mean()
        return f"{prop.name}{where}: {share:.0%} of its {one.n:,} images, {others:.0%} of others"
    side = "higher" if one.auc > 0.5 else "lower"
    low, high = sorted((max(x, 1 - x) if one.auc > 0.5 else 1 - x) for x in (one.low, one.high))
    return (
        f"{prop.name}{where} is {side} (AUC {one.strength:.2f}, 95% CI {low:.2f} to {high:.2f}, "
        f"{one.n:,} images)"
    )


def _separations(table: PropertyTable, params: Shortcut.Params) -> list[Separation]:
    """Return what is surely there and large, over all splits together and within each."""
    scopes = [-1, *(s for s in np.unique(table.split).tolist() if s >= 0)]
    scopes = scopes if len(scopes) > 2 else scopes[:1]
    found: list[Separation] = []
    tests = 0
    for scope in scopes:
        rows = table if scope < 0 else table.rows(table.split == scope)
        large, n_tests = _large(rows, scope, params)
        found += large
        tests += n_tests
    # What is not large counts as a test with p = 1, which only makes the rest harder to pass.
    p_values = np.ones(max(tests, len(found)))
    p_values[: len(found)] = [one.p for one in found]
    adjusted = benjamini_hochberg(p_values)[: len(found)]
    pairs = zip(found, adjusted.tolist(), strict=True)
    return [one._replace(p=p) for one, p in pairs if p <= params.rate]


def _large(
    table: PropertyTable, scope: int, params: Shortcut.Params
) -> tuple[list[Separation], int]:
    """Return the separations whose AUC is large, with p-values not yet adjusted, and the tests."""
    effects = class_effects(table.values, table.label, table.split, len(table.labels))
    enough = np.minimum(effects.n, effects.rest) >= params.min_units
    limits = {"light": params.min_auc_light, "mark": params.min_auc_mark, "witness": np.inf}
    limits |= dict.fromkeys(PLACE, params.min_auc_cast)
    limit = np.array(
        [limits.get(p.name, limits.get(p.kind, params.min_auc)) for p in table.properties]
    )
    low, high = auc_limits(effects.auc, effects.n[:, None], effects.rest[:, None])
    for prop in (i for i, p in enumerate(table.properties) if p.kind == "mark" and p.level):
        low[:, prop], high[:, prop] = _share_limits(table, prop, effects.auc[:, prop])
    surely = np.maximum(low, 1 - high)
    large = enough[:, None] & (surely >= limit) & _meant(table, effects.auc, params)
    found = []
    for (label, prop), p in zip(
        np.argwhere(large).tolist(), two_sided(effects.z[large]).tolist(), strict=True
    ):
        if table.properties[prop].level:
            p = max(p, _exact(table, label, prop))
        found.append(
            Separation(
                label, prop, scope, float(effects.auc[label, prop]), float(low[label, prop]),
                float(high[label, prop]), int(effects.n[label]), int(effects.rest[label]), p,
            )
        )  # fmt: skip
    return found, int(enough.sum()) * int(np.isfinite(limit).sum())


def _share_limits(table: PropertyTable, prop: int, auc: Floats) -> tuple[Floats, Floats]:
    """Return the limits of the AUC (k,) of a 0/1 property.

    Source: Newcombe (1998), Statistics in Medicine 17:873, method 10.
    """
    classes = len(table.labels)
    n = np.bincount(table.label, minlength=classes)
    has = np.bincount(table.label, table.values[:, prop], classes)
    rest, others = len(table.label) - n, has.sum() - has
    below, above = wilson(has, np.maximum(n, 1))
    below_rest, above_rest = wilson(others, np.maximum(rest, 1))
    share, share_rest = has / np.maximum(n, 1), others / np.maximum(rest, 1)
    down = np.hypot(share - below, above_rest - share_rest)
    up = np.hypot(above - share, share_rest - below_rest)
    return auc - down / 2, auc + up / 2


def _meant(table: PropertyTable, auc: Floats, params: Shortcut.Params) -> NDArray[np.bool_]:
    """Say of classes (k) and properties (p) which may be a shortcut: not what the subject is."""
    names = [p.name for p in table.properties]
    meant = np.ones(auc.shape, bool)
    for at, prop in enumerate(table.properties):
        if prop.of is not None:
            meant[:, at] = (np.array(table.labels) == prop.of) & (auc[:, at] > 0.5)
        elif other := BACKED_BY.get(prop.name):
            side = auc[:, names.index(other)] - 0.5 if other in names else np.zeros(len(auc))
            same = np.sign(side) == np.sign(auc[:, at] - 0.5)
            meant[:, at] = same & (np.abs(side) >= params.min_auc - 0.5)
    return meant


def _exact(table: PropertyTable, label: int, prop: int) -> float:
    inside, has = table.label == label, np.nan_to_num(table.values[:, prop])
    counts = [np.array([float(x)]) for x in (has[inside].sum(), inside.sum(), has.sum(), len(has))]
    return float(level_p_values(*counts)[0])


def _by_split(table: PropertyTable, one: Separation, params: Shortcut.Params) -> list[Separation]:
    found = []
    for split in np.unique(table.split[table.split >= 0]).tolist():
        rows = table.rows(table.split == split)
        values: Floats = rows.values[:, [one.prop]]
        effects = class_effects(values, rows.label, rows.split, len(table.labels))
        n, rest = effects.n[one.label], effects.rest[one.label]
        if min(n, rest) >= params.min_units:
            auc = effects.auc[one.label, 0]
            low, high = auc_limits(auc, n, rest)
            found.append(
                one._replace(split=split, auc=float(auc), low=float(low), high=float(high))
            )
    return found


def _differs(table: PropertyTable, by_split: Sequence[Separation], params: Shortcut.Params) -> bool:
    """Say whether a training or an evaluation split has surely not half of the effect."""
    trained = [s for s in by_split if table.splits[s.split] in params.train_splits]
    others = [s for s in by_split if table.splits[s.split] not in params.train_splits]
    pairs = [(a, b) for a in trained for b in others]
    return any(_is_lost(a, b) or _is_lost(b, a) for a, b in pairs)


def _is_lost(there: Separation, here: Separation) -> bool:
    up = 1 if there.auc > 0.5 else -1
    has = min(up * (there.low - 0.5), up * (there.high - 0.5))
    most = max(up * (here.low - 0.5), up * (here.high - 0.5))
    return has > 0 and most < has / 2
