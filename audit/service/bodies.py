"""Parse JSON from a request: here if it is small, else in a process of its own.

    python -m audit.service.bodies          reads a body from its input (`audit.machine.watched`)

`json` holds the interpreter lock for a whole text, so that a thread would stop the server too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import IO, Any

from audit.errors import UsageError
from audit.machine.watched import ProgramEndedError, run_program, serve_request
from dataset_preflight.foundation.text import text_fault

SMALL_BODY = 1 << 20  # bytes
PARSE_S = 60.0
LONG_TEXT, LONG_OBJECT = 1 << 16, 1000  # characters, entries


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that was sent; raises UsageError for what is none."""
    try:
        found = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("The body is no JSON object: send one.")
    # half a surrogate can only be an escape: other bodies are not searched
    if b"\\ud" in body.lower() and (fault := text_fault(found)):
        raise UsageError(fault)
    return found


def parse_apart(body: bytes) -> dict[str, Any]:
    """Return a JSON object, parsed in another process; large objects of texts become frames.

    Raises UsageError for another document, or one over the limits of time, memory or size.
    """
    import polars as pl

    try:
        output = run_program(__name__, {}, body, PARSE_S)
    except ProgramEndedError as error:
        raise UsageError(f"The body cannot be parsed: it {error}") from None
    head, _, rest = output.partition(b"\n")
    listed = json.loads(head)
    found, start = listed["rest"], 0
    for name, kind, size in listed["parts"]:
        part = rest[start : start + size]
        found[name] = part.decode() if kind == "text" else pl.read_ipc_stream(part)
        start += size
    return dict(found)


def split_body(_: Mapping[str, Any], body: bytes, output: IO[bytes]) -> None:
    """Write the parts of a body, after a line of JSON that lists them."""
    import polars as pl

    rest, parts, blobs = {}, list[tuple[str, str, int]](), list[bytes]()
    for name, value in parse_object(body).items():
        if isinstance(value, str) and len(value) > LONG_TEXT:
            kind, blob = "text", value.encode()
        elif (
            isinstance(value, dict) and len(value) > LONG_OBJECT
            and all(isinstance(one, str) for one in value.values())
        ):  # fmt: skip
            frame = pl.DataFrame({"id": list(value), "value": list(value.values())})
            kind, blob = "object", frame.write_ipc_stream(None).getvalue()
        else:
            rest[name] = value
            continue
        parts.append((name, kind, len(blob)))
        blobs.append(blob)
    head = json.dumps({"rest": rest, "parts": parts}).encode()
    if len(head) > SMALL_BODY:
        raise UsageError(
            f"The body has more than {SMALL_BODY:,} bytes beside texts and objects of texts: "
            "send less."
        )
    output.write(head + b"\n")
    output.writelines(blobs)


if __name__ == "__main__":
    sys.exit(serve_request(split_body))
