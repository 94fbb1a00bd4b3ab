"""FILE008: samples with an id that the source uses more than once."""

from __future__ import annotations

from collections.abc import Iterator

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class RepeatedId(Check):
    """Sample ids that the manifest or the folders give to more than one sample.

    ## What it does
    Reports what was noted while the source was read: a sample whose id was already used. The first
    sample keeps the id, later ones get `#2`, `#3` and so on, so no sample is lost from the audit.

    ## Why is this bad
    Predictions, labels and decisions are joined by id: with a repeated id they are assigned to the
    wrong sample, or a sample counts twice.

    ## Example
    A manifest that joins two exports lists `cat/0001.jpg` twice, once as train and once as test.

    ## What to do
    Give each sample its own id, or delete the repeated rows.

    ## Limits
    Only ids are compared: DUP001 reports equal files with different ids.

    ## References
    Codd (1970), A Relational Model of Data for Large Shared Data Banks, CACM 13(6): primary keys.
    """

    code = "FILE008"
    name = "repeated-sample-id"
    severity = Severity.ERROR

    CLEAN = (
        Case("ids of their own", [{}, {}]),
        Case(
            "a note of another kind",
            [{"id": "a.jpg"}],
            tables={"source_notes": [{"kind": "link-loop", "sample_id": "a.jpg", "message": "x"}]},
        ),
    )
    DIRTY = (
        Case(
            "one id on two rows, noted twice",
            [{"id": "a.jpg"}, {"id": "a.jpg#2"}],
            ["a.jpg#2"],
            tables={
                "source_notes": [
                    {
                        "kind": "repeated-id",
                        "sample_id": "a.jpg#2",
                        "message": "Row 2 repeats a.jpg.",
                    },
                    {
                        "kind": "repeated-id",
                        "sample_id": "a.jpg#2",
                        "message": "Row 2 repeats a.jpg.",
                    },
                ]
            },
        ),
        Case(
            "a note on a sample without a file",
            [],
            ["b.jpg"],
            tables={
                "source_notes": [
                    {"kind": "repeated-id", "sample_id": "b.jpg", "message": "b again"}
                ]
            },
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per repeated id."""
        sql = """
            SELECT n.sample_id AS id,
                concat(n.sample_id, '@' || left(any_value(i.content_hash), 16)) AS subject,
                min(n.message) AS message, count(*) AS notes
            FROM source_notes n LEFT JOIN images i ON i.id = n.sample_id
            WHERE n.kind = 'repeated-id' AND n.sample_id IS NOT NULL
            GROUP BY n.sample_id ORDER BY n.sample_id
        """
        for row in store.query(sql).iter_rows(named=True):
            note = (row["message"] or "").strip().rstrip(".")
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                f"The source uses 1 id for more than 1 sample: {note or row['id']}.",
                {"note": note, "notes": row["notes"]},
                Action.REVIEW,
                row["subject"],
            )
