"""Make the sample dataset: about 300 small pictures with every kind of defect planted, and the key.

    python sample_data/make.py [--seed 7] [--out sample_data]

writes train/, val/, test/ (class folders), annotations/instances_val.json (boxes), manifest.csv
(path, label, split, group), answer_key.csv (what a perfect audit of the folder reports) and
answer_key_manifest.csv (what it reports beyond that when it reads manifest.csv). The same seed
gives the same bytes wherever numpy and Pillow have the same versions. Takes about ten seconds.

A key row names a finding by its code and its members: sample ids joined by `|`; class names for a
class; `split/class` for a class missing from a split; the split for a class imbalance. Where one
defect really is two findings (a copy across splits is a duplicate and a leak), the key has both.
accepted.csv, written by hand, lists what else is really there in the set of seed 7.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import copies
import damage
import implied
import oddities
from book import Book, KeyRow

SPLITS = ("train", "val", "test")
MADE_FOLDERS = (*SPLITS, "annotations")
KEY_HEADER = KeyRow._fields


def build(seed: int) -> dict[str, bytes]:
    """Return every file of the dataset by its path relative to the root."""
    book = Book(seed)
    oddities.plant_all(book)
    copies.plant_all(book)
    damage.plant_all(book)
    boxes = oddities.plant_boxes(book)
    oddities.plant_manifest_groups(book)
    implied.enter_class_counts(book)
    return {
        **book.files,
        "annotations/instances_val.json": oddities.to_json(boxes),
        "manifest.csv": _csv(("path", "label", "split", "group"), _manifest(book)),
        "answer_key.csv": _csv(KEY_HEADER, sorted(book.key)),
        "answer_key_manifest.csv": _csv(KEY_HEADER, sorted(book.manifest_key)),
    }


def _manifest(book: Book) -> Iterable[Sequence[str]]:
    for sample in sorted(book.files):
        split, *label, name = sample.split("/")
        if not name.startswith("."):
            yield sample, "".join(label), split, book.groups.get(sample, "")


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def refuse_foreign(root: Path) -> None:
    """Exit with a sentence if root holds folders that an earlier run did not write."""
    present = [name for name in MADE_FOLDERS if (root / name).exists()]
    if present and not (root / "answer_key.csv").exists():
        raise SystemExit(
            f"{root} holds {', '.join(present)} but no answer_key.csv: choose another."
        )


def write(files: dict[str, bytes], root: Path) -> None:
    """Replace what an earlier run wrote below root."""
    for name in MADE_FOLDERS:
        shutil.rmtree(root / name, ignore_errors=True)
    for path, data in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def main() -> None:
    """Parse the arguments, build, write, say what was written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=7, help="another seed, another dataset")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="the root folder")
    options = parser.parse_args()
    refuse_foreign(options.out)
    files = build(options.seed)
    write(files, options.out)
    pictures = sum(p.split("/")[0] in SPLITS and not p.endswith(".gitkeep") for p in files)
    size = sum(map(len, files.values())) / 1e6
    print(f"{pictures} pictures, {size:.1f} MB, seed {options.seed}: {options.out}")


if __name__ == "__main__":
    main()
