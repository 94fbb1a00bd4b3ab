"""Readers of annotation files: boxes, masks, keypoints and classes, as tables.

In: the annotation files below the roots of a source (COCO, YOLO, VOC, LabelMe, Open Images, tables
of boxes), and later the measured size of every picture. Out: the tables of
`audit.run.annotation_tables`; what could not be read is a row as well.
"""

from audit.annotations.box_doubts import holds_boxes, judge_boxes, load_results
from audit.annotations.box_statistics import measure_boxes
from audit.annotations.reading import read_annotations
from audit.annotations.settling import settle_boxes

__all__ = [
    "holds_boxes",
    "judge_boxes",
    "load_results",
    "measure_boxes",
    "read_annotations",
    "settle_boxes",
]
