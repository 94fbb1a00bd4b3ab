"""A small dataset with something to decide about, and how the tests of decisions scan it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import polars as pl
from PIL import Image

from audit.checking.runner import configure_checks, run_checks
from audit.decisions.waivers import apply_decisions
from audit.picture.features import FEATURE_ROW, MEASURED
from audit.run import run_version
from audit.run.store import Store
from audit.run.tables import SAMPLES
from audit.scanning import scanning
from audit.sources import open_source
from audit.testing import HEALTHY
from tests.conftest import picture

CODES = ("DUP", "SPLIT", "IMG001", "FILE001", "LABEL002", "LABEL005", "LABEL006")


def reviewed_dataset(root: Path) -> Path:
    """Write 16 pictures of two classes and splits, and 8 files that checks speak about."""
    seed = 0
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            (root / split / label).mkdir(parents=True)
            for number in range(4):
                save(root / f"{split}/{label}/{number}.jpg", picture(seed))
                seed += 1
    train, test = root / "train", root / "test"
    copy(train / "cat/0.jpg", train / "cat/copy.jpg")  # DUP001 in one split
    copy(train / "cat/1.jpg", test / "cat/leak.jpg")  # DUP001 and SPLIT001
    copy(train / "cat/2.jpg", train / "dog/wrong.jpg")  # DUP001 with two labels
    large = cv2.resize(picture(4), (192, 144), interpolation=cv2.INTER_CUBIC)
    save(train / "dog/large.jpg", large, 70)  # DUP003 with dog/0
    save(train / "dog/small.jpg", cv2.resize(picture(4), (72, 54)), 60)
    save(train / "cat/dark.jpg", picture(50) // 12)  # IMG001
    (train / "cat/broken.jpg").write_bytes(b"<html>no picture</html>")  # FILE001
    (train / "Cat").mkdir()
    save(train / "Cat/0.jpg", picture(51))  # LABEL002
    return root


def save(path: Path, pixels: np.ndarray, quality: int = 88) -> None:
    Image.fromarray(pixels).save(path, quality=quality)


def copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def scan(root: Path, run: Path) -> Path:
    scanning.scan(open_source([str(root)]), run, jobs=1, checks=CODES)
    return run


def findings(run: Path, code: str) -> dict[str, list[str]]:
    """The findings of a code: sample ids by fingerprint."""
    with run_version.open_run(run) as store:
        rows = store.query(
            "SELECT fingerprint, list(sample_id ORDER BY sample_id) FROM findings "
            "JOIN finding_samples USING (fingerprint) WHERE code = ? GROUP BY 1 ORDER BY 2",
            [code],
        )
    return dict(rows.iter_rows())


def statuses(run: Path, *fingerprints: str) -> list[str]:
    """Whether each finding is open, waived or decided."""
    settled = apply_decisions(run).settled.select("fingerprint", "status")
    known = dict(settled.iter_rows())
    return [known.get(fingerprint, "open") for fingerprint in fingerprints]


def made_hash(number: int, digits: int) -> str:
    """The hash that a made-up image has where its row gives none."""
    return (f"{number:08x}" * 8)[:digits]


def made_run(
    run: Path,
    images: list[dict[str, Any]],
    judged: Sequence[str] = CODES,
    tables: Mapping[str, list[Any]] | None = None,
) -> Path:
    """Publish a run of made-up measurements, judged by the real checks; touches no image.

    `images` are rows of the `images` view, as in a check's cases; those with the same `near` form a
    group of near-duplicates, and other columns than those are the metadata of a manifest.
    `tables`: rows of others by name.
    """
    rows, groups, metadata = [], [], []
    first: dict[str, str] = {}
    known = {c.name for c in (*SAMPLES, *MEASURED)}
    for number, image in enumerate(images):
        own = {"id": f"{number}.jpg", "content_hash": made_hash(number, 64),
               "pixel_hash": made_hash(number, 32)}  # fmt: skip
        row = {**HEALTHY, **own, **image}
        row["uri"] = image.get("uri", f"/pets/{row['id']}")
        if near := row.pop("near", None):
            representative = first.setdefault(near, row["pixel_hash"])
            place = sum(g["representative"] == representative for g in groups)
            groups.append({"representative": representative, "pixel_hash": row["pixel_hash"],
                           "position": place, "score": 5.0})  # fmt: skip
        rows.append({name: value for name, value in row.items() if name in known})
        metadata.append({"sample_id": row["id"]} | {n: v for n, v in row.items() if n not in known})
    building = run_version.building_folder(run)
    with Store.create(building / run_version.MEASUREMENTS) as store:
        store.create_measurements(FEATURE_ROW)
        names = [c.name for c in SAMPLES]
        store.append("samples", [{n: row.get(n) for n in names} for row in rows])
        features = [
            {"sample_id": row["id"]} | {n: v for n, v in row.items() if n not in names}
            for row in rows
        ]
        store.append("features", features)
        for name, others in {"groups": groups, **(tables or {})}.items():
            store.append(name, others)
        if len(metadata[0]) > 1:
            store.create_from("metadata", pl.DataFrame(metadata))
        store.set_meta({"dataset": "pets"})
        target = building / "findings-0001.duckdb"
        run_checks(store, target, configure_checks(judged, {}), lambda done, total: None)
        store.checkpoint()
    run_version.publish(run, target.name)
    return run
