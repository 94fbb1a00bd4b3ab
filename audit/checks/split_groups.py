"""SPLIT002: groups, numbered sequences and bursts of photographs that span several splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store

TEST = {"split": "test"}
NOON = datetime(2024, 5, 1, 12, 0, 0)


def _shots(*seconds: float) -> list[dict[str, Any]]:
    """Return photographs of one camera, in train and test by turns."""
    return [
        {
            "exif_camera": "Canon EOS 1",
            "exif_time": NOON + timedelta(seconds=second),
            "split": ("train", "test")[number % 2],
        }
        for number, second in enumerate(seconds)
    ]


def _frames(prefix: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Return numbered frames, in train and test by turns."""
    return [
        {"id": f"{split}/cat/{prefix}_{number:04d}.jpg", "split": split}
        for index, number in enumerate(numbers)
        for split in [("train", "test")[index % 2]]
    ]


OTHERS = [{"id": f"train/cat/{i}.jpg"} for i in range(12)]


class GroupLeakage(Check):
    """Samples of one group, numbered sequence or burst of photographs in several splits.

    ## What it does
    Three kinds of evidence, each reported separately. *Group*: one value of the manifest's group
    column in several splits. *Sequence*: names such as `clip07_0001`, `clip07_0002` (a name with a
    digit in it, then a number), at least `min_members` of them, in several splits, with frames of
    different splits at most `max_gap` apart. *Burst*: photographs of one camera (EXIF make, model,
    serial number), each within `window_s` seconds of the next, in several splits.

    ## Why is this bad
    Frames of one scene or images of one patient share background, light and person. A model that
    was trained on some of them knows the others, so its score says nothing about a new scene.

    ## Example
    `clip07_0001` to `clip07_0004` are in train, `clip07_0005` is in test.

    ## What to do
    Split by group: put all samples of one patient, video or burst into one split. Then evaluate
    again.

    ## Limits
    Names and EXIF are hints, not proof: look at some members first. Sequences whose name has no
    digit (`frame_0001`) cannot be distinguished from plain numbering; a sequence with more than
    `max_share` of the files of its classes is treated as their naming scheme. SPLIT001 reports
    copies of one picture. More than `max_same` photographs in one second are treated as a wrong
    time.

    ## References
    Kapoor and Narayanan, Leakage and the reproducibility crisis in machine-learning-based science,
    Patterns 4(9), 2023."""

    code = "SPLIT002"
    name = "group-leakage"
    severity = Severity.WARNING
    features = ("exif_time", "exif_camera")

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_members: smallest number of files in a sequence
        max_gap: largest difference between the numbers of two neighbours in different splits
        max_share: largest share of the files of its classes that a sequence may have
        window_s: seconds between two photographs of a burst
        max_same: largest number of photographs of one camera in one second
        """

        min_members: int = 3
        max_gap: int = 10
        max_share: float = 0.5
        window_s: float = 10.0
        max_same: int = 30

    CLEAN = (
        Case("groups that keep together",
             [{"group_key": "p1"}, {"group_key": "p1"}, {"group_key": "p2", **TEST}]),
        Case("plain numbering", _frames("img", range(8))),
        Case("a whole class numbered alike", _frames("n01440764", range(8))),
        Case("a sequence in one split", [*OTHERS,
             *({"id": f"train/cat/clip07_{i}.jpg"} for i in range(5))]),
        Case("frames far apart", [*OTHERS, *_frames("clip07", [0, 500, 1000, 1500])]),
        Case("shots far apart", _shots(0, 60, 120)),
        Case("one picture copied: SPLIT001",
             [{**shot, "pixel_hash": "a" * 32} for shot in _shots(0, 0)]),
    )  # fmt: skip
    DIRTY = (
        Case("one patient in both splits",
             [{"group_key": "p1"}, {"group_key": "p1", **TEST}, {"group_key": "p2", **TEST}],
             ["group:manifest/p1"]),
        Case("a clip in two splits", [*OTHERS, *_frames("clip07", range(1, 7))],
             ["group:sequence/clip07"]),
        Case("tracks numbered by class", [*OTHERS, *_frames("00003", range(1, 7))],
             ["group:sequence/cat/00003"]),
        Case("a burst of four", _shots(0, 1, 3, 12),
             ["group:burst/Canon EOS 1/2024-05-01 12:00:00"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per manifest group, then per sequence, then per burst."""
        for row in store.rows(MANIFEST):
            name = f"Group {row['name']} of the manifest"
            yield self._spread("manifest", row, name, {"group": row["name"]}, Severity.ERROR)
        limits = [params.min_members, params.max_share, params.max_gap]
        for row in store.rows(SEQUENCES, limits):
            name = f"The numbered sequence {row['name']} ({row['low']} to {row['high']})"
            evidence = {"sequence": row["name"], "first": row["low"], "last": row["high"],
                        "nearest_across_splits": row["gap"]}  # fmt: skip
            yield self._spread("sequence", row, name, evidence, self.severity)
        for row in store.rows(BURSTS, [params.max_same, params.window_s]):
            seconds = row["seconds"]
            name = f"A burst of {len(row['ids'])} photographs of {row['camera']} in {seconds:g} s"
            evidence = {"camera": row["camera"], "from": row["low"], "to": row["high"],
                        "seconds": seconds}  # fmt: skip
            yield self._spread("burst", row, name, evidence, self.severity)

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
        return Finding(
            self.code,
            severity,
            tuple(row["ids"]),
            f"{name} is in {len(counts)} splits ({splits}): the model is tested on samples that "
            "are "
            "similar to its training data.",
            {"kind": kind, **evidence, "members": len(row["ids"]), "splits": splits},
            Action.MOVE,
            f"group:{kind}/{row['name']}",
        )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many samples have each kind of evidence."""
        sql = """
            SELECT count(group_key) AS grouped, count(exif_time) FILTER (
                WHERE exif_camera IS NOT NULL) AS dated, count(*) AS n FROM images
            WHERE split IS NOT NULL
        """
        (row,) = store.rows(sql)
        return (
            f"Of {row['n']:,} samples in splits, {row['grouped']:,} have a manifest group and "
            f"{row['dated']:,} an EXIF time and camera; the names of all were searched for "
            "numbered "
            "sequences."
        )


MANIFEST = """
    SELECT group_key AS name, list(id ORDER BY id) AS ids, list(split ORDER BY id) AS splits
    FROM samples WHERE split IS NOT NULL AND trim(coalesce(group_key, '')) <> ''
    GROUP BY group_key HAVING count(DISTINCT split) > 1 ORDER BY group_key
"""
# `clip07_0001`: the shortest prefix that leaves digits alone. Without a separator the digits before
# the number belong to it, so a prefix of digits alone always ends at one; such track numbers often
# start again in each class, so they count within it.
SEQUENCES = r"""
    WITH stems AS (
        SELECT id, split, coalesce(label, '') AS label,
            regexp_extract(
                regexp_replace(split_part(id, '/', -1), '\.[^.]*$', ''),
                '^(.*?[^_\-. ])[_\-. ]?([0-9]{1,15})$', ['prefix', 'number']
            ) AS part
        FROM samples WHERE split IS NOT NULL
    ), frames AS (
        SELECT id, split, label, part.number::BIGINT AS number,
            CASE WHEN regexp_full_match(part.prefix, '[0-9]+') THEN concat(label, '/', part.prefix)
                ELSE part.prefix END AS name
        FROM stems WHERE regexp_matches(part.prefix, '[0-9]')
    ), sizes AS (
        SELECT coalesce(label, '') AS label, count(*) AS n FROM samples
        WHERE split IS NOT NULL GROUP BY ALL
    ), shares AS (
        SELECT name, sum(of_name) AS members, sum(of_name) / sum(n) AS share FROM (
            SELECT name, label, count(*) AS of_name FROM frames GROUP BY name, label
        ) JOIN sizes USING (label) GROUP BY name
    ), divided AS (
        SELECT name FROM frames JOIN shares USING (name) WHERE members >= ? AND share <= ?
        GROUP BY name HAVING count(DISTINCT split) > 1
    ), steps AS (
        SELECT *, number - lag(number) OVER same AS step, split <> lag(split) OVER same AS crosses
        FROM frames SEMI JOIN divided USING (name)
        WINDOW same AS (PARTITION BY name ORDER BY number, split, id)
    )
    SELECT name, list(id ORDER BY id) AS ids, list(split ORDER BY id) AS splits,
        min(number) AS low, max(number) AS high, min(step) FILTER (WHERE crosses) AS gap
    FROM steps GROUP BY name HAVING gap <= ? ORDER BY name
"""
BURSTS = """
    WITH shots AS (
        SELECT i.id, i.split, i.exif_camera AS camera, i.exif_time AS taken, p.unit
        FROM images i JOIN pictures p USING (id)
        WHERE i.split IS NOT NULL AND i.exif_time IS NOT NULL AND i.exif_camera IS NOT NULL
        QUALIFY count(*) OVER (
            PARTITION BY i.exif_camera, date_trunc('second', i.exif_time)
        ) <= ?
    ), gaps AS (
        SELECT *, epoch(taken) - lag(epoch(taken)) OVER same <= ? AS follows
        FROM shots WINDOW same AS (PARTITION BY camera ORDER BY taken, id)
    ), runs AS (
        SELECT *, count(*) FILTER (WHERE follows IS NOT TRUE) OVER (
            PARTITION BY camera ORDER BY taken, id
        ) AS run FROM gaps
    )
    SELECT camera, concat(camera, '/', strftime(min(taken), '%Y-%m-%d %H:%M:%S')) AS name,
        list(id ORDER BY id) AS ids, list(split ORDER BY id) AS splits,
        strftime(min(taken), '%Y-%m-%d %H:%M:%S') AS low,
        strftime(max(taken), '%Y-%m-%d %H:%M:%S') AS high,
        epoch(max(taken)) - epoch(min(taken)) AS seconds
    FROM runs GROUP BY camera, run
    HAVING count(DISTINCT split) > 1 AND count(DISTINCT unit) > 1 ORDER BY camera, min(taken)
"""
