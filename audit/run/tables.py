"""The tables and views of a run's two databases: every column with its type and its meaning.

The documents (docs/schema.md), the cases of the checks and the store are made from these; the
columns of `features` are in `audit.picture.features`. A change of a table raises the version.
"""

from __future__ import annotations

from collections.abc import Mapping

from audit.records import Column
from audit.run.annotation_tables import ANNOTATION_TABLES, BOX_STATISTICS_TABLES

SCHEMA_VERSION = 4
BOX_STATISTICS_VERSION = 3
"""Another one makes the next scan relate labels and boxes anew; no file is read for it."""
SAMPLES: tuple[Column, ...] = (
    Column("id", "VARCHAR", "path relative to its root, the same on every machine; unique"),
    Column("uri", "VARCHAR", "where the bytes are: absolute path at scan time"),
    Column("source", "VARCHAR", "name of the root, '' with a single root"),
    Column("split", "VARCHAR", "train, val, test, ...; null if the layout has no splits"),
    Column("label", "VARCHAR", "class name; null if missing"),
    Column("group_key", "VARCHAR", "patient, video, scene, ... from a manifest's group column"),
    Column("n_bytes", "BIGINT", "file size, bytes; -1 if the file could not be listed"),
    Column("mtime_ns", "BIGINT", "modification time, ns since 1970; -1 if unknown"),
    Column("ctime_ns", "BIGINT", "inode change time, ns since 1970; -1 if unknown"),
)
# A check or a source reader that raised (`audit.records.FailedPart`).
FAILED_COLUMNS: tuple[Column, ...] = (
    Column("kind", "VARCHAR", "check | reader"),
    Column("code", "VARCHAR", "code of the check; empty for a reader"),
    Column("name", "VARCHAR", "name of the check, or root of the reader"),
    Column("error", "VARCHAR", "type of the error and the first line of its text"),
    Column("place", "VARCHAR", "file:line where it was raised"),
    Column("trace", "VARCHAR", "the whole traceback"),
)
OTHER_TABLES: Mapping[str, tuple[Column, ...]] = {
    "meta": (
        Column("key", "VARCHAR", "name of the fact: schema_version, dataset, layout, roots, ..."),
        Column("value", "VARCHAR", "the fact, as text or JSON"),
    ),
    "declared_classes": (
        Column("split", "VARCHAR", "split whose tree has the class folder; null without splits"),
        Column("label", "VARCHAR", "class folder or declared class, with or without images"),
    ),
    "label_columns": (
        Column("source", "VARCHAR", "name of a root whose labels come from a column; '' if single"),
        Column("reading", "VARCHAR", "how its cells with several labels were read; or empty"),
    ),
    "several_labels": (
        Column("sample_id", "VARCHAR", "a sample whose image has several labels of its own"),
        Column("label", "VARCHAR", "one of its labels; `samples.label` is then null"),
    ),
    "several_scores": (
        Column("sample_id", "VARCHAR", "a sample, the first of its image"),
        Column("label", "VARCHAR", "a class"),
        Column("given", "BOOLEAN", "the image has this label"),
        Column("probability", "DOUBLE", "that it has, by the predictions given, 0..1"),
        Column("error_chance", "DOUBLE", "that `given` is wrong, 0..1; rows from 0.05 on"),
        Column("gain", "DOUBLE", "how much better wrong labels explain the class, log likelihood"),
    ),
    "skipped_files": (
        Column("reason", "VARCHAR", "hidden | excluded | not an image | system file | ..."),
        Column("extension", "VARCHAR", "lower case without the dot"),
        Column("count", "BIGINT", "files"),
        Column("example", "VARCHAR", "an example, relative to its root"),
    ),
    "source_notes": (
        Column("kind", "VARCHAR", "repeated-id | unlisted-folder | link-loop | ..."),
        Column("sample_id", "VARCHAR", "sample concerned; null if none"),
        Column("message", "VARCHAR", "note of the reader of the source, one sentence"),
    ),
    "failed_readers": FAILED_COLUMNS,
    "pairs": (
        Column("a", "VARCHAR", "pixel hash of an image; a < b"),
        Column("b", "VARCHAR", "pixel hash of the other image of the pair"),
        Column("kind", "VARCHAR", "near: verified near-duplicate"),
        Column("score", "DOUBLE", "log odds that both are copies of one image; >= threshold"),
        Column("similarity", "DOUBLE", "correlation of gradients over the overlap, -1..1"),
        Column("distance", "INTEGER", "differing bits of the two phash, 0..64"),
        Column("overlap", "DOUBLE", "share of one image that the other image covers, 0..1"),
        Column("transformation", "VARCHAR", "what turns a into b, in words"),
        Column("verified_full_size", "BOOLEAN", "whether a full-resolution check decided"),
    ),
    "groups": (
        Column("representative", "VARCHAR", "pixel hash that every member was verified against"),
        Column("pixel_hash", "VARCHAR", "a member of the group; in one group at most"),
        Column("position", "INTEGER", "order within the group; the representative is 0"),
        Column("score", "DOUBLE", "log odds against the representative; 1 for itself"),
    ),
    "rechecks": (
        Column("a", "VARCHAR", "pixel hash of an image; a < b"),
        Column("b", "VARCHAR", "pixel hash of another, near the threshold by their signatures"),
        Column("same", "BOOLEAN", "result of the full-resolution check; null if inconclusive"),
        Column("contrast", "DOUBLE", "its probability of a copy, 0..1; null without a check"),
    ),
    "rejected_pairs": (
        Column("pair", "UBIGINT", "64-bit fingerprint of two pixel hashes, compared and different"),
    ),
    "search_state": (
        Column("arrays", "BLOB", "neighbours and near pairs, for the next scan (NumPy's .npz)"),
    ),
    "relate_facts": (
        Column("key", "VARCHAR", "threshold | completeness | calibration | images | ..."),
        Column("value", "VARCHAR", "the fact: text, a number, or a JSON list of sentences"),
    ),
    "label_scores": (
        Column("sample_id", "VARCHAR", "a sample whose label was checked"),
        Column("label_quality", "DOUBLE", "0..1, low for the labels to review first"),
        Column("suggested_label", "VARCHAR", "the most probable other class"),
        Column("probability", "DOUBLE", "of the given label, out of fold, 0..1"),
        Column("suggested_probability", "DOUBLE", "of the suggested label, out of fold, 0..1"),
        Column(
            "error_chance", "DOUBLE", "chance of a wrong label, 0..1; valid for `labels.gain` >= 4"
        ),
        Column("sure_chance", "DOUBLE", "lower bound of that chance, 0..1"),
        Column("neighbours", "INTEGER", "labelled neighbours, without copies"),
        Column("neighbours_given", "INTEGER", "neighbours with the given label"),
        Column("neighbours_suggested", "INTEGER", "neighbours with the suggested label"),
        Column("class_doubt", "DOUBLE", "share of its class with an error_chance above 0.5, 0..1"),
    ),
    "vector_neighbours": (
        Column("sample_id", "VARCHAR", "a sample"),
        Column("position", "INTEGER", "0 for the nearest"),
        Column("neighbour_id", "VARCHAR", "a similar sample that is not a near-duplicate"),
        Column("similarity", "DOUBLE", "cosine of the embeddings, -1..1"),
    ),
    "label_neighbours": (
        Column("sample_id", "VARCHAR", "a sample whose label is among the first to review"),
        Column("side", "VARCHAR", "given | suggested: the class of the neighbour"),
        Column("position", "INTEGER", "0 for the nearest of that class"),
        Column("neighbour_id", "VARCHAR", "a sample of that class that is not a near-duplicate"),
        Column("similarity", "DOUBLE", "cosine of the embeddings, -1..1"),
    ),
    "embedding_map": (
        Column("sample_id", "VARCHAR", "a sample"),
        Column("x", "DOUBLE", "first coordinate on a map of similar images"),
        Column("y", "DOUBLE", "second coordinate; the unit has no meaning"),
        Column("isolation", "DOUBLE", "distance to its 10th neighbour / median; high: outlier"),
    ),
    "vector_failures": (
        Column("sample_id", "VARCHAR", "a sample without an embedding of the user's model"),
        Column("reason", "VARCHAR", "the reason, one sentence"),
    ),
    "vector_state": (
        Column("arrays", "BLOB", "neighbours by embedding, for the next scan (NumPy's .npz)"),
    ),
    "class_marks": (
        Column("label", "VARCHAR", "class whose images have a mark at one position of the border"),
        Column("place", "VARCHAR", "top left | top right | left edge | ... | bottom right"),
        Column("sample_id", "VARCHAR", "an image of this or of another class"),
        Column("score", "DOUBLE", "strength of the mark, any unit"),
    ),
    "label_facts": (
        Column("key", "VARCHAR", "judged | classes | labels | vectors | reason | ..."),
        Column("value", "VARCHAR", "the fact, as JSON"),
    ),
    **ANNOTATION_TABLES,
    **BOX_STATISTICS_TABLES,
}
MEASUREMENT_TABLES = ("samples", "features", *OTHER_TABLES)
FINDINGS_TABLES: Mapping[str, tuple[Column, ...]] = {
    "findings": (
        Column("fingerprint", "VARCHAR", "hash of code and subject, 16 hex digits; stable"),
        Column("code", "VARCHAR", "check code, such as DUP001"),
        Column("name", "VARCHAR", "check name"),
        Column("severity", "VARCHAR", "error | warning | info"),
        Column("subject", "VARCHAR", "stable key chosen by the check"),
        Column("message", "VARCHAR", "a full sentence with the numbers in it"),
        Column("evidence", "JSON", "the figures behind the finding"),
        Column("action", "VARCHAR", "keep | drop | relabel | move | review"),
        Column("n_samples", "BIGINT", "samples concerned; 0 for the whole dataset"),
    ),
    "finding_samples": (
        Column("fingerprint", "VARCHAR", "the finding"),
        Column("sample_id", "VARCHAR", "a sample it concerns"),
        Column("position", "INTEGER", "order within the finding"),
    ),
    "check_runs": (
        Column("code", "VARCHAR", "check code"),
        Column("name", "VARCHAR", "check name"),
        Column("severity", "VARCHAR", "the check's usual severity"),
        Column("n_findings", "BIGINT", "findings of this check"),
        Column("seconds", "DOUBLE", "time the check took, s"),
        Column("memory_growth", "BIGINT", "peak growth of resident memory meanwhile, bytes"),
        Column("completeness", "VARCHAR", "what the check read and what it skipped"),
        Column("params", "JSON", "thresholds in force"),
        Column("page", "VARCHAR", "documentation of a plugin check; else empty"),
    ),
    "failed_checks": FAILED_COLUMNS,
    "skipped_checks": (
        Column("code", "VARCHAR", "check code"),
        Column("name", "VARCHAR", "check name"),
        Column("reason", "VARCHAR", "why it was skipped, one sentence"),
    ),
}
IMAGES_VIEW = (
    "CREATE OR REPLACE VIEW images AS SELECT s.*, f.* EXCLUDE (sample_id, file_key), "
    "CAST(f.width AS BIGINT) * f.height AS pixels, f.width / f.height AS aspect, "
    "b.n_boxes, b.box_cover, b.smallest_box, "
    "concat(s.id, '@' || left(f.content_hash, 16)) AS subject "
    "FROM samples s JOIN features f ON f.sample_id = s.id "
    "LEFT JOIN box_images b ON b.sample_id = s.id"
)
# A unit counts once: a group of near-duplicates, else an image. Blank ones are no leak.
PICTURES_VIEW = (
    "CREATE OR REPLACE VIEW pictures AS SELECT i.id, i.split, i.label, i.content_hash, "
    "i.pixel_hash, g.representative, coalesce(g.representative, i.pixel_hash, i.id) AS unit, "
    "coalesce(i.contrast, 1) < 0.004 OR coalesce(i.transparent, 0) > 0.999 AS blank "
    "FROM images i LEFT JOIN groups g ON g.pixel_hash = i.pixel_hash"
)
# A row a picture and label of its own: one with several labels has several, one without has null.
PICTURE_LABELS_VIEW = (
    "CREATE OR REPLACE VIEW picture_labels AS SELECT p.id, p.split, "
    "coalesce(l.label, p.label) AS label, p.unit "
    "FROM pictures p LEFT JOIN several_labels l ON l.sample_id = p.id"
)
EFFECTIVE_SIZES_VIEW = (
    "CREATE OR REPLACE VIEW effective_sizes AS SELECT split, label, count(*) AS samples, "
    "count(DISTINCT unit) AS effective FROM picture_labels GROUP BY split, label"
)
# All labels of all things. Where a picture has one, it is kept with the sample and nowhere else.
LABELS_VIEW = (
    "CREATE OR REPLACE VIEW labels AS SELECT s.id AS sample_id, s.label, 1::BIGINT AS n, "
    "CASE WHEN c.source IS NULL THEN 'folder' ELSE 'column' END AS kind "
    "FROM samples s LEFT JOIN label_columns c ON c.source = s.source WHERE s.label IS NOT NULL "
    "UNION ALL SELECT sample_id, label, 1, 'column' FROM several_labels "
    "UNION ALL SELECT sample_id, label, n, kind FROM object_labels"
)
VIEWS = (IMAGES_VIEW, PICTURES_VIEW, PICTURE_LABELS_VIEW, EFFECTIVE_SIZES_VIEW, LABELS_VIEW)
