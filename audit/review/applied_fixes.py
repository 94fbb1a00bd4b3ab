"""Apply the fixes of annotations that are in effect: to annotations as an export writes them.

A fix applies only while its annotation and its picture are those it was decided about; else it is
counted as stale, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from audit.annotations.clipping import clip_ring, ring_area
from audit.annotations.entries import ObjectEntry, PictureEntry, object_area
from audit.records import Action
from audit.review.ledger import Ledger
from audit.review.waivers import resolve
from audit.run.store import Store

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
    findings: int = 0
    total: int = 0
    _stale: dict[str, int] = field(default_factory=dict)

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
                self.outdated("the size in the entry is another one now")

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
                    self.outdated("the annotation has another class now")
                    continue
                thing.label, thing.changed = fix["after"], thing.changed | {"class"}
            elif not is_same_box(written, fix["before"]):
                self.outdated("the box is another one now")
            elif fix["after"] is None:
                return None
            else:
                _reshape(thing, fix)
        return thing

    def outdated(self, reason: str, n: int = 1) -> None:
        """Count fixes that do not apply."""
        self._stale[reason] = self._stale.get(reason, 0) + n

    def stale_sentences(self) -> list[str]:
        """Return a sentence per reason for which fixes were not applied."""
        return [
            f"{n:,} {'fix was' if n == 1 else 'fixes were'} not applied: {reason}."
            for reason, n in self._stale.items()
        ]


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
    current = Ledger(run).current()
    rows = current.filter((pl.col("kind") == "finding") & (pl.col("verb") == Action.FIX.value))
    applied = AppliedFixes()
    members = []
    for row in rows.iter_rows(named=True):
        evidence = json.loads(row["evidence"] or "{}")
        members += [(row["id"], *member) for member in evidence.get("members", ())]
    schema = {"decision": pl.Int64, "subject": pl.String, "content_hash": pl.String}
    here = resolve(store, pl.DataFrame(members, schema, orient="row"))
    gone = set(here.filter(pl.col("sample_id").is_null())["decision"])
    for row in rows.iter_rows(named=True):
        fixes = json.loads(row["evidence"] or "{}").get("fixes", [])
        if row["id"] in gone:
            applied.outdated("their picture is gone or has another content", len(fixes))
            continue
        applied.findings += 1
        applied.total += len(fixes)
        for fix in fixes:
            _file_fix(applied, fix)
    return applied


def _file_fix(applied: AppliedFixes, fix: Fix) -> None:
    if fix["what"] == "rename":
        applied.classes[fix["file"], fix["before"]] = fix["after"]
    elif fix["what"] == "size":
        applied.sizes[fix["file"], fix["image_key"]] = fix
    else:
        applied.objects.setdefault((fix["file"], fix["image_key"]), []).append(fix)


def count_fixes(run: Path) -> tuple[int, int]:
    """Return how many findings are to be fixed in exports, and how many fixes that makes."""
    current = Ledger(run).current()
    if current.is_empty():
        return 0, 0
    rows = current.filter((pl.col("kind") == "finding") & (pl.col("verb") == Action.FIX.value))
    fixes = [len(json.loads(text or "{}").get("fixes", [])) for text in rows["evidence"]]
    return len(fixes), sum(fixes)
