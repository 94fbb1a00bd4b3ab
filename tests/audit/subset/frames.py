"""Made-up sets, objects and predictions, and `audit subset ...` called in this process."""

import contextlib
import io
import json
from typing import Any

import numpy as np
import polars as pl
from blake3 import blake3

from audit.cli.ending import exit_code_of
from audit.cli.main import app
from audit.subset import Goal, draw_subset, make_plan, score_subset
from audit.subset.matching import Boxes


def made_set(
    n: int,
    classes: int = 5,
    *,
    seed: int = 0,
    groups: int = 0,
    duplicates: int = 0,
    excluded: int = 0,
    shares: list[float] | None = None,
) -> pl.DataFrame:
    """Return `n` files; the first are pairs, the last are unreadable."""
    rng = np.random.default_rng(seed)
    label = rng.choice(classes, n, p=shares)
    label[: 2 * duplicates] = np.repeat(label[:duplicates], 2)
    ids = [f"test/{i:06d}.png" for i in range(n)]
    columns = {
        "sample_id": ids,
        "path": [f"/data/{i}" for i in ids],
        "label": [f"class{k}" for k in label],
        "content_hash": [blake3(f"{seed} {i}".encode()).hexdigest() for i in ids],
        "excluded_reason": [None if i < n - excluded else "unreadable file" for i in range(n)],
        "duplicate_group": [f"pair{i // 2}" if i < 2 * duplicates else None for i in range(n)],
        "suspected_mislabel": rng.uniform(size=n) < 0.02,
        "camera": rng.choice(["left", "right"], n),
        "brightness": rng.uniform(size=n),
    }
    if groups:
        columns["patient"] = [f"p{g}" for g in rng.integers(0, groups, n)]
    return pl.DataFrame(columns, schema_overrides={
        "excluded_reason": pl.String, "duplicate_group": pl.String})  # fmt: skip


def predicted(frame: pl.DataFrame, accuracy: float, seed: int) -> pl.DataFrame:
    """Return a model's predictions: right with chance `accuracy`, more confident where right."""
    rng = np.random.default_rng(seed)
    label = frame["label"].to_numpy()
    names = sorted(set(label.tolist()))
    right = rng.uniform(size=len(label)) < accuracy
    wrong = np.array(names) if len(names) > 1 else np.array(["other"])
    other = wrong[(np.searchsorted(names, label) + 1) % len(wrong)]
    confidence = np.where(right, rng.uniform(0.5, 1, len(label)), rng.uniform(0.2, 0.8, len(label)))
    answers = pl.Series(np.where(right, label, other))
    return frame.select("sample_id", prediction=answers, confidence=pl.Series(confidence))


def drawn(frame: pl.DataFrame, n: int = 300, seed: int = 1, looks: int = 1, **options: Any):
    """Return the rows of a subset of `n` units; `options` as of `make_plan`."""
    return draw_subset(frame, make_plan(frame, Goal(n=n, looks=looks), **options).recipe, seed).rows


def replaced(table: pl.DataFrame, where: Any, by: str, column: str = "prediction") -> pl.DataFrame:
    """Return the table with `by` in the rows in which `where` holds."""
    return table.with_columns(pl.when(where).then(pl.lit(by)).otherwise(column).alias(column))


def estimands(rows: pl.DataFrame, table: pl.DataFrame, **options: Any):
    """Return what the first metric of one model is estimated to be; `options` of the score."""
    return score_subset(rows, [table], **options).models[0].metrics[0].estimands


ROW = pl.int_range(pl.len())  # the number of each row, from 0


Document = dict[str, Any]


def made_world(
    seed: int, n: int, classes: int, per: float = 4, wrong: float = 6, *, digits: int = 6
) -> tuple[Document, list[Document]]:
    """Return a COCO file of `n` pictures and the detections of a model; `digits`: of its scores."""
    rng = np.random.default_rng(seed)
    often = 1 / np.arange(1, classes + 1)
    often /= often.sum()
    annotations: list[Document] = []
    found: list[Document] = []

    def detect(i: int, k: int, box: list[float], good: float) -> None:
        score = round(float(rng.beta(1 + 3 * good, 3)), digits)
        found.append({"image_id": i, "category_id": k, "bbox": box, "score": score})

    for i in range(1, n + 1):
        for _ in range(rng.poisson(per)):
            k = int(rng.choice(classes, p=often)) + 1
            (x, y), (w, h) = rng.uniform(0, 400, 2), np.exp(rng.normal(4, 1, 2))
            crowd = rng.random() < 0.05
            annotations.append({
                "id": len(annotations) + 1, "image_id": i, "category_id": k,
                "bbox": [float(v) for v in (x, y, w, h)], "iscrowd": int(crowd),
                "area": float(w * h * rng.uniform(0.4, 1)),
            })  # fmt: skip
            for _ in range(3 if crowd else rng.binomial(2, 0.6)):
                a, b, c, d = rng.normal(0, 0.12, 4)
                near = [x + a * w, y + b * h, w * np.exp(c), h * np.exp(d)]
                said = k if rng.random() < 0.9 else int(rng.integers(classes)) + 1
                detect(i, said, [float(v) for v in near], 1)
        for _ in range(rng.poisson(wrong)):
            box = [*rng.uniform(0, 400, 2), *np.exp(rng.normal(4, 1, 2))]
            detect(i, int(rng.choice(classes, p=often)) + 1, [float(v) for v in box], 0)
    names = [{"id": k + 1, "name": f"class{k}"} for k in range(classes)]
    pictures = [
        {"id": i, "file_name": f"{i:05d}.jpg", "width": 640, "height": 480, "scene": f"s{i // 10}"}
        for i in range(1, n + 1)
    ]
    return {"images": pictures, "annotations": annotations, "categories": names}, found


def boxes(entries: list[Document], of_model: bool) -> Boxes:
    """Return entries of a file as boxes; ids are numbers from 1."""
    box = np.array([e["bbox"] for e in entries], float).reshape(-1, 4)
    area = box[:, 2] * box[:, 3]
    return Boxes(
        np.array([e["image_id"] for e in entries], np.int64) - 1,
        np.array([e["category_id"] for e in entries], np.int64) - 1, box,
        area if of_model else np.array([e["area"] for e in entries], float),
        np.array([e.get("score", 0.0) for e in entries]),
        np.array([bool(e.get("iscrowd")) for e in entries], bool),
    )  # fmt: skip


def call(*words: Any, code: int = 0) -> str:
    """Return what a command prints: on stdout, or where it ends with another code on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = exit_code_of(lambda: app(["subset", *map(str, words)], standalone_mode=False))
    assert ended == code, out.getvalue() + err.getvalue()
    return (out if code == 0 else err).getvalue()


def document(*words: Any) -> dict[str, Any]:
    return dict(json.loads(call(*words, "--json")))
