"""Which sample an entry is about, and what the four numbers of a box mean; then `boxes` is made.

Files do not keep to their format: corners where a size belongs, axes exchanged, shares for px.
Another reading is taken where over a tenth of at least `LEAST` boxes leave their picture under the
format and all but one in a hundred fit under the other. A name is tried as the path below each
folder it may be relative to, the longest common end of path, and the bare name where one picture
has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

import polars as pl

from audit.annotations.discovery import AnnotationGroup, picture_folders
from audit.run.store import Store
from audit.sources import names

LEAST = 20  # boxes below which a reading cannot be told from another
POOR, GOOD = 0.9, 0.99  # share of boxes inside: below and above
SLACK = 1.0  # px: formats count from 0 or 1, and tools round
SMALL_SIDE = 16  # px; below, a box of at most one px is not evidence of shares

# x, y, width, height from the numbers a, b, c, d.
READINGS = {
    "xywh": ("a", "b", "c", "d"),
    "corners": ("a", "b", "c - a", "d - b"),
    "centre": ("a - c / 2", "b - d / 2", "c", "d"),
    "yxhw": ("b", "a", "d", "c"),
    "xyhw": ("a", "b", "d", "c"),
    "y-x corners": ("b", "a", "d - b", "c - a"),
    "x-x-y-y": ("a", "c", "b - a", "d - c"),
    "y-x centre": ("b - d / 2", "a - c / 2", "d", "c"),
    "y-y-x-x": ("c", "a", "d - c", "b - a"),
}

_PLACED = f"""
    CREATE OR REPLACE TEMP TABLE placed AS
    WITH pictures AS (
        SELECT file, image_key, min_by(sample_id, entry) AS sample_id,
            min_by(width, entry) AS declared_width, min_by(height, entry) AS declared_height
        FROM annotated_images GROUP BY file, image_key
    ), sizes AS (
        SELECT sample_id, width, height, coalesce(orientation, 1) AS orientation FROM features
    )
    SELECT n.file, n.image_key, n.entry, n.line, n.byte, n.annotation_id, n.category_key, n.kind,
        n.v1 AS a, n.v2 AS b, n.v3 AS c, n.v4 AS d, n.angle, n.area, n.crowd, n.track,
        p.sample_id, p.declared_width AS dw, p.declared_height AS dh, f.width AS pw, f.height AS ph,
        coalesce(f.orientation, 1) AS orientation,
        coalesce(f.width, p.declared_width) AS w0, coalesce(f.height, p.declared_height) AS h0,
        ends_with(s.form, 'share') AS shares,
        coalesce(isfinite(v1) AND isfinite(v2) AND isfinite(v3) AND isfinite(v4), false) AS finite,
        CASE WHEN ends_with(s.form, 'share') THEN greatest(v1, v2, v3, v4) > 2
            ELSE least(v1, v2, v3, v4) >= 0 AND greatest(v1, v2, v3, v4) <= 1.001
                AND greatest(v3, v4) > 0
                AND least(coalesce(f.width, p.declared_width),
                    coalesce(f.height, p.declared_height)) >= {SMALL_SIDE}
            END AS other
    FROM annotations n JOIN annotation_files s ON s.file = n.file
    LEFT JOIN pictures p ON p.file = n.file AND p.image_key = n.image_key
    LEFT JOIN sizes f ON f.sample_id = p.sample_id
    WHERE n.kind <> 'label'
"""


def settle_boxes(store: Store) -> None:
    """Decide the reading and the frame of every file, and fill `boxes`; pictures are measured."""
    store.execute("DELETE FROM boxes")
    if not store.scalar("SELECT count(*) FROM annotations"):
        return
    store.execute(_PLACED)
    _decide_units(store)
    _decide_readings(store)
    _decide_frames(store)
    _fill_boxes(store)
    store.execute("DROP TABLE placed")


def _decide_units(store: Store) -> None:
    """A file whose boxes nearly all are in the other unit is of that unit; a few are strays."""
    store.execute(
        "CREATE OR REPLACE TEMP TABLE units AS WITH counts AS (SELECT file, "
        "count(*) FILTER (WHERE finite) AS n, count(*) FILTER (WHERE finite AND other) AS strays, "
        "any_value(shares) AS shares FROM placed GROUP BY file) SELECT file, n, CASE WHEN strays "
        ">= greatest(3, 0.9 * n) THEN NOT shares ELSE shares END AS file_shares FROM counts"
    )


# The unit of one box: that of the file, unless it alone is in the other.
_UNIT = "CASE WHEN coalesce(other, false) THEN NOT shares ELSE shares END"


def _fits(name: str, width: str, height: str) -> str:
    """Return SQL that says whether a box lies inside its picture under a reading."""
    x, y, w, h = READINGS[name]
    unit_w, unit_h = (f"CASE WHEN {_UNIT} THEN {side} ELSE 1 END" for side in (width, height))
    return (
        f"({w}) > 0 AND ({h}) > 0 AND ({x}) * {unit_w} >= -{SLACK} "
        f"AND ({y}) * {unit_h} >= -{SLACK} AND ({x} + {w}) * {unit_w} <= {width} + {SLACK} "
        f"AND ({y} + {h}) * {unit_h} <= {height} + {SLACK}"
    )


def _decide_readings(store: Store) -> None:
    store.execute("UPDATE annotation_files SET reading = form")
    forms = store.rows("SELECT DISTINCT form FROM annotation_files")
    for form in {row["form"].rpartition(" ")[0] for row in forms} & READINGS.keys():
        _score_form(store, form)
    store.execute(
        "UPDATE annotation_files SET fit_share = form_fit_share, reading = "
        "CASE WHEN file_shares THEN replace(form, ' px', ' share') "
        "ELSE replace(form, ' share', ' px') END FROM units u WHERE u.file = annotation_files.file"
    )
    poor = store.rows(
        "SELECT f.file, f.form FROM annotation_files f JOIN units u ON u.file = f.file "
        f"WHERE u.n >= {LEAST} AND form_fit_share < {POOR}"
    )
    for row in poor:
        _take_better(store, row["file"], row["form"].rpartition(" ")[0])


def _score_form(store: Store, form: str) -> None:
    """Store the share of boxes inside the picture, as measured or as declared."""
    inside = f"({_fits(form, 'w0', 'h0')}) OR (coalesce({_fits(form, 'dw', 'dh')}, false))"
    store.execute(
        "UPDATE annotation_files SET form_fit_share = share FROM (SELECT file, "
        f"avg(({inside})::INT) AS share FROM placed WHERE finite AND w0 > 0 AND orientation < 5 "
        "GROUP BY file) s WHERE s.file = annotation_files.file AND starts_with(form, ? || ' ')",
        [form],
    )


def _take_better(store: Store, file: str, form: str) -> None:
    """Take the reading under which nearly all boxes of a file fit, if there is one."""
    others = [name for name in READINGS if name != form]
    shares = ", ".join(f"avg(({_fits(name, 'w0', 'h0')})::INT)" for name in others)
    [scores] = store.query(
        f"SELECT {shares} FROM placed WHERE file = ? AND finite AND w0 > 0 AND orientation < 5",
        [file],
    ).rows()
    best = max(range(len(others)), key=lambda i: scores[i] or 0.0)
    if (scores[best] or 0.0) >= GOOD:
        store.execute(
            "UPDATE annotation_files SET fit_share = ?, reading = ? || ' ' || split_part(reading, "
            "' ', -1) WHERE file = ?",
            [float(scores[best]), others[best], file],
        )


def _decide_frames(store: Store) -> None:
    """For pictures that EXIF turns on their side: do the boxes fit as displayed, or as stored?"""
    store.execute("UPDATE annotation_files SET frame = 'displayed'")
    turned = "orientation >= 5 AND finite AND pw <> ph"
    files = store.query(
        "SELECT DISTINCT file, reading FROM annotation_files WHERE reading IS NOT NULL "
        f"AND file IN (SELECT file FROM placed WHERE {turned})"
    )
    for file, named in files.iter_rows():
        if (reading := named.rpartition(" ")[0]) not in READINGS:
            continue
        [[shown, stored, says_stored, says_shown]] = store.query(
            f"SELECT count(*) FILTER (WHERE {_fits(reading, 'pw', 'ph')}), "
            f"count(*) FILTER (WHERE {_fits(reading, 'ph', 'pw')}), "
            "count(*) FILTER (WHERE dw = ph AND dh = pw), "
            "count(*) FILTER (WHERE dw = pw AND dh = ph) "
            f"FROM placed WHERE file = ? AND {turned}",
            [file],
        ).rows()
        if stored > shown or (stored == shown and says_stored > says_shown):
            store.execute("UPDATE annotation_files SET frame = 'stored' WHERE file = ?", [file])


def _turned(orientation: str, width: str, height: str) -> tuple[str, str]:
    """Return SQL for x and y of a box in a picture that EXIF turns, `width` x `height` before."""
    right, low = f"{width} - x - w", f"{height} - y - h"
    return (
        f"CASE {orientation} WHEN 2 THEN {right} WHEN 3 THEN {right} WHEN 5 THEN y "
        f"WHEN 6 THEN {low} WHEN 7 THEN {low} WHEN 8 THEN y ELSE x END",
        f"CASE {orientation} WHEN 3 THEN {low} WHEN 4 THEN {low} WHEN 5 THEN x "
        f"WHEN 6 THEN x WHEN 7 THEN {right} WHEN 8 THEN {right} ELSE y END",
    )


# A box of the stored picture (sw x sh) in the shown one, and back: 6 and 8 undo each other.
_SHOWN_X, _SHOWN_Y = _turned("orientation", "sw", "sh")
_BACK = "CASE orientation WHEN 6 THEN 8 WHEN 8 THEN 6 ELSE orientation END"
_STORED_X, _STORED_Y = _turned(_BACK, "pw", "ph")


def _fill_boxes(store: Store) -> None:
    cases = ([f"WHEN '{name}' THEN {v[at]}" for name, v in READINGS.items()] for at in range(4))
    x, y, w, h = (f"CASE bare {' '.join(case)} END" for case in cases)
    on_side = "orientation >= 5"
    store.execute(f"""
        INSERT INTO boxes BY NAME
        WITH labels AS (
            SELECT file, category_key, min_by(label, entry) AS label FROM categories
            GROUP BY file, category_key
        ), readings AS (
            SELECT file, frame, regexp_replace(reading, ' [a-z]+$', '') AS bare
            FROM annotation_files
        ), plain AS (
            SELECT p.*, l.label, s.bare, s.frame = 'stored' AND orientation > 1 AS is_stored,
                s.frame = 'stored' AND {on_side} AS sides_stored,
                {_UNIT} AS in_shares, file_shares, (finite AND {_UNIT} <> file_shares) AS other_unit
            FROM placed p JOIN readings s ON s.file = p.file
            JOIN units u ON u.file = p.file
            LEFT JOIN labels l ON l.file = p.file AND l.category_key = p.category_key
        ), numbers AS (
            SELECT *, CASE WHEN finite THEN {x} END AS rx, CASE WHEN finite THEN {y} END AS ry,
                CASE WHEN finite THEN {w} END AS rw, CASE WHEN finite THEN {h} END AS rh,
                CASE WHEN NOT in_shares THEN 1 WHEN sides_stored THEN h0 ELSE w0 END AS ux,
                CASE WHEN NOT in_shares THEN 1 WHEN sides_stored THEN w0 ELSE h0 END AS uy,
                CASE WHEN {on_side} THEN ph ELSE pw END AS sw,
                CASE WHEN {on_side} THEN pw ELSE ph END AS sh
            FROM plain
        ), px AS (
            SELECT * REPLACE (rx * ux AS rx), ry * uy AS y, rw * ux AS w, rh * uy AS h, rx * ux AS x
            FROM numbers
        )
        SELECT file, image_key, entry, line, byte, annotation_id, sample_id, label, category_key,
            kind, angle, area, crowd, track,
            CASE WHEN is_stored THEN {_SHOWN_X} ELSE x END AS x,
            CASE WHEN is_stored THEN {_SHOWN_Y} ELSE y END AS y,
            CASE WHEN sides_stored THEN h ELSE w END AS width,
            CASE WHEN sides_stored THEN w ELSE h END AS height,
            CASE WHEN is_stored THEN x ELSE {_STORED_X} END AS stored_x,
            CASE WHEN is_stored THEN y ELSE {_STORED_Y} END AS stored_y,
            CASE WHEN {on_side} AND NOT is_stored THEN h ELSE w END AS stored_width,
            CASE WHEN {on_side} AND NOT is_stored THEN w ELSE h END AS stored_height,
            pw AS picture_width, ph AS picture_height,
            CASE WHEN sides_stored THEN dh ELSE dw END AS declared_width,
            CASE WHEN sides_stored THEN dw ELSE dh END AS declared_height, other_unit
        FROM px
        ORDER BY sample_id, file, entry
    """)


_PICTURE_FOLDERS = ("images/", "Images/", "JPEGImages/", "data/", "imgs/")


def match_pictures(store: Store, groups: Mapping[str, AnnotationGroup]) -> None:
    """Fill `sample_id` and `matched_by` of every entry of `annotated_images`."""
    samples = _samples(store)
    entries = store.query("SELECT rowid AS row, file, image_key, file_name FROM annotated_images")
    found = [
        _match_group(
            part, samples.filter(pl.col("source") == groups[file].tree.source), groups[file]
        )
        for (file,), part in entries.group_by("file", maintain_order=True)
        if isinstance(file, str) and file in groups
    ]
    if not found:
        return
    store.create_from("matches", pl.concat(found))
    store.execute(
        "UPDATE annotated_images SET sample_id = m.id, matched_by = m.how FROM matches m "
        "WHERE annotated_images.rowid = m.row"
    )
    store.execute("DROP TABLE matches")


def _samples(store: Store) -> pl.DataFrame:
    frame = store.query("SELECT id, source, split FROM samples")
    source = pl.col("source").str.len_chars()
    start = pl.when(source == 0).then(0).otherwise(source + 1)
    return _with_names(frame.with_columns(path=pl.col("id").str.slice(start)))


def _with_names(frame: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("path").str.extract(r"([^/]*)$", 1)
    return frame.with_columns(
        name=name, bare=pl.col("path").str.replace(r"\.[^./]*$", "")
    ).with_columns(bare_name=pl.col("bare").str.extract(r"([^/]*)$", 1))


def _match_group(
    entries: pl.DataFrame, samples: pl.DataFrame, group: AnnotationGroup
) -> pl.DataFrame:
    wanted = (
        pl.col("file_name").fill_null("").str.replace_all("\\", "/", literal=True)
        .str.replace(r"^(\./)+", "").str.normalize("NFC")
    )  # fmt: skip
    rest = _with_names(entries.with_columns(path=wanted))
    done = []
    # Labels of YOLO name their picture without its extension; elsewhere that is the last resort.
    without = group.format in ("YOLO", "Open Images")
    if without:  # a dot in such a name begins no extension
        rest = rest.with_columns(bare=pl.col("path"), bare_name=pl.col("name"))
    # Ids of Open Images have no extension; files that other programs write have names there.
    keys: tuple[str, ...] = ("path", "bare")
    if without:
        keys = ("bare", "path") if group.format == "Open Images" else ("bare",)
    for key in keys:
        for prefix in _prefixes(group) if rest.height else ():
            hits, rest = _by_path(rest, samples, prefix, key)
            done.append(hits)
    for key in ("bare_name" if key == "bare" else "name" for key in keys):
        if not rest.height:
            break
        hits, rest = _by_name(rest, samples, group, key)
        done.append(hits)
    missing = rest.select("row", id=pl.lit(None, pl.String), how=pl.lit("missing"))
    return pl.concat([*done, missing])


def _prefixes(group: AnnotationGroup) -> list[str]:
    own = [group.folder, group.above, ""]
    if not group.single:
        return list(dict.fromkeys([*picture_folders(group.folder), *own]))
    inner = [base + folder for base in own for folder in _PICTURE_FOLDERS]
    split = _split_of(group)
    inner += [base + split + "/" for base in (*own, *inner) if split]
    return list(dict.fromkeys([*own, *picture_folders(group.folder), *inner]))


def _split_of(group: AnnotationGroup) -> str | None:
    """Return the split that the name of the file or its folders say, None without."""
    parts = [*group.folder.split("/"), *(group.names if group.single else ())]
    words = [w for part in parts for w in names.words(part.rpartition(".")[0] or part)]
    found = {names.CANONICAL[w] for w in words if w in names.CANONICAL and len(w) > 2}
    return found.pop() if len(found) == 1 else None


def _by_path(
    rest: pl.DataFrame, samples: pl.DataFrame, prefix: str, key: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    table = samples.select("id", pl.col(key).alias("key")).unique("key", keep="none")
    joined = rest.with_columns(key=pl.lit(prefix) + pl.col(key)).join(
        table, on="key", how="left", maintain_order="left"
    )
    hit = pl.col("id").is_not_null() & (pl.col("path") != "")
    hits = joined.filter(hit).select("row", "id", how=pl.lit("path"))
    return hits, joined.filter(~hit.fill_null(False)).drop("key", "id")


def _by_name(
    rest: pl.DataFrame, samples: pl.DataFrame, group: AnnotationGroup, key: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Match by the end of the path or the name, where that leaves one picture."""
    split = _split_of(group)
    known = split is not None and bool((samples["split"] == split).any())
    pairs = rest.filter(pl.col(key) != "").join(
        samples.select("id", "split", key, sample_path="path"), on=key
    )
    pairs = pairs.with_columns(
        whole=pl.struct("sample_path", "path").map_elements(_shared_parts, pl.Int64),
        same_split=(pl.col("split") == pl.lit(split)).fill_null(False) if known else pl.lit(False),
        inside=pl.col("sample_path").str.starts_with(group.folder),
    ).filter(~_other_split(known, split))
    rank = 4 * pl.col("whole") + 2 * pl.col("same_split").cast(int) + pl.col("inside").cast(int)
    best = pairs.with_columns(rank=rank).filter(pl.col("rank") == pl.col("rank").max().over("row"))
    counted = best.group_by("row", maintain_order=True).agg(
        pl.col("id").first(), n=pl.len(), whole=pl.col("whole").first()
    )
    single = pl.col("n") == 1
    hits = counted.select(
        "row",
        id=pl.when(single).then("id"),
        how=pl.when(~single).then(pl.lit("ambiguous"))
        .when(pl.col("whole") > 1).then(pl.lit("end of path")).otherwise(pl.lit("name")),
    )  # fmt: skip
    return hits, rest.join(hits, on="row", how="anti", maintain_order="left")


def _other_split(known: bool, split: str | None) -> pl.Expr:
    """Return whether the picture lies in a split other than the entry's path or file says."""
    by_file = (pl.col("split") != pl.lit(split)).fill_null(False) if known else pl.lit(False)
    folders = pl.col("path").str.extract(r"^(.*)/[^/]*$", 1)
    by_path = folders.map_elements(_split_in, pl.String, skip_nulls=True)
    return by_file | (by_path != pl.col("split")).fill_null(False)


def _split_in(folders: str) -> str | None:
    found = {names.split_word(part) for part in folders.split("/")} - {None}
    return found.pop() if len(found) == 1 else None


def _shared_parts(pair: Mapping[str, str]) -> int:
    """Return how many parts at the end two paths share."""
    ours, theirs = (pair[name].split("/")[::-1] for name in ("sample_path", "path"))
    return len(list(takewhile(lambda parts: parts[0] == parts[1], zip(ours, theirs, strict=False))))
