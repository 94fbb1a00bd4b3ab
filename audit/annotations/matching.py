"""Which sample an annotation file means: paths as they are written against the ids of samples.

Files name pictures relative to the dataset, to themselves, to a folder of pictures, by an absolute
path of another machine, or with backslashes. Tried in turn: the path below each folder it may be
relative to; the longest common end of path; the bare name where one picture has it. Where splits
repeat names, a file of one split never takes a picture of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from audit.annotations.discovery import AnnotationGroup, picture_folders
from audit.run.store import Store
from audit.sources import names

_PICTURE_FOLDERS = ("images/", "Images/", "JPEGImages/", "data/", "imgs/")


def match_pictures(store: Store, groups: Mapping[str, AnnotationGroup]) -> None:
    """Fill `sample_id` and `matched_by` of every entry of `annotated_images`."""
    samples = _samples(store)
    entries = store.query("SELECT rowid AS row, file, image_key, file_name FROM annotated_images")
    found = [
        _match_group(part, samples.filter(pl.col("source") == groups[file].source), groups[file])
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
    path = (
        pl.when(pl.col("source") == "")
        .then(pl.col("id"))
        .otherwise(pl.col("id").str.slice(pl.col("source").str.len_chars() + 1))
    )
    return _with_names(frame.with_columns(path=path))


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
    above = group.folder.rstrip("/").rpartition("/")[0]
    above = above + "/" if above else ""
    own = [group.folder, above, ""]
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
    column = "bare" if key == "bare" else "path"
    table = samples.select(pl.col("id"), pl.col(column).alias("key")).unique("key", keep="none")
    joined = rest.with_columns(key=pl.lit(prefix) + pl.col(column)).join(
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
        other_split=_other_split(known, split),
    )
    pairs = pairs.filter(~pl.col("other_split"))
    rank = (
        pl.col("whole") * 4 + pl.col("same_split").cast(pl.Int64) * 2
        + pl.col("inside").cast(pl.Int64)
    )  # fmt: skip
    best = pairs.with_columns(rank=rank).filter(pl.col("rank") == pl.col("rank").max().over("row"))
    counted = best.group_by("row", maintain_order=True).agg(
        pl.col("id").first(), n=pl.len(), whole=pl.col("whole").first()
    )
    one = pl.col("n") == 1
    hits = counted.select(
        "row",
        id=pl.when(one).then("id"),
        how=pl.when(~one).then(pl.lit("ambiguous"))
        .when(pl.col("whole") > 1).then(pl.lit("end of path")).otherwise(pl.lit("name")),
    )  # fmt: skip
    return hits, rest.join(hits, on="row", how="anti", maintain_order="left")


def _other_split(known: bool, split: str | None) -> pl.Expr:
    """Return whether the picture lies in a split other than the entry's path or file says."""
    by_file = (pl.col("split") != pl.lit(split)).fill_null(False) if known else pl.lit(False)
    folders = pl.col("path").str.extract(r"^(.*)/[^/]*$", 1)
    said = folders.map_elements(_split_in, pl.String, skip_nulls=True)
    return by_file | (said != pl.col("split")).fill_null(False)


def _split_in(folders: str) -> str | None:
    found = {names.split_word(part) for part in folders.split("/")} - {None}
    return found.pop() if len(found) == 1 else None


def _shared_parts(pair: Mapping[str, str]) -> int:
    """Return how many parts at the end two paths share."""
    ours: Sequence[str] = pair["sample_path"].split("/")[::-1]
    count = 0
    for a, b in zip(ours, pair["path"].split("/")[::-1], strict=False):
        if a != b:
            break
        count += 1
    return count
