"""Uris are storable and reversible; repeated ids are numbered."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.sources import paths

names = st.binary(min_size=1, max_size=40).filter(lambda raw: b"\0" not in raw and b"/" not in raw)


@given(st.lists(names, min_size=1, max_size=4))
def test_any_posix_path_survives(parts: list[bytes]) -> None:
    path = "/" + os.fsdecode(b"/".join(parts))
    uri = paths.uri_of(path)
    uri.encode("utf-8")
    assert paths.path_of(uri) == path


def test_a_readable_path_is_its_own_uri() -> None:
    assert paths.uri_of("/data/Ünïcode 猫/a b%20.jpg") == "/data/Ünïcode 猫/a b%20.jpg"
    assert paths.uri_of(os.fsdecode(b"/data/\xff.jpg")) == "file:///data/%FF.jpg"


def test_standard_file_uris_are_read() -> None:
    assert paths.path_of("file:///a%20b/c.jpg") == "/a b/c.jpg"
    assert paths.path_of("file://localhost/a.jpg") == "/a.jpg"


@pytest.mark.parametrize("url", ["http://x.org/a.jpg", "s3://bucket/a.jpg", "gs://b/c"])
def test_remote(url: str) -> None:
    assert paths.is_remote(url)
    assert paths.path_of(url) is None


def test_remap_takes_the_longest_whole_prefix() -> None:
    roots = {"/old": "/new", "/old/deep": "/deep"}
    assert paths.remap("/old/a.jpg", roots) == "/new/a.jpg"
    assert paths.remap("/old/deep/a.jpg", roots) == "/deep/a.jpg"
    assert paths.remap("/older/a.jpg", roots) == "/older/a.jpg"


@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "b", "b#2", "é"]), max_size=60))
def test_ids_are_unique_and_the_first_keeps_its_name(listed: list[str]) -> None:
    seen = paths.IdRegister(slots=4)
    given_out = [seen.take(name) for name in listed]
    assert len(set(given_out)) == len(given_out)
    assert all(
        out == name or out.startswith(name + "#")
        for out, name in zip(given_out, listed, strict=True)
    )
    for name in ("a", "b", "é"):
        if name in listed:
            assert given_out[listed.index(name)] == name


def test_many_ids_stay_apart_while_the_table_grows() -> None:
    seen = paths.IdRegister(slots=4)
    assert [seen.take(str(i)) for i in range(20_000)] == [str(i) for i in range(20_000)]
    assert [seen.take(str(i)) for i in range(5)] == [f"{i}#2" for i in range(5)]
