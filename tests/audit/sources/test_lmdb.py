"""LMDB: keys are names as in a folder, values are pictures, and nothing in it can run or crash."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.picture.decode import DecodeError
from audit.sources import open_source
from tests.audit.sources.packed_sets import as_folder, content, pictures, places_of, write_lmdb
from tests.audit.sources.test_packs import damage
from tests.audit.sources.trees import read

FILES = pictures()
DATA = list(FILES.values())


def test_keys_are_read_as_the_folder_that_they_look_like(tmp_path: Path) -> None:
    packed = read(open_source([str(write_lmdb(tmp_path / "set" / "data.mdb", FILES).parent)]))
    assert places_of(packed) == as_folder(tmp_path / "folder", FILES)


def test_a_database_of_many_pages_is_read_in_the_order_of_its_keys(tmp_path: Path) -> None:
    values = {f"{i % 3}/{i:05}": DATA[i % 12] + bytes(i) for i in range(0, 6000, 20)}
    found = read(open_source([str(write_lmdb(tmp_path / "data.mdb", values))]))
    assert [s.id for s in found] == sorted(values)
    assert {s.label for s in found} == {"0", "1", "2"}
    assert all(content(s) == values[s.id] for s in found)


@pytest.mark.parametrize("place", ["x.lmdb/labels.csv", "labels.csv"], ids=["in", "above"])
def test_labels_come_from_a_table_beside_it(tmp_path: Path, place: str) -> None:
    write_lmdb(tmp_path / "x.lmdb" / "data.mdb", {f"{i:03}": DATA[i] for i in range(4)})
    (tmp_path / place).write_text("key,label\n000,cat\n002,owl\n", encoding="utf-8-sig")
    source = open_source([str(tmp_path / "x.lmdb")])
    assert [(s.id, s.label) for s in read(source)] == [
        ("000", "cat"), ("001", None), ("002", "owl"), ("003", None),
    ]  # fmt: skip
    assert not damage(source)
    (tmp_path / place).write_text("key,label\n7,cat\n")
    assert "names none of its 4 keys" in damage(open_source([str(tmp_path / "x.lmdb")]))[0]
    (tmp_path / place).write_text("one column\n")
    assert "labels.csv beside it cannot be read" in damage(open_source([str(tmp_path)]))[0]


def test_what_a_pickle_would_run_is_not_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    values = {"0": pickle.dumps((Runs(), 3)), "1": b"\x92\xc4\x02ab\x01", "2": DATA[0]}
    values |= {"__len__": pickle.dumps(3), "num-samples": b"3"}
    source = open_source([str(write_lmdb(tmp_path / "a.lmdb", values))])
    assert [s.id for s in read(source)] == ["2"]
    (said,) = damage(source)
    assert "2 of its 5 values are pickled or packed" in said
    assert sum(row.count for row in source.skipped) == 4
    del values["2"]
    with pytest.raises(UsageError, match=r"holds no pictures.* because a pickle can run"):
        open_source([str(write_lmdb(tmp_path / "a.lmdb", values))])
    assert not (tmp_path / "ran").exists()


def test_keys_that_are_no_names_go_by_their_bytes(tmp_path: Path) -> None:
    values = {"\1\2": DATA[0], "../up": DATA[1], "a//b": DATA[2], "ü/1": DATA[3]}
    source = open_source([str(write_lmdb(tmp_path / "a.lmdb", values))])
    assert {s.id: content(s) for s in read(source)} == {
        "0x0102": DATA[0], "0x2e2e2f7570": DATA[1], "0x612f2f62": DATA[2], "ü/1": DATA[3],
    }  # fmt: skip


def test_a_database_that_is_cut_says_so_and_the_rest_is_read(tmp_path: Path) -> None:
    values = {f"{i}.png": DATA[i] + bytes(5000) for i in range(4)}
    path = write_lmdb(tmp_path / "a.lmdb", values)
    whole = path.read_bytes()
    # the keys are on the last page: put them before the pages of values that are cut
    keys = whole[-4096:]
    path.write_bytes(whole[: -3 * 4096])
    with pytest.raises(UsageError, match="1 of its pages and 0 of its values are damaged or lie"):
        open_source([str(path)])
    at = keys.index(b"3.png") + 5
    moved = whole[:-4096] + keys[:at] + (1 << 40).to_bytes(8, "little") + keys[at + 8 :]
    path.write_bytes(moved)
    source = open_source([str(path)])
    assert [s.id for s in read(source)] == list(values)
    assert "0 of its pages and 1 of its values are damaged" in damage(source)[0]
    with pytest.raises(DecodeError, match="the pack ends"):
        content(read(source)[3])


def test_entries_that_were_zeroed_are_counted_as_damaged(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "a.lmdb", {f"{i:02}": DATA[i] for i in range(12)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-2048] + bytes(2048))  # the nodes of the first keys are the last
    source = open_source([str(path)])
    found = [s.id for s in read(source)]
    assert 0 < len(found) < 12
    assert set(found) <= {f"{i:02}" for i in range(12)}
    assert f"0 of its pages and {12 - len(found)} of its values are damaged" in damage(source)[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "neither of its first two pages"),
        (bytes(9000), "neither of its first two pages"),
        (bytes(12) + (0xBEEFC0DE).to_bytes(4, "little") + bytes(9000), "32 bits"),
    ],
)
def test_what_is_no_database_is_a_sentence(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.lmdb").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        open_source([str(tmp_path / "a.lmdb")])


def test_pages_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    values = {f"{i:05}.png": DATA[i % 12] for i in range(300)}
    path = write_lmdb(tmp_path / "a.lmdb", values)
    data = bytearray(path.read_bytes())
    at = int.from_bytes(data[-4080:-4078], "little")  # the first branch, to its own page
    data[-4096 + at : -4096 + at + 6] = (len(data) // 4096 - 1).to_bytes(6, "little")
    path.write_bytes(data)
    source = open_source([str(path)])
    assert 200 < len(read(source)) < 300
    assert "1 of its pages" in damage(source)[0]


@pytest.mark.usefixtures("peers")
def test_what_the_library_wrote_is_read(tmp_path: Path) -> None:
    import lmdb

    with lmdb.open(str(tmp_path / "set"), map_size=1 << 26, max_dbs=2) as environment:
        with environment.begin(write=True) as transaction:
            for i in range(3000):
                transaction.put(f"{i % 5}/{i:06}.png".encode(), DATA[i % 12] + bytes(i * 3))
        with environment.begin(write=True) as transaction:
            for i in range(0, 3000, 3):
                transaction.delete(f"{i % 5}/{i:06}.png".encode())
        for name in ("val", "test"):
            inside = environment.open_db(name.encode())
            with environment.begin(write=True, db=inside) as transaction:
                transaction.put(b"0/x", DATA[0])
    source = open_source([str(tmp_path / "set")])
    found = read(source)
    expected = {f"{i % 5}/{i:06}.png": DATA[i % 12] + bytes(i * 3) for i in range(3000) if i % 3}
    expected |= {"val/0/x": DATA[0], "test/0/x": DATA[0]}
    assert {s.id: content(s) for s in found} == expected
    assert not damage(source)
