"""SPLIT002: groups, numbered sequences and bursts of photographs that span several splits.

Numbers and times propose chains of pictures, because most datasets number their files. A chain is a
sequence of shots if its neighbours look more alike than pictures of their class, by a permutation
test (`audit.statistics.likeness`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from audit.checking.check import Check, asked, one_of_each_first
from audit.records import Action, Finding, Severity
from audit.run.store import Store
from audit.statistics.likeness import LOOK_COLUMNS, Chain, ChainRule, Verdict, judge_chains


class GroupLeakage(Check):
    """Samples of one group, numbered sequence or burst of photographs in several splits.

    ## What it does
    Three kinds of evidence, each reported separately. *Group*: one value of the manifest's group
    column in several splits. *Sequence*: names that differ in their last number (`clip07_0001`,
    `frame 12`), at least `min_members` of them, in several splits. *Burst*: photographs of one
    camera (EXIF make, model, serial number), each within `window_s` seconds of the next. A sequence
    is reported only if its images are similar: half of the neighbours (at most `max_gap` numbers
    apart), also across splits, are closer than all but `max_rank` of the pairs of their class and
    split. A burst needs the same, unless fewer than `max_coincidences` bursts of its camera are
    expected by chance. False findings are expected in at most `rate` of the datasets without
    sequences.

    ## Why is this bad
    Frames of one scene or images of one patient share background, light and person. A model trained
    on some of them recognises the rest, so its score does not hold for a new scene.

    ## Example
    `clip07_0001` to `clip07_0004` are in train, `clip07_0005` is in test.

    ## What to do
    Split by group: put all samples of one patient, video or burst into one split. Then evaluate
    again.

    ## Limits
    Review some members first. Images are compared by light, colour, texture and perceptual hash. A
    sequence is not found if its images have little in common, if its class and split has fewer than
    `min_others` other images, or if its numbers restart in each split. SPLIT001 reports verified
    near-duplicates across splits. More than `max_same` photographs in one second count as a wrong
    time.

    ## References
    Kapoor and Narayanan, Leakage and the reproducibility crisis in machine-learning-based science,
    Patterns 4(9), 2023. Fisher (1932), Statistical Methods for Research Workers, section 21.1:
    combining p-values. Benjamini and Hochberg (1995), JRSS B 57:289."""

    code = "SPLIT002"
    name = "group-leakage"
    severity = Severity.WARNING
    features = (
        "exif_time", "exif_camera", "phash256", *LOOK_COLUMNS
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """rate: largest share of datasets without sequences in which one is reported, 0..1
        max_rank: half the neighbours must be closer than all but this share of pairs, 0..1
        min_others: smallest number of images of the class and split that a pair is compared with
        min_members: smallest number of files in a sequence
        max_gap: largest difference between the numbers of neighbours
        window_s: seconds between two photographs of a burst
        max_same: largest number of photographs of one camera in one second
        max_coincidences: largest number of bursts expected by chance at which times alone count
        """

        rate: float = 0.01
        max_rank: float = 0.1
        min_others: int = 20
        min_members: int = 3
        max_gap: int = 10
        window_s: float = 10.0
        max_same: int = 30
        max_coincidences: float = 0.01

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for row in store.rows(MANIFEST):
            name = f"Group {row['name']} of the manifest"
            yield self._spread("manifest", row, name, {"group": row["name"]}, Severity.ERROR)
        frames = asked(store, SEQUENCES, params)
        bursts = asked(store, BURSTS, params).to_dicts()
        trusted = _coincidences(store, params) <= params.max_coincidences if bursts else True
        chains = _sequences(frames) + ([] if trusted else _as_chains(bursts))
        rule = ChainRule(params.max_gap, params.min_others, params.max_rank, params.rate)
        verdicts = judge_chains(store.query(PICTURES), chains, rule) if chains else []
        alike = dict[str, Verdict]()
        for chain, verdict in zip(chains, verdicts, strict=True):
            if verdict is not None and chain.burst is None:
                yield self._sequence(chain, verdict)
            elif verdict is not None:
                alike[chain.name] = verdict
        for row in bursts:
            if trusted or row["name"] in alike:
                yield self._burst(row, alike.get(row["name"]))

    def _sequence(self, chain: Chain, verdict: Verdict) -> Finding:
        kept = [chain.members[i] for i in verdict.members]
        numbers = [chain.numbers[i] for i in verdict.members]
        row = {"name": chain.name, "ids": [m[0] for m in kept], "splits": [m[1] for m in kept]}
        name = f"The numbered sequence {chain.name} ({min(numbers)} to {max(numbers)})"
        evidence = {"sequence": chain.name, "first": min(numbers), "last": max(numbers),
                    **verdict.evidence}  # fmt: skip
        return self._spread("sequence", row, name, evidence, self.severity)

    def _burst(self, row: Mapping[str, Any], verdict: Verdict | None) -> Finding:
        seconds = row["seconds"]
        name = f"A burst of {len(row['ids'])} photographs of {row['camera']} in {seconds:g} s"
        evidence = {"camera": row["camera"], "from": row["low"], "to": row["high"],
                    "seconds": seconds}  # fmt: skip
        evidence |= verdict.evidence if verdict else {}
        return self._spread("burst", row, name, evidence, self.severity)

    def _spread(
        self,
        kind: str,
        row: Mapping[str, Any],
        name: str,
        evidence: Mapping[str, float | int | str],
        severity: Severity,
    ) -> Finding:
        counts = sorted(Counter(row["splits"]).items())
        splits = ", ".join(f"{split} {count}" for split, count in counts)
        alike = ""
        if "median_rank" in evidence:
            alike = (
                "; half of its neighbours are more similar than "
                f"{1 - float(evidence['median_rank']):.0%} of the pairs of their class"
            )
        return self.finding(
            f"group:{kind}/{row['name']}",
            f"{name} is in {len(counts)} splits ({splits}){alike}: the model is tested on samples "
            "that are similar to its training data.",
            {"kind": kind, **evidence, "members": len(row["ids"]), "splits": splits},
            one_of_each_first(row["ids"], row["splits"]),
            action=Action.MOVE,
            severity=severity,
        )

    def completeness(self, store: Store, params: Params) -> str:
        sql = """
            SELECT count(group_key) AS grouped, count(exif_time) FILTER (
                WHERE exif_camera IS NOT NULL) AS dated, count(*) AS n FROM images
            WHERE split IS NOT NULL
        """
        (row,) = store.rows(sql)
        numbered = len(asked(store, SEQUENCES, params))
        return (
            f"Of {row['n']:,} samples in splits, {row['grouped']:,} have a manifest group and "
            f"{row['dated']:,} an EXIF time and camera; {numbered:,} have names numbered across "
            "splits and were compared."
        )


def _sequences(frames: pl.DataFrame) -> list[Chain]:
    return [
        Chain(
            str(name), list(zip(part["id"], part["split"], strict=True)), part["number"].to_list()
        )
        for (name,), part in frames.partition_by("name", as_dict=True, maintain_order=True).items()
    ]


def _as_chains(bursts: Sequence[Mapping[str, Any]]) -> list[Chain]:
    # All members of a burst are neighbours: the numbers are their places in time.
    return [
        Chain(b["name"], list(zip(b["ids"], b["splits"], strict=True)), range(len(b["ids"])), b)
        for b in bursts
    ]


def _coincidences(store: Store, params: GroupLeakage.Params) -> float:
    """Return how many bursts chance makes: two events of one camera on one day, within reach."""
    (row,) = store.rows(CHANCE)
    daylight = 43_200.0  # s: photographs are taken in half of the day
    return float(row["pairs"] or 0) * float(row["same_day"] or 0) * 2 * params.window_s / daylight


MANIFEST = """
    SELECT group_key AS name, list(id ORDER BY id) AS ids, list(split ORDER BY id) AS splits
    FROM samples WHERE split IS NOT NULL AND trim(coalesce(group_key, '')) <> ''
    GROUP BY group_key HAVING count(DISTINCT split) > 1 ORDER BY group_key
"""
# `clip07_0001`: the shortest prefix that leaves digits alone. A prefix of digits or of letters
# alone counts within its class; where numbers occur in several splits, nothing runs across them.
SEQUENCES = r"""
    WITH stems AS (
        SELECT id, split, coalesce(label, '') AS label,
            array_to_string(list_filter(
                string_split(regexp_replace(id, '/?[^/]*$', ''), '/'),
                lambda part: part <> coalesce(label, '') AND lower(part) NOT IN (
                    'train', 'training', 'val', 'valid', 'validation', 'dev', 'test', 'testing',
                    'eval', 'images', '', lower(split))
            ), '/') AS folder,
            regexp_extract(
                regexp_replace(split_part(id, '/', -1), '\.[^.]*$', ''),
                '^(.*?)[_\-. (]*([0-9]{1,15})\)?$', ['prefix', 'number']
            ) AS part
        FROM samples WHERE split IS NOT NULL
    ), frames AS (
        SELECT id, split, part.number::BIGINT AS number,
            concat(
                CASE WHEN folder <> '' THEN concat(folder, '/')
                    WHEN regexp_matches(part.prefix, '[0-9]')
                        AND regexp_matches(part.prefix, '[^0-9]') THEN ''
                    ELSE concat(label, '/') END,
                CASE WHEN part.prefix = '' THEN '#' ELSE part.prefix END
            ) AS name
        FROM stems WHERE part.number <> ''
    ), divided AS (
        SELECT name FROM frames GROUP BY name
        HAVING count(DISTINCT split) > 1 AND count(*) >= $min_members
            AND count(DISTINCT number) >= 0.9 * count(*)
    )
    SELECT id, split, number, name FROM frames SEMI JOIN divided USING (name)
    ORDER BY name, number, split, id
"""
# A pair is compared with its class in its split, or in all splits where it has few pictures there.
PICTURES = f"""
    SELECT i.id, i.split, p.unit, i.phash256,
        dense_rank() OVER (ORDER BY coalesce(i.label, ''), CASE WHEN i.n_cell >= 100
            THEN i.split ELSE '' END) AS cell,
        {", ".join(f"i.{column}" for column in LOOK_COLUMNS)}
    FROM (SELECT *, count(*) OVER (PARTITION BY label, split) AS n_cell FROM images) i
    JOIN pictures p USING (id)
    WHERE i.split IS NOT NULL AND i.phash256 IS NOT NULL AND NOT p.blank ORDER BY i.id
"""
# Shots within one minute are one event: a burst must not make its own day look busy.
CHANCE = """
    WITH events AS (
        SELECT DISTINCT exif_camera AS camera, date_trunc('minute', exif_time) AS minute
        FROM images
        WHERE split IS NOT NULL AND exif_time IS NOT NULL AND exif_camera IS NOT NULL
    )
    SELECT (SELECT sum(n * (n - 1) / 2) FROM (
            SELECT count(*) AS n FROM events GROUP BY camera)) AS pairs,
        (SELECT sum((n / (SELECT count(*) FROM events)) ** 2) FROM (
            SELECT count(*) AS n FROM events GROUP BY date_trunc('day', minute))) AS same_day
"""
BURSTS = """
    WITH shots AS (
        SELECT i.id, i.split, i.exif_camera AS camera, i.exif_time AS taken, p.unit
        FROM images i JOIN pictures p USING (id)
        WHERE i.split IS NOT NULL AND i.exif_time IS NOT NULL AND i.exif_camera IS NOT NULL
        QUALIFY count(*) OVER (
            PARTITION BY i.exif_camera, date_trunc('second', i.exif_time)
        ) <= $max_same
    ), gaps AS (
        SELECT *, epoch(taken) - lag(epoch(taken)) OVER same <= $window_s AS follows
        FROM shots WINDOW same AS (PARTITION BY camera ORDER BY taken, id)
    ), runs AS (
        SELECT *, count(*) FILTER (WHERE follows IS NOT TRUE) OVER (
            PARTITION BY camera ORDER BY taken, id
        ) AS run FROM gaps
    )
    SELECT camera, concat(camera, '/', strftime(min(taken), '%Y-%m-%d %H:%M:%S')) AS name,
        list(id ORDER BY taken, id) AS ids, list(split ORDER BY taken, id) AS splits,
        strftime(min(taken), '%Y-%m-%d %H:%M:%S') AS low,
        strftime(max(taken), '%Y-%m-%d %H:%M:%S') AS high,
        epoch(max(taken)) - epoch(min(taken)) AS seconds
    FROM runs GROUP BY camera, run
    HAVING count(DISTINCT split) > 1 AND count(DISTINCT unit) > 1 ORDER BY camera, min(taken)
"""
