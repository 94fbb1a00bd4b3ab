"""SQL that a user wrote, in a process that loads DuckDB and Arrow alone.

    python -m audit.run.user_query          reads a request from its input (`audit.machine.watched`)

DuckDB bounds neither the time inside a block of rows nor the memory of lists and texts, so the
process is watched, and killed. Rows are an Arrow stream, or the first of them JSON.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from audit.errors import UsageError
from audit.machine.watched import ProgramEndedError, run_program, serve_request
from audit.records import finite, json_value
from audit.run import run_version
from audit.run.run_version import RunVersion
from audit.run.store import distinct

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

LIMIT_S = 12.0
THREADS = 2
MAX_JSON_BYTES = 16 << 20
TOO_MUCH = f"The SQL returns more than {MAX_JSON_BYTES >> 20} MB: select fewer rows or columns."


def query_frame(
    run: Path, sql: str, tags: pl.DataFrame | None = None, within_s: float | None = None
) -> pl.DataFrame:
    """Return the rows of one SELECT or EXPLAIN over the current version of a run.

    `tags`: (id, tag), read as a table; `within_s`: when the query is ended. Raises UsageError for a
    query that fails or takes too much, RunError for a run that cannot be read.
    """
    import polars as pl
    import pyarrow as pa

    payload = io.BytesIO()
    if tags is not None:
        tags.write_ipc_stream(payload)
    output = _query(run, {"sql": sql}, payload.getvalue(), within_s)
    table = pa.ipc.open_stream(pa.py_buffer(output)).read_all()
    try:
        frame = pl.from_arrow(table.rename_columns(distinct(table.column_names)))
    except pl.exceptions.PolarsError as error:  # of INTERVAL
        raise UsageError(f"The SQL failed: cast the column to VARCHAR ({error}).") from None
    assert isinstance(frame, pl.DataFrame)
    return frame


def query_json(run: Path, sql: str, limit: int) -> bytes:
    """Return the first rows of one SELECT or EXPLAIN as JSON, within `LIMIT_S` (`query_frame`)."""
    return _query(run, {"sql": sql, "limit": limit}, b"", LIMIT_S)


def _query(run: Path, request: Mapping[str, Any], payload: bytes, within_s: float | None) -> bytes:
    found = run_version.require(run)
    paths = {"path": str(found.path.absolute()), "findings": str(found.findings.absolute())}
    threads = {"threads": THREADS} if within_s else {}
    try:
        return run_program(__name__, {**request, **paths, **threads}, payload, within_s)
    except ProgramEndedError as error:
        raise UsageError(f"The SQL failed: it {error}") from None


def answer_query(request: Mapping[str, Any], payload: bytes, output: IO[bytes]) -> None:
    """Write the rows of the query that is requested."""
    import pyarrow as pa

    version = RunVersion(Path(request["path"]), Path(request["findings"]))
    tags = pa.ipc.open_stream(payload).read_all() if payload else None
    with (
        run_version.open_for_users(version, tags, request.get("threads")) as store,
        store.user_query(request["sql"]) as reader,
    ):
        if "limit" in request:
            output.write(_first_rows(reader, request["limit"]))
            return
        with pa.ipc.new_stream(output, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)


def _first_rows(reader: pa.RecordBatchReader, limit: int) -> bytes:
    rows, size = list[Any](), 0
    for batch in reader:
        size += batch.nbytes
        if size > MAX_JSON_BYTES:
            raise UsageError(TOO_MUCH)
        try:
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"The SQL failed: cast the column to VARCHAR ({error}).") from None
        if len(rows) > limit:
            break
    found = {
        "columns": distinct(reader.schema.names), "rows": rows[:limit], "cut": len(rows) > limit,
    }  # fmt: skip
    text = json.dumps(finite(found), ensure_ascii=False, allow_nan=False, default=json_value)
    encoded = text.encode()
    if len(encoded) > MAX_JSON_BYTES:
        raise UsageError(TOO_MUCH)
    return encoded


if __name__ == "__main__":
    sys.exit(serve_request(answer_query))
