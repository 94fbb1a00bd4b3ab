"""Manifests: three formats, one meaning; every error names its line and the fix."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.records import Sample
from audit.sources import Source, open_source
from audit.sources.manifest_rows import open_table
from audit.sources.tables import typed_frame
from tests.audit.sources.trees import PNG, grow, ids, kinds, metadata, read, skipped

ROWS: list[dict[str, Any]] = [
    dict(zip(("path", "label", "split", "group", "age", "note"), values, strict=True))
    for values in (
        ("a.png", "cat", "train", "p1", 3, "x"),
        ("sub/b c.png", "dog, wet", "test", None, 4, None),
        ("missing.png", None, "test", "p2", None, "é"),
    )
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    frame = pl.DataFrame(rows)
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    else:
        frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    return path


def table(tmp_path: Path, text: str | bytes, name: str = "m.csv") -> Source:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return open_source([str(path)])


@pytest.mark.parametrize("name", ["m.csv", "m.tsv", "m.jsonl", "m.parquet"])
def test_the_formats_mean_the_same(tmp_path: Path, name: str) -> None:
    grow(tmp_path, "a.png", "sub/b c.png")
    source = open_source([str(write(tmp_path / name, ROWS))])
    a, b, missing = read(source, size=2)
    assert (a.id, a.label, a.split, a.group, a.n_bytes) == ("a.png", "cat", "train", "p1", len(PNG))
    assert (b.id, b.label, b.group, b.uri) == (
        "sub/b c.png", "dog, wet", None, str(tmp_path / "sub/b c.png"),
    )  # fmt: skip
    assert (missing.label, missing.n_bytes, missing.mtime_ns) == (None, -1, -1)
    assert source.layout.name == "manifest"
    assert "metadata: age, note" in source.describe()
    frame = metadata(source)
    assert frame.schema == {"sample_id": pl.String, "age": pl.Int64, "note": pl.String}
    assert frame.rows() == [("a.png", 3, "x"), ("sub/b c.png", 4, None), ("missing.png", None, "é")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_are_sniffed(tmp_path: Path, delimiter: str) -> None:
    text = "path,label\na.png,cat\nb.png,dog\n".replace(",", delimiter)
    assert [s.label for s in read(table(tmp_path, text))] == ["cat", "dog"]


@pytest.mark.parametrize(
    "name", ["path", "File", "filename", "file_name", "image", "Image Path", "file_path"]
)
@pytest.mark.parametrize("label", ["label", "Class", "category", "target"])
def test_aliases(tmp_path: Path, name: str, label: str) -> None:
    [sample] = read(table(tmp_path, f"{label},{name}\ncat,a.png\n"))
    assert (sample.id, sample.label) == ("a.png", "cat")


def test_the_first_alias_wins_and_the_other_is_metadata(tmp_path: Path) -> None:
    source = table(tmp_path, "image,path,class,label\n7,a.png,x,cat\n")
    [sample] = read(source)
    assert (sample.id, sample.label) == ("a.png", "cat")
    assert metadata(source).columns == ["sample_id", "image", "class"]


def test_paths_are_resolved_and_named_the_same_way(tmp_path: Path) -> None:
    grow(tmp_path, "root/a.png", "other/b.png")
    inside, outside = tmp_path / "root/a.png", tmp_path / "other/b.png"
    lines = ["path", "a.png", "./a.png", "x/../a.png", str(inside), inside.as_uri(),
             "../other/b.png", str(outside), "https://x.org/c.png",
             "s3://bucket/d.png"]  # fmt: skip
    (tmp_path / "root/m.csv").write_text("\n".join(lines))
    samples = read(open_source([str(tmp_path / "root/m.csv")]))
    assert [s.id for s in samples] == [
        "a.png", "a.png#2", "a.png#3", "a.png#4", "a.png#5", "../other/b.png", str(outside),
        "https://x.org/c.png", "s3://bucket/d.png",
    ]  # fmt: skip
    assert {s.uri for s in samples[:5]} == {str(inside)}
    assert [s.uri for s in samples[5:7]] == [str(outside)] * 2
    assert [(s.uri, s.n_bytes) for s in samples[7:]] == [
        ("https://x.org/c.png", -1), ("s3://bucket/d.png", -1),
    ]  # fmt: skip


def test_roots_map_old_places(tmp_path: Path) -> None:
    grow(tmp_path, "new/a.png")
    (tmp_path / "m.csv").write_text("path\n/gone/place/a.png\n")
    [sample] = read(
        open_source([str(tmp_path / "m.csv")], roots={"/gone/place": str(tmp_path / "new")})
    )
    assert sample.n_bytes == len(PNG)
    assert sample.id == "/gone/place/a.png"


def test_windows_separators_are_tried(tmp_path: Path) -> None:
    grow(tmp_path, "sub/a.png", "odd\\name.png")
    first, second = read(table(tmp_path, "path\nsub\\a.png\nodd\\name.png\n"))
    assert (first.n_bytes, first.uri) == (len(PNG), str(tmp_path / "sub/a.png"))
    assert second.uri == str(tmp_path / "odd\\name.png")


def test_the_id_column_wins_and_repeats_are_numbered(tmp_path: Path) -> None:
    source = table(tmp_path, "id,path\n7,a.png\n7,b.png\n,c.png\n7,d.png\n")
    assert ids(read(source)) == ["7", "7#2", "c.png", "7#3"]
    assert [s for kind, s, _ in source.notes if kind == "repeated-id"] == ["7#2", "7#3"]


def test_notes_of_one_kind_are_limited(tmp_path: Path) -> None:
    source = table(tmp_path, "path\n" + "a.png\n" * 1500)
    assert len(read(source)) == 1500
    notes = [message for kind, _, message in source.notes if kind == "repeated-id"]
    assert len(notes) == 1001
    assert notes[-1].startswith("499 more")


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (3.0, "3"), (0.5, "0.5"), (True, "true"), ("", None), ("  ", None), (None, None),
     (" cat ", "cat"), (["a", "b"], '["a", "b"]'), (0, "0")],
)  # fmt: skip
def test_labels_become_text(tmp_path: Path, value: object, text: str | None) -> None:
    line = json.dumps({"path": "a.png", "label": value})
    [sample] = read(table(tmp_path, line, "m.jsonl"))
    assert sample.label == text


def test_odd_paths_survive_csv(tmp_path: Path) -> None:
    grow(tmp_path, "new\nline.png", " blank .png", "猫.png")
    samples = read(table(tmp_path, 'path,label\n"new\nline.png",a\n blank .png,b\n猫.png,c\n'))
    assert all(sample.n_bytes == len(PNG) for sample in samples)
    grow(tmp_path, "bad\udcff.png")
    [sample] = read(table(tmp_path, f"path\nfile://{tmp_path}/bad%FF.png\n"))
    assert (sample.id, sample.n_bytes) == ("bad%FF.png", len(PNG))


BAD: list[tuple[str, str | bytes, str]] = [
    ("m.csv", "name,label\na.png,cat\n",
     r"has no path column \(its columns: 'name', 'label'\): name the"),
    ("m.csv", "", r"is empty: a manifest needs a header"),
    ("m.csv", "path,label\n", r"has a header but no rows"),
    ("m.csv", "path,label\na.png,cat\nb.png,dog,extra\n",
     r"m\.csv, line 3: 3 fields, but the header has 2"),
    ("m.csv", "path,label\na.png,cat\n,dog\n", r"line 3 has no path"),
    ("m.csv", b"path,label\na.png,caf\xe9\n", r"line 2 is not UTF-8 \(byte 0xe9.*iconv"),
    ("m.csv", "path\na.png\n".encode("utf-16"), r"line 1 is not UTF-8"),
    ("m.csv", 'path,label\na.png,"cat\nb.png,dog\n', r"line 3 cannot be read as CSV"),
    ("m.csv", "path,path\na,b\n", r"column 'path' occurs twice"),
    ("m.csv", "path\na\0.png\n", r"line 2: the path contains a NUL"),
    ("m.jsonl", '{"path": "a.png"}\n{"path": \n', r"m\.jsonl, line 2 is not valid JSON"),
    ("m.jsonl", '["a.png"]\n', r"line 1 is JSON but not an object"),
    ("m.jsonl", '{"path": "a.png"}\n{"label": "x"}\n', r"line 2 has no path"),
    ("m.jsonl", '{"path": "\\ud800.png"}\n', r"line 1 contains half a surrogate pair"),
    ("m.jsonl", '{"path": "a.png", "note": "\\udc80"}\n', "line 1 contains half a surrogate pair"),
    ("m.jsonl", "\n\n", r"has no path column"),
    ("m.jsonl", '{"path": "a.png"}\n{"path": "b\\u0000.png"}\n', r"line 2: the path contains"),
    ("m.jsonl", '{"path": "file:///b%00.png"}\n', r"line 1: the path contains a NUL"),
    ("m.jsonl", '{"path": "a.png"}\n{"path": "b", "x\\u0000": 1}\n', r"'x.x00' contains a NUL"),
    ("m.csv", "path,x\0\na.png,1\n", r"the column name 'x.x00' contains a NUL: rename it"),
    ("m.parquet", b"PAR1 but not really", r"is not a readable Parquet file"),
    ("m.json", "{}", r"not a manifest.*for a COCO file give the folder"),
    ("m.csv.gz", b"\x1f\x8b", r"unpack it first"),
    ("photo.png", PNG, r"is a file but not a manifest: give a folder"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_bad_manifests_say_where_and_what_to_do(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(table(tmp_path, content, name))


def test_a_whole_surrogate_pair_is_text(tmp_path: Path) -> None:
    [sample] = read(table(tmp_path, '{"path": "\\ud83d\\ude00.png"}\n', "whole.jsonl"))
    assert sample.id == "😀.png"


def test_pictures_inside_a_table_are_named(tmp_path: Path) -> None:
    rows = [{"image": {"bytes": PNG, "path": "a.png"}, "label": 1}]
    with pytest.raises(UsageError, match=r"contains the images themselves \(column 'image'\)"):
        open_source([str(write(tmp_path / "m.parquet", rows))], layout="manifest")
    beside = [{"path": "a.png", "thumbnail": PNG, "weight": 2}]
    source = open_source([str(write(tmp_path / "n.parquet", beside))])
    assert metadata(source).columns == ["sample_id", "weight"]
    read(source)
    assert [m for kind, _, m in source.notes if kind == "columns-left-out"] == [
        "The column 'thumbnail' of n.parquet contains bytes, and is skipped."
    ]


def test_byte_order_mark_and_blank_lines_are_no_trouble(tmp_path: Path) -> None:
    assert ids(read(table(tmp_path, "\ufeffpath,label\r\n\r\na.png,cat\r\n\r\n"))) == ["a.png"]


def test_nothing_found_and_boxes_are_remarked(tmp_path: Path) -> None:
    source = table(tmp_path, "filename,xmin,ymin\na.png,1,2\na.png,3,4\n")
    read(source)
    assert kinds(source) == ["repeated-id", "nothing-found", "box-rows"]


def test_a_listed_pipe_is_left_out_and_a_folder_is_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    grow(tmp_path, "folder.png/", "a.png")
    source = table(tmp_path, "path\npipe.png\nfolder.png\na.png\n")
    assert [(s.id, s.n_bytes) for s in read(source)] == [("folder.png", -1), ("a.png", len(PNG))]
    assert skipped(source) == {("not a regular file", "png"): 1}


def test_exclude_applies_to_manifests(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("path\na.png\nbad/b.png\n")
    source = open_source([str(path)], exclude=["bad/*"])
    assert ids(read(source)) == ["a.png"]
    assert skipped(source) == {("excluded", "png"): 1}


@settings(max_examples=40)
@given(
    st.lists(
        st.fixed_dictionaries({
            "path": st.text(
                st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1
            ).filter(lambda s: s.strip() and "://" not in s),
            "label": st.none() | st.text("ab ,;\"'\n", min_size=1),
        }),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_csv_and_jsonl_agree_on_any_text(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    def seen(name: str) -> list[Sample]:
        return read(open_source([str(write(tmp_path / name, rows))]))

    assert seen("m.csv") == seen("m.jsonl")


def test_metadata_types(tmp_path: Path) -> None:
    source = table(
        tmp_path,
        "path,n,x,flag,day,at,code,mixed,empty\n"
        "a,1,1.5,true,2020-01-31,2020-01-31 10:00:00,007,1,\n"
        "b,,2,False,2020-02-01,2020-02-01T11:00:00,012,z,\n",
    )
    frame = metadata(source)
    assert frame.dtypes == [
        pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.Date, pl.Datetime("us"), pl.String,
        pl.String, pl.String,
    ]  # fmt: skip
    assert frame["n"].to_list() == [1, None]


def test_metadata_of_json_keeps_text_and_flattens_what_nests(tmp_path: Path) -> None:
    lines = [{"path": "a", "n": 1, "code": "5", "box": [1, 2], "any": 1, "big": 2**70},
             {"path": "b", "n": 2.5, "code": "6", "box": None, "any": "x", "big": 1}]  # fmt: skip
    frame = metadata(table(tmp_path, "\n".join(map(json.dumps, lines)), "m.jsonl"))
    assert frame.rows() == [
        ("a", 1.0, "5", "[1, 2]", "1", str(2**70)),
        ("b", 2.5, "6", None, "x", "1"),
    ]


LATE = 60_000  # beyond what is converted at a time


def test_a_key_that_comes_late_is_a_column(tmp_path: Path) -> None:
    lines = [{"path": f"{i}.png"} for i in range(2_500)]
    lines[1_000] |= {"label": "cat", "split": "test"}
    lines[2_000] |= {"age": 3}
    source = table(tmp_path, "\n".join(map(json.dumps, lines)), "m.jsonl")
    samples = read(source, size=5_000)
    assert (samples[1_000].label, samples[1_000].split) == ("cat", "test")
    assert metadata(source)["age"].to_list()[1_999:2_001] == [None, 3]
    assert "label" in source.layout.reason


def test_keys_without_end_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [{"path": f"{i}.png", f"key {i}": i} for i in range(1_100)]
    source = table(tmp_path, "\n".join(map(json.dumps, lines)), "m.jsonl")
    assert len(read(source, size=5_000)) == 1_100
    [note] = [m for kind, _, m in source.notes if kind == "columns-left-out"]
    assert "on 101 lines (first: 'key 999', line 1,000)" in note
    assert len(open_table(str(tmp_path / "m.jsonl")).columns) == 1_000


def test_a_late_value_decides_the_type_and_nothing_is_rounded() -> None:
    late_values = ["x", 2.5, True, 2**53 + 1, 2**70, [1]]
    rows = list(itertools.product([1, 1.5, "y", 2**53 + 1], late_values))
    names = [f"{early} {late}" for early, late in rows]
    firsts, lasts = zip(*rows, strict=True)
    between = ("id", [None] * len(names))
    cells = [("id", firsts), *[between] * LATE, ("id", lasts)]
    frame = typed_frame(cells, names, from_text=False)
    for name, early, late in zip(names, firsts, lasts, strict=True):
        seen = frame[name][0], frame[name][-1]
        if frame.schema[name] == pl.String:
            assert seen == tuple(json.dumps(value).strip('"') for value in (early, late))
        else:
            assert seen == (early, late)


@pytest.mark.parametrize("values", [("1", "9" * 20), ("0.5", "1" + "0" * 16), ("-" + "1" * 19,)])
def test_a_long_integer_in_text_stays_what_it_is(tmp_path: Path, values: tuple[str, ...]) -> None:
    lines = "".join(f"p,{value}\n" for value in values)
    frame = metadata(table(tmp_path, f"path,v\n{lines}"))
    assert [str(value) for value in frame["v"]] == list(values)


def test_a_damaged_page_is_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "m.parquet", [{"path": f"{i}.png", "label": "x"} for i in range(5_000)])
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes(200) + content[240:])
    with pytest.raises(UsageError, match=r"m.parquet is damaged: .* beyond row 0 \("):
        open_source([str(path)])


def test_metadata_is_keyed_like_the_samples(tmp_path: Path) -> None:
    source = table(tmp_path, "path,Sample,w\na,1,1\na,2,2\nb,3,3\n")
    assert metadata(source)["sample_id"].to_list() == ids(read(source)) == ["a", "a#2", "b"]


def test_column_names_are_distinct_for_sql(tmp_path: Path) -> None:
    frame = metadata(table(tmp_path, "path,W,w,Sample ID,\na,1,2,3,4\n"))
    lowered = [column.lower() for column in frame.columns]
    assert len(set(lowered)) == len(lowered)


def test_no_metadata(tmp_path: Path) -> None:
    assert table(tmp_path, "path,label\na,b\n").metadata is None


def test_a_list_without_a_header_is_read_with_the_names_of_its_classes(tmp_path: Path) -> None:
    grow(tmp_path / "images", "a b.jpg", "c.PNG")
    (tmp_path / "synsets.txt").write_text("cat\ndog\n")
    (tmp_path / "train.txt").write_text("a b.jpg 1\n\nc.PNG\t0\nimages/gone.jpg 7\nc.PNG\n")
    source = open_source([str(tmp_path / "train.txt")])
    found = read(source)
    assert [(s.id, s.label) for s in found] == [
        ("images/a b.jpg", "dog"), ("images/c.PNG", "cat"), ("images/images/gone.jpg", "7"),
        ("images/c.PNG#2", None),
    ]  # fmt: skip
    assert [s.n_bytes > 0 for s in found] == [True, True, False, True]
    (tmp_path / "table.txt").write_text("path,label\nimages/c.PNG,owl\n")
    assert [s.label for s in read(open_source([str(tmp_path / "table.txt")]))] == ["owl"]
