"""Cases of FILE008, FILE009."""

from collections.abc import Iterator

from audit.testing import Case


def file008() -> Iterator[Case]:
    yield Case("ids of their own", [{}, {}])
    other = {"kind": "link-loop", "sample_id": "a.jpg", "message": "x"}
    again = {"kind": "repeated-id", "sample_id": "a.jpg#2", "message": "Row 2 repeats a.jpg."}
    gone = {"kind": "repeated-id", "sample_id": "b.jpg", "message": "b again"}
    two = [{"id": "a.jpg"}, {"id": "a.jpg#2"}]
    yield Case("a note of another kind", [{"id": "a.jpg"}], tables={"source_notes": [other]})
    yield Case("one id on two rows, noted twice", two, ["a.jpg#2"],
         tables={"source_notes": [again, again]})  # fmt: skip
    yield Case("a note on a sample without a file", [], ["b.jpg"],
         tables={"source_notes": [gone]})  # fmt: skip


SHARD = {"kind": "damaged-pack", "sample_id": None, "message": "a-001.tar: it ends at byte 9."}


def file009() -> Iterator[Case]:
    yield Case("no pack at all", [{}])
    other = {"kind": "link-loop", "sample_id": None, "message": "x: y"}
    zipped = "sub/b.zip: its directory cannot be read: 3 were found."
    two = {"source_notes": [{**SHARD, "message": zipped}, SHARD, other]}
    yield Case("notes of other kinds", [{}], tables={"source_notes": [other]})
    yield Case("a shard that was cut", [{}], ["dataset:a-001.tar"],
         tables={"source_notes": [SHARD]})  # fmt: skip
    yield Case("two shards, beside a note of another kind", [{}],
         ["dataset:a-001.tar", "dataset:sub/b.zip"], tables=two)  # fmt: skip
