"""Verify and repair a run: every part against what was recorded when it was written.

Scans and their databases, signatures, the ledger of decisions and its second copy, the thumbnails
of the app. Verifying only reads and takes no lock: beside a scan that publishes at that moment it
may report what is gone a moment later. Repairing holds the run as a scan does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from audit.browse.pictures import FOLDER as THUMBNAILS
from audit.browse.pictures import find_damaged_thumbnails
from audit.decisions.recovery import check_decisions
from audit.decisions.store import DATABASE
from audit.embeddings.vector_parts import VECTORS, list_vector_parts
from audit.errors import RunError
from audit.neighbors.pairs.signature_store import check_signatures, repair_signatures
from audit.run.generations import is_run_folder
from audit.run.healing import DAMAGED, SOUND, CheckedPart, check_scans, repair_scans, set_aside
from audit.run.writer_lock import MARKER, hold_run

SCHEMA = "audit-verify/1"
PARTS = ("CURRENT", "gen-*", "building", "decisions.*", "signatures", "vectors", "lock")


@dataclass(frozen=True, slots=True)
class Verification:
    """The parts of a run as they are now, and what a repair did before that, in sentences."""

    run: Path
    parts: Sequence[CheckedPart]
    repaired: Sequence[str] = ()

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
            "repaired": list(self.repaired),
        }
        return json.dumps(facts, ensure_ascii=False, indent=1)


def verify_run(run: Path) -> Verification:
    """Read every part of a run to its end and say which are damaged.

    Raises RunError where there is no run or a newer version wrote it, OSError where the machine
    cannot read it.
    """
    ours = any((run / name).is_file() for name in (MARKER, DATABASE)) or is_run_folder(run)
    if not ours or not any(True for pattern in PARTS for _ in run.glob(pattern)):
        raise RunError(f"There is no run at {run}: create it with `audit scan SOURCE --out {run}`.")
    n_thumbnails, bad = find_damaged_thumbnails(run)
    vectors = list_vector_parts(run)
    changed = sum(not whole for _, whole in vectors)
    parts = [*check_scans(run), check_signatures(run), *check_decisions(run)]
    if changed:
        said = f"{changed:,} of {len(vectors):,} parts changed since"
        again = "a scan with the same --embedder computes them again"
        parts.insert(-2, CheckedPart(VECTORS, DAMAGED, said, "nothing", again))
    elif vectors:
        parts.insert(-2, CheckedPart(VECTORS, SOUND, f"{len(vectors):,} parts"))
    if bad:
        said = f"{len(bad):,} of {n_thumbnails:,} files"
        parts.append(
            CheckedPart(THUMBNAILS, DAMAGED, said, "nothing", "the app, when it shows them")
        )
    elif n_thumbnails:
        parts.append(CheckedPart(THUMBNAILS, SOUND, f"{n_thumbnails:,} files"))
    return Verification(run, parts)


def repair_run(run: Path, *, lock: bool = True) -> Verification:
    """Repair what can be, and verify again.

    What a scan makes again is moved aside, CURRENT is found again, the ledger and its copy are
    restored from each other; no decision is invented. Raises as `verify_run` does, and LockedError
    where another writer holds the run.
    """
    found = verify_run(run)
    if not found.damaged:
        return found
    with hold_run(run, "repair", enabled=lock):
        done = [*repair_scans(run), *repair_signatures(run)]
        _, bad = find_damaged_thumbnails(run)
        if folders := [path for path in bad if path.is_dir()]:
            set_aside(run, *folders)
        vectors = [path for path, whole in list_vector_parts(run) if not whole]
        done += [f"{len(vectors):,} parts of {VECTORS} removed"] * bool(vectors)
        for path in (*vectors, *bad):
            path.unlink(missing_ok=True)
        done += [f"{len(bad):,} thumbnails removed: the app creates them again"] * bool(bad)
    return Verification(run, verify_run(run).parts, done)
