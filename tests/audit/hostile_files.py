"""Manifests and settings with something wrong in them, and bytes with damage."""

from __future__ import annotations

import csv
import io
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from audit.checking.check import all_checks
from audit.checking.config import RELATE_RANGES, SETTINGS

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
    tables["relate"] = [*RELATE_RANGES, "turned", "uncertainty_band", "hashes"]
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
