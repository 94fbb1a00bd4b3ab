"""Verify a run: read every part but thumbnails to its end, and change nothing.

No lock: a scan that publishes meanwhile can cause a false report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from audit.decisions.recovery import check_decisions
from audit.decisions.store import DATABASE
from audit.embeddings.vector_parts import VECTORS, list_vector_parts
from audit.errors import RunError
from audit.neighbors.pairs.signature_store import check_signatures
from audit.results.history import HISTORY, read_lines
from audit.results.report_data import KEPT_NEEDS
from audit.results.saved_views import FILE as VIEWS
from audit.run.checked_parts import DAMAGED, SOUND, UNFINISHED, CheckedPart, check_versions
from audit.run.run_version import is_run_folder
from audit.run.writer_lock import MARKER
from dataset_preflight.foundation.files import read_regular

SCHEMA = "audit-verify/1"
PARTS = ("CURRENT", "gen-*", "building", "decisions.*", "signatures", "vectors", "lock")
DOCUMENTS = {
    KEPT_NEEDS: ("nothing", "`audit input-study`"),
    VIEWS: ("the saved views of the app", "nobody: delete the file"),
}
"""Small documents beside the versions: what is lost with them, and what makes them again."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The parts of a run as they are now."""

    run: Path
    parts: Sequence[CheckedPart]

    @property
    def damaged(self) -> list[CheckedPart]:
        """The damaged parts."""
        return [part for part in self.parts if part.state == DAMAGED]

    def document(self) -> str:
        """Return it as one JSON document."""
        facts = {
            "schema": SCHEMA,
            "run": str(self.run),
            "sound": not self.damaged,
            "parts": [asdict(part) for part in self.parts],
        }
        return json.dumps(facts, ensure_ascii=False, indent=1)


def verify_run(run: Path) -> Verification:
    """Return the damaged parts of a run; RunError without a readable run, OSError as `open`."""
    ours = any((run / name).is_file() for name in (MARKER, DATABASE)) or is_run_folder(run)
    if not ours or not any(True for pattern in PARTS for _ in run.glob(pattern)):
        raise RunError(f"There is no run at {run}: create it with `audit scan SOURCE --out {run}`.")
    parts = [*check_versions(run), check_signatures(run), *_check_vectors(run)]
    return Verification(run, [*parts, *_check_documents(run), *check_decisions(run)])


def _check_vectors(run: Path) -> Iterator[CheckedPart]:
    vectors = list_vector_parts(run)
    if changed := sum(not whole for _, whole in vectors):
        said = f"{changed:,} of {len(vectors):,} parts changed since"
        again = "a scan with the same --embedder"
        yield CheckedPart(VECTORS, DAMAGED, said, "nothing", again)
    elif vectors:
        yield CheckedPart(VECTORS, SOUND, f"{len(vectors):,} parts")


def _check_documents(run: Path) -> Iterator[CheckedPart]:
    for name, (lost, remade) in DOCUMENTS.items():
        if not (run / name).exists():
            continue
        try:
            json.loads(read_regular(run / name))
            yield CheckedPart(name, SOUND, "a document")
        except (ValueError, RecursionError):
            yield CheckedPart(name, DAMAGED, "it is not a document", lost, remade)
    if (run / HISTORY).exists():
        lines = sum(bool(line.strip()) for line in read_regular(run / HISTORY).split(b"\n"))
        read = len(read_lines(run / HISTORY))
        if cut := lines - read:  # as a killed scan leaves a line
            said = f"{cut:,} of {lines:,} lines cannot be read and are skipped"
            yield CheckedPart(HISTORY, UNFINISHED, said)
        else:
            yield CheckedPart(HISTORY, SOUND, f"{lines:,} lines")
