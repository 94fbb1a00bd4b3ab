"""Which folders mean what: infers the layout of a tree from its listing, with the reason.

A `FolderLayout` gives each level of folders a role: `split`, `class`, or `-` (no meaning).
Containers (`images`) take no role, annotation folders are not entered, and a lone outer folder is
skipped; the class is the folder directly under the split, or the root, as in torchvision's
ImageFolder. Where boxes or captions label the pictures, folders are not classes, unless several
splits contain the same class folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, cast

from audit.errors import UsageError
from audit.records import Layout, sample_id
from audit.sources import names
from audit.sources.beside import NOT_CLASS_WORDS, NOTHING, TablesBeside, find_tables_beside
from audit.sources.folder_listing import FOLDERS_LISTED, FolderListing, Level
from audit.sources.listed_splits import NO_SPLITS, ListedSplits, find_listed_splits, unused_lists
from audit.sources.listed_tree import ListedTree

# Only the head and the tail of a file are read: keys come in any order, and files reach gigabytes.
_COCO = re.compile(r'"(images|annotations|categories)"\s*:\s*\[')
_YOLO_LINE = re.compile(r"\s*\d+(?:[ \t]+-?\d*\.?\d+(?:[eE][-+]?\d+)?){4,}[ \t]*(?:\r?\n|$)")
_YOLO_YAML = re.compile(r"""(?ms)(?=.*^["']?names["']?\s*:).*^["']?(?:train|val|nc)["']?\s*:""")


class Sign(NamedTuple):
    """What shows a convention: files of these extensions, `most` in a folder, by their text."""

    extensions: tuple[str, ...]
    shows: Callable[[str], object]
    reason: str
    most: int = 8


def _is_open_images(text: str) -> bool:
    columns = {name.strip() for name in text.partition("\n")[0].split(",")}
    return "ImageID" in columns and not columns.isdisjoint(("LabelName", "OriginalURL"))


def _is_yolo(text: str) -> bool:
    # `1 60.0 27.0 325.0 304.0`, `2 139.0 ...` is a table of the boxes of pictures by number (CUB)
    first, second = (line.split() for line in (text + "\n\n").splitlines()[:2])
    by_number = first[:1] == ["1"] and second[:1] == ["2"] and "".join(first[3:4]) > "1"
    return bool(_YOLO_LINE.match(text)) and not by_number


_XML = "is an <annotation> of one image"
CONVENTIONS: Mapping[str, tuple[Sign, ...]] = MappingProxyType(
    {
        "COCO": (
            Sign(
                ("json",), lambda t: len(set(_COCO.findall(t))) > 1, "lists images and annotations"
            ),
        ),
        "YOLO": (
            Sign(("yaml", "yml"), _YOLO_YAML.match, "names classes and splits"),
            Sign(("txt",), _is_yolo, "has lines of class and box"),
        ),
        "VOC": (Sign(("xml",), lambda t: "<annotation" in t and "<polygon>" not in t, _XML),),
        "LabelMe": (Sign(("xml",), lambda t: "<annotation" in t and "<polygon>" in t, _XML),),
        "Open Images": (Sign(("csv",), _is_open_images, "lists images by ImageID", 16),),
    }
)
"""By name, in the order in which they are tried."""


def find_evidence(tree: FolderListing, signs: tuple[Sign, ...]) -> str | None:
    """Return which file shows a convention, and what it is; None without one."""
    for folder in tree.near_folders():
        for sign in signs:
            for path in tree.files(folder, *sign.extensions, limit=sign.most):
                if sign.shows(tree.head_and_tail(path)):
                    return f"{os.path.relpath(path, tree.root)} {sign.reason}"
    return None


ROLES: Mapping[str, tuple[str, ...]] = {
    "split/class/file": ("split", "class"),
    "class/file": ("class",),
    "split/file": ("split",),
    "flat": (),
    "class/split/file": ("class", "split"),
}


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """How the folders of one root are read: roles by level, outer folders to skip, split names."""

    layout: Layout
    roles: tuple[str, ...]
    wrappers: tuple[str, ...] = ()
    splits: Mapping[str, str] = field(default_factory=dict)
    saw_images: bool = False
    listed: ListedSplits = NO_SPLITS
    beside: TablesBeside = NOTHING
    unused: str = ""

    def because(self, reason: str) -> FolderLayout:
        """Return the same layout with one more reason."""
        layout = replace(self.layout, reason=f"{self.layout.reason}; {reason}")
        return replace(self, layout=layout)

    def without_classes(self) -> FolderLayout:
        """Return the layout in which folders are splits or nothing."""
        roles = tuple(role for role in self.roles if role != "class")
        layout = replace(self.layout, name="split/file" if roles else "flat")
        return replace(self, layout=layout, roles=roles)


def option_of(convention: str) -> str:
    """Return the name of a convention as `--layout` takes it."""
    return convention.lower().replace(" ", "-")


def layout_names() -> tuple[str, ...]:
    """Return every name that `--layout` takes for a folder."""
    return (*ROLES, *map(option_of, CONVENTIONS))


def infer_layout(
    root: str, wanted: str | None = None, listed: ListedTree | None = None
) -> FolderLayout:
    """Infer how to read `root`, or `listed`, or use `wanted`; UsageError for an unknown layout."""
    if wanted is not None and wanted not in layout_names():
        raise UsageError(
            f"Unknown layout {wanted!r}: use one of {', '.join(layout_names())} (manifest for a "
            "table), or omit --layout to have it inferred."
        )
    tree = FolderListing(root)
    if listed is not None:
        tree = FolderListing(root, listed.entries, listed.head_and_tail)
    inferred = _infer_roles(tree)
    annotation, evidence = _annotation(tree, None if wanted in ROLES else wanted)
    if wanted in ROLES:
        chosen = _force_layout(tree, inferred, cast(str, wanted), annotation)
    elif not annotation:
        chosen = inferred
    elif wanted is None and _classes_recur(tree, inferred):
        chosen = inferred.because(f"also {annotation} annotations ({evidence})")
        chosen = replace(chosen, layout=replace(chosen.layout, annotations=annotation))
    else:
        chosen = _drop_class_labels(inferred, annotation, evidence)
    if listed is None and len(set(chosen.splits.values())) < 2:
        found = find_listed_splits(tree)
        if found.reason:
            chosen = replace(chosen.because(sample_id(found.reason)), listed=found)
    if listed is None and wanted not in ROLES and not chosen.layout.annotations:
        chosen = _with_tables(tree, chosen)
    if wanted is None and (why := _why_no_classes(tree, chosen)):
        chosen = chosen.without_classes().because(why)
    by_table = any(row.split for table in chosen.beside.tables for row in table.rows.values())
    if listed is None and not (chosen.splits or chosen.listed.reason or by_table):
        chosen = replace(chosen, unused=unused_lists(tree))
    return replace(chosen, saw_images=tree.saw_images())


def _why_no_classes(tree: FolderListing, chosen: FolderLayout) -> str:
    """Return why folders that look like those of classes are none, empty where they may be."""
    folders = _class_folders(tree, chosen)
    if chosen.roles == ROLES["class/file"] and len(_filled(tree)) == 1:
        return "a single folder of images is not a class"
    if _are_numbered(folders) and not NOT_CLASS_WORDS.isdisjoint(names.words(min(folders))):
        return "its folders are numbered patients, sessions or similar groups, not classes"
    return ""


def _with_tables(tree: FolderListing, chosen: FolderLayout) -> FolderLayout:
    """Return the layout with the tables that tell what its folders do not."""
    open_roles = [role for role in ("label", "split") if not _is_told(tree, chosen, role)]
    beside = NOTHING
    if "label" not in open_roles and _are_numbered(_class_folders(tree, chosen)):
        beside = find_tables_beside(tree, chosen.splits, [*open_roles, "label"], sure=True)
    if beside.tables:
        open_roles.append("label")
    elif open_roles:
        beside = find_tables_beside(tree, chosen.splits, open_roles)
    if "label" in open_roles and "class" in chosen.roles and beside.names_pictures:
        chosen = chosen.without_classes()
        reason = "its folders contain images, but their names are not classes"
        chosen = replace(chosen, layout=Layout(chosen.layout.name, reason))
    return replace(chosen.because(beside.reason) if beside.reason else chosen, beside=beside)


def _class_folders(tree: FolderListing, chosen: FolderLayout) -> Collection[str]:
    level, _ = _open_wrappers(tree)
    if chosen.roles == ROLES["split/class/file"]:
        return set[str]().union(*_inner(tree, level, list(chosen.splits)).values())
    return level.folders if chosen.roles == ROLES["class/file"] else ()


def _are_numbered(folders: Collection[str]) -> bool:
    """Return whether names differ in their numbers alone, `patient_001`: a table may tell more."""
    return len(folders) > 1 and len({re.sub(r"\d+", "0", name) for name in folders}) == 1


def _is_told(tree: FolderListing, chosen: FolderLayout, role: str) -> bool:
    if role == "split":
        return "split" in chosen.roles or bool(chosen.listed.reason)
    if chosen.roles != ROLES["class/file"]:
        return "class" in chosen.roles
    filled = _filled(tree)
    # one folder alone, and `images_001` beside `images_002`, hold what a table may tell apart
    together = _are_numbered(filled) and all(map(names.has_container_word, filled))
    return len(filled) > 1 and not together


def _filled(tree: FolderListing) -> list[str]:
    """Return the folders under the root in which pictures or folders are."""
    level, _ = _open_wrappers(tree)
    return [
        name for name, paths in islice(level.folders.items(), FOLDERS_LISTED)
        if any((inside := tree.level(path)).n_images or inside.folders for path in paths)
    ]  # fmt: skip


def _annotation(tree: FolderListing, wanted: str | None) -> tuple[str | None, str]:
    for name, signs in CONVENTIONS.items():
        if wanted == option_of(name):
            return name, "given by --layout"
        if wanted is None and (evidence := find_evidence(tree, signs)):
            return name, sample_id(evidence)
    return None, ""


def _force_layout(
    tree: FolderListing, inferred: FolderLayout, wanted: str, annotation: str | None
) -> FolderLayout:
    layout = Layout(wanted, "given by --layout", annotation)
    # An outer folder that another layout skips may be the class in this one.
    wrappers = inferred.wrappers if len(ROLES[wanted]) <= len(inferred.roles) else ()
    splits = inferred.splits
    if ROLES[wanted][:1] == ("split",) and inferred.roles[:1] != ("split",):
        splits = names.split_values(tree.level(tree.root).folders)
    return FolderLayout(layout, ROLES[wanted], wrappers, splits)


def _classes_recur(tree: FolderListing, shape: FolderLayout) -> bool:
    """Say whether several splits hold the same class folders: then they label, boxes or not."""
    if shape.roles != ROLES["split/class/file"]:
        return False
    level, _ = _open_wrappers(tree)
    inner = list(_inner(tree, level, list(shape.splits)).values())
    return len(inner) > 1 and len(set.intersection(*inner)) > 1


def _drop_class_labels(shape: FolderLayout, annotation: str, evidence: str) -> FolderLayout:
    """Return the layout without class folders: the annotations hold the labels."""
    roles = tuple("-" if role == "class" else role for role in shape.roles)
    roles = roles[:-1] if roles[-1:] == ("-",) else roles
    name = "split/file" if "split" in roles else "flat"
    splits = f"; splits: {_list_names(list(shape.splits))}" if "split" in roles else ""
    reason = f"{annotation} annotations ({evidence}), so folders are not classes{splits}"
    return replace(shape, layout=Layout(name, reason, annotation), roles=roles)


def _infer_roles(tree: FolderListing) -> FolderLayout:
    level, wrappers = _open_wrappers(tree)
    splits = names.split_values(level.folders)
    if _is_split_level(tree, level, splits):
        shape = _layout_with_splits(tree, level, splits)
    elif level.folders and _mostly_inside(tree, level):
        shape = _layout_with_classes(tree, level)
    else:
        reason = "images are directly under the root, no class folders"
        if level.folders:
            reason = (
                "most images are directly under the root, so its folders are not treated as classes"
            )
        shape = FolderLayout(Layout("flat", reason), ())
    if not wrappers:
        return shape
    reason = f"{shape.layout.reason} (inside {sample_id('/'.join(wrappers))})"
    return replace(shape, layout=replace(shape.layout, reason=reason), wrappers=wrappers)


def _open_wrappers(tree: FolderListing) -> tuple[Level, tuple[str, ...]]:
    level, wrappers = tree.level(tree.root), list[str]()
    while len(level.folders) == 1 and not level.n_images and len(wrappers) < 4:
        [(name, paths)] = level.folders.items()
        inner = tree.level(paths[0])
        if names.split_word(name) or not inner.folders or len(paths) > 1:
            break
        wrappers.append(name)
        level = inner
    return level, tuple(wrappers)


def _is_split_level(tree: FolderListing, level: Level, splits: Mapping[str, str]) -> bool:
    others = [name for name in level.folders if name not in splits]
    if len(set(splits.values())) > 1 or (splits and len(splits) >= len(others)):
        return True
    # `train` alone: a split if it alone has class folders; beside bus and truck it is a class
    nested = [n for n in others[:FOLDERS_LISTED] if tree.level(level.folders[n][0]).folders]
    return bool(splits) and not nested and bool(_inner(tree, level, list(splits)))


def _mostly_inside(tree: FolderListing, level: Level) -> bool:
    """Say whether the folders hold more pictures than lie beside them; many folders always do."""
    if not level.n_images or len(level.folders) > FOLDERS_LISTED:
        return True
    levels = [tree.level(path) for paths in level.folders.values() for path in paths]
    inside = sum(tree.level(p).n_images for x in levels for ps in x.folders.values() for p in ps)
    return sum(x.n_images for x in levels) + inside >= level.n_images


def _inner(tree: FolderListing, level: Level, folders: Sequence[str]) -> dict[str, set[str]]:
    """Return {folder: meaningful folders inside} of those that have any."""
    inside = {
        name: {inner for path in level.folders[name] for inner in tree.level(path).folders}
        for name in folders
    }
    return {name: inner for name, inner in inside.items() if inner}


def _layout_with_splits(
    tree: FolderListing, level: Level, splits: Mapping[str, str]
) -> FolderLayout:
    inner = _inner(tree, level, list(splits))
    listed = _list_names(list(splits))
    if not inner:
        layout = Layout("split/file", f"{listed} contain images and no class folders")
        return FolderLayout(layout, ROLES[layout.name], splits=splits)
    counts = sorted({len(classes) for classes in inner.values()})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    folders = f"{number} class folder{'s' if counts[-1] != 1 else ''}"
    verb, each = ("contain", " each") if len(inner) > 1 else ("contains", "")
    reason = f"{_list_names(list(inner))} {verb} {folders}{each}"
    without = [name for name in splits if name not in inner]
    if without:
        reason += f", {_list_names(without)} none"
    layout = Layout("split/class/file", reason)
    return FolderLayout(layout, ROLES[layout.name], splits=splits)


def _layout_with_classes(tree: FolderListing, level: Level) -> FolderLayout:
    # The first folders by name speak for all: listing thousands would cost as much as the walk.
    listed = sorted(level.folders)[:FOLDERS_LISTED]
    inner = _inner(tree, level, listed)
    below = names.split_values({name for folders in inner.values() for name in folders})
    with_splits = [n for n, folders in inner.items() if len({below.get(f) for f in folders}) > 1]
    if below and len(with_splits) * 2 > len(listed):
        reason = f"{len(level.folders)} folders that contain {_list_names(list(below))}"
        layout = Layout("class/split/file", reason)
        return FolderLayout(layout, ROLES["class/split/file"], splits=below)
    if _are_versions(tree, level, inner):
        reason = f"{_list_names(listed)} contain versions of the same images in the same folders"
        return FolderLayout(Layout("class/file", reason), ("-", "class"))
    plural = "s" if len(level.folders) != 1 else ""
    reason = f"{len(level.folders):,} folder{plural} under the root, not named like splits"
    return FolderLayout(Layout("class/file", reason), ROLES["class/file"])


def _are_versions(tree: FolderListing, level: Level, inner: Mapping[str, set[str]]) -> bool:
    """Return whether all folders hold the same folders with the same files: `color`, `grey`."""
    classes = next(iter(inner.values()), set[str]())
    if len(classes) < 2 or not len(inner) == len(level.folders) > 1:
        return False
    paths = [f"{path}/{min(classes)}" for paths in level.folders.values() for path in paths]
    files = {frozenset(os.path.splitext(n)[0] for n in tree.entries(p).files) for p in paths}
    same = all(folders == classes for folders in inner.values())
    return same and len(files) == 1 and bool(min(files))


def _list_names(folders: Sequence[str], most: int = 6) -> str:
    rank = {"train": 0, "val": 1, "test": 2}
    ordered = sorted(folders, key=lambda name: (rank.get(names.split_word(name) or "", 3), name))
    shown = [sample_id(name) for name in ordered[:most]]
    more = len(folders) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
