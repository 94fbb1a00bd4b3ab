"""LABEL002: class names that look like one name written in two ways.

Names equal without case, spacing, plural and Unicode form are one class. Names one or two
keystrokes apart are one class only if the edit looks like a typing error and one of them is rare,
because `car` and `cat` are also one keystroke apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from audit.checking.check import Check
from audit.checking.class_names import fold_name
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class Spelling(NamedTuple):
    """One class name with its number of images."""

    name: str
    images: int


class NearMissClassName(Check):
    """Class names that are probably one class in two spellings.

    ## What it does
    Groups names that become equal without case, spaces, underscores, hyphens, accents, Unicode
    form, look-alike letters, an English plural or a copy suffix (`cat (1)`, `cat copy`), and
    numbers written `1`, `01` and `1.0`. Then pairs names that a typing error explains: a letter
    doubled, left out, added, changed or swapped with its neighbour, never a digit, only in names
    that are long enough to exclude coincidence, and only if the rarer name has at most
    `max_rarer_share` of the images of the more common one.

    ## Why is this bad
    The class is split in two: the model is penalised for confusing `Cat` with `cat`, the rarer
    spelling has too few images to learn, and a spelling that occurs only in the test split can
    never be predicted.

    ## Example
    `bridge` has 40 images, `bridgee` has 1.

    ## What to do
    Rename the rarer spelling to the more common one, or record why both are intended (`glass` and
    `glasses`).

    ## Limits
    Only English plurals are recognised; synonyms are not found. Names of one character are compared
    with their case, because `a` and `A` are two classes in character recognition. Two real words
    that are one edit apart (`bride` and `bridge`) are reported if one of them is rare.

    ## References
    Damerau (1964), A Technique for Computer Detection and Correction of Spelling Errors, CACM 7(3):
    80% of misspellings are one insertion, deletion, substitution or transposition. Unicode Standard
    Annex 15 (normal forms) and Technical Standard 39 (confusable characters).
    """

    code = "LABEL002"
    name = "near-miss-class-name"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_rarer_share: a typing error is at most this share as frequent as the right name, 0..1
        min_length: names shorter than this many characters have no typing errors
        """

        max_rarer_share: float = 0.1
        min_length: int = 5

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = """
            SELECT label, sum(n) :: BIGINT AS n FROM (
                SELECT label, count(*) AS n FROM picture_labels GROUP BY label
                UNION ALL SELECT DISTINCT label, 0 FROM declared_classes
            ) WHERE trim(coalesce(label, '')) <> '' GROUP BY label ORDER BY label
        """
        by_key: dict[str, list[Spelling]] = defaultdict(list)
        for name, n in store.query(sql).iter_rows():
            by_key[fold_name(name)].append(Spelling(name, n))
        groups = [(sorted(g, key=_by_frequency), "spelling") for g in by_key.values() if len(g) > 1]
        groups += [(pair, "typing error") for pair in typing_errors(by_key, params)]
        members = _members(store, [s.name for group, _ in groups for s in group[1:]])
        for group, kind in groups:
            yield self._finding(group, kind, members)

    def _finding(
        self, group: Sequence[Spelling], kind: str, members: Mapping[str, list[str]]
    ) -> Finding:
        spellings = ", ".join(f"{s.name!r} ({s.images:,})" for s in group)
        rarer = [i for s in group[1:] for i in members.get(s.name, [])]
        return self.finding(
            "class:" + "|".join(sorted(s.name for s in group)),
            f"{len(group)} class names look like one class ({kind}); images in parentheses: "
            f"{spellings}.",
            {"kind": kind, "keep": group[0].name}
            | {f"images of {s.name}": s.images for s in group},
            tuple(sorted(rarer)),
            action=Action.RELABEL if rarer else Action.REVIEW,
        )

    counts = """
        SELECT count(DISTINCT label) AS n FROM picture_labels WHERE trim(coalesce(label, '')) <> ''
    """
    examined = "All {n:,} class names were compared with each other."


def _by_frequency(spelling: Spelling) -> tuple[int, str]:
    return -spelling.images, spelling.name


def _members(store: Store, names: Sequence[str]) -> dict[str, list[str]]:
    # One query for all names: only the rarer spellings' samples are read.
    sql = """
        SELECT label, list(id ORDER BY id) AS ids FROM picture_labels
        WHERE label IN (SELECT unnest(?)) GROUP BY label
    """
    return dict(store.query(sql, [list(names)]).iter_rows()) if names else {}


def typing_errors(
    by_key: Mapping[str, Sequence[Spelling]], params: NearMissClassName.Params
) -> Iterator[list[Spelling]]:
    """Yield [common, rare] for each name that a typing error turns into a much more common one."""
    totals = {key: sum(s.images for s in group) for key, group in by_key.items()}
    names = [key for key in totals if len(key) >= params.min_length - 1 and _wordlike(key)]
    most = max((totals[n] for n in names), default=0)
    rare = [n for n in names if totals[n] <= params.max_rarer_share * most]
    least = min((totals[n] for n in rare), default=0)
    common = [n for n in names if totals[n] * params.max_rarer_share >= max(least, 0.1)]
    for name, others in _neighbours(rare, common):
        likely = [
            other
            for other in others
            if totals[name] <= params.max_rarer_share * totals[other]
            and is_typing_error(name, other, params.min_length)
        ]
        if likely:
            meant = max(likely, key=lambda other: (totals[other], other))
            yield [min(by_key[k], key=_by_frequency) for k in (meant, name)]


def _wordlike(name: str) -> bool:
    return sum(c.isalpha() for c in name) >= 0.8 * len(name)


def _neighbours(rare: Sequence[str], common: Sequence[str]) -> Iterator[tuple[str, set[str]]]:
    index: dict[str, list[str]] = defaultdict(list)
    for name in common if rare else ():
        for shorter in _deletions(name):
            index[shorter].append(name)
    for name in rare:
        near = {other for shorter in _deletions(name) for other in index.get(shorter, ())}
        yield name, near - {name}


def _deletions(name: str) -> set[str]:
    """Return the name with none, one and, if it is long, two characters left out."""
    n = len(name)
    shorter = {name, *(name[:i] + name[i + 1 :] for i in range(n))}
    if n >= 9:
        pairs = combinations(range(n), 2)
        shorter.update(name[:i] + name[i + 1 : j] + name[j + 1 :] for i, j in pairs)
    return shorter


def is_typing_error(name: str, meant: str, min_length: int = 5) -> bool:
    """Return whether one edit (two in names of 10 and more) makes `name` from `meant`."""
    longer = max(len(name), len(meant))
    digits, others = ([c for c in word if c.isdigit()] for word in (name, meant))
    if longer < min_length or digits != others or name[0] != meant[0]:
        return False
    head = _shared(name, meant)
    a, b = name[head:], meant[head:]
    tail = _shared(a[::-1], b[::-1])
    a, b = a[: len(a) - tail], b[: len(b) - tail]
    if len(a) + len(b) == 1:
        # A repeated letter means that a key was struck twice.
        return name[head - 1] == (a or b) or longer >= 6
    if len(a) == len(b) == 2 and a == b[::-1]:
        return True
    if len(a) == len(b) == 1:
        # One changed letter makes another word of most short words.
        return longer >= 8
    return longer >= 10 and damerau_levenshtein(a, b) <= 2


def _shared(a: str, b: str) -> int:
    for position, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return position
    return min(len(a), len(b))


def damerau_levenshtein(a: str, b: str) -> int:
    """Return the edits (insert, delete, substitute, swap neighbours) that turn `a` into `b`."""
    rows: list[list[int]] = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            best = min(row[-1] + 1, rows[-1][j] + 1, rows[-1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]
