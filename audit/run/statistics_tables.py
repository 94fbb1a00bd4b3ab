"""The tables of statistics of boxes: small, made once a scan, so that every page reads them fast.

Boxes that several annotation files give for one picture with one class and place count once.
Boxes without area, outside any sample, or of a picture without a size are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from audit.records import Column

_SPLIT = Column("split", "VARCHAR", "split; null without")
_LABEL = Column("label", "VARCHAR", "class of the boxes; null where the file does not list it")

BOX_STATISTICS_TABLES: Mapping[str, tuple[Column, ...]] = {
    "box_images": (
        Column("sample_id", "VARCHAR", "a picture that an annotation file lists"),
        Column("n_boxes", "BIGINT", "boxes in it, each object once; 0 for none"),
        Column("box_cover", "DOUBLE", "share of the picture that its boxes cover together, 0..1"),
        Column("smallest_box", "DOUBLE", "shortest side of its boxes, px; null without boxes"),
    ),
    "box_classes": (
        _SPLIT, _LABEL,
        Column("boxes", "BIGINT", "boxes of the class"),
        Column("pictures", "BIGINT", "pictures with such boxes"),
        Column("effective_pictures", "BIGINT", "of them, near-duplicates and copies counted once"),
        Column("effective_boxes", "BIGINT", "boxes, of near-duplicates one picture counted alone"),
        Column("small", "BIGINT", "boxes of an area below 32 x 32 px, as COCO counts them"),
        Column("medium", "BIGINT", "boxes from 32 x 32 up to 96 x 96 px"),
        Column("large", "BIGINT", "boxes above 96 x 96 px"),
        Column("side_low", "DOUBLE", "tenth percentile of the square root of width x height, px"),
        Column("side_median", "DOUBLE", "median of the same, px"),
        Column("side_high", "DOUBLE", "ninetieth percentile, px"),
        Column("aspect_low", "DOUBLE", "tenth percentile of width / height"),
        Column("aspect_median", "DOUBLE", "median of width / height"),
        Column("aspect_high", "DOUBLE", "ninetieth percentile"),
        Column("overlapping", "BIGINT", "boxes with an IoU of 0.5 or more with another one"),
        Column("crowds", "BIGINT", "boxes marked as a crowd or group"),
    ),
    "box_counts": (
        _SPLIT,
        Column("boxes", "BIGINT", "boxes in a picture"),
        Column("pictures", "BIGINT", "annotated pictures with so many"),
    ),
    "box_ratios": (
        _SPLIT,
        Column("low", "DOUBLE", "log2 of width / height: lower end of a bin a quarter wide"),
        Column("boxes", "BIGINT", "boxes in the bin; the outermost hold all beyond"),
    ),
    "box_overlaps": (
        _SPLIT,
        Column("low", "DOUBLE", "lower end of a bin of the greatest IoU with another box, 0..1"),
        Column("boxes", "BIGINT", "boxes in the bin; -1: those that touch no other"),
    ),
    "box_positions": (
        _SPLIT, _LABEL,
        Column("cell_x", "INTEGER", "sixteenth of the width that the centre is in, 0..15"),
        Column("cell_y", "INTEGER", "sixteenth of the height, from the top"),
        Column("boxes", "BIGINT", "boxes with their centre there"),
    ),
    "box_pairs": (
        Column("label", "VARCHAR", "a class"),
        Column("other", "VARCHAR", "another, later in the alphabet"),
        Column("pictures", "BIGINT", "pictures with boxes of both"),
    ),
}  # fmt: skip
