"""Fixes of mechanical annotation errors (`FIXABLE`): proposed from findings, recorded as decisions.

A fix stores the annotation before and after. It applies only while its annotation and its image are
those it was decided about; else it is counted as stale. `audit export` writes the fixed files.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from audit.annotations.entries import (
    KEPT_PICTURES,
    AnnotationFile,
    ObjectEntry,
    PictureEntry,
    list_files,
    list_objects,
    list_pictures,
    object_area,
)
from audit.annotations.geometry import clip_box, clip_ring, ring_area
from audit.decisions.store import Decision, DecisionStore, Entry
from audit.decisions.waivers import (
    apply_decisions,
    load_findings,
    open_findings,
    open_for_deciding,
    resolve,
    snapshot_finding,
)
from audit.errors import UsageError
from audit.records import Action
from audit.run.store import Store

FIXABLE = {
    "BOX001": "boxes are cut at the edge of their image",
    "BOX002": "boxes without area are dropped; exchanged corners are put in order",
    "BOX003": "boxes get the class named by fix:NAME",
    "BOX004": "the later of two equal boxes is dropped",
    "BOX005": "the entry gets the size of its image, if the boxes fit it",
    "BOX026": "the rarer spelling of a class is replaced by the more frequent spelling",
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
                    f"{code} has no automatic fix. Codes with an automatic fix: "
                    f"{', '.join(FIXABLE)}."
                )
        if name and (wrong := set(findings["code"]) - {"BOX003", "BOX026"}):
            raise UsageError(f"{min(wrong)} takes no class: use --as fix, without a name.")
        store.create_from("decided", decided.effective)
        store.execute(KEPT_PICTURES)
        look = _Look(store, findings["ids"].explode().drop_nulls().unique().to_list())
        params = dict(store.query("SELECT code, params FROM judged.main.check_runs").iter_rows())
        return [
            _propose(row, look, json.loads(params.get(row["code"]) or "{}"), name)
            for row in findings.iter_rows(named=True)
        ]


def open_faults(run: Path) -> dict[str, int]:
    """Return how many findings have a mechanical fix and are not settled, by code."""
    with open_for_deciding(run) as store:
        found = open_findings(run, store, list(FIXABLE))
    return dict(found.group_by("code").len().sort("code").iter_rows())


def describe_open_faults(run: Path) -> str:
    """Return the faults that an export of annotations repeats, in words; "" for none."""
    faults = open_faults(run)
    if not faults:
        return ""
    n, codes = sum(faults.values()), ", ".join(f"{code} {k:,}" for code, k in faults.items())
    return (
        f"{n:,} open {'fault' if n == 1 else 'faults'} with an automatic fix ({codes}): "
        "`audit decide RUN --code CODE --as fix` fixes them."
    )


def fix_open_faults(run: Path, by: str | None = None) -> list[Decision]:
    """Decide to fix every open fault that has a fix, as one batch; BOX003 needs a name."""
    with open_for_deciding(run) as store:
        found = open_findings(run, store, [code for code in FIXABLE if code != "BOX003"])
    proposed = propose_fixes(run, found["fingerprint"].to_list()) if found.height else []
    return DecisionStore(run).record(fix_entries(run, proposed, by=by))


def propose_removal(run: Path, fingerprint: str) -> ProposedFix:
    """Return the removal of the box that a finding is about; its picture and other boxes stay."""
    decided = apply_decisions(run)
    with open_for_deciding(run) as store:
        row = load_findings(store, [fingerprint]).row(0, named=True)
        store.create_from("decided", decided.effective)
        store.execute(KEPT_PICTURES)
        evidence, found = json.loads(row["evidence"]), list[Fix]()
        for sample in row["ids"] or ():
            for file, picture, objects in _Look(store, [sample]).of(sample):
                found += [
                    _about("drop", picture, thing, None)
                    for thing in objects
                    if thing.box is not None
                    and (file.file, thing.entry) == (evidence.get("file"), evidence.get("entry"))
                ]
    reason = "" if found else "it concerns no single box, or its image was dropped"
    return ProposedFix(fingerprint, row["code"], found, reason)


@dataclass(slots=True)
class _Look:
    """The annotations of the pictures that findings speak of, by sample."""

    store: Store
    samples: Sequence[str]
    pictures: dict[str, list[tuple[AnnotationFile, PictureEntry]]] = field(default_factory=dict)
    objects: dict[tuple[str, str], list[ObjectEntry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wanted = set(self.samples)
        for file in list_files(self.store):
            pictures = [p for p in list_pictures(self.store, file.file) if p.sample_id in wanted]
            sides = {p.image_key: p.sides() for p in pictures}
            for picture in pictures:
                self.pictures.setdefault(picture.sample_id, []).append((file, picture))
            for thing in list_objects(self.store, file, sides, "entry", list(self.samples)):
                self.objects.setdefault((file.file, thing.image_key), []).append(thing)

    def of(self, sample: str) -> Iterator[_Listed]:
        for file, picture in self.pictures.get(sample, []):
            yield _Listed(file, picture, self.objects.get((file.file, picture.image_key), []))


class _Listed(NamedTuple):
    file: AnnotationFile
    picture: PictureEntry
    objects: Sequence[ObjectEntry]


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
        else:
            for sample in row["ids"] or ():
                for listed in look.of(sample):
                    found += _BY_CODE[code](listed, params, name)
    except _NotMechanicalError as reason:
        return ProposedFix(row["fingerprint"], code, (), str(reason))
    if not found:
        return ProposedFix(row["fingerprint"], code, (), "its image was dropped or replaced")
    return ProposedFix(row["fingerprint"], code, found)


class _NotMechanicalError(Exception):
    """Why a finding leaves something to judge."""


def _about(what: str, picture: PictureEntry, thing: ObjectEntry, after: Any) -> Fix:
    return {
        "what": what, "file": thing.file, "image_key": thing.image_key, "entry": thing.entry,
        "id": thing.annotation_id, "picture": picture.sample_id, "label": thing.label,
        "before": list(thing.box or ()), "after": after,
    }  # fmt: skip


def _outside(listed: _Listed, params: Mapping[str, Any], name: str | None) -> Iterator[Fix]:
    picture, objects = listed.picture, listed.objects
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
            raise _NotMechanicalError("a box is completely outside its image: drop or move it")
        yield {**_about("clip", picture, thing, list(after)), "within": list(sides)}


def _beyond(box: Sequence[float], width: float, height: float) -> float:
    x, y, w, h = box
    return max(-x, -y, x + w - width, y + h - height)


def _degenerate(listed: _Listed, params: Mapping[str, Any], name: str | None) -> Iterator[Fix]:
    file, picture, objects = listed
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


def _double(listed: _Listed, params: Mapping[str, Any], name: str | None) -> Iterator[Fix]:
    picture, objects = listed.picture, listed.objects
    kept: dict[str | None, list[ObjectEntry]] = defaultdict(list)
    for thing in objects:
        if thing.box is None or thing.crowd or min(thing.box[2:]) <= 0:
            continue
        others = kept[thing.category_key]
        alike = [o for o in others if _overlap(thing.box, o.box) >= params.get("min_iou", 0.9)]
        outline = (thing.rings, thing.mask, thing.keypoints)
        if any(
            is_same_box(thing.box, o.box) and outline == (o.rings, o.mask, o.keypoints)
            for o in alike
        ):
            yield _about("drop", picture, thing, None)
            continue
        if alike:
            raise _NotMechanicalError("two boxes are similar but not equal: drop the worse box")
        others.append(thing)


def _overlap(a: Sequence[float], b: Sequence[float] | None) -> float:
    assert b is not None
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both = max(wide, 0.0) * max(high, 0.0)
    return both / (a[2] * a[3] + b[2] * b[3] - both)


def _unknown_class(listed: _Listed, params: Mapping[str, Any], name: str | None) -> Iterator[Fix]:
    picture, objects = listed.picture, listed.objects
    if name is None:
        raise _NotMechanicalError("name the class: --as fix:NAME")
    for thing in objects:
        if thing.label is None and thing.kind != "label":
            fix = _about("class", picture, thing, name)
            yield {**fix, "before": thing.category_key}


def _size(listed: _Listed, params: Mapping[str, Any], name: str | None) -> Iterator[Fix]:
    file, picture, objects = listed
    declared = (picture.declared_width, picture.declared_height)
    if None in declared or picture.width is None or picture.height is None:
        return
    real = (float(picture.width), float(picture.height))
    if declared == real:
        return
    boxes = [t.box for t in objects if t.box is not None]
    if file.reading.endswith("share") or not all(_beyond(box, *real) <= 1.0 for box in boxes):
        raise _NotMechanicalError(
            "some boxes do not fit the image: check whether they were scaled with it"
        )
    yield {
        "what": "size", "file": file.file, "image_key": picture.image_key,
        "picture": picture.sample_id, "before": list(declared), "after": list(real),
    }  # fmt: skip


_BY_CODE = {
    "BOX001": _outside, "BOX002": _degenerate, "BOX003": _unknown_class, "BOX004": _double,
    "BOX005": _size,
}  # fmt: skip


def fix_entries(
    run: Path, proposed: Sequence[ProposedFix], name: str | None = None, note: str = "",
    by: str | None = None,
) -> list[Entry]:  # fmt: skip
    """Return the entries of the store for the findings that have fixes."""
    usable = {p.fingerprint: p for p in proposed if p.fixes}
    with open_for_deciding(run) as store:
        findings = load_findings(store, list(usable))
    entries = []
    for row in findings.iter_rows(named=True):
        evidence = json.loads(snapshot_finding(row))
        evidence["fixes"] = list(usable[row["fingerprint"]].fixes)
        entries.append(
            Entry(
                "finding", row["fingerprint"], None, Action.FIX, name, note, by,
                json.dumps(evidence, ensure_ascii=False),
            )
        )  # fmt: skip
    return entries


Fix = dict[str, Any]
_EQUAL = 1e-6  # px: what two readings of the same number may differ by


def is_same_box(a: Sequence[float] | None, b: Sequence[float] | None) -> bool:
    """Say whether two boxes, or sizes, are the same numbers."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(abs(x - y) <= _EQUAL * max(1.0, abs(x)) for x, y in zip(a, b, strict=True))


@dataclass(slots=True)
class AppliedFixes:
    """The fixes in effect: applied to annotations as they come; `stale` counts reasons."""

    objects: dict[tuple[str, str], list[Fix]] = field(default_factory=dict)
    classes: dict[tuple[str, str], str] = field(default_factory=dict)
    sizes: dict[tuple[str, str], Fix] = field(default_factory=dict)
    stale: Counter[str] = field(default_factory=Counter)

    def resize(self, file: str, pictures: Iterable[PictureEntry]) -> None:
        """Give the entries of a file the sizes that were decided."""
        for picture in pictures:
            fix = self.sizes.get((file, picture.image_key))
            if fix is None:
                continue
            declared = (picture.declared_width, picture.declared_height)
            if is_same_box([v or 0.0 for v in declared], fix["before"]):
                picture.declared_width, picture.declared_height = fix["after"]
                picture.resized = True
            else:
                self.stale["the size in the entry has changed"] += 1

    def apply(self, thing: ObjectEntry) -> ObjectEntry | None:
        """Return the annotation with its fixes, None where it is dropped."""
        name = self.classes.get((thing.file, thing.label or ""))
        if name is not None:
            thing.label, thing.changed = name, thing.changed | {"class"}
        fixes = self.objects.get((thing.file, thing.image_key), ())
        written = thing.box
        for fix in fixes:
            if not _names(fix, thing):
                continue
            if fix["what"] == "class":
                if fix["before"] != thing.category_key:
                    self.stale["the class of the annotation has changed"] += 1
                    continue
                thing.label, thing.changed = fix["after"], thing.changed | {"class"}
            elif not is_same_box(written, fix["before"]):
                self.stale["the box has changed"] += 1
            elif fix["after"] is None:
                return None
            else:
                _reshape(thing, fix)
        return thing


def _names(fix: Mapping[str, Any], thing: ObjectEntry) -> bool:
    if fix.get("id") is not None and thing.annotation_id is not None:
        return bool(fix["id"] == thing.annotation_id and fix["entry"] == thing.entry) or (
            bool(fix["id"] == thing.annotation_id) and is_same_box(thing.box, fix["before"])
        )
    return bool(fix["entry"] == thing.entry)


def _reshape(thing: ObjectEntry, fix: Mapping[str, Any]) -> None:
    """Give an annotation the box of its fix; its rings are cut likewise, its area follows."""
    assert thing.box is not None
    box_area = thing.box[2] * thing.box[3]
    x, y, w, h = fix["after"]
    was_outlined = bool(thing.rings)
    thing.box, thing.changed = (x, y, w, h), thing.changed | {"box"}
    if was_outlined and "within" in fix:
        cut = [clip_ring(r, *fix["within"]) if None not in r else r for r in thing.rings]
        thing.rings = [ring for ring in cut if len(ring) >= 6]
    if thing.area is None:
        return
    by_box = abs(thing.area - box_area) <= 1e-3 * max(abs(box_area), 1.0)
    if thing.rings and not by_box:
        thing.area = sum(ring_area(ring) for ring in thing.rings if None not in ring)
    else:
        thing.area = w * h if by_box or thing.mask is None else object_area(thing)


def find_fixes(run: Path, store: Store) -> AppliedFixes:
    """Return the fixes in effect, of pictures that are as they were when it was decided."""
    applied, decided = AppliedFixes(), _decided_fixes(run)
    members = [
        (number, *member) for number, said in decided.items() for member in said.get("members", ())
    ]
    schema = {"decision": pl.Int64, "subject": pl.String, "content_hash": pl.String}
    here = resolve(store, pl.DataFrame(members, schema, orient="row"))
    gone = set(here.filter(pl.col("sample_id").is_null())["decision"])
    with DecisionStore(run).reading_evidence():
        for number, evidence in decided.items():
            fixes = evidence.get("fixes", [])
            if number in gone:
                applied.stale["their image is missing or has changed"] += len(fixes)
                continue
            for fix in fixes:
                what, file, before, after = (fix[k] for k in ("what", "file", "before", "after"))
                if what == "rename":
                    applied.classes[file, before] = after
                elif what == "size":
                    applied.sizes[file, fix["image_key"]] = fix
                else:
                    applied.objects.setdefault((file, fix["image_key"]), []).append(fix)
    return applied


def count_fixes(run: Path) -> tuple[int, int]:
    """Return how many findings are to be fixed in exports, and how many fixes that makes."""
    fixes = [len(said.get("fixes", [])) for said in _decided_fixes(run).values()]
    return len(fixes), sum(fixes)


def _decided_fixes(run: Path) -> dict[int, dict[str, Any]]:
    """Return what the decisions to fix keep, by the number of the decision."""
    current = DecisionStore(run).current()
    rows = current.filter((pl.col("kind") == "finding") & (pl.col("verb") == Action.FIX.value))
    return {i: json.loads(text or "{}") for i, text in rows.select("id", "evidence").iter_rows()}
