"""Findings and decisions as tasks of a labelling tool, and what people changed there as decisions.

A task is a picture that a finding or a decision is about: its class as decided, a verdict, and what
the findings say. It carries its sample and the hash of its content, by which it is known again
when the tool's export comes back (`read_review`). Only what differs from the decided state
becomes a decision, so a file that nobody touched says nothing. Labels and verdicts of pictures
only: boxes are not part of a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from audit.errors import UsageError
from audit.records import Action
from audit.review.decisions import finding_entries, sample_entries
from audit.review.ledger import Entry
from audit.review.status import apply_decisions, open_for_deciding

UNDECIDED = "undecided"
VERDICTS = (UNDECIDED, "keep", "drop", "false-positive")
NO_CLASS = "(no class)"
TASKS = """
    WITH found AS (
        SELECT m.sample_id, list(f.fingerprint ORDER BY f.fingerprint) AS prints,
            list(f.code || ': ' || f.message ORDER BY f.code, f.fingerprint) AS said
        FROM judged.main.findings f JOIN judged.main.finding_samples m USING (fingerprint)
        ANTI JOIN settled s ON s.fingerprint = f.fingerprint GROUP BY m.sample_id
    )
    SELECT i.id, i.uri, i.content_hash, i.width, i.height,
        coalesce(d.label, i.label) AS label, coalesce(d.dropped, false) AS dropped, d.verb,
        coalesce(found.prints, []) AS prints, coalesce(found.said, []) AS said
    FROM images i LEFT JOIN found ON found.sample_id = i.id LEFT JOIN decided d ON d.id = i.id
    WHERE i.content_hash IS NOT NULL {where} ORDER BY i.id
"""


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """A picture to look at: what is said of it and what was decided; `prints` are open findings."""

    id: str
    uri: str
    content_hash: str
    width: int | None
    height: int | None
    label: str | None
    dropped: bool
    verb: str | None
    prints: Sequence[str]
    said: Sequence[str]

    @property
    def verdict(self) -> str:
        """The verdict as decided."""
        if self.dropped:
            return "drop"
        return "keep" if self.verb == Action.KEEP.value else UNDECIDED

    @property
    def decided(self) -> bool:
        """Whether a decision about the picture holds."""
        return self.verb is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool's export says of one picture; None: it does not say.

    `prints`: the findings that people were shown; others are not theirs to waive.
    """

    sample: str
    content_hash: str
    label: str | None
    verdict: str | None
    prints: Sequence[str] = ()


@dataclass(slots=True)
class ToolAnswers:
    """What was read of a file; `ignored` counts, in words, what was not understood."""

    answers: list[Answer] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)

    def ignore(self, reason: str, n: int = 1) -> None:
        """Count something that is not read."""
        self.ignored[reason] = self.ignored.get(reason, 0) + n


@dataclass(frozen=True, slots=True)
class Review:
    """The decisions that a file asks for, and what of it was not understood."""

    entries: list[Entry]
    read: int
    unchanged: int
    ignored: Mapping[str, int]


def list_tasks(run: Path, samples: Sequence[str] | None = None) -> list[ReviewTask]:
    """Return the pictures with an open finding or a decision, by id; or these `samples`."""
    applied = apply_decisions(run)
    with open_for_deciding(run) as store:
        store.create_from("decided", applied.effective)
        store.create_from("settled", applied.settled)
        where = "AND (found.prints IS NOT NULL OR d.id IS NOT NULL)"
        if samples is not None:
            store.create_from("asked", pl.DataFrame({"id": samples}, {"id": pl.String}))
            where = "AND i.id IN (SELECT id FROM asked)"
        rows = store.query(TASKS.format(where=where))
    return [ReviewTask(*row) for row in rows.iter_rows()]


def decided_classes(run: Path) -> list[str]:
    """Return the classes of the run as decided, by name."""
    decided = apply_decisions(run).effective["label"].drop_nulls().to_list()
    with open_for_deciding(run) as store:
        known = store.query("SELECT DISTINCT label FROM samples WHERE label IS NOT NULL")["label"]
    return sorted({*known, *decided})


def compare_answers(
    run: Path, found: ToolAnswers, name: str, note: str = "", by: str | None = None
) -> Review:
    """Return what the answers change; raises UsageError for a file of another dataset."""
    tasks = {task.id: task for task in list_tasks(run, [a.sample for a in found.answers])}
    known = []
    for answer in found.answers:
        task = tasks.get(answer.sample)
        if task is None:
            found.ignore("pictures that the run has not")
        elif task.content_hash != answer.content_hash:
            found.ignore("pictures that are not what they were when the file was made")
        else:
            known.append((task, answer))
    if found.answers and not known:
        raise UsageError(
            f"{name} was made from another dataset: none of its {len(found.answers):,} pictures "
            f"is one of {run}, by id and content."
        )
    wanted, unchanged = _group(known, found)
    entries = _entries(run, wanted, note or f"from {name}", by)
    return Review(entries, len(found.answers), unchanged, found.ignored)


def _group(
    known: Iterable[tuple[ReviewTask, Answer]], found: ToolAnswers
) -> tuple[dict[tuple[Action, str | None], list[str]], int]:
    """Return samples, or fingerprints, by verb and value; and how many pictures stay as is."""
    wanted: dict[tuple[Action, str | None], list[str]] = {}
    unchanged = 0
    for task, answer in known:
        before = sum(map(len, wanted.values()))
        if answer.label not in (None, NO_CLASS, task.label):
            wanted.setdefault((Action.RELABEL, answer.label), []).append(task.id)
        verdict = answer.verdict
        shown = [one for one in task.prints if one in answer.prints]
        if verdict == "false-positive" and shown:
            wanted.setdefault((Action.FALSE_POSITIVE, None), []).extend(shown)
        elif verdict in ("keep", "drop") and verdict != task.verdict:
            wanted.setdefault((Action(verdict), None), []).append(task.id)
        elif verdict not in (None, *VERDICTS):
            found.ignore(f"verdicts that are none, such as {verdict!r}")
        unchanged += sum(map(len, wanted.values())) == before
    return wanted, unchanged


def _entries(
    run: Path, wanted: Mapping[tuple[Action, str | None], list[str]], note: str, by: str | None
) -> list[Entry]:
    entries: list[Entry] = []
    # a keep or drop comes last: it does not take a new label back
    for (verb, value), subjects in sorted(
        wanted.items(), key=lambda one: (one[0][0] is not Action.RELABEL, str(one[0]))
    ):
        if verb is Action.FALSE_POSITIVE:
            entries += finding_entries(run, list(dict.fromkeys(subjects)), verb, None, note, by)
        else:
            entries += sample_entries(run, subjects, verb, value, note, by)
    return entries
