"""The tables of annotations: what a source's annotation files say, and boxes in px of the pictures.

`annotations` keeps the four numbers of a box as they are written, so that any reading of them can
be tried; `boxes` holds what they mean, made once every picture's real size is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from audit.records import Column

_FILE = Column("file", "VARCHAR", "the annotation file, or folder of small ones, as an id")
_IMAGE_KEY = Column("image_key", "VARCHAR", "what the file calls the image: its id, or file name")
_ENTRY = Column("entry", "BIGINT", "position in the list of the file, from 0")
_LINE = Column("line", "BIGINT", "line where the entry begins, from 1; null if unknown")
_BYTE = Column("byte", "BIGINT", "byte where the entry begins, from 0; null if unknown")
_SAMPLE = Column("sample_id", "VARCHAR", "the sample it belongs to; null if none was found")

ANNOTATION_TABLES: Mapping[str, tuple[Column, ...]] = {
    "annotation_files": (
        _FILE,
        Column("format", "VARCHAR", "COCO | YOLO | VOC | ... | table | masks | manifest"),
        Column("file_key", "VARCHAR", "version of the reader; size, mtime and ctime of the files"),
        Column("n_files", "BIGINT", "files of this group: 1 but for a folder of small ones"),
        Column("pictures", "BIGINT", "images listed"),
        Column("matched", "BIGINT", "listed images that are samples"),
        Column("objects", "BIGINT", "annotations with a box, an outline or keypoints"),
        Column("classes", "BIGINT", "classes declared, or used where none are declared"),
        Column("not_read", "VARCHAR", "other content of the file, which is ignored; or empty"),
        Column("complete", "BOOLEAN", "whether the file was read completely"),
        Column("form", "VARCHAR", "what the four numbers are by the format, such as xywh px"),
        Column("reading", "VARCHAR", "the form under which the boxes fit; null: not yet decided"),
        Column("frame", "VARCHAR", "images that EXIF turns: boxes as displayed | as stored"),
        Column("fit_share", "DOUBLE", "share of boxes inside their image under `reading`, 0..1"),
        Column("form_fit_share", "DOUBLE", "share of boxes inside under `form`, 0..1"),
    ),
    "annotated_images": (
        _FILE, _IMAGE_KEY, _ENTRY, _LINE, _BYTE,
        Column("file_name", "VARCHAR", "the image's path as written"),
        _SAMPLE,
        Column("matched_by", "VARCHAR", "path | end of path | name | ambiguous | missing"),
        Column("width", "DOUBLE", "width of the image as declared, px; null without"),
        Column("height", "DOUBLE", "height of the image as declared, px; null without"),
        Column("attributes", "VARCHAR", "attributes of the image, JSON; null without"),
    ),
    "annotations": (
        _FILE, _IMAGE_KEY, _ENTRY, _LINE, _BYTE,
        Column("annotation_id", "VARCHAR", "id as written; null without"),
        Column("category_key", "VARCHAR", "class as written: its number or name"),
        Column("kind", "VARCHAR", "box | outline (box made from it) | label (no box)"),
        Column("v1", "DOUBLE", "first of the four numbers as written"),
        Column("v2", "DOUBLE", "second number"),
        Column("v3", "DOUBLE", "third number"),
        Column("v4", "DOUBLE", "fourth number"),
        Column("angle", "DOUBLE", "rotation as written; null for an upright box"),
        Column("area", "DOUBLE", "area as written, px; null without"),
        Column("crowd", "BOOLEAN", "marked as a crowd or group"),
        Column("n_keypoints", "DOUBLE", "number of keypoints as written; null without"),
        Column("track", "VARCHAR", "track or instance over frames; null without"),
        Column("attributes", "VARCHAR", "other attributes, JSON; null without"),
    ),
    "annotation_shapes": (
        _FILE, _IMAGE_KEY, _ENTRY,
        Column("kind", "VARCHAR", "polygon | mask (run lengths) | keypoints"),
        Column("part", "INTEGER", "number of the ring of a polygon, from 0"),
        Column("n_points", "BIGINT", "points of the ring, keypoints, or pixels of the mask"),
        Column("area", "DOUBLE", "area of the ring or of the mask, in squares of its own unit"),
        Column("x", "DOUBLE", "left end, in the file's unit; null where there is no extent"),
        Column("y", "DOUBLE", "upper end"),
        Column("width", "DOUBLE", "extent"),
        Column("height", "DOUBLE", "extent"),
        Column("crossings", "BIGINT", "pairs of sides of the ring that cross; null if not counted"),
        Column("mask_width", "BIGINT", "width of the mask as written, px"),
        Column("mask_height", "BIGINT", "height of the mask as written, px"),
        Column("points", "DOUBLE[]", "x, y, ... | run lengths | x, y, visibility, ..."),
    ),
    "categories": (
        _FILE,
        Column("category_key", "VARCHAR", "number or name by which annotations name the class"),
        Column("label", "VARCHAR", "name of the class"),
        _ENTRY,
        Column("parent", "VARCHAR", "class above; null without"),
        Column("keypoints", "VARCHAR", "their names, JSON list; null without distinct names"),
        Column("declared", "BOOLEAN", "the file lists the class; false: only used"),
    ),
    "annotation_problems": (
        Column("kind", "VARCHAR", "truncated | malformed | wrong-type | duplicate-key | ..."),
        _FILE,
        Column("image_key", "VARCHAR", "the image concerned; null if unknown"),
        Column("place", "VARCHAR", "where: JSON path or name of the small file; line and byte"),
        Column("detail", "VARCHAR", "what is wrong, without the position"),
        Column("more", "BIGINT", "more problems of this kind in the file, not listed"),
    ),
    "boxes": (
        _FILE, _IMAGE_KEY, _ENTRY, _LINE, _BYTE,
        Column("annotation_id", "VARCHAR", "id as written; null without"),
        _SAMPLE,
        Column("label", "VARCHAR", "name of the class; null if it is not in the list"),
        Column("category_key", "VARCHAR", "class as written"),
        Column("kind", "VARCHAR", "box | outline"),
        Column("x", "DOUBLE", "left edge, px of the shown image (EXIF-turned)"),
        Column("y", "DOUBLE", "upper edge, px of the shown image"),
        Column("width", "DOUBLE", "px of the shown image; not above 0: degenerate"),
        Column("height", "DOUBLE", "px of the shown image"),
        Column("stored_x", "DOUBLE", "left edge, px of the image as it is in its file"),
        Column("stored_y", "DOUBLE", "upper edge, px of the image as it is in its file"),
        Column("stored_width", "DOUBLE", "px of the image as it is in its file"),
        Column("stored_height", "DOUBLE", "px of the image as it is in its file"),
        Column("picture_width", "BIGINT", "width of the shown image, px; null if unreadable"),
        Column("picture_height", "BIGINT", "height of the shown image, px"),
        Column("declared_width", "DOUBLE", "width by the annotation file, as shown; null without"),
        Column("declared_height", "DOUBLE", "height by the annotation file, as shown"),
        Column("other_unit", "BOOLEAN", "in the other unit (px, shares) than its file"),
        Column("angle", "DOUBLE", "rotation as written; null for an upright box"),
        Column("area", "DOUBLE", "area as written, px; null without"),
        Column("crowd", "BOOLEAN", "marked as a crowd or group"),
        Column("track", "VARCHAR", "track or instance over frames; null without"),
    ),
    "box_doubts": (
        Column("kind", "VARCHAR", "overlooked | badly placed | swapped"),
        _SAMPLE, _FILE, _IMAGE_KEY,
        Column("entry", "BIGINT", "the annotation in doubt; null for an overlooked object"),
        Column("score", "DOUBLE", "0..1, low for the annotations to review first (ObjectLab)"),
        Column("iou", "DOUBLE", "overlap of prediction and annotation, 0..1"),
        Column("probability", "DOUBLE", "of the prediction, 0..1"),
        Column("label", "VARCHAR", "class of the annotation; null for an overlooked object"),
        Column("predicted_label", "VARCHAR", "class of the prediction"),
        *(
            Column(f"{whose}{side}", "DOUBLE", f"{of}, px in the frame of the file")
            for whose, of in (("", "of the annotation"), ("predicted_", "of the prediction"))
            for side in ("x", "y", "width", "height")
        ),
    ),
    "box_quality": (
        _SAMPLE, _FILE, _IMAGE_KEY,
        Column("overlooked", "DOUBLE", "soft minimum of the scores of this kind; 1: no doubt"),
        Column("badly_placed", "DOUBLE", "soft minimum of the scores of this kind; 1: no doubt"),
        Column("swapped", "DOUBLE", "soft minimum of the scores of this kind; 1: no doubt"),
        Column("quality", "DOUBLE", "geometric mean of the three, 0..1; low: review first"),
    ),
    "prediction_facts": (
        Column("key", "VARCHAR", "file | predictions | unknown | confident | images | boxes"),
        Column("value", "VARCHAR", "the fact: text, or a number; no row without such predictions"),
    ),
}  # fmt: skip
DERIVED = ("boxes", "box_doubts", "box_quality", "prediction_facts")
"""Tables made from the others and from what a scan was given: never copied from before."""


# Equal boxes of several files count once; those without area, sample or size of the image do not.
_SPLIT = Column("split", "VARCHAR", "split; null without")
_LABEL = Column("label", "VARCHAR", "class of the boxes; null where the file does not list it")

BOX_STATISTICS_TABLES: Mapping[str, tuple[Column, ...]] = {
    "box_fits": (
        _FILE,
        Column("boxes", "BIGINT", "boxes of an eighth of an image and more each way, 12 of one"),
        Column("elsewhere", "VARCHAR", "mirrored | upside down | on the image after | ..."),
        Column("gain_z", "DOUBLE", "gain of the fit, standard errors; < 0: worse"),
        Column("share", "DOUBLE", "share of the images whose boxes fit better there, 0..1"),
        Column("units", "BIGINT", "images, near-duplicates counted once"),
    ),
    "box_images": (
        Column("sample_id", "VARCHAR", "an image that an annotation file lists"),
        Column("n_boxes", "BIGINT", "boxes in it, each object once; 0 for none"),
        Column("box_cover", "DOUBLE", "share of the image that its boxes cover together, 0..1"),
        Column("smallest_box", "DOUBLE", "shortest side of its boxes, px; null without boxes"),
    ),
    "box_classes": (
        _SPLIT, _LABEL,
        Column("boxes", "BIGINT", "boxes of the class"),
        Column("pictures", "BIGINT", "images with such boxes"),
        Column("effective_pictures", "BIGINT", "images with such boxes, copies counted once"),
        Column("effective_boxes", "BIGINT", "boxes, near-duplicates counted once"),
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
    "object_labels": (
        _SAMPLE,
        _LABEL,
        Column("kind", "VARCHAR", "what carries the label: box | mask | keypoints"),
        Column("n", "BIGINT", "objects of the class in the image, each once"),
        Column("side", "DOUBLE", "mean log2 of their side, the root of width x height, px"),
        Column("aspect", "DOUBLE", "mean log2 of width / height"),
        Column("x", "DOUBLE", "mean position of their centres, share of the width"),
        Column("y", "DOUBLE", "the same from the top, share of the height"),
    ),
    "box_counts": (
        _SPLIT,
        Column("boxes", "BIGINT", "boxes in an image"),
        Column("pictures", "BIGINT", "annotated images with this number"),
    ),
    "box_ratios": (
        _SPLIT,
        Column("low", "DOUBLE", "log2 of width / height: lower end of a bin a quarter wide"),
        Column("boxes", "BIGINT", "boxes in the bin; the first and last bin are open"),
    ),
    "box_overlaps": (
        _SPLIT,
        Column("low", "DOUBLE", "lower end of a bin of the greatest IoU with another box, 0..1"),
        Column("boxes", "BIGINT", "boxes in the bin; -1: boxes that touch no other box"),
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
        Column("pictures", "BIGINT", "images with boxes of both, of those of up to 300 classes"),
    ),
}  # fmt: skip
