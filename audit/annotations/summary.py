"""What was read of the annotations, in sentences: for the report and the end of a scan."""

from __future__ import annotations

from audit.run.store import Store

_SQL = """
    SELECT format, sum(n_files) AS files, sum(pictures) AS pictures, sum(matched) AS matched,
        sum(objects) AS objects, count(*) AS groups, min(file) AS first,
        sum(n_files) FILTER (WHERE NOT complete) AS broken,
        string_agg(DISTINCT nullif(not_read, ''), '; ' ORDER BY nullif(not_read, '')) AS rest,
        (SELECT count(DISTINCT label) FROM categories c JOIN annotation_files g
            ON g.file = c.file WHERE g.format = f.format) AS classes
    FROM annotation_files f GROUP BY format ORDER BY format
"""


def annotation_sentences(store: Store) -> list[str]:
    """Return one sentence per format: pictures, boxes, classes, and what was not read."""
    if not store.columns("annotation_files"):
        return []
    sentences = []
    for row in store.rows(_SQL):
        more = f" and {row['groups'] - 1:,} more" if row["groups"] > 1 else ""
        said = (
            f"{row['format']} annotations: {_count(row['pictures'], 'picture')}, "
            f"{_count(row['objects'], 'box', 'boxes')}, "
            f"{_count(row['classes'], 'class', 'classes')} (from {row['first']}{more})"
        )
        missing = int(row["pictures"] - row["matched"])
        if missing:
            said += f"; {_count(missing, 'picture')} of these could not be found"
        if row["broken"]:
            said += f"; {_count(row['broken'], 'file')} could not be read whole"
        if row["rest"]:
            said += f"; not examined: {row['rest']}"
        sentences.append(f"{said}.")
    return sentences


def _count(n: int, one: str, many: str = "") -> str:
    return f"{int(n):,} {one if n == 1 else many or one + 's'}"
