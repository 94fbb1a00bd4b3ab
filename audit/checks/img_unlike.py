"""IMG009: pictures that look like no other picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check, asked
from audit.checking.label_facts import LabelFacts, read_label_facts
from audit.checking.properties import LIGHT, LOOK
from audit.records import Finding, Severity
from audit.run.store import Store

LOOKS = {**LIGHT, **LOOK}
DEVIATION = 1.4826  # of a normal distribution: one deviation is so many median distances
ODD: Mapping[str, Any] = {
    "sample_id": "x.jpg", "compared_with": None, "n": 60, "chance": 0.0001, "distance": 9.0,
    "rest": 4.0, "typical": 2.0,
}  # fmt: skip
NEAR = [{"sample_id": "x.jpg", "position": 0, "neighbour_id": "0000.jpg", "similarity": 0.1}]


def _tables(**odd: Any) -> Mapping[str, Any]:
    facts = LabelFacts("built-in vectors", compared=60, least_compared=50)
    tables = {"vector_outliers": [{**ODD, **odd}], "vector_neighbours": NEAR}
    return {**tables, "label_facts": facts.rows()}


class UnlikeAllOthers(Check):
    """Pictures whose vectors lie far from those of all other pictures.

    ## What it does
    Every scan gives each picture a vector (built in, or the user's own) and asks how far its tenth
    nearest neighbour is, near-duplicates left out. The largest distances are compared with the
    spacings of those below them, in the whole dataset and in each class of 50 pictures and more: a
    picture is reported, alone or with up to 7 others, if a dataset without outliers would show such
    a gap anywhere with a chance of at most `rate`. The finding names the nearest pictures and the
    measured properties in which it differs most from those it was compared with.

    ## Why is this bad
    What looks like nothing else is often no example of its class: a screenshot, a page of text, a
    drawing among photographs, a picture of another dataset.

    ## Example
    A page of text among 600 photographs: its tenth nearest is 2.3 times as far as is typical.

    ## What to do
    Look at it beside its nearest pictures. Keep it if it is only rare; relabel or drop it if it
    does not belong there. Whoever looks on finds the next in the order of `isolation` (`audit sql`,
    table `embedding_map`): odd pictures stand first there long before chance is excluded.

    ## Limits
    Ten and more pictures of one odd kind are neighbours of each other, and are not found. Among
    photographs of all kinds many are odd, and an odd one more is ranked but seldom reported.
    Built-in vectors see shapes and colours at 32 px, where fine noise is averaged away, and a
    network sees through it: a picture mixed with noise is left to IMG008. Distances with tails
    heavier than any power would raise false alarms. Negatives and pictures upside down are not
    covered: to the built-in vectors they look like other pictures. Below 50 pictures nothing is
    said.

    ## References
    Ramaswamy, Rastogi and Shim (2000), Efficient algorithms for mining outliers, SIGMOD: distance
    to the k nearest. Renyi (1953), On the theory of order statistics, Acta Math. Hung. 4."""

    code = "IMG009"
    name = "unlike-all-others"
    severity = Severity.INFO
    features = (
        "brightness", "contrast", "sharpness", "noise", "border_red", "border_green", "border_blue",
        "border_spread", "saturation", "edge_density", "entropy", "red", "green", "blue",
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """rate: share of datasets without outliers in which any picture is reported, up to 0.05
        max_properties: properties that a finding names, at most
        """

        rate: float = 0.01
        max_properties: int = 3

    @staticmethod
    def cases() -> Iterator[Case]:
        images: list[dict[str, Any]] = [{"brightness": 0.4 + 0.002 * i} for i in range(60)]
        images += [{"id": "x.jpg", "brightness": 0.9}]
        yield Case("never scanned for vectors", images)
        yield Case("chance explains it", images, tables=_tables(chance=0.03))
        yield Case("far from all", images, ["x.jpg"], tables=_tables())
        strokes = [{**row, "entropy": 1.0} for row in images]  # whose blur is unknown to all
        yield Case("far from all strokes", strokes, ["x.jpg"], tables=_tables())
        yield Case("far from its class", images, ["x.jpg"], tables=_tables(compared_with="cat"))
        yield Case("a larger rate", images, ["x.jpg"], {"rate": 0.05}, _tables(chance=0.03))

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = """
            SELECT o.*, i.subject, near.nearest FROM vector_outliers o
            JOIN images i ON i.id = o.sample_id
            LEFT JOIN (
                SELECT v.sample_id, string_agg(
                    v.neighbour_id || ' (' || coalesce(n.label, 'no label') || ')', ', '
                    ORDER BY v.position) AS nearest
                FROM vector_neighbours v SEMI JOIN vector_outliers o USING (sample_id)
                JOIN samples n ON n.id = v.neighbour_id GROUP BY v.sample_id
            ) near ON near.sample_id = o.sample_id
            WHERE o.chance <= $rate ORDER BY o.distance / o.typical DESC, o.sample_id
        """
        rows = asked(store, sql, params).to_dicts()
        looks = _robust_scores(store, rows) if rows else []
        for row, odd in zip(rows, looks, strict=True):
            yield self._finding(row, odd[: params.max_properties])

    def _finding(self, row: Mapping[str, Any], odd: Sequence[tuple[str, float]]) -> Finding:
        among = f"of class {row['compared_with']!r}" if row["compared_with"] else "of the dataset"
        differs = ", ".join(f"{name} ({z:+.1f} deviations)" for name, z in odd)
        nearest = row["nearest"] or ""
        times, rest = row["distance"] / row["typical"], row["rest"] / row["typical"]
        return self.finding(
            row["subject"],
            f"This picture looks like no other: its tenth nearest is {times:.2f} times as far as "
            f"is typical of the {row['n']:,} pictures {among} (no other beyond {rest:.2f} times), "
            f"which chance shows in {row['chance']:.2g} of datasets."
            + (f" It differs most in {differs}." if differs else "")
            + (f" Nearest: {nearest}." if nearest else ""),
            {
                "compared_with": row["compared_with"] or "dataset",
                "nearest": nearest,
                **{name: row[name] for name in ("n", "chance", "distance", "rest", "typical")},
                **{f"deviations_{name.replace(' ', '_')}": z for name, z in odd},
            },
            (row["sample_id"],),
        )

    def completeness(self, store: Store, params: Params) -> str:
        facts = read_label_facts(store)
        if facts is None:
            return "Outliers were not searched, because this run has no vectors: scan again."
        failed = store.query("SELECT * FROM vector_failures ORDER BY sample_id LIMIT 3").to_dicts()
        without = "".join(f" {row['sample_id']} has no vector: {row['reason']}." for row in failed)
        if facts.compared < facts.least_compared:
            return (
                f"Outliers cannot be told: {facts.compared:,} pictures, but "
                f"{facts.least_compared} are needed.{without}"
            )
        return f"{facts.compared:,} pictures were compared by {facts.vectors}.{without}"


def _robust_scores(
    store: Store, rows: Sequence[Mapping[str, Any]]
) -> list[list[tuple[str, float]]]:
    """Return for each row the properties in which it is odd, the oddest first, in deviations."""
    columns = ", ".join(f'{sql} AS "{name}"' for name, sql in LOOKS.items())
    frame = store.query(f"SELECT id, label, {columns} FROM images WHERE status = 'ok'")
    values = frame.select(pl.col(name).cast(pl.Float64) for name in LOOKS).to_numpy()
    place = {sample: number for number, sample in enumerate(frame["id"].to_list())}
    labels = frame["label"].fill_null("").to_numpy()
    found = []
    for row in rows:
        group = (
            labels == row["compared_with"] if row["compared_with"] else np.ones(len(frame), bool)
        )
        found.append(_deviations(values[place[row["sample_id"]]], values[group]))
    return found


def _deviations(own: Any, others: Any) -> list[tuple[str, float]]:
    others = np.where(np.isfinite(others).any(0), others, 0.0)  # blur of strokes is unknown to all
    middle = np.nanmedian(others, axis=0)
    spread = DEVIATION * np.nanmedian(np.abs(others - middle), axis=0)
    z = np.divide(own - middle, spread, out=np.zeros(len(own)), where=spread > 1e-6)
    order = np.argsort(-np.abs(np.nan_to_num(z)), kind="stable")
    return [(list(LOOKS)[i], float(z[i])) for i in order if abs(z[i]) >= 2]
