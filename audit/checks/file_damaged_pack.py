"""FILE009: archives, shards and arrays that could not be read, whole or in part."""

from __future__ import annotations

from collections.abc import Iterator

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

SHARD = {"kind": "damaged-pack", "sample_id": None, "message": "a-001.tar: it ends at byte 9."}


class DamagedPack(Check):
    """Packs of pictures that are damaged: truncated, or with a part that cannot be read.

    ## What it does
    Reports each tar or zip archive, TFRecord, Parquet file or array whose members could not all be
    listed, with the place where reading ended. What lies before it, what can be found behind it,
    and all other packs are read.

    ## Why is this bad
    A loader stops at such a shard, or ends its epoch there silently: some of the data is never
    trained on, and epochs differ in length between workers.

    ## Example
    `train-00017.tar` ends at byte 104,857,600, within a member: the copy was interrupted.

    ## What to do
    Copy or download the pack again and compare checksums; then scan again.

    ## Limits
    Damage inside one member is FILE001 or FILE002 of that sample. Changed bytes that leave every
    length and name readable are seen only where the format has checksums (zip, TFRecord lengths,
    gzip) or the picture shows it.

    ## References
    POSIX.1-2001 pax; PKWARE APPNOTE; TFRecord; Apache Parquet.
    """

    code = "FILE009"
    name = "damaged-pack"
    severity = Severity.ERROR

    CLEAN = (
        Case("no pack at all", [{}]),
        Case(
            "notes of other kinds",
            [{}],
            tables={"source_notes": [{"kind": "link-loop", "sample_id": None, "message": "x"}]},
        ),
    )
    DIRTY = (
        Case(
            "a shard that was cut",
            [{}],
            ["dataset:a-001.tar"],
            tables={"source_notes": [SHARD]},
        ),
        Case(
            "two shards, beside a note of another kind",
            [{}],
            ["dataset:a-001.tar", "dataset:sub/b.zip"],
            tables={
                "source_notes": [
                    {**SHARD, "message": "sub/b.zip: its directory cannot be read: 3 were found."},
                    SHARD,
                    {"kind": "link-loop", "sample_id": None, "message": "x: y"},
                ]
            },
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per pack, about the whole dataset."""
        sql = "SELECT message FROM source_notes WHERE kind = 'damaged-pack' ORDER BY message"
        for row in store.rows(sql):
            pack, _, what = row["message"].partition(": ")
            yield Finding(
                self.code,
                self.severity,
                (),
                f"The pack {pack} could not be read whole: {what}",
                {"pack": pack, "damage": what},
                Action.REVIEW,
                f"dataset:{pack}",
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many packs were opened; nothing where there are none."""
        sql = """
            SELECT count(DISTINCT split_part(uri, '#', 1)) FROM images
            WHERE starts_with(uri, 'pack+')
        """
        packs = int(store.scalar(sql))
        return f"{packs:,} packs were opened and their members listed." if packs else ""
