"""Which folders mean what: infers the layout of a tree from a quick look and keeps the reason.

A `Plan` gives each level of folders a role, from the root down: `split`, `class`, or `-` (no
meaning). Containers (`images`, `data`) take no role wherever they stand, annotation folders are not
entered, and a lone outer folder (an archive unpacked into its own folder) is passed through. The
class is the folder directly under the split, or the root, as in torchvision's ImageFolder; what
lies deeper belongs to it. Where boxes or captions label the pictures (COCO, YOLO, VOC), folders are
no classes and labels stay empty, unless several splits hold the same class folders.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol, cast

from audit.errors import UsageError
from audit.records import Layout, sample_id
from audit.sources import names
from audit.sources.folder_listing import FOLDERS_LOOKED_INTO, Level, Look

ROLES: Mapping[str, tuple[str, ...]] = {
    "split/class/file": ("split", "class"),
    "class/file": ("class",),
    "split/file": ("split",),
    "flat": (),
    "class/split/file": ("class", "split"),
}


class Convention(Protocol):
    """A module of this package that recognises one way of annotating pictures."""

    NAME: str
    ORDER: int

    def sniff(self, look: Look) -> str | None:
        """Return the evidence, None without."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the folders of one root are read: roles by level, outer folders to pass, split names."""

    layout: Layout
    roles: tuple[str, ...]
    wrappers: tuple[str, ...] = ()
    splits: Mapping[str, str] = field(default_factory=dict)
    saw_images: bool = False


@cache
def conventions() -> tuple[Convention, ...]:
    """Return the annotation conventions in the order they are tried: every module with `sniff`."""
    package = __name__.rpartition(".")[0]
    path = importlib.import_module(package).__path__
    found = [importlib.import_module(f"{package}.{m.name}") for m in pkgutil.iter_modules(path)]
    known = [cast(Convention, module) for module in found if hasattr(module, "sniff")]
    return tuple(sorted(known, key=lambda module: module.ORDER))


def option_of(convention: Convention) -> str:
    """Return the name of a convention as `--layout` takes it."""
    return convention.NAME.lower().replace(" ", "-")


def layout_names() -> tuple[str, ...]:
    """Return every name that `--layout` takes for a folder."""
    return (*ROLES, *(option_of(convention) for convention in conventions()))


def plan(root: str, wanted: str | None = None) -> Plan:
    """Infer how to read `root`, or obey `wanted`; raises UsageError for an unknown layout."""
    if wanted is not None and wanted not in layout_names():
        raise UsageError(
            f"Unknown layout {wanted!r}: use one of {', '.join(layout_names())} (manifest for a "
            "table), or leave --layout away to have it inferred."
        )
    look = Look(root)
    inferred = _shape(look)
    if wanted in ROLES:
        chosen = _forced(look, inferred, cast(str, wanted))
    else:
        annotation, evidence = _annotation(look, wanted)
        if annotation and wanted is None and _classes_recur(look, inferred):
            chosen = _labelled_beside(inferred, annotation, evidence)
        else:
            chosen = _unlabelled(inferred, annotation, evidence) if annotation else inferred
    return replace(chosen, saw_images=look.saw_images())


def _annotation(look: Look, wanted: str | None = None) -> tuple[str | None, str]:
    for convention in conventions():
        if wanted == option_of(convention):
            return convention.NAME, "given by --layout"
        if wanted is None and (evidence := convention.sniff(look)):
            return convention.NAME, sample_id(evidence)
    return None, ""


def _forced(look: Look, inferred: Plan, wanted: str) -> Plan:
    annotation, _ = _annotation(look)
    layout = Layout(wanted, "given by --layout", annotation)
    # What was passed through on the way to another layout may be the class in this one.
    wrappers = inferred.wrappers if len(ROLES[wanted]) <= len(inferred.roles) else ()
    splits = inferred.splits
    if ROLES[wanted][:1] == ("split",) and inferred.roles[:1] != ("split",):
        splits = names.split_values(look.level(look.root).folders)
    return Plan(layout, ROLES[wanted], wrappers, splits)


def _classes_recur(look: Look, shape: Plan) -> bool:
    """Say whether several splits hold the same class folders: then they label, boxes or not."""
    if shape.roles != ROLES["split/class/file"]:
        return False
    level, _ = _unwrapped(look)
    inner = list(_inner(look, level, list(shape.splits)).values())
    return len(inner) > 1 and len(set.intersection(*inner)) > 1


def _labelled_beside(shape: Plan, annotation: str, evidence: str) -> Plan:
    reason = f"{shape.layout.reason}; {annotation} annotations too ({evidence})"
    return replace(shape, layout=replace(shape.layout, reason=reason, annotations=annotation))


def _unlabelled(shape: Plan, annotation: str, evidence: str) -> Plan:
    """Return the plan with class folders made meaningless: the annotations hold the labels."""
    roles = tuple("-" if role == "class" else role for role in shape.roles)
    if roles and roles[-1] == "-":
        roles = roles[:-1]
    name = "split/file" if "split" in roles else "flat"
    splits = f"; splits: {_listed(list(shape.splits))}" if "split" in roles else ""
    reason = f"{annotation} annotations ({evidence}), so folders are not classes{splits}"
    return replace(shape, layout=Layout(name, reason, annotation), roles=roles)


def _shape(look: Look) -> Plan:
    level, wrappers = _unwrapped(look)
    splits = names.split_values(level.folders)
    if _is_split_level(look, level, splits):
        shape = _split_first(look, level, splits)
    elif level.folders and _mostly_inside(look, level):
        shape = _class_first(look, level)
    elif level.folders:
        reason = "most images lie directly under the root, so its folders are not taken for classes"
        shape = Plan(Layout("flat", reason), ())
    else:
        shape = Plan(Layout("flat", "images lie directly under the root, no class folders"), ())
    if not wrappers:
        return shape
    reason = f"{shape.layout.reason} (inside {sample_id('/'.join(wrappers))})"
    return replace(shape, layout=replace(shape.layout, reason=reason), wrappers=wrappers)


def _unwrapped(look: Look) -> tuple[Level, tuple[str, ...]]:
    level, wrappers = look.level(look.root), list[str]()
    while len(level.folders) == 1 and not level.n_images and len(wrappers) < 4:
        [(name, paths)] = level.folders.items()
        inner = look.level(paths[0])
        if names.split_word(name) or not inner.folders or len(paths) > 1:
            break
        wrappers.append(name)
        level = inner
    return level, tuple(wrappers)


def _is_split_level(look: Look, level: Level, splits: Mapping[str, str]) -> bool:
    others = [name for name in level.folders if name not in splits]
    if len(set(splits.values())) > 1 or (splits and len(splits) >= len(others)):
        return True
    # `train` alone among others: a split if it has class folders and the others have none;
    # beside airplane, bus and truck it is the class of trains.
    nested = [n for n in others[:FOLDERS_LOOKED_INTO] if look.level(level.folders[n][0]).folders]
    return bool(splits) and not nested and bool(_inner(look, level, list(splits)))


def _mostly_inside(look: Look, level: Level) -> bool:
    """Say whether the folders hold more pictures than lie beside them; many folders always do."""
    if not level.n_images or len(level.folders) > FOLDERS_LOOKED_INTO:
        return True
    levels = [look.level(path) for paths in level.folders.values() for path in paths]
    inside = sum(look.level(p).n_images for x in levels for ps in x.folders.values() for p in ps)
    return sum(x.n_images for x in levels) + inside >= level.n_images


def _inner(look: Look, level: Level, folders: Sequence[str]) -> dict[str, set[str]]:
    """Return {folder: meaningful folders inside} of those that have any."""
    found = {
        name: {inner for path in level.folders[name] for inner in look.level(path).folders}
        for name in folders
    }
    return {name: inner for name, inner in found.items() if inner}


def _split_first(look: Look, level: Level, splits: Mapping[str, str]) -> Plan:
    inner = _inner(look, level, list(splits))
    listed = _listed(list(splits))
    if not inner:
        layout = Layout("split/file", f"{listed} hold images and no class folders")
        return Plan(layout, ROLES["split/file"], splits=splits)
    counts = sorted({len(classes) for classes in inner.values()})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    plural = "s" if counts[-1] != 1 else ""
    each = " each" if len(inner) > 1 else ""
    verb = "contain" if len(inner) > 1 else "contains"
    reason = f"{_listed(list(inner))} {verb} {number} class folder{plural}{each}"
    without = [name for name in splits if name not in inner]
    if without:
        reason += f", {_listed(without)} none"
    return Plan(Layout("split/class/file", reason), ROLES["split/class/file"], splits=splits)


def _class_first(look: Look, level: Level) -> Plan:
    looked = sorted(level.folders)[:FOLDERS_LOOKED_INTO]
    inner = _inner(look, level, looked)
    below = names.split_values({name for folders in inner.values() for name in folders})
    with_splits = [n for n, folders in inner.items() if len({below.get(f) for f in folders}) > 1]
    if below and len(with_splits) * 2 > len(looked):
        reason = f"{len(level.folders)} folders, each with {_listed(list(below))} inside"
        layout = Layout("class/split/file", reason)
        return Plan(layout, ROLES["class/split/file"], splits=below)
    count = len(level.folders)
    plural = "s" if count != 1 else ""
    reason = f"{count:,} folder{plural} under the root, not named like splits"
    return Plan(Layout("class/file", reason), ROLES["class/file"])


def _listed(folders: Sequence[str], most: int = 6) -> str:
    rank = {"train": 0, "val": 1, "test": 2}
    ordered = sorted(folders, key=lambda name: (rank.get(names.split_word(name) or "", 3), name))
    shown = [sample_id(name) for name in ordered[:most]]
    more = len(folders) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
