"""Annotated datasets made in a folder, and what the readers make of them, in an in-memory store."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from audit.annotations import (
    judge_boxes,
    load_results,
    measure_boxes,
    read_annotations,
    settle_boxes,
)
from audit.checking.check import all_checks, make_params
from audit.checking.runner import configure_checks, run_checks
from audit.picture.features import FEATURE_ROW
from audit.records import Finding, Sample
from audit.run import run_version
from audit.run.store import Store
from audit.run.tables import SCHEMA_VERSION
from audit.scanning.measuring import sample_frame
from audit.sources import Source, open_source
from audit.sources.readings import SampleRows


def picture(path: Path, width: int = 64, height: int = 48, orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (width, height), (width % 256, height % 256, len(path.name)))
    exif = Image.Exif()
    exif[274] = orientation
    image.save(path, exif=exif)


def coco(
    n: int = 1, boxes: Sequence[Sequence[Any]] = ((1, 5, 6, 20, 10),), **entry: Any
) -> dict[str, Any]:
    """A document of n pictures 0.jpg, ...; `boxes` are (picture id, x, y, w, h)."""
    return {
        "images": [
            {"id": i + 1, "file_name": f"{i}.jpg", "width": 64, "height": 48} for i in range(n)
        ],
        "annotations": [
            {"id": k + 1, "image_id": i, "category_id": 1, "bbox": box, "iscrowd": 0, **entry}
            for k, (i, *box) in enumerate(boxes)
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }


def coco_tree(root: Path, document: Mapping[str, Any] | bytes | str, n: int = 1) -> Path:
    for i in range(n):
        picture(root / "images" / f"{i}.jpg")
    text = json.dumps(document) if isinstance(document, Mapping) else document
    raw = text if isinstance(text, bytes) else text.encode()
    (root / "annotations.json").write_bytes(raw)
    return root


def voc_xml(picture_name: str, *boxes: tuple[str, float, float, float, float]) -> str:
    """The annotation of a picture of 64 x 48 px; boxes are class, xmin, ymin, xmax, ymax."""
    objects = "".join(
        f"<object><name>{label}</name><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax>"
        f"<ymax>{y1}</ymax></bndbox></object>\n"
        for label, x0, y0, x1, y1 in boxes
    )
    size = "<size><width>64</width><height>48</height></size>"
    return f"<annotation><filename>{picture_name}</filename>\n{size}\n{objects}</annotation>"


@contextlib.contextmanager
def annotated(root: Path) -> Iterator[Store]:
    """The tables of a dataset: samples, features of the headers alone, annotations, boxes."""
    with Store.memory() as store:
        fill(store, open_source([str(root)]))
        yield store


def fill(
    store: Store, source: Source, content: Callable[[Sample], Any] = lambda sample: sample.uri
) -> None:
    """Read samples and annotations; `content` is what Pillow opens for a sample."""
    store.create_measurements(FEATURE_ROW)
    samples = [sample for batch in source.batches() for sample in batch]
    store.append("samples", sample_frame(SampleRows.of(samples)))
    store.append("features", [_measured(s.id, content(s)) for s in samples])
    read_annotations(store, source)
    settle_boxes(store)


def _measured(sample: str, content: Any) -> dict[str, Any]:
    with Image.open(content) as image:
        turned = int(image.getexif().get(274, 1))
        width, height = image.size if turned < 5 else image.size[::-1]
    return {
        "sample_id": sample, "status": "ok", "width": width, "height": height,
        "orientation": turned, "content_hash": sample, "pixel_hash": sample,
    }  # fmt: skip


def boxes_of(store: Store) -> list[tuple[Any, ...]]:
    """Sample, class, x, y, width and height of every box."""
    sql = "SELECT sample_id, label, x, y, width, height FROM boxes ORDER BY ALL"
    return store.query(sql).rows()


def annotated_run(
    root: Path, run: Path, results: Path | None = None, checks: Sequence[str] = ("BOX",)
) -> Path:
    """A published run of the annotations alone, judged by the checks of boxes; no search.

    `results`: what a detector predicts.
    """
    building = run_version.building_folder(run)
    with Store.create(building / run_version.MEASUREMENTS) as store:
        source = open_source([str(root)])
        fill(store, source)
        if results is not None:
            judge_boxes(store, load_results(store, results))
        measure_boxes(store)
        store.append("relate_facts", [{"key": "threshold", "value": "0.0"}])
        store.set_meta(
            {
                "schema_version": str(SCHEMA_VERSION),
                "dataset": root.name,
                "roots": json.dumps(source.roots),
            }
        )
        target = building / "findings-0001.duckdb"
        run_checks(store, target, configure_checks(checks, {}), lambda done, total: None)
        store.checkpoint()
    run_version.publish(run, target.name)
    return run


def judge(store: Store) -> list[Finding]:
    """Every finding of the checks of boxes."""
    return [
        finding
        for code, check in all_checks().items()
        if code.startswith("BOX")
        for finding in check.find(store, make_params(check, {}))
    ]


def codes(root: Path) -> set[str]:
    with annotated(root) as store:
        return {finding.code for finding in judge(store)}
