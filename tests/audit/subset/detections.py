"""Made-up objects and detections, as COCO's files: crowds, ties, strange areas, rare classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from audit.subset.matching import Boxes

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
