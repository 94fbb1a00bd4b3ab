r"""Annotations of 200,000 pictures and 2,000,000 boxes, and files of 1 GiB that end too early.

    python benchmarks/annotation_scale.py boxes           as COCO (430 MB), then as YOLO
    python benchmarks/annotation_scale.py boxes --form YOLO --pictures 20000 --folder /tmp/boxes
    python benchmarks/annotation_scale.py boxes --form COCO --pictures 118000 --objects 860000 \
        --outlined 1 --points 24          a file of COCO's size (450 MB), an outline for each
    python benchmarks/annotation_scale.py cut             seven files of 1 GiB, cut short
Seconds are of the processor; pictures are names and sizes only.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
from bench import Document, hall, measures, peak_mb, run_apart, timed

from audit.annotations import measure_boxes, read_annotations, settle_boxes
from audit.checking.check import all_checks, make_params
from audit.picture.features import FEATURE_ROW
from audit.run.store import Store
from audit.sources.readings import Given

FORMS = ("COCO", "YOLO")


app = hall(__doc__)


@dataclass(frozen=True)
class Large:
    """A drawn set: one in `outlined` objects has an outline of `points`."""

    pictures: int
    objects: int
    outlined: int
    points: int

    @cached_property
    def circle(self) -> Any:
        """The outline (points, 2) of an object of side 1 around 0."""
        angles = np.linspace(0, 2 * np.pi, self.points, endpoint=False)
        return np.stack([np.cos(angles), np.sin(angles)], 1) / 2


@measures(app)
def boxes(
    pictures: int = 200_000, form: str = "", folder: Path | None = None, objects: int = 0,
    outlined: int = 10, points: int = 40,
) -> Document:  # fmt: skip
    """Read and check many pictures, ten boxes each. --folder keeps the files for another run."""
    large = Large(pictures, objects or 10 * pictures, outlined, points)
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in [form] if form else FORMS:
            root = (folder or Path(temporary)) / name
            if not root.exists():
                (write_large_coco if name == "COCO" else write_large_yolo)(root, large)
            results[name] = run_apart(run_large, root, pictures)
            print(json.dumps(results[name], indent=1), flush=True)
    return results


def large_boxes(large: Large, seed: int = 7) -> tuple[Any, Any, Any]:
    """Return picture number, class and box (x, y, w, h) of every object, in 640 x 480."""
    rng, n = np.random.default_rng(seed), large.objects
    owner = np.sort(rng.integers(0, large.pictures, n))
    size = np.exp(rng.normal(4, 0.6, (n, 2))).clip(8, 400)
    corner = rng.uniform(0, 1, (n, 2)) * (np.array([640, 480]) - size)
    return owner, rng.integers(1, 81, n), np.hstack([corner, size]).round(2)


def write_large_coco(root: Path, large: Large) -> None:
    """Write one file."""
    (root / "annotations").mkdir(parents=True)
    owner, labels, boxes = large_boxes(large)
    area = large.points / 8 * np.sin(2 * np.pi / large.points)  # of the outline, over its box's
    with open(root / "annotations" / "instances.json", "w") as file:
        file.write('{"images": [')
        for i in range(large.pictures):
            name = f'"file_name": "images/{i:06d}.jpg", "width": 640, "height": 480'
            file.write(f'{", " if i else ""}{{"id": {i}, {name}}}')
        file.write('], "categories": [')
        file.write(", ".join(f'{{"id": {k}, "name": "class {k}"}}' for k in range(1, 81)))
        file.write('], "annotations": [')
        for first in range(0, len(boxes), 10_000):
            rows = boxes[first : first + 10_000]
            rings = (rows[:, None, :2] + (large.circle + 0.5) * rows[:, None, 2:]).round(2)
            of = zip(rows.tolist(), rings.reshape(len(rows), -1).tolist(), strict=True)
            for n, ((x, y, w, h), ring) in enumerate(of, first):
                outlined = n % large.outlined == 0
                file.write(
                    f'{", " if n else ""}{{"id": {n}, "image_id": {owner[n]}, "category_id": '
                    f'{labels[n]}, "bbox": [{x}, {y}, {w}, {h}], '
                    f'"area": {(area if outlined else 1) * w * h:.2f}, "iscrowd": 0, '
                    f'"segmentation": {[ring] if outlined else []}}}'
                )
        file.write("]}")


def write_large_yolo(root: Path, large: Large) -> None:
    """Write a label file a picture."""
    (root / "labels").mkdir(parents=True)
    (root / "data.yaml").write_text(
        "train: images\nnames:\n" + "".join(f"  {k}: class {k}\n" for k in range(81))
    )
    owner, labels, boxes = large_boxes(large)
    ends = np.searchsorted(owner, np.arange(large.pictures + 1)).tolist()
    shares = boxes / (640, 480, 640, 480)
    for i in range(large.pictures):
        lines = []
        for n in range(ends[i], ends[i + 1]):
            x, y, w, h = shares[n]
            line = f"{x + w / 2:.6f} {y + h / 2:.6f} {w:.6f} {h:.6f}"
            if n % large.outlined == 0:
                ring = (np.array([x + w / 2, y + h / 2]) + large.circle * (w, h)).clip(0, 1)
                line = " ".join(f"{v:.5f}" for v in ring.ravel())
            lines.append(f"{labels[n]} {line}\n")
        (root / "labels" / f"{i:06d}.txt").write_text("".join(lines))


class LargeSource:
    """The pictures of the large set, which are names and sizes only, and its root."""

    def __init__(self, root: Path) -> None:
        """Have one root."""
        given = Given(str(root))
        tree = SimpleNamespace(root=given.path, name="", given=given, listed=None, met={})
        self.trees = [tree]
        self.box_tables: list[Any] = []


def run_large(root: Path, pictures: int) -> Document:
    """Read and check one set; returns seconds by phase and the peak of memory, MB."""
    database = root.parent / f"{root.name}.duckdb"
    database.unlink(missing_ok=True)
    names = pl.Series("id", [f"images/{i:06d}.jpg" for i in range(pictures)])
    n_bytes = sum(path.stat().st_size for path in (root / "annotations").glob("*.json"))
    with Store.create(database) as store:
        store.create_measurements(FEATURE_ROW)
        store.append("samples", pl.DataFrame({"id": names, "uri": names, "source": ""}))
        digests = names.str.replace("images/", "", literal=True)
        store.append(
            "features",
            pl.DataFrame(
                {"sample_id": names, "status": "ok", "width": 640, "height": 480, "orientation": 1,
                 "content_hash": digests, "pixel_hash": digests}
            ),
        )  # fmt: skip
        with timed() as read:
            read_annotations(store, LargeSource(root))  # type: ignore[arg-type]
        with timed() as settled:
            settle_boxes(store)
        by_check, counts = {}, {}
        checks = [check for code, check in all_checks().items() if code.startswith("BOX")]
        with timed() as checked:
            for check in checks:
                with timed() as one:
                    counts[check.code] = sum(1 for _ in check.find(store, make_params(check, {})))
                    check.completeness(store, make_params(check, {}))
                by_check[check.code] = one["cpu_s"]
            with timed() as one:
                measure_boxes(store)
            by_check["statistics"] = one["cpu_s"]
        n = store.scalar("SELECT count(*) FROM boxes")
    return {
        "megabytes": round(n_bytes / 1e6), "boxes": n, "read": read, "settle": settled,
        "checks": checked, "cpu_s": round(sum(p["cpu_s"] for p in (read, settled, checked)), 1),
        "wall_s": round(sum(p["wall_s"] for p in (read, settled, checked)), 1),
        "peak_mb": round(peak_mb()), "cpu_by_check_s": by_check,
        "findings": {code: n for code, n in counts.items() if n},
    }  # fmt: skip


# ---- files that end too early ----

HUGE = 1 << 30  # bytes of one text, so that the file is of that size and what follows is at its end
# What is kept behind the text, from the last appearance of a token on.
CUTS = {
    "inside a text": None,
    "inside a key": ('"categ', 6),
    "behind a colon": ('"bbox":', 7),
    "inside a number": ("11.2", 3),
    "between entries": ("}, {", 3),
    "inside a list": ("[11.25,", 7),
    "behind the last list": ("]}", 1),
}


@measures(app)
def cut(folder: Path | None = None) -> Document:
    """Cut a file of 1 GiB short in several ways: what is found of each, CPU s and MB?"""
    found = {}
    things = ", ".join(
        f'{{"id": {n}, "image_id": 1, "category_id": 1, "bbox": [11.25, 2, 3, 4]}}'
        for n in range(3)
    )
    rest = f'", "categories": [{{"id": 1, "name": "cat"}}], "annotations": [{things}]}}'
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        path = Path(temporary) / "instances.json"
        with open(path, "w") as file:
            file.write('{"images": [{"id": 1, "file_name": "a.jpg"}], "info": "')
            for _ in range(HUGE >> 20):
                file.write("x" * (1 << 20))
            begin = file.tell()
        for name, token in CUTS.items():
            end = rest.rindex(token[0]) + token[1] if token else -1000
            with open(path, "r+b") as raw:
                raw.truncate(begin)
                raw.seek(0, os.SEEK_END)
                raw.write(rest[: max(end, 0)].encode())
                raw.truncate(begin + end)
            found[name] = run_apart(read_cut, path.parent)
            print(f"{name}: {found[name]}", flush=True)
    return found


def read_cut(folder: Path) -> Document:
    """Return what is said of a file, and what reading it costs."""
    with timed() as cost, Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        read_annotations(store, LargeSource(folder))  # type: ignore[arg-type]
        settle_boxes(store)
        check = all_checks()["BOX013"]
        said = [f.message for f in check.find(store, make_params(check, {}))]
    return {"said": " ".join(said), "cpu_s": cost["cpu_s"], "peak_mb": round(peak_mb())}


if __name__ == "__main__":
    app()
