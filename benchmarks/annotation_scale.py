"""Annotations of 200,000 pictures and 2,000,000 boxes, and files of 1 GiB that end too early.

    python benchmarks/annotation_scale.py                 as COCO (430 MB), then as YOLO
    python benchmarks/annotation_scale.py --form YOLO --pictures 20000 --folder /tmp/boxes
    python benchmarks/annotation_scale.py --cut           seven files of 1 GiB, cut short

Seconds are of the processor; pictures are names and sizes only. The last line is one JSON document,
but with --cut.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from audit.annotations import measure_boxes, read_annotations, settle_boxes
from audit.checking.check import all_checks, make_params
from audit.picture.features import FEATURE_ROW
from audit.run.store import Store

OBJECTS_EACH = 10
FORMS = ("COCO", "YOLO")


def measure_scale(pictures: int, forms: list[str], kept: Path | None) -> int:
    """Read and check many pictures, ten boxes each, as COCO, then as YOLO."""
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = kept or Path(temporary)
        for form in forms:
            root = folder / form
            if not root.exists():
                (write_large_coco if form == "COCO" else write_large_yolo)(root, pictures)
            # a process of its own, so that its peak of memory is its own
            pid = os.fork()
            if pid == 0:
                run_large(root, folder / f"{form}.json", pictures)
                os._exit(0)
            os.waitpid(pid, 0)
            results[form] = json.loads((folder / f"{form}.json").read_text())
            if kept is None:
                shutil.rmtree(root)
    print(json.dumps(results))
    return 0


def large_boxes(pictures: int, seed: int = 7) -> tuple[Any, Any, Any]:
    """Return picture number, class and box (x, y, w, h) of every object, in 640 x 480."""
    rng, n = np.random.default_rng(seed), OBJECTS_EACH * pictures
    owner = np.sort(rng.integers(0, pictures, n))
    size = np.exp(rng.normal(4, 0.6, (n, 2))).clip(8, 400)
    corner = rng.uniform(0, 1, (n, 2)) * (np.array([640, 480]) - size)
    return owner, rng.integers(1, 81, n), np.hstack([corner, size]).round(2)


def write_large_coco(root: Path, pictures: int) -> None:
    """Write one file; a tenth of the objects have a polygon of 40 points."""
    (root / "annotations").mkdir(parents=True)
    owner, labels, boxes = large_boxes(pictures)
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    with open(root / "annotations" / "instances.json", "w") as file:
        file.write('{"images": [')
        for i in range(pictures):
            name = f'"file_name": "images/{i:06d}.jpg", "width": 640, "height": 480'
            file.write(f'{", " if i else ""}{{"id": {i}, {name}}}')
        file.write('], "categories": [')
        file.write(", ".join(f'{{"id": {k}, "name": "class {k}"}}' for k in range(1, 81)))
        file.write('], "annotations": [')
        for n, (i, label, (x, y, w, h)) in enumerate(
            zip(owner.tolist(), labels.tolist(), boxes.tolist(), strict=True)
        ):
            rings, area = "[]", w * h
            if n % 10 == 0:
                ring = np.array([x + w / 2, y + h / 2]) + circle * np.array([w / 2, h / 2])
                rings, area = json.dumps([ring.round(2).ravel().tolist()]), 0.7822 * w * h
            file.write(
                f'{", " if n else ""}{{"id": {n}, "image_id": {i}, "category_id": {label}, "bbox": '
                f'[{x}, {y}, {w}, {h}], "area": {area:.2f}, "iscrowd": 0, "segmentation": {rings}}}'
            )
        file.write("]}")


def write_large_yolo(root: Path, pictures: int) -> None:
    """Write a label file a picture; a tenth of the objects have a polygon."""
    (root / "labels").mkdir(parents=True)
    (root / "data.yaml").write_text(
        "train: images\nnames:\n" + "".join(f"  {k}: class {k}\n" for k in range(81))
    )
    owner, labels, boxes = large_boxes(pictures)
    ends = np.searchsorted(owner, np.arange(pictures + 1)).tolist()
    shares = boxes / (640, 480, 640, 480)
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1) / 2
    for i in range(pictures):
        lines = []
        for n in range(ends[i], ends[i + 1]):
            x, y, w, h = shares[n]
            line = f"{x + w / 2:.6f} {y + h / 2:.6f} {w:.6f} {h:.6f}"
            if n % 10 == 0:
                ring = (np.array([x + w / 2, y + h / 2]) + circle * (w, h)).clip(0, 1)
                line = " ".join(f"{v:.5f}" for v in ring.ravel())
            lines.append(f"{labels[n]} {line}\n")
        (root / "labels" / f"{i:06d}.txt").write_text("".join(lines))


class LargeSource:
    """The pictures of the large set, which are names and sizes only, and its root."""

    def __init__(self, root: Path) -> None:
        """Have one root."""
        from audit.sources.folder import FolderScope

        self.trees = [FolderScope(str(root), "", (), ())]
        self.box_tables: list[Any] = []


def run_large(root: Path, out: Path, pictures: int) -> None:
    """Read and check one set; writes seconds by phase and the peak of memory, MB."""
    import polars as pl

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
        before, cpu = time.perf_counter(), time.process_time()
        read_annotations(store, LargeSource(root))  # type: ignore[arg-type]
        read, read_cpu = time.perf_counter() - before, time.process_time() - cpu
        settle_boxes(store)
        settled, settle_cpu = time.perf_counter() - before, time.process_time() - cpu - read_cpu
        seconds, counts = {}, {}
        for code, check in all_checks().items():
            if code.startswith("BOX"):
                start = time.process_time()
                counts[code] = sum(1 for _ in check.find(store, make_params(check, {})))
                check.completeness(store, make_params(check, {}))
                seconds[code] = round(time.process_time() - start, 2)
        start = time.process_time()
        measure_boxes(store)
        seconds["statistics"] = round(time.process_time() - start, 2)
        total = time.perf_counter() - before
        n = store.scalar("SELECT count(*) FROM boxes")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {
        "megabytes": round(n_bytes / 1e6), "boxes": n, "read_s": round(read, 1),
        "settle_s": round(settled - read, 1), "checks_s": round(total - settled, 1),
        "total_s": round(total, 1), "read_cpu_s": round(read_cpu, 1),
        "settle_cpu_s": round(settle_cpu, 1), "cpu_s": round(time.process_time() - cpu, 1),
        "peak_mb": round(peak), "cpu_by_check_s": seconds,
        "findings": {code: n for code, n in counts.items() if n},
    }  # fmt: skip
    print(json.dumps(result, indent=1), flush=True)
    out.write_text(json.dumps(result))


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


def measure_cuts(kept: Path | None) -> int:
    """Cut a file of 1 GiB short in several ways; prints what is found of each, CPU s and MB."""
    things = ", ".join(
        f'{{"id": {n}, "image_id": 1, "category_id": 1, "bbox": [11.25, 2, 3, 4]}}'
        for n in range(3)
    )
    rest = f'", "categories": [{{"id": 1, "name": "cat"}}], "annotations": [{things}]}}'
    with tempfile.TemporaryDirectory(dir=kept) as temporary:
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
            print(f"{name}: {_read_cut(path.parent)}", flush=True)
    return 0


def _read_cut(folder: Path) -> str:
    """Return what is said of a file, in a process of its own, with its CPU s and peak of memory."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        with Store.memory() as store:
            store.create_measurements(FEATURE_ROW)
            read_annotations(store, LargeSource(folder))  # type: ignore[arg-type]
            settle_boxes(store)
            check = all_checks()["BOX013"]
            said = [f.message for f in check.find(store, make_params(check, {}))]
        used = resource.getrusage(resource.RUSAGE_SELF)
        cost = f"{used.ru_utime + used.ru_stime:.1f} CPU s, {used.ru_maxrss >> 10:,} MB"
        os.write(writer, f"{' '.join(said)} ({cost})".encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader) as pipe:
        return pipe.read()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=200_000)
    parser.add_argument("--form", choices=FORMS, help="one of the two alone")
    parser.add_argument("--folder", type=Path, help="keep the files here, use them again")
    parser.add_argument("--cut", action="store_true", help="files of 1 GiB that end too early")
    arguments = parser.parse_args()
    if arguments.cut:
        return measure_cuts(arguments.folder)
    forms = [arguments.form] if arguments.form else list(FORMS)
    return measure_scale(arguments.pictures, forms, arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
