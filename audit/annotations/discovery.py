"""Which files below a root hold annotations, and in what form: decided from names and first bytes.

JSON, XML and CSV files are recognised by their first and last 64 KiB. A text file is a label of
YOLO only where its folder goes with a folder of images and its lines look like labels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from audit.records import sample_id
from audit.sources.folder import FolderReader
from audit.sources.folder_listing import FolderEntries, head_and_tail, is_hidden, list_folder
from audit.sources.formats import KINDS, extension_of_name
from audit.sources.listed_tree import ListedTree
from audit.sources.manifest import ManifestReader
from audit.sources.tables import first_column, number_columns
from audit.sources.walk import Exclusion
from dataset_preflight.foundation.files import regular

SNIFFED = 20  # files of one folder that are opened to learn what the folder holds
_COCO = re.compile(r'"(images|annotations|categories)"\s*:\s*\[')
_ANNOTATION = re.compile(r"<annotation[\s>]")  # `annotations` are those of CVAT
_LABELME = re.compile(r'"(shapes|imagePath|imageHeight)"\s*:')
_LABEL_LINE = re.compile(r"\s*\S+(?:[ \t]+[-+]?(?:\d*\.?\d+(?:e[-+]?\d+)?|nan|inf)){4,}\s*$", re.I)
# Pascal VOC: an index of a class for each pixel; SegmentationObject beside it tells objects apart.
MASK_FOLDERS = ("SegmentationClass", "SegmentationClassAug")
OBJECT_MASKS = "SegmentationObject"
_PICTURES, _LABELS = (
    ("images", "Images", "JPEGImages", "imgs"),
    ("labels", "Annotations", "labelTxt", *MASK_FOLDERS),
)
_NOT_LABELS = re.compile(
    r"(classes|names|labels|labelmap|readme|license|train|val|test|trainval|index|synsets)[\w.-]*$",
    re.I,
)
PICTURE = (
    "filename", "file_name", "image", "image_path", "path", "file", "image_name", "img", "imageid",
    "image_id",
)  # fmt: skip
LABEL = ("class", "label", "class_name", "category", "name", "label_name", "object")
_OPEN_IMAGES = frozenset(("imageid", "labelname", "xmin", "xmax", "ymin", "ymax"))
_DESCRIPTIONS = re.compile("class[-_]descriptions")
_FILES = ("json", "xml", "txt", "csv")


@dataclass(slots=True)
class Tree:
    """The annotation-like files of one root or `listed`: {folder: names} by extension."""

    root: str
    source: str
    files: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    named: list[str] = field(default_factory=list)  # yaml and names files, paths below the root
    listed: ListedTree | None = field(default=None, repr=False)

    def head_and_tail(self, path: str) -> str:
        """Return the first and the last 64 KiB of a file by its path below the root."""
        if self.listed is None:
            return head_and_tail(os.path.join(self.root, path))
        return self.listed.head_and_tail(f"{self.root}/{path}")

    def entries(self, folder: str) -> FolderEntries:
        """Return what is in a folder by its path below the root; raises OSError."""
        path = os.path.join(self.root, folder)
        return self.listed.entries(path.rstrip("/")) if self.listed else list_folder(path)

    def stems(self, folder: str) -> set[str]:
        """Return the pictures of a folder, by their names without extension."""
        if folder not in self.folders:
            return set()
        try:
            files = self.entries(folder).files
        except OSError:
            return set()
        masks = _is_mask_folder(folder)
        return {
            name.rpartition(".")[0]
            for name in files
            if KINDS.get(extension := extension_of_name(name)) == "image"
            and not (masks and extension == "png")
        }


@dataclass(frozen=True, slots=True)
class AnnotationGroup:
    """Annotation files that are read together: one large one, or the small ones of one folder."""

    format: str
    folder: str  # below the root, '' or ending with '/'
    names: Sequence[str]
    tree: Tree = field(compare=False, repr=False)
    manifest: ManifestReader | None = field(default=None, compare=False, repr=False)

    @property
    def single(self) -> bool:
        """Whether the group is one file for many pictures."""
        return self.format in ("COCO", "Open Images", "table", "manifest")

    @property
    def file(self) -> str:
        """The id of the file, or of the folder of small ones."""
        path = self.folder + self.names[0] if self.single else self.folder.rstrip("/") or "."
        return sample_id(path, self.tree.source)

    @property
    def above(self) -> str:
        """The folder above its own, '' or ending with '/'."""
        return self.folder[: self.folder.rstrip("/").rfind("/") + 1]

    @property
    def descriptions(self) -> list[str]:
        """The tables of class names that Open Images puts beside its boxes."""
        tables = self.tree.files.get("csv", {}).get(self.folder, [])
        return [name for name in tables if _DESCRIPTIONS.search(name)]

    def path(self, name: str) -> str:
        """Return the path of one of its files."""
        return os.path.join(self.tree.root, self.folder + name)

    def key(self) -> str:
        """Return what tells whether a file changed: size, mtime and ctime of all."""
        return self._state_of(self.folder, self.names)

    def key_of_names(self) -> str:
        """Return what tells whether a file changed that its reader may ask for class names."""
        if self.format == "Open Images":
            return self._state_of(self.folder, self.descriptions)
        asks = self.format in ("YOLO", "masks")
        return self._state_of("", self.tree.named) if asks else ""

    def _state_of(self, below: str, names: Sequence[str]) -> str:
        import hashlib

        root, state = self.tree.root, hashlib.blake2b(digest_size=16)
        folder = os.path.join(root, below, "")
        for name in names:
            try:
                if self.tree.listed is not None:
                    at = self.tree.listed.status(f"{root}/{below}{name}")
                    text = f"{name}\0{at.uri} {at.n_bytes} {at.mtime_ns} {at.ctime_ns}\n"
                else:
                    s = os.stat(folder + name)
                    text = f"{name}\0{s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}\n"
            except OSError as error:
                text = f"{name}\0{error.errno}\n"
            state.update(text.encode("utf-8", "surrogateescape"))
        return state.hexdigest()


def list_tree(scope: FolderReader) -> Tree:
    """List the files of a tree that may hold annotations, in a fixed order."""
    tree = Tree(scope.root, scope.name, listed=scope.listed)
    exclusion, waiting = Exclusion(scope.given.exclude), [""]
    seen = set(map(os.path.realpath, scope.given.ignore))
    while waiting:
        folder = waiting.pop()
        path = os.path.join(scope.root, folder)
        real = path if scope.listed else os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        try:
            # of what the walk for pictures listed it keeps no pictures, which may be masks
            met = {} if scope.listed or _is_mask_folder(folder) else scope.met
            entries = met.get(path.rstrip("/") or "/") or tree.entries(folder)
        except OSError:
            continue
        tree.folders.add(folder)
        for name in entries.files:
            _add_file(tree, folder, name, exclusion)
        inner = [f for f in entries.folders if not is_hidden(f)]
        inner = [f for f in inner if not (exclusion and exclusion.matches(folder + f, f))]
        waiting += [f"{folder}{name}/" for name in reversed(inner)]
    return tree


def _is_mask_folder(folder: str) -> bool:
    return folder.rstrip("/").rpartition("/")[2] in MASK_FOLDERS


def _add_file(tree: Tree, folder: str, name: str, exclusion: Exclusion) -> None:
    extension = extension_of_name(name)
    if extension == "png" and _is_mask_folder(folder):
        tree.files.setdefault("mask", {}).setdefault(folder, []).append(name)
    if KINDS.get(extension) == "image" or name.startswith("."):
        return
    if exclusion and exclusion.matches(folder + name, name):
        return
    if extension in _FILES:
        tree.files.setdefault(extension, {}).setdefault(folder, []).append(name)
    if extension in ("yaml", "yml", "names") or name in ("classes.txt", "labelmap.txt"):
        tree.named.append(folder + name)


def find_groups(tree: Tree) -> list[AnnotationGroup]:
    """Return the annotation files of a tree, in the order in which they are read."""
    groups = [*_json_groups(tree), *_xml_groups(tree), *_yolo_groups(tree), *_csv_groups(tree)]
    masks = tree.files.get("mask", {}).items()
    groups += [AnnotationGroup("masks", folder, names, tree) for folder, names in masks]
    return sorted(groups, key=lambda group: (group.folder, group.names[0], group.format))


def manifest_group(reader: ManifestReader) -> AnnotationGroup:
    """Return the boxes of a manifest that has a row for each."""
    tree, name = Tree(reader.root, reader.name), os.path.basename(reader.path)
    return AnnotationGroup("manifest", "", (name,), tree, reader)


def _json_groups(tree: Tree) -> list[AnnotationGroup]:
    groups = []
    for folder, names in tree.files.get("json", {}).items():
        forms: dict[str, list[str]] = {}
        for i, name in enumerate(names):
            # a folder of one file per picture: the first show what the others are
            alike = i >= SNIFFED and set(forms) == {"LabelMe"}
            form = "LabelMe" if alike else _json_form(tree.head_and_tail(folder + name))
            if form:
                forms.setdefault(form, []).append(name)
        groups += [AnnotationGroup("COCO", folder, [n], tree) for n in forms.get("COCO", [])]
        if "LabelMe" in forms:
            groups.append(AnnotationGroup("LabelMe", folder, forms["LabelMe"], tree))
    return groups


def _json_form(text: str) -> str | None:
    if "\0" in text[:64]:
        text = text.replace("\0", "")  # UTF-16
    keys = set(_COCO.findall(text))
    if len(keys) >= 2 or (keys and '"file_name"' in text) or {"annotations"} == keys:
        return "COCO" if "images" in keys or '"image_id"' in text else None
    return "LabelMe" if len(set(_LABELME.findall(text))) >= 2 else None


def _xml_groups(tree: Tree) -> list[AnnotationGroup]:
    groups = []
    for folder, names in tree.files.get("xml", {}).items():
        texts = [tree.head_and_tail(folder + n) for n in names[:SNIFFED]]
        found = [text for text in texts if _ANNOTATION.search(text)]
        if not found or len(found) * 2 < len(texts):
            continue
        # VOC has outlines too, each behind its box; LabelMe has no boxes.
        polygons = sum("<polygon>" in text and "<bndbox>" not in text for text in found)
        form = "LabelMe" if polygons * 2 > len(found) else "VOC"
        groups.append(AnnotationGroup(form, folder, names, tree))
    return groups


def _csv_groups(tree: Tree) -> list[AnnotationGroup]:
    return [
        AnnotationGroup(form, folder, [name], tree)
        for folder, names in tree.files.get("csv", {}).items()
        for name in names[: 4 * SNIFFED]
        if (form := table_form(tree.head_and_tail(folder + name)))
    ]


def table_form(text: str) -> str | None:
    """Return `Open Images` or `table` for how a CSV file of boxes starts, None for another."""
    header = text.lstrip("\ufeff").partition("\n")[0]
    names = [name.strip().strip('"').lower() for name in header.split(",")]
    if set(names) >= _OPEN_IMAGES:
        return "Open Images"
    return "table" if first_column(names, PICTURE) and number_columns(names) else None


def _yolo_groups(tree: Tree) -> list[AnnotationGroup]:
    groups = []
    for folder, names in tree.files.get("txt", {}).items():
        stems = set[str]().union(*map(tree.stems, picture_folders(folder)))
        labels = [n for n in names if n[:-4] in stems or not _NOT_LABELS.match(n)]
        together = sum(n[:-4] in stems for n in labels)
        named = "labels" in folder.lower().split("/")
        if not labels or not (together or named) or not (together * 2 >= len(labels) or named):
            continue
        if _looks_labelled(tree, folder, labels):
            groups.append(AnnotationGroup("YOLO", folder, labels, tree))
    return groups


def picture_folders(folder: str) -> list[str]:
    """Return where the pictures of a folder of labels may lie, the nearest convention first."""
    parts, found = folder.split("/"), []
    for at in reversed(range(len(parts))):
        for word in _LABELS:
            if parts[at].lower() == word.lower():
                found += ["/".join([*parts[:at], other, *parts[at + 1 :]]) for other in _PICTURES]
                found.append("/".join([*parts[:at], *parts[at + 1 :]]))
    return [*found, folder]


def _looks_labelled(tree: Tree, folder: str, names: Sequence[str]) -> bool:
    step = max(len(names) // SNIFFED, 1)
    texts = [tree.head_and_tail(folder + n) for n in names[::step][:SNIFFED]]
    lines = [text.lstrip("\ufeff").strip().splitlines()[0] for text in texts if text.strip()]
    good = sum(bool(_LABEL_LINE.match(line.replace(",", " "))) for line in lines)
    return good * 2 > len(lines) if lines else False


def read_label_map(group: AnnotationGroup) -> list[list[str]]:
    """Return the lines of VOC's `labelmap.txt` beside a folder: `name:r,g,b:parts:actions`."""
    path = os.path.join(group.tree.root, group.above, "labelmap.txt")
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            lines = [line.partition("#")[0].strip() for line in file.read(1 << 20).splitlines()]
    except OSError:
        return []
    return [line.split(":") for line in lines if ":" in line]
