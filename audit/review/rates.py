"""How many of the first findings of a ranked list were right, once they were reviewed.

A check that ranks its findings (`rank` in the evidence) is reviewed from the top. A finding waived
as a false positive, or kept, was no error; any other decision says that it was one. The interval is
exact (Clopper and Pearson 1934): it is what to expect of findings like these, not of the rest of
the list, which is less doubtful.
"""

from __future__ import annotations

from pathlib import Path

from audit.records import Action
from audit.review.status import Applied, apply_decisions, open_for_deciding
from audit.run import generations
from audit.stats import clopper_pearson

FIRST = 50
LEAST = 10  # reviewed findings below which no rate is given
_RANKED = """
    SELECT f.code, f.name, count(*) OVER (PARTITION BY f.code) AS total, f.fingerprint,
        CAST(json_extract(f.evidence, '$.rank') AS BIGINT) AS rank
    FROM judged.main.findings f WHERE json_extract(f.evidence, '$.rank') IS NOT NULL
"""


def reviewed_rates(
    run: Path,
    generation: generations.Generation | None = None,
    applied: Applied | None = None,
) -> list[str]:
    """Return a sentence per code whose first findings were reviewed: share, interval, counts.

    `applied`: the decisions as they apply to that generation, where they were read already.
    """
    settled = (applied or apply_decisions(run, generation)).settled
    if settled.is_empty():
        return []
    with open_for_deciding(run, generation) as store:
        store.create_from("settled", settled)
        rows = store.query(
            f"WITH ranked AS ({_RANKED}) SELECT code, name, least(total, {FIRST}) AS of, "
            "count(*) AS n, count(*) FILTER (WHERE verb NOT IN (?, ?)) AS wrong FROM ranked "
            f"JOIN settled USING (fingerprint) WHERE rank <= {FIRST} GROUP BY ALL ORDER BY code",
            [Action.FALSE_POSITIVE.value, Action.KEEP.value],
        )
    sentences = []
    for code, name, first, n, wrong in rows.iter_rows():
        if n < min(LEAST, first):
            continue
        low, high = (float(limit) for limit in clopper_pearson(wrong, n))
        rest = "" if n == first else f"; {first - n:,} of the first {first:,} are not reviewed"
        sentences.append(
            f"{code} {name}: of {n:,} reviewed of the first {first:,}, {wrong:,} were wrong, "
            f"{wrong / n:.0%} ({low:.0%} to {high:.0%}){rest}."
        )
    return sentences
