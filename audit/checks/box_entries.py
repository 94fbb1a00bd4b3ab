"""BOX003, BOX011, BOX012, BOX013, BOX014: entries that are broken, repeated or left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.boxes import BoxCheck
from audit.checking.check import NoParams
from audit.records import Finding, Severity
from audit.run.store import Store

MILD = ("duplicate-key", "encoding", "name-differs", "wrong-type")
_PROBLEMS = """
    SELECT p.file, p.kind, sum(1 + p.more) AS n, arg_min(p.detail, p.rowid) AS detail,
        list(p.place ORDER BY p.rowid)[1:3] AS places,
        list(DISTINCT i.sample_id) FILTER (WHERE i.sample_id IS NOT NULL) AS samples
    FROM annotation_problems p
    LEFT JOIN annotated_images i ON i.file = p.file AND i.image_key = p.image_key
    GROUP BY p.file, p.kind ORDER BY p.file, p.kind
"""


class MalformedAnnotation(BoxCheck):
    """Truncated annotation files, and entries or lines that violate their format.

    ## What it does
    Reports the problems of each file by kind: truncation and bad syntax (with the byte position),
    lines with a wrong number of columns, text in place of numbers, repeated keys, ids of mixed
    type, unusual encodings, and XML files that name another image than their file name does.

    ## Why is this bad
    Readers differ: some stop, some skip the line, some use the last of two values. The model is not
    trained on what was annotated.

    ## Example
    `labels/0042.txt`, line 3: `0 0.5 0.5 0.2` has one number too few.

    ## What to do
    Correct the entry at the reported position, or export the file again.

    ## Limits
    The table `annotation_problems` lists at most 200 problems per kind and file; all are counted.
    The readable part of a file goes through the other checks.
    """

    code = "BOX013"
    name = "malformed-annotation"
    severity = Severity.ERROR

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        for row in store.rows(_PROBLEMS):
            places = "; ".join(place for place in row["places"] if place)
            where = f" ({places})" if places else ""
            times = f"{int(row['n']):,} times" if row["n"] > 1 else "1 time"
            text = f"In {row['file']}, {times}: {row['detail']}{where}."
            yield self.about_file(
                row["file"],
                row["kind"],
                text.replace("\n", " "),
                {"kind": row["kind"], "times": int(row["n"]), "places": places},
                row["samples"] or [],
                severity=Severity.WARNING if row["kind"] in MILD else self.severity,
            )

    counts = """
        SELECT coalesce(sum(n_files), 0) :: BIGINT AS n,
            coalesce(sum(n_files) FILTER (WHERE complete), 0) :: BIGINT AS whole
        FROM annotation_files
    """
    examined = "{whole:,} of {n:,} annotation files could be read completely."


# One row a file and kind: how many values occur several times, and the first of them.
_REPEATS = """
    SELECT file, count(*) AS repeated, sum(n) AS entries, min_by(value, first) AS value,
        min(first) AS first, min_by(second, first) AS second, flatten(list(samples)) AS samples
    FROM (
        SELECT file, {value} AS value, count(*) AS n, min(entry) AS first, max(entry) AS second,
            {samples} AS samples
        FROM {table} WHERE {value} IS NOT NULL {extra} GROUP BY file, {value}{within}
        HAVING count(*) > 1
    ) GROUP BY file ORDER BY file
"""
# Ids of objects in a file for each picture are numbers within that file.
_WITHIN = """, CASE WHEN file IN (SELECT file FROM annotation_files
    WHERE format IN ('LabelMe', 'VOC')) THEN image_key END"""
_NO_SAMPLES = "CAST([] AS VARCHAR[])"
KINDS = (
    ("annotation ids", "annotation_id", "annotations", "", _NO_SAMPLES),
    ("image ids", "image_key", "annotated_images", "", "list(DISTINCT sample_id)"),
    ("pictures", "sample_id", "annotated_images", "", "list(DISTINCT sample_id)"),
    ("class ids", "category_key", "categories", "AND declared", _NO_SAMPLES),
    ("class names", "label", "categories", "AND declared", _NO_SAMPLES),
)


class RepeatedAnnotationId(BoxCheck):
    """Annotation ids, image ids, images or classes that one annotation file lists twice.

    ## What it does
    Counts, per file, annotation ids, image ids, images, class ids and class names that occur more
    than once.

    ## Why is this bad
    Readers index by id and keep the last entry: boxes of earlier entries disappear or move to
    another image. An image listed twice counts twice; a class listed twice has two outputs.

    ## Example
    Two exports were joined, and both count their annotations from 1.

    ## What to do
    Renumber the entries and the references to them. Merge the entries of one image.

    ## Limits
    Segment ids (panoptic) are unique only within an image and are not compared. Ids of LabelMe and
    VOC are compared within the file of one image.
    """

    code = "BOX012"
    name = "repeated-annotation-id"
    severity = Severity.ERROR

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a file and kind; pictures of a repeated id are not named again."""
        said: set[str] = set()
        for what, value, table, extra, samples in KINDS:
            within = _WITHIN if value == "annotation_id" else ""
            sql = _REPEATS.format(
                value=value, table=table, extra=extra, samples=samples, within=within
            )
            for row in store.query(sql).iter_rows(named=True):
                key = f"{row['file']}/{row['first']}"
                if what == "pictures" and key in said:
                    continue
                said.add(key) if what == "image ids" else None
                yield self.about_file(
                    row["file"],
                    what,
                    f"{row['repeated']:,} {what} of {row['file']} are listed more than once "
                    f"({row['entries']:,} entries): {row['value']} as entries {row['first']:,} and "
                    f"{row['second']:,}.",
                    {
                        "repeated": row["repeated"],
                        "entries": int(row["entries"]),
                        "value": row["value"],
                        "entry": row["first"],
                    },
                    [s for s in row["samples"] or [] if s],
                )

    counts = """
        SELECT (SELECT count(*) FROM annotations) AS n, (SELECT count(*) FROM categories) AS c,
            (SELECT count(*) FROM annotated_images) AS p
    """
    examined = "The ids of {n:,} annotations, {p:,} images and {c:,} classes were compared."


# Annotations name a picture that the file does not list.
_ORPHANS = """
    SELECT a.file, count(*) AS annotations, count(DISTINCT a.image_key) AS pictures,
        min_by(coalesce(a.image_key, 'none'), a.entry) AS first, min(a.entry) AS entry,
        min(a.line) AS line
    FROM annotations a ANTI JOIN annotated_images i ON i.file = a.file AND i.image_key = a.image_key
    GROUP BY a.file ORDER BY a.file
"""
# Pictures that the file lists are no samples.
_MISSING = """
    SELECT i.file, matched_by, count(*) AS missing, any_value(f.pictures) AS pictures,
        coalesce(min_by(file_name, entry), '') AS first
    FROM annotated_images i JOIN annotation_files f ON f.file = i.file
    WHERE matched_by IN ('missing', 'ambiguous') GROUP BY i.file, matched_by ORDER BY 1, 2
"""


class OrphanAnnotation(BoxCheck):
    """Annotations whose image is not listed, and listed images that are not in the dataset.

    ## What it does
    Reports, per file, annotations whose image id the file does not list, entries and label files
    without an image, and names that match several images.

    ## Why is this bad
    Loaders skip these annotations or stop. Often images were moved, or the annotations belong to
    another version of the dataset.

    ## Example
    `image_id` 77 in a file whose images are 1 to 60.

    ## What to do
    Find the images, or drop the annotations.

    ## Limits
    Paths are compared as written, below the usual folders, by the end of the path, and by the file
    name if it is unique.
    """

    code = "BOX011"
    name = "orphan-annotation"
    severity = Severity.ERROR

    counts = "SELECT count(*) AS n, count(sample_id) AS found FROM annotated_images"
    examined = "{found:,} of {n:,} images in annotation files are in the dataset."

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        for row in store.rows(_ORPHANS):
            line = "" if row["line"] is None else f", line {row['line']:,}"
            yield self.about_file(
                row["file"],
                "ids",
                f"{row['annotations']:,} annotations of {row['file']} refer to {row['pictures']:,} "
                f"images that the file does not list: the first is {row['first']} (entry "
                f"{row['entry']:,}{line}).",
                {name: row[name] for name in ("annotations", "pictures", "first")},
            )
        for row in store.rows(_MISSING):
            why = "do not exist" if row["matched_by"] == "missing" else "match several files"
            yield self.about_file(
                row["file"],
                row["matched_by"],
                f"{row['missing']:,} of {row['pictures']:,} images of {row['file']} {why}: the "
                f"first is {row['first'] or '(no name)'}.",
                {name: row[name] for name in ("missing", "pictures", "first")},
                severity=None if row["missing"] < row["pictures"] else Severity.WARNING,
            )


class MissingAnnotation(BoxCheck):
    """Images that no annotation file lists, in folders where nearly all images are listed.

    ## What it does
    Examines folders of at least `min_pictures` readable images. If at least `min_share` of them are
    in an annotation file or have a label file, the remaining images are reported.

    ## Why is this bad
    An image without an entry counts as an image without objects, or is silently skipped. Either way
    its objects are lost.

    ## Example
    1,000 images, 998 label files: two were lost in a copy.

    ## What to do
    Annotate these images. Add an empty entry or label file for images without objects.

    ## Limits
    A listed image without a box counts as an image without objects. Folders that are only partly
    annotated are not reported.
    """

    code = "BOX014"
    name = "missing-annotation"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_share: share of listed images from which a folder counts as annotated
        min_pictures: smallest number of images of such a folder
        """

        min_share: float = 0.9
        min_pictures: int = 20

    sql = """
        WITH listed AS (SELECT DISTINCT sample_id FROM annotated_images), files AS (
            SELECT id, l.sample_id IS NOT NULL AS listed,
                coalesce(nullif(regexp_extract(id, '^(.*)/[^/]*$', 1), ''), '.') AS folder
            FROM images LEFT JOIN listed l ON l.sample_id = id WHERE status <> 'unreadable'
        )
        SELECT concat('dataset:', folder) AS subject, folder, count(*) AS pictures,
            list(id ORDER BY id) FILTER (WHERE NOT listed) AS ids, len(ids) AS missing,
            ids[1] AS first
        FROM files GROUP BY folder
        HAVING pictures >= $min_pictures AND missing > 0
            AND pictures - missing >= $min_share * pictures ORDER BY folder
    """
    message = (
        "{missing:,} of the {pictures:,} images of {folder} are in no annotation file: the first "
        "is {first}."
    )
    evidence = ("folder", "missing", "pictures")
    counts = """
        SELECT (SELECT count(DISTINCT sample_id) FROM annotated_images) AS n, count(*) AS total
        FROM samples
    """
    examined = "{n:,} of {total:,} samples are listed in an annotation file."


class UnknownClass(BoxCheck):
    """Annotations whose class is not in the class list of their file.

    ## What it does
    Compares the class of each annotation with the classes that its file declares (`categories`,
    `names`). A class number that is not in the list is reported.

    ## Why is this bad
    Training stops with an index error, or silently trains an output without a name. If the list
    starts at 0 and the labels at 1, every class is wrong.

    ## Example
    `category_id` 99 in a file whose classes are 1 to 8.

    ## What to do
    Correct the number, or add the class to the list.

    ## Limits
    Not applicable to formats without a class list (VOC). A wrong class that is in the list is not
    detected.
    """

    code = "BOX003"
    name = "unknown-category"
    severity = Severity.ERROR

    hits = """
        SELECT b.*, 0 AS amount, c.n AS classes, coalesce(category_key, '') AS class,
            CASE WHEN category_key IS NULL THEN 'no class of'
                ELSE concat('the class ', category_key, ', which is not among') END AS what
        FROM boxes b JOIN (
            SELECT file, count(*) AS n FROM categories WHERE declared GROUP BY file
        ) c ON c.file = b.file WHERE b.label IS NULL
    """
    message = "A box has {what} the {classes:,} classes of its file"
    evidence = ("class", "classes")
    judged = "file IN (SELECT file FROM categories WHERE declared)"
    how = " by the list of classes of their file"
