"""The raccoon set as other programs write it: every finding about it must be really wrong.

supervision, globox, pylabel and Datumaro (each where it is installed, in whatever environment)
write the published boxes, ellipses in them as outlines, and keypoints, in each form they know. Then
the checks of boxes read the folders: a finding is printed, and counted where it is not one of the
faults that were looked at and are in the files. Datumaro's own validator reads its form beside.

    OTHER/bin/python benchmarks/annotation_programs.py write /tmp/written [--real ../shared/data]
    python benchmarks/annotation_programs.py check /tmp/written
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench import Document, hall, measures, real_data

# Folder: what is wrong with it. Datumaro keeps ids that were given to objects, once or more.
FAULTS = {
    "datumaro-coco_instances": {"BOX012"}, "datumaro-outlines-coco_instances": {"BOX012"},
    "datumaro-keypoints-coco_person_keypoints": {"BOX012"},
}  # fmt: skip
app = hall(__doc__)
ANGLES = np.linspace(0, 2 * np.pi, 24, endpoint=False)


# ---- writing: in the environment of the programs ----


def copy_images(source: Path, target: Path) -> None:
    """Make the pictures appear in a folder: Datumaro refuses symbolic links."""
    shutil.copytree(source / "images", target)


def write_supervision(source: Path, out: Path) -> None:
    import supervision as sv  # type: ignore[import-not-found]

    boxes = sv.DetectionDataset.from_pascal_voc(str(source / "images"), str(source / "annotations"))
    found = {}
    for path, image, things in boxes:
        down, across = np.mgrid[: image.shape[0], : image.shape[1]]
        masks = [
            ((2 * across - a - c) / (c - a)) ** 2 + ((2 * down - b - d) / (d - b)) ** 2 <= 1
            for a, b, c, d in things.xyxy
        ]
        stack = np.array(masks).reshape(-1, *image.shape[:2])
        corners = sv.mask_to_xyxy(stack).astype(float)
        found[path] = sv.Detections(xyxy=corners, class_id=things.class_id, mask=stack)
    outlines = sv.DetectionDataset(boxes.classes, list(found), found)
    for kind, data in (("boxes", boxes), ("outlines", outlines)):
        root = out / f"supervision-{kind}"
        data.as_coco(f"{root}-coco/images", f"{root}-coco/annotations.json")
        data.as_yolo(f"{root}-yolo/images", f"{root}-yolo/labels", f"{root}-yolo/data.yaml")
        data.as_pascal_voc(f"{root}-voc/images", f"{root}-voc/annotations")


def write_globox(source: Path, out: Path) -> None:
    import globox  # type: ignore[import-not-found]

    boxes, root = globox.AnnotationSet.from_pascal_voc(source / "annotations"), str(out / "globox")
    for form in ("coco", "voc", "openimages", "labelme", "yolo"):
        copy_images(source, Path(f"{root}-{form}") / "images")
    boxes.save_coco(Path(f"{root}-coco/annotations.json"), auto_ids=True)
    boxes.save_pascal_voc(Path(f"{root}-voc/annotations"))
    boxes.save_openimage(Path(f"{root}-openimages/boxes.csv"))
    boxes.save_labelme(Path(f"{root}-labelme/labels"))
    boxes.save_yolo_v5(Path(f"{root}-yolo/labels"), label_to_id={"raccoon": 0})
    Path(f"{root}-yolo/classes.txt").write_text("raccoon\n")


def write_pylabel(source: Path, out: Path) -> None:
    from pylabel import importer  # type: ignore[import-not-found]

    for form in ("coco", "yolo"):
        root = out / f"pylabel-{form}"
        copy_images(source, root / "images")
        boxes = importer.ImportVOC(path=str(source / "annotations"), path_to_images="../images")
        if form == "coco":
            boxes.export.ExportToCoco(output_path=str(root / "annotations.json"))
        else:
            boxes.export.ExportToYoloV5(output_path=str(root / "labels"), yaml_file="data.yaml")


def write_datumaro(source: Path, out: Path) -> None:
    from datumaro.components.dataset import Dataset  # type: ignore[import-not-found]

    voc = out / "_voc"
    copy_images(source, voc / "JPEGImages")
    shutil.copytree(source / "annotations", voc / "Annotations")
    (voc / "ImageSets" / "Main").mkdir(parents=True)
    names = sorted(path.stem for path in (source / "images").iterdir())
    (voc / "ImageSets" / "Main" / "train.txt").write_text("".join(f"{n}\n" for n in names))
    (voc / "labelmap.txt").write_text("background:::\nraccoon:::\n")
    boxes = Dataset.import_from(str(voc), "voc_detection")
    kinds = {
        "": (boxes, ("coco_instances", "voc_detection", "yolo", "label_me", "open_images", "cvat",
                     "kitti", "mot_seq_gt", "datumaro")),
        "outlines-": (_datumaro_set(boxes, outlined=True), ("coco_instances", "label_me", "cvat")),
        "keypoints-": (_datumaro_set(boxes, outlined=False), ("coco_person_keypoints",)),
    }  # fmt: skip
    for kind, (data, forms) in kinds.items():
        for form in forms:
            data.export(str(out / f"datumaro-{kind}{form}"), form, save_media=True)
    _validate(boxes, out)


def _datumaro_set(boxes: Any, *, outlined: bool) -> Any:
    from datumaro.components import annotation as form  # type: ignore[import-not-found]
    from datumaro.components.dataset import Dataset
    from datumaro.components.dataset_base import DatasetItem  # type: ignore[import-not-found]

    items = []
    for item in boxes:
        made = []
        for n, thing in enumerate(item.annotations, 1):
            x, y, w, h = thing.get_bbox()
            more = {"label": 0, "id": n, "group": n}
            ring = np.stack([x + w / 2 * (1 + np.cos(ANGLES)), y + h / 2 * (1 + np.sin(ANGLES))], 1)
            if outlined:
                made.append(form.Polygon(ring.ravel().tolist(), **more))
            else:
                points = [x + w / 2, y + h / 2, x + 0.6 * w, y + h / 3, x + 0.4 * w, y + h / 3]
                made += [form.Points(points, [2, 2, 1], **more), form.Bbox(x, y, w, h, **more)]
        items.append(DatasetItem(item.id, media=item.media, annotations=made, subset=item.subset))
    eyes = form.PointsCategories.from_iterable([(0, ["nose", "left_eye", "right_eye"])])
    labels = form.LabelCategories.from_iterable(["raccoon"])
    kinds = {form.AnnotationType.label: labels, form.AnnotationType.points: eyes}
    return Dataset.from_iterable(items, categories=kinds)


def _validate(boxes: Any, out: Path) -> None:
    """Keep what Datumaro's validator says of the published set, by kind."""
    from datumaro.components.environment import Environment  # type: ignore[import-not-found]

    validator = Environment().validators.get("detection")
    reports = validator().validate(boxes)["validation_reports"]
    kinds = Counter(f"{report['severity']} {report['anomaly_type']}" for report in reports)
    (out / "_validator.json").write_text(json.dumps(kinds))


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "supervision": write_supervision, "globox": write_globox, "pylabel": write_pylabel,
    "datumaro": write_datumaro,
}  # fmt: skip


@measures(app)
def write(folder: Path, real: Path | None = None) -> Document:
    """Write what each program that is installed can; says what it cannot."""
    source, missing = real_data(real, "raccoon").resolve() / "raccoon", {}
    folder.mkdir(parents=True)
    for name, writer in WRITERS.items():
        try:
            writer(source, folder.resolve())
        except ImportError as error:
            missing[name] = str(error)
    return {"missing": missing}


# ---- checking: in the environment of the project ----


@measures(app)
def check(folder: Path) -> tuple[Document, bool]:
    """Print the findings about each folder; ends with 1 where one is not known to be right."""
    from annotations import run_checks

    wrong, n = 0, 0
    for part in sorted(path for path in folder.resolve().iterdir() if path.name[0] != "_"):
        findings = run_checks(part)
        n += 1
        print(f"{part.name}: {len(findings)} findings")
        for finding in findings:
            known = finding.code in FAULTS.get(part.name, ())
            wrong += not known
            print(f"    {'' if known else 'UNKNOWN '}{finding.code} {finding.message[:200]}")
    validator = folder / "_validator.json"
    said = json.loads(validator.read_text()) if validator.exists() else None
    return {"folders": n, "unknown": wrong, "datumaro_validator_on_original": said}, not wrong


if __name__ == "__main__":
    app()
