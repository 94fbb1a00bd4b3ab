"""Manifests, settings, runs, decisions and folder trees with something wrong in them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from audit.checking.check import all_checks
from audit.checking.config import MATCH_RANGES, SETTINGS
from audit.run.writer_lock import MARKER

# Controls but the line break, C1, marks of direction, lone surrogates: no terminal is sent one.
RAW = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
TEXTS = (
    "", " ", "a.jpg", "../a.jpg", "..", ".", "/", "//a", "/etc/passwd", "a//b/../c.jpg", "~", "~x",
    "C:\\a.jpg", "http://x/y.jpg", "http://[x", "s3://", "file:///a%00", "file://%ff%", "file:",
    "file://[x/a.jpg", "\x1b[2J\x1b]0;t\x07", "\u202ea\u2066", "\u2028", "a\nb", "a\rb", "a\tb",
    '"', "'", '""', "=1+1", "'=1", "@x", "%", "%zz", "#2", "a#2", "x" * 300, "y" * 200_000,
    "e\u0301", "\u00e9", "\ufeff", "nan", "NaN", "null", "None", "true", "1e400", "-0", "0x1",
    "9" * 400, "2020-01-01", "2020-13-45", "\U0001f600", "\udc80", "a\0b", ",", ";", "{", "[1,2]",
    "<b>x</b>", "train", "test", "id", "1.0", "1", "\u0661", "1_000",
)  # fmt: skip
NAMES = (
    "path", "label", "split", "group", "id", "file", "class", "Path", " path ", "PATH", "", " ",
    "sample_id", "url", "bbox", "xmin", "a", "A", "a b", "select", '"', "'", "x" * 300, "\x1b[2J",
    "width", "status", "content_hash", "kind", "e\u0301", "\u00e9", "\u202e", "a\nb", "a;b", "a,b",
    "a\0b", "rowid", "cells", "samples", "\U0001f600", "unnamed_1", "'a", "'=x", "struct",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 3.0, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 1e300,
    0.1, -0.0, float("nan"), float("inf"), float("-inf"), True, False, None,
)  # fmt: skip
NESTED: tuple[Any, ...] = (
    [], {}, [[]], [1, "x", None], {"a": {"b": [1]}}, {"": 1}, [{"a": 1}, {"b": 2}], [0.5, 10**400],
)  # fmt: skip
TYPED: tuple[tuple[Any, pl.DataType], ...] = (
    (date(2020, 1, 1), pl.Date()), (datetime(1, 1, 1), pl.Datetime("us")),
    (datetime(2020, 1, 1), pl.Datetime("ns", "UTC")), (time(1, 2), pl.Time()),
    (timedelta(days=-3), pl.Duration("ms")), (Decimal("1.50"), pl.Decimal(38, 2)),
    (b"\x00\xff", pl.Binary()), (["a", None], pl.List(pl.String())),
    ({"a": 1}, pl.Struct({"a": pl.Int8()})),
    (2**64 - 1, pl.UInt64()), (-3, pl.Int8()), (1.5, pl.Float32()), (float("nan"), pl.Float64()),
    ("cat", pl.Categorical()), ("cat", pl.Enum(["cat"])), (True, pl.Boolean()), (None, pl.Null()),
    ([1, 2], pl.Array(pl.Int64(), 2)), ([[b"x"]], pl.List(pl.List(pl.Binary()))),
    (2**100, pl.Int128()),
)  # fmt: skip
ENCODINGS = ("utf-8",) * 6 + ("utf-8-sig", "utf-16", "latin-1", "utf-32", "utf-16-le", "cp037")
ENDINGS = ("csv", "tsv", "txt", "jsonl", "ndjson", "parquet", "pq", "CSV", "json", "csv.gz", "")


def damaged(rng: Random, blob: bytes) -> bytes:
    """Return the bytes after one to four cuts, flips, copies and insertions."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(blob) + 1)
        end = min(len(blob), at + rng.choice((1, 2, 8, 64, 4096)))
        kind = rng.randrange(7)
        if kind == 0:
            blob = blob[:at]
        elif kind == 1 and at < len(blob):
            blob = blob[:at] + bytes([blob[at] ^ 1 << rng.randrange(8)]) + blob[at + 1 :]
        elif kind == 2:
            blob = blob[:at] + bytes(end - at) + blob[end:]
        elif kind == 3:
            blob = blob[:at] + rng.randbytes(rng.choice((1, 4, 100))) + blob[at:]
        elif kind == 4:
            blob = blob[:at] + blob[end:]
        elif kind == 5:
            blob = blob[:end] + blob[at:]
        else:
            blob = blob[:at] + rng.randbytes(end - at) + blob[end:]
    return blob


# ---- manifests ----


def write_manifest(rng: Random, folder: Path, pictures: list[Path]) -> Path:
    """Write a manifest of any format, valid or not, and return its path."""
    kind = rng.choice(("csv", "csv", "jsonl", "parquet", "bytes"))
    rows = _rows(rng, [str(path) for path in pictures])
    if kind == "bytes":
        ending, blob = rng.choice(ENDINGS), rng.randbytes(rng.choice((0, 1, 3, 40, 5000)))
    elif kind == "parquet":
        ending, blob = "parquet", _parquet(rng, rows)
    elif kind == "jsonl":
        ending, blob = rng.choice(("jsonl", "ndjson")), _jsonl(rng, rows)
    else:
        ending, blob = rng.choice(("csv", "tsv", "txt")), _csv(rng, rows)
    if rng.random() < 0.3:
        blob = damaged(rng, blob)
    path = folder / (f"m.{ending}" if ending else "m")
    path.write_bytes(blob)
    return path


def _rows(rng: Random, pictures: list[str]) -> dict[str, list[Any]]:
    """Return columns by name, of one length, odd cells among sound ones."""
    n = rng.choice((0, 1, 2, 3, 6))
    names = ["path", *rng.sample(("label", "split", "group", "id"), rng.randint(0, 4))]
    names += rng.sample(NAMES, rng.choice((0, 0, 1, 2, 4)))
    odd = rng.choice((0.0, 0.05, 0.4))
    columns = {}
    for name in names:
        plain = pictures if name == "path" else ("cat", "dog", "1", "2.5", "")
        columns[name] = [_odd(rng) if rng.random() < odd else rng.choice(plain) for _ in range(n)]
    return columns


def _odd(rng: Random) -> Any:
    return rng.choice(rng.choice((TEXTS, TEXTS, NUMBERS, NESTED)))


def _csv(rng: Random, columns: dict[str, list[Any]]) -> bytes:
    text = io.StringIO()
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE, csv.QUOTE_NONNUMERIC))
    writer = csv.writer(
        text, delimiter=rng.choice(",,,;\t|"), quoting=quoting, escapechar=rng.choice((None, "\\")),
        doublequote=rng.random() < 0.8, lineterminator=rng.choice(("\n", "\r\n", "\r", "\n\n")),
    )  # fmt: skip
    rows = [list(columns), *zip(*map(_cells, columns.values()), strict=True)]
    for row in rows:
        try:
            writer.writerow(list(row)[: rng.choice((None, None, None, None, 1))])
        except csv.Error:
            text.write(",".join(map(str, row)) + "\n")
    return _encoded(rng, text.getvalue())


def _cells(values: list[Any]) -> list[str]:
    return ["9" * 401 if isinstance(v, int) and abs(v) > 10**300 else str(v) for v in values]


def _encoded(rng: Random, text: str) -> bytes:
    return text.encode(rng.choice(ENCODINGS), "backslashreplace")


def _jsonl(rng: Random, columns: dict[str, list[Any]]) -> bytes:
    lines = []
    for values in zip(*columns.values(), strict=True):
        record = {n: v for n, v in zip(columns, values, strict=True) if rng.random() < 0.9}
        lines.append(_json(rng, record))
        if rng.random() < 0.1:
            odd = ("", "[]", "null", "1", '{"path": 1, "path": "a.jpg"}', "{", "[" * 100_000, '"x"')
            lines.append(rng.choice(odd))
    return _encoded(rng, rng.choice(("\n", "\n", "\r\n", "")).join(lines))


def _json(rng: Random, value: Any) -> str:
    huge = "9" * 401  # Python writes no integer of more than 4,300 digits, and reads none
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, default=str)
    return text.replace(huge, "9" * 5000) if rng.random() < 0.1 else text


def _parquet(rng: Random, columns: dict[str, list[Any]]) -> bytes:
    series = []
    for name, values in columns.items():
        if "\0" in name or any(s.name == name for s in series):
            continue
        series.append(_series(rng, name.encode("utf-8", "replace").decode(), values))
    out = io.BytesIO()
    pl.DataFrame(series).write_parquet(
        out, compression=rng.choice(("zstd", "snappy", "uncompressed", "gzip")),
        statistics=rng.random() < 0.5,
    )  # fmt: skip
    return damaged(rng, out.getvalue()) if rng.random() < 0.5 else out.getvalue()


def _series(rng: Random, name: str, values: list[Any]) -> pl.Series:
    if rng.random() < (0.1 if name == "path" else 0.5):
        value, kind = rng.choice(TYPED)
        return pl.Series(name, [value, None][: len(values)] + [None] * (len(values) - 2), kind)
    texts = [str(v).encode("utf-8", "replace").decode() for v in _cells(values)]
    return pl.Series(name, texts, pl.String())


# ---- settings ----


def config_bytes(rng: Random) -> bytes:
    """Return an `audit.toml`: known keys with odd values, unknown ones, or no TOML at all."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.choice((0, 1, 30, 2000)))
    tables: dict[str, list[str]] = {"scan": [*SETTINGS["scan"]], "measure": ["hashes"]}
    tables["match"] = [*MATCH_RANGES, "turned", "hashes"]
    for code, check in rng.sample(sorted(all_checks().items()), 3):
        tables[f"checks.{code}"] = sorted(check.Params.__dataclass_fields__)
    lines = []
    for table in rng.sample(sorted(tables), rng.randint(1, 3)):
        lines.append(rng.choice((f"[{table}]",) * 12 + (f"[[{table}]]", f"{table} = 1", "[x]")))
        keys = [*tables[table], "x"] if rng.random() < 0.05 else tables[table]
        chosen = rng.sample(keys, min(len(keys), rng.randint(1, 3)))
        lines += [f"{key} = {_toml(rng)}" for key in chosen]
    text = "\n".join(lines).encode("utf-8", "replace")
    return damaged(rng, text) if rng.random() < 0.2 else text


def _toml(rng: Random) -> str:
    strange = (
        "1979-05-27", "07:32:00", "[]", "[1]", "['**']", "['whash']", "{}", "{a = 1}", "[[[]]]",
        "nan", "inf", "-inf", "1e400", "0x10", "9" * 400, "9" * 5000, "''", "'whash'", "true",
        "false", "-0.0", "['[', '***', '!', '\\', '']", "'''\n'''", '"\\u0000"', '"\\ud800"',
        "['phash_simple', 1]",
    )  # fmt: skip
    small = (0, 1, -1, 2, 3, 5, 0.5, 1.0, 100, 0.01, 1e9, 10**18)
    return rng.choice((rng.choice(strange), json.dumps(rng.choice(TEXTS)), str(rng.choice(small))))


# ---- runs and decisions ----


WRONG: tuple[Any, ...] = (
    *(None, "", "x", 0, -1, 1.5, 2**62, b"\xff\x00", "\x1b[2J", "\u202e", "{", "[]", "{}", "null"),
    *('{"members": 1}', '{"members": [["a"]]}', '{"members": [[1, 2]], "code": 3}', '{"a": NaN}'),
    *('[["a", "b"]]', '{"subject": null}', "drop", "relabel", "2020-01-01", "a\nb", "9" * 400),
)  # fmt: skip
COLUMNS = (
    "id", "batch", "by", "kind", "subject", "content_hash", "verb", "value", "note", "evidence",
)  # fmt: skip
STATEMENTS = (
    "DELETE FROM decisions WHERE id = 1", "DELETE FROM decisions", "DROP TABLE decisions",
    "DROP TABLE undos", "DROP INDEX decisions_batch", "ALTER TABLE decisions RENAME TO d",
    "ALTER TABLE decisions ADD COLUMN x", "ALTER TABLE undos RENAME COLUMN batch TO b",
    "PRAGMA user_version = 0", "PRAGMA user_version = 1", "PRAGMA user_version = 9",
    "PRAGMA user_version = -1", "PRAGMA application_id = 7", "CREATE VIEW v AS SELECT 1",
    "INSERT INTO undos VALUES (99, 1, 'x', 'y')", "INSERT INTO undos SELECT 9,8,7,6",
    "UPDATE decisions SET batch = 1", "UPDATE decisions SET id = -id",
    "UPDATE undos SET batch = 'x'", "PRAGMA journal_mode = WAL", "DELETE FROM batches",
    "UPDATE batches SET at = x'00'", "DROP VIEW log", "DROP TABLE batches",
)  # fmt: skip


def damage_decisions(rng: Random, run: Path) -> None:
    """Damage decisions.sqlite, decisions.jsonl or both, in bytes or in rows."""
    database, copy = run / "decisions.sqlite", run / "decisions.jsonl"
    for _ in range(rng.choice((1, 1, 2))):
        rng.choice((_damage_rows, _damage_rows, _damage_file))(rng, database)
        if rng.random() < 0.4:
            rng.choice((_damage_file, _damage_lines))(rng, copy)


def _damage_rows(rng: Random, database: Path) -> None:
    """Change rows as a program could that does not know the triggers."""
    try:
        with closing(sqlite3.connect(database)) as con:
            names = con.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for (name,) in names:
                con.execute(f"DROP TRIGGER {name}")
            con.execute("PRAGMA ignore_check_constraints = 1")
            for _ in range(rng.randint(1, 3)):
                if rng.random() < 0.4:
                    con.execute(rng.choice(STATEMENTS))
                else:
                    column = rng.choice(COLUMNS)
                    value = rng.choice((*WRONG, *(t for t in TEXTS if "\udc80" not in t)))
                    sql = f"UPDATE decisions SET {column} = ? WHERE id >= ?"
                    con.execute(sql, [value, rng.randint(1, 4)])
            con.commit()
    except (sqlite3.Error, OSError):
        _damage_file(rng, database)


def _damage_lines(rng: Random, path: Path) -> None:
    """Shuffle, repeat or leave out lines; empty where there is none."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    rng.choice((rng.shuffle, list.clear, list.pop if lines else list.clear))(lines)
    _replace(path, b"".join(lines + lines[:1]))


def _replace(path: Path, blob: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()
    path.write_bytes(blob)


def _damage_file(rng: Random, path: Path) -> None:
    kind = rng.randrange(12)
    sound = path.read_bytes() if path.is_file() else b""
    if kind < 8:
        _replace(path, damaged(rng, sound))
    elif kind == 8:
        _replace(path, rng.randbytes(rng.choice((0, 1, 5000))))
    else:
        _replace(path, b"")
        path.unlink()
        if kind == 9:
            path.mkdir()
        elif kind == 10:
            os.symlink(rng.choice((path.name, "absent", "/dev/null", "..")), path)


# ---- the rest of a run ----


def damage_run(rng: Random, run: Path) -> None:
    """Damage one to three files of a run, the decisions left out."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        left = ("decisions", MARKER)
        files = sorted(p for p in run.rglob("*") if p.is_file() and not p.name.startswith(left))
        if not files:
            return
        path = rng.choice(files)
        documents = [p for p in files if p.name == "CURRENT"]
        if documents and rng.random() < 0.5:
            path = rng.choice(documents)
        rng.choice(DAMAGES if path in documents else (_damage_file,))(rng, path)


def _damage_document(rng: Random, path: Path) -> None:
    """Change a value somewhere in a JSON document."""
    text = path.read_text("utf-8", "replace")
    try:
        document = json.loads(text)
        _change(rng, document)
        path.write_text(json.dumps(document), "utf-8", "surrogatepass")
    except ValueError:
        path.write_text(rng.choice(("{}", "[]", "null", "gen-0001", "../..", "[" * 100_000)))


def _change(rng: Random, at: Any) -> None:
    while isinstance(at, dict | list) and at:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.7:
            at = at[key]
            continue
        odd = (
            "gen-9999",
            "gen-0001",
            "../gen-0001",
            "/",
            "findings-0001.duckdb",
            "CURRENT",
            [],
            {},
        )
        at[key] = rng.choice((*odd, *TEXTS, *NUMBERS))
        return


DAMAGES: tuple[Callable[[Random, Path], None], ...] = (
    _damage_file, _damage_document, _damage_document,
)  # fmt: skip


# ---- trees ----


FOLDERS = (
    b"train", b"test", b"val", b"Train", b"images", b"labels", b"annotations", b"masks", b"cat",
    b"Cat", b"CAT", b"dog", b"...", b"..a", b"-rf", b"~", b"a b", b" ", b"\xff\xfe", b"caf\xe9",
    b"e\xcc\x81", b"\xc3\xa9", b"%FF", b"a\nb", b"\x1b[2J\x1b]0;t", b"\xe2\x80\xae", b"\xc2\x9b",
    b"x" * 255, b"\xf0\x9f\x98\x80", b"CON", b"a:b", b"a=b", b"#2", b".hidden", b"__MACOSX",
    b"gen-0001", b"thumbnails", b"<b>", b"$(id)", b"`x`", b"\xed\xa0\x80", b"0", b"1", b"data",
)  # fmt: skip
STEMS = (*FOLDERS, b"a", b"a.b.c", b"a#2", b"a%23", b"y" * 250, b"README", b"CURRENT", b"photo.jpg")
FILE_ENDINGS = (
    b".jpg", b".JPG", b".png", b".jpeg", b".gif", b"", b".", b".txt", b".json", b".xml", b".yaml",
    b".csv", b".tfrecord", b".zip", b".jpg.part", b".jp\xff", b".\xe2\x80\xae", b".npy", b".mp4",
)  # fmt: skip
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 96, "height": 72}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]}],
    "categories": [{"id": 3, "name": "cat\u202e"}],
}
VOC = (
    "<annotation><folder>x</folder><filename>a.jpg</filename><size><width>9</width></size>"
    "<object><name>cat</name><bndbox><xmin>1</xmin></bndbox></object></annotation>"
)
LABELME = {"version": "5", "shapes": [{"label": "cat", "points": [[0, 1]]}], "imagePath": "a.jpg"}
OPENIMAGES = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\na,x,/m/01,1,0,1,0,1\n"
ANNOTATIONS = (
    (b"instances_train.json", json.dumps(COCO)), (b"_annotations.coco.json", json.dumps(COCO)),
    (b"a.xml", VOC), (b"a.json", json.dumps(LABELME)), (b"a.txt", "0 0.5 0.5 0.1 0.1\n"),
    (b"data.yaml", "train: x\nval: y\nnc: 2\nnames: [cat, 'd\u202eg']\n"),
    (b"classes.txt", "cat\ndog\n"), (b"train-annotations-bbox.csv", OPENIMAGES),
    (b"metadata.csv", "file_name,label\na.jpg,x\n"), (b"split.txt", "../../etc/passwd\n"),
)  # fmt: skip


def plant_tree(rng: Random, root: Path, pictures: list[Path]) -> None:
    """Make a tree below `root`: up to a dozen folders, each with pictures and odd things."""
    root.mkdir()
    folders = [os.fsencode(root)]
    for _ in range(rng.randint(0, 8)):
        folder = os.path.join(rng.choice(folders), rng.choice(FOLDERS))
        with suppress(OSError):  # too long, or there
            os.mkdir(folder)
            folders.append(folder)
    if rng.random() < 0.1:
        folders.append(_dig(rng, rng.choice(folders)))
    for folder in folders:
        for _ in range(rng.choice((0, 1, 2, 4))):
            with suppress(OSError):
                _put(rng, folder, rng.choice(folders), pictures)


def _dig(rng: Random, folder: bytes) -> bytes:
    """Make folders within folders up to the longest path that the system takes, or not so far."""
    for _ in range(rng.choice((10, 100, 400))):
        try:
            os.mkdir(os.path.join(folder, b"deeper-0"))
        except OSError:
            return folder
        folder = os.path.join(folder, b"deeper-0")
    return folder


def _put(rng: Random, folder: bytes, other: bytes, pictures: list[Path]) -> None:
    path = os.path.join(folder, rng.choice(STEMS) + rng.choice(FILE_ENDINGS))
    kind = rng.randrange(14)
    if kind < 6:
        shutil.copyfile(rng.choice(pictures), path)
    elif kind < 9:
        name, text = rng.choice(ANNOTATIONS)
        blob = text.encode()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(damaged(rng, blob) if rng.random() < 0.6 else blob)
    elif kind == 9:
        with open(path, "wb") as file:
            file.write(damaged(rng, rng.choice(pictures).read_bytes()))
    elif kind == 10:
        targets = (other, b".", b"..", b"absent", path, b"/dev/null", b"x" * 4000)
        os.symlink(rng.choice(targets), path)
    elif kind == 11:
        os.mkfifo(path)
    elif kind == 12:
        os.link(rng.choice(pictures), path)
    else:
        with open(path, "wb") as file:
            file.write(rng.randbytes(rng.choice((0, 1, 100, 70_000))))
