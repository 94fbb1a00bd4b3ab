"""Annotated datasets made in a folder, and what the readers make of them, in an in-memory store."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
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
from audit.records import Finding
from audit.run import generations
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


@contextlib.contextmanager
def annotated(root: Path) -> Iterator[Store]:
    """The tables of a dataset: samples, features of the headers alone, annotations, boxes."""
    with Store.memory() as store:
        _fill(store, root)
        yield store


def _fill(store: Store, root: Path) -> Source:
    store.create_measurements(FEATURE_ROW)
    source = open_source([str(root)])
    samples = [sample for batch in source.batches() for sample in batch]
    store.append("samples", sample_frame(SampleRows.of(samples)))
    store.append("features", [_measured(s.id, s.uri) for s in samples])
    read_annotations(store, source)
    settle_boxes(store)
    return source


def _measured(sample: str, path: str) -> dict[str, Any]:
    with Image.open(path) as image:
        turned = int(image.getexif().get(274, 1))
        width, height = image.size if turned < 5 else image.size[::-1]
    return {
        "sample_id": sample, "status": "ok", "width": width, "height": height,
        "orientation": turned, "content_hash": sample, "pixel_hash": sample,
    }  # fmt: skip


def annotated_run(root: Path, run: Path, results: Path | None = None) -> Path:
    """A published run of the annotations alone, judged by the checks of boxes; no search.

    `results`: what a detector predicts.
    """
    building = generations.building(run)
    with Store.create(building / generations.MEASUREMENTS) as store:
        source = _fill(store, root)
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
        run_checks(store, target, configure_checks(["BOX"], {}), lambda done, total: None)
        store.checkpoint()
    generations.publish(run, target.name)
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
