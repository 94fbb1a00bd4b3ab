"""FILE008, FILE009: what was noted while the source was read: repeated ids, and damaged packs."""

from __future__ import annotations

from audit.checking.check import NoParams, QueryCheck
from audit.records import Severity
from audit.run.store import Store


class RepeatedId(QueryCheck):
    """Sample ids that the manifest or the folders give to more than one sample.

    ## What it does
    Reports each sample whose id was already used. The first sample keeps the id, later ones get
    `#2`, `#3` and so on, so no sample is lost from the audit.

    ## Why is this bad
    Predictions, labels and decisions are joined by id: with a repeated id they are assigned to the
    wrong sample, or a sample counts twice.

    ## Example
    A manifest that joins two exports lists `cat/0001.jpg` twice, once as train and once as test.

    ## What to do
    Give each sample its own id, or delete the repeated rows.

    ## Limits
    Only ids are compared: DUP001 reports equal files with different ids.
    """

    code = "FILE008"
    name = "repeated-sample-id"
    severity = Severity.ERROR

    sql = """
        SELECT n.sample_id AS id,
            concat(n.sample_id, '@' || left(any_value(i.content_hash), 16)) AS subject,
            rtrim(trim(coalesce(min(n.message), '')), '.') AS note,
            coalesce(nullif(note, ''), n.sample_id) AS told, count(*) AS notes
        FROM source_notes n LEFT JOIN images i ON i.id = n.sample_id
        WHERE n.kind = 'repeated-id' AND n.sample_id IS NOT NULL
        GROUP BY n.sample_id ORDER BY n.sample_id
    """
    message = "The source uses 1 id for more than 1 sample: {told}."
    evidence = ("note", "notes")


class DamagedPack(QueryCheck):
    """Damaged packs of images: truncated, or with a part that cannot be read.

    ## What it does
    Reports each tar or zip archive, TFRecord, Parquet file or array whose members could not all be
    listed, with the position where reading ended. Members before it, recoverable members after it,
    and all other packs are read.

    ## Why is this bad
    A loader stops at such a shard, or ends its epoch there silently: some of the data is never
    trained on, and epochs differ in length between workers.

    ## Example
    `train-00017.tar` ends at byte 104,857,600, within a member: the copy was interrupted.

    ## What to do
    Copy or download the pack again and compare checksums; then scan again.

    ## Limits
    FILE001 and FILE002 report damage inside one member. Changed bytes that keep lengths and names
    readable are detected only if the format has checksums (zip, TFRecord lengths, gzip) or the
    image is damaged.
    """

    code = "FILE009"
    name = "damaged-pack"
    severity = Severity.ERROR

    sql = """
        SELECT split_part(message, ': ', 1) AS pack, substr(message, len(pack) + 3) AS damage,
            concat('dataset:', pack) AS subject
        FROM source_notes WHERE kind = 'damaged-pack' ORDER BY message
    """
    message = "The pack {pack} could not be read completely: {damage}"
    evidence = ("pack", "damage")

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many packs were opened; nothing where there are none."""
        packs = store.scalar(
            "SELECT count(DISTINCT split_part(uri, '#', 1)) FROM images "
            "WHERE starts_with(uri, 'pack+')"
        )
        return f"{packs:,} packs were opened and their members listed." if packs else ""
