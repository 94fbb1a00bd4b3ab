"""Fixes of mechanical annotation errors: proposed from findings, recorded as decisions.

A fix is what follows from the error itself: a box is cut at the edge of its picture (BOX001), a box
without area and the later of two equal boxes go (BOX002, BOX004), a class gets its name (BOX003,
BOX026), an entry the size of its picture (BOX005). The ledger keeps each with the annotation as it
was and as it is to be (`applied_fixes` is what becomes of it). The annotation files stay as they
are: `audit export` writes new ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.annotations.clipping import clip_box
from audit.annotations.entries import (
    AnnotationFile,
    ObjectEntry,
    PictureEntry,
    list_files,
    list_objects,
    list_pictures,
    prepare_pictures,
)
from audit.errors import UsageError
from audit.records import Action
from audit.review.applied_fixes import Fix, is_same_box
from audit.review.ledger import Entry, whoami
from audit.review.status import apply_decisions, open_for_deciding
from audit.review.waivers import load_findings, snapshot_finding
from audit.run.store import Store

FIXABLE = {
    "BOX001": "boxes are cut at the edge of their picture",
    "BOX002": "boxes without area are dropped; exchanged corners are put in order",
    "BOX003": "boxes get the class named by fix:NAME",
    "BOX004": "the later of two equal boxes is dropped",
    "BOX005": "the entry gets the size of its picture, where the boxes fit it",
    "BOX026": "the rarer of two spellings of a class gets the name of the other",
}


@dataclass(frozen=True, slots=True)
class ProposedFix:
    """What one finding would change; without fixes, `reason` says why."""

    fingerprint: str
    code: str
    fixes: Sequence[Fix]
    reason: str = ""

    def lines(self) -> list[str]:
        """Return each annotation before and after, in words."""
        return [describe_fix(fix) for fix in self.fixes]


def describe_fix(fix: Mapping[str, Any]) -> str:
    """Return one fix in words: where, before, after."""
    where = f"{fix['file']}" + (f", {fix['picture']}" if fix.get("picture") else "")
    where += f", entry {fix['entry']:,}" if fix.get("entry") is not None else ""
    label = f"{fix['label']} " if fix.get("label") else ""
    after = _side(fix["after"]) if fix["after"] is not None else "dropped"
    return f"{where}: {label}{_side(fix['before'])} -> {after}"


def _side(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "(" + ", ".join(f"{v:.6g}" for v in value) + ")"
    return f"class {value!r}" if value is not None else "no class"


# ---- proposing ----


def propose_fixes(
    run: Path, fingerprints: Sequence[str], name: str | None = None
) -> list[ProposedFix]:
    """Return what would be changed for each finding; raises UsageError for one that is not fixed.

    `name` is the class that `fix:NAME` gives.
    """
    decided = apply_decisions(run)
    with open_for_deciding(run) as store:
        findings = load_findings(store, fingerprints)
        for code in findings["code"].unique().sort():
            if code not in FIXABLE:
                raise UsageError(
                    f"{code} has no mechanical fix: those with one are {', '.join(FIXABLE)}."
                )
        if name and (wrong := set(findings["code"]) - {"BOX003", "BOX026"}):
            raise UsageError(f"{min(wrong)} takes no class: use --as fix, without a name.")
        store.create_from("decided", decided.effective)
        prepare_pictures(store)
        look = _Look(store, findings["ids"].explode().drop_nulls().unique().to_list())
        params = dict(store.query("SELECT code, params FROM judged.main.check_runs").iter_rows())
        return [
            _propose(row, look, json.loads(params.get(row["code"]) or "{}"), name)
            for row in findings.iter_rows(named=True)
        ]


@dataclass(slots=True)
class _Look:
    """The annotations of the pictures that findings speak of, by sample."""

    store: Store
    samples: Sequence[str]
    pictures: dict[str, list[tuple[AnnotationFile, PictureEntry]]] = field(default_factory=dict)
    objects: dict[tuple[str, str], list[ObjectEntry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read them."""
        wanted = set(self.samples)
        for file in list_files(self.store):
            pictures = [p for p in list_pictures(self.store, file.file) if p.sample_id in wanted]
            sides = {p.image_key: p.sides() for p in pictures}
            for picture in pictures:
                self.pictures.setdefault(picture.sample_id, []).append((file, picture))
            for thing in list_objects(self.store, file, sides, "entry", list(self.samples)):
                self.objects.setdefault((file.file, thing.image_key), []).append(thing)

    def of(self, sample: str) -> Iterator[tuple[AnnotationFile, PictureEntry, list[ObjectEntry]]]:
        for file, picture in self.pictures.get(sample, []):
            yield file, picture, self.objects.get((file.file, picture.image_key), [])


def _propose(
    row: Mapping[str, Any], look: _Look, params: Mapping[str, Any], name: str | None
) -> ProposedFix:
    code, found = row["code"], list[Fix]()
    try:
        if code == "BOX026":
            evidence = json.loads(row["evidence"])
            other = name or evidence["other_class"]
            found.append({"what": "rename", "file": evidence["file"],
                          "before": evidence["class"], "after": other})  # fmt: skip
        elif code == "BOX005":
            found += _sizes(look, row["ids"])
        else:
            for sample in row["ids"] or ():
                for file, picture, objects in look.of(sample):
                    found += _BY_CODE[code](file, picture, objects, params, name)
    except _NotMechanicalError as reason:
        return ProposedFix(row["fingerprint"], code, (), str(reason))
    if not found:
        return ProposedFix(row["fingerprint"], code, (), "its picture was dropped, or is another")
    return ProposedFix(row["fingerprint"], code, found)


class _NotMechanicalError(Exception):
    """Why a finding leaves something to judge."""


def _about(what: str, picture: PictureEntry, thing: ObjectEntry, after: Any) -> Fix:
    return {
        "what": what, "file": thing.file, "image_key": thing.image_key, "entry": thing.entry,
        "id": thing.annotation_id, "picture": picture.sample_id, "label": thing.label,
        "before": list(thing.box or ()), "after": after,
    }  # fmt: skip


def _outside(
    file: AnnotationFile, picture: PictureEntry, objects: Iterable[ObjectEntry],
    params: Mapping[str, Any], name: str | None,
) -> Iterator[Fix]:  # fmt: skip
    slack, sides = params.get("slack_px", 1.0), picture.sides()
    declared = (picture.declared_width or 0.0, picture.declared_height or 0.0)
    for thing in objects:
        if sides is None or thing.box is None or thing.crowd or min(thing.box[2:]) <= 0:
            continue
        amounts = [_beyond(thing.box, *s) for s in (sides, declared) if min(s) > 0]
        if min(amounts) <= slack:
            continue
        after = clip_box(thing.box, *sides)
        if after is None:
            raise _NotMechanicalError("a box lies wholly outside of its picture: drop or move it")
        yield {**_about("clip", picture, thing, list(after)), "within": list(sides)}


def _beyond(box: Sequence[float], width: float, height: float) -> float:
    x, y, w, h = box
    return max(-x, -y, x + w - width, y + h - height)


def _degenerate(
    file: AnnotationFile, picture: PictureEntry, objects: Iterable[ObjectEntry],
    params: Mapping[str, Any], name: str | None,
) -> Iterator[Fix]:  # fmt: skip
    for thing in objects:
        if thing.box is None or min(thing.box[2:]) > params.get("least_px", 0.0):
            continue
        x, y, w, h = thing.box
        swapped = (min(x, x + w), min(y, y + h), abs(w), abs(h))
        sides = picture.sides()
        whole = sides is not None and _beyond(swapped, *sides) <= 1.0
        exchanged = file.form.startswith("corners") and min(w, h) < 0 and w * h != 0 and whole
        yield _about("box" if exchanged else "drop", picture, thing,
                     list(swapped) if exchanged else None)  # fmt: skip


def _double(
    file: AnnotationFile, picture: PictureEntry, objects: Iterable[ObjectEntry],
    params: Mapping[str, Any], name: str | None,
) -> Iterator[Fix]:  # fmt: skip
    kept: dict[str | None, list[ObjectEntry]] = defaultdict(list)
    for thing in objects:
        if thing.box is None or thing.crowd or min(thing.box[2:]) <= 0:
            continue
        others = kept[thing.category_key]
        alike = [o for o in others if _overlap(thing.box, o.box) >= params.get("min_iou", 0.9)]
        if any(_same(thing, other) for other in alike):
            yield _about("drop", picture, thing, None)
            continue
        if alike:
            raise _NotMechanicalError("two boxes are alike and not equal: choose the better one")
        others.append(thing)


def _overlap(a: Sequence[float], b: Sequence[float] | None) -> float:
    assert b is not None
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both = max(wide, 0.0) * max(high, 0.0)
    return both / (a[2] * a[3] + b[2] * b[3] - both)


def _same(a: ObjectEntry, b: ObjectEntry) -> bool:
    return is_same_box(a.box, b.box) and (a.rings, a.mask, a.keypoints) == (
        b.rings,
        b.mask,
        b.keypoints,
    )


def _unknown_class(
    file: AnnotationFile, picture: PictureEntry, objects: Iterable[ObjectEntry],
    params: Mapping[str, Any], name: str | None,
) -> Iterator[Fix]:  # fmt: skip
    if name is None:
        raise _NotMechanicalError("say which class it is: --as fix:NAME")
    for thing in objects:
        if thing.label is None and thing.kind != "label":
            fix = _about("class", picture, thing, name)
            yield {**fix, "before": thing.category_key}


def _sizes(look: _Look, samples: Sequence[str]) -> Iterator[Fix]:
    for sample in samples:
        for file, picture, objects in look.of(sample):
            declared = (picture.declared_width, picture.declared_height)
            if None in declared or picture.width is None or picture.height is None:
                continue
            real = (float(picture.width), float(picture.height))
            if declared == real:
                continue
            boxes = [t.box for t in objects if t.box is not None]
            if file.unit_share or not all(_beyond(box, *real) <= 1.0 for box in boxes):
                raise _NotMechanicalError(
                    "not every box fits the picture: were they scaled with it?"
                )
            yield {
                "what": "size", "file": file.file, "image_key": picture.image_key,
                "picture": sample, "before": list(declared), "after": list(real),
            }  # fmt: skip


_BY_CODE = {
    "BOX001": _outside, "BOX002": _degenerate, "BOX003": _unknown_class, "BOX004": _double,
}  # fmt: skip


def fix_entries(
    run: Path, proposed: Sequence[ProposedFix], name: str | None = None, note: str = "",
    by: str | None = None,
) -> list[Entry]:  # fmt: skip
    """Return the entries of the ledger for the findings that have fixes."""
    usable = {p.fingerprint: p for p in proposed if p.fixes}
    with open_for_deciding(run) as store:
        findings = load_findings(store, list(usable))
    who, entries = by or whoami(), []
    for row in findings.iter_rows(named=True):
        evidence = json.loads(snapshot_finding(row))
        evidence["fixes"] = list(usable[row["fingerprint"]].fixes)
        entries.append(
            Entry(
                "finding", row["fingerprint"], None, Action.FIX, name, note, who,
                json.dumps(evidence, ensure_ascii=False),
            )
        )  # fmt: skip
    return entries
